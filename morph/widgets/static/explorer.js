// What the explorers share: the chrome around them, the reader's text, a place (which layer, which token) that keys move,
// and the arrays of one text. An explorer is { name, keys, start, draw }; see attention.js for the shortest.

// Numbers of `type` from the widget's bytes, one array for each length given.
function arraysOf(view, type, lengths) {
  let offset = view.byteOffset;
  return lengths.map((length) => {
    const part = new type(view.buffer.slice(offset, offset + length * type.BYTES_PER_ELEMENT));
    offset += length * type.BYTES_PER_ELEMENT;
    return part;
  });
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

function textForm(model, say) {
  const input = make("input", "lm-text", { type: "text", maxlength: String(model.get("data").letters), "aria-label": "Text to read", spellcheck: "false", autocomplete: "off" });
  const button = make("button", "", { type: "submit" }, "Read");
  const form = make("form", "lm-form", {}, input, button);
  const state = make("span", "lm-state", { role: "status" });
  form.append(state);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value === model.get("text")) return;
    state.textContent = "Reading …";
    model.set("text", input.value);
    model.save_changes();
  });
  form.addEventListener("keydown", (event) => event.stopPropagation()); // letters are letters in here
  const isLive = model.get("live");
  for (const control of [input, button]) control.disabled = !isLive;
  const update = () => {
    if (document.activeElement !== input) input.value = model.get("text");
    state.textContent = isLive ? model.get("problem") : "One recorded reading: another text needs the notebook";
  };
  input.value = model.get("text");
  return { form, update };
}

// Builds the factory of a widget.
function explorer({ name, keys, start, build }) {
  return () => ({
    render({ model, el }) {
      const label = () => `${name}: ${model.get("data").model}. ${keys}`;
      let view = null;
      const root = frame(label(), (key) => view.act(key));
      const head = make("span", "lm-kicker");
      const reading = make("p", "lm-reading");
      const live = liveRegion();
      const picture = make("div", "lm-explored");
      const { form, update } = textForm(model);
      root.append(
        make("div", "lm-head", {}, head, make("span", "lm-keys", {}, keys)),
        form, picture, reading, live,
      );
      el.append(root);

      // Colours come from the page's style: what a host has not put on its page yet is drawn as soon as it has.
      const arrival = new ResizeObserver(() => {
        if (!root.isConnected) return;
        arrival.disconnect();
        view.draw();
      });
      const draw = () => (root.isConnected ? view.draw() : arrival.observe(root));

      const place = { ...start(model.get("data")), ...model.get("place") };
      const move = (changes, byUser = true) => {
        Object.assign(place, changes);
        draw();
        reading.textContent = view.words();
        if (!byUser) return; // a passing pointer is neither spoken nor told to the kernel
        live.textContent = view.words();
        model.set("place", { ...place });
        model.save_changes();
      };
      const renew = () => {
        head.textContent = `${name} · ${model.get("data").model}`;
        root.setAttribute("aria-label", label());
        picture.replaceChildren();
        for (const [key, value] of Object.entries(start(model.get("data")))) {
          if (typeof value === "number" && !(key in place)) place[key] = value;
        }
        view = build({ model, picture, place, move, root });
        draw();
        reading.textContent = view.words();
        update();
      };
      // Data and numbers arrive one after the other: drawn once, when both are there.
      let waiting = false;
      const soon = () => {
        if (waiting) return;
        waiting = true;
        queueMicrotask(() => { waiting = false; renew(); });
      };
      const unfollow = followHostTheme(root, () => { if (view) draw(); });
      renew();
      model.on("change:data", soon);
      model.on("change:numbers", soon);
      model.on("change:problem", update);
      return () => {
        model.off("change:data", soon);
        model.off("change:numbers", soon);
        model.off("change:problem", update);
        unfollow();
        arrival.disconnect();
      };
    },
  });
}
