// The chrome around a stepped figure: header, picture, ledger, caption, controls, keys, theme, screen-reader words.
// One player per model, made by the factory below, however many views show it; a view draws and forwards input.

const DRAWINGS = { morph: drawMorph };

function make(tag, className, attributes = {}, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const pad = (number) => String(number).padStart(2, "0");

// The theme that the page around the figure shows; the reader's system decides only where no host says anything.
function hostIsDark() {
  const root = document.documentElement;
  const body = document.body;
  if (body.dataset.jpThemeLight !== undefined) return body.dataset.jpThemeLight === "false";
  if (body.matches(".vscode-dark, .vscode-high-contrast:not(.vscode-high-contrast-light)")) return true;
  if (body.matches(".vscode-light, .vscode-high-contrast-light")) return false;
  for (const name of ["theme", "data-theme"]) {
    const value = root.getAttribute(name) ?? body.getAttribute(name);
    if (value === "dark" || value === "light") return value === "dark";
  }
  if (root.matches(".dark") || body.matches(".dark, .dark-theme")) return true;
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function followHostTheme(root) {
  const apply = () => { root.dataset.theme = hostIsDark() ? "dark" : "light"; };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(apply);
  for (const host of [document.documentElement, document.body]) observer.observe(host, { attributes: true });
  system.addEventListener("change", apply);
  apply();
  return () => { observer.disconnect(); system.removeEventListener("change", apply); };
}

function ledgerRow(entry, before) {
  const row = make("tr", entry.changed ? "lm-changed" : "");
  const name = make("th", "", { scope: "row" }, entry.label);
  if (entry.changed) name.append(make("span", "lm-hidden", {}, " (changed)"));
  const value = make("td", "", {}, make("span", "lm-value", {}, String(entry.value)));
  if (entry.changed && before && before.value !== entry.value) {
    value.append(make("span", "lm-was", {}, `was ${before.value}`));
  }
  if (entry.note) value.append(make("span", "lm-note", {}, entry.note));
  row.append(name, value);
  return row;
}

function section(title, ...content) {
  return make("div", "lm-section", {}, make("h4", "", {}, title), ...content);
}

function drawSide(side, frame, before) {
  const { facts } = frame;
  const previous = new Map((before?.facts.ledger ?? []).map((entry) => [entry.key, entry]));
  const rows = make("tbody", "");
  for (const entry of facts.ledger ?? []) rows.append(ledgerRow(entry, previous.get(entry.key)));
  const ledger = make("table", "lm-ledger", {}, make("caption", "", {}, "The model after this step"), rows);
  const config = make("code", "", {}, (facts.config_lines ?? []).join("\n"));
  side.replaceChildren(ledger, section("What changed in its config", config));
  if (facts.pressure) side.append(section("The pressure behind it", make("p", "", {}, facts.pressure)));
  if (facts.relation) side.append(section("What ties it to the stage before", make("p", "", {}, facts.relation)));
}

function drawFrame(parts, figure, index) {
  const frame = figure.frames[index];
  const before = index > 0 ? figure.frames[index - 1] : figure.opening;
  const facts = frame.facts;
  parts.counter.textContent = `${pad(index + 1)} / ${pad(figure.frames.length)}`;
  parts.title.textContent = frame.title;
  parts.year.textContent = facts.year ? String(facts.year) : "";
  DRAWINGS[figure.name](parts.picture, facts, before?.facts ?? null);
  parts.picture.setAttribute("aria-label", frame.alt);
  drawSide(parts.side, frame, before);
  parts.caption.textContent = frame.caption;
  parts.source.textContent = frame.source ?? "";
  parts.range.value = String(index);
  parts.range.setAttribute("aria-valuetext", `Frame ${index + 1} of ${figure.frames.length}: ${frame.title}`);
}

const STATE_WORDS = { stopped: "", playing: "Playing", paused: "Paused while you step" };

function drawState(parts, root, state) {
  const running = state !== STOPPED;
  root.dataset.state = state;
  parts.play.textContent = running ? "Stop" : "Play";
  parts.play.setAttribute("aria-label", running ? "Stop autoplay" : "Start autoplay");
  parts.play.title = `${running ? "Stop" : "Start"} autoplay (space)`;
  parts.state.textContent = STATE_WORDS[state];
}

function buildChrome(el, figure) {
  const kicker = `Figure ${figure.number} · ${figure.title}`;
  const root = make("div", "lm-figure", {
    role: "group",
    tabindex: "0",
    "aria-label": `${kicker}. Arrow keys step, Home and End jump, space starts and stops autoplay.`,
    "data-lm-suppress-shortcuts": "true",
  });
  const parts = {
    counter: make("span", "lm-counter"),
    title: make("h3", "lm-title"),
    year: make("span", "lm-year"),
    picture: document.createElementNS("http://www.w3.org/2000/svg", "svg"),
    side: make("div", "lm-side"),
    caption: make("p", "lm-caption"),
    source: make("p", "lm-source"),
    previous: make("button", "", { type: "button", "aria-label": "Previous frame", title: "Previous frame (left arrow)" }, "◀"),
    play: make("button", "lm-play", { type: "button" }),
    next: make("button", "", { type: "button", "aria-label": "Next frame", title: "Next frame (right arrow)" }, "▶"),
    range: make("input", "lm-range", { type: "range", min: "0", max: String(figure.frames.length - 1), step: "1", "aria-label": "Frame" }),
    state: make("span", "lm-state"),
    live: make("div", "lm-hidden", { "aria-live": "polite", role: "status" }),
  };
  parts.picture.setAttribute("class", "lm-picture");
  parts.picture.setAttribute("role", "img");
  root.append(make(
    "div", "lm-grid", {},
    make("div", "lm-head", {}, make("span", "lm-kicker", {}, kicker), parts.counter),
    make("div", "lm-heading", {}, parts.title, parts.year),
    parts.picture,
    parts.caption,
    make("div", "lm-controls", {}, parts.previous, parts.play, parts.next, parts.range, parts.state),
    parts.side,
    parts.source,
    parts.live,
  ));
  el.append(root);
  return { root, parts };
}

function connect(root, parts, player) {
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation(); // notebook shortcuts such as `b` or `x` must not act on cells from in here
    const action = actionFor(event.key);
    if (!action) return;
    if (event.key === " " && event.target.closest("button")) return; // the button's own click
    event.preventDefault();
    player[action]();
  });
  parts.previous.addEventListener("click", () => player.previous());
  parts.next.addEventListener("click", () => player.next());
  parts.play.addEventListener("click", () => player.toggle());
  parts.range.addEventListener("input", () => player.go(Number(parts.range.value)));
  parts.picture.addEventListener("pointerdown", () => player.touch());
}

const widget = () => {
  const views = new Set();
  let player = null;

  function playerFor(model) {
    player ??= makePlayer({
      count: () => model.get("figure").frames.length,
      index: () => model.get("index"),
      interval: () => model.get("interval"),
      idle: () => 1000 * model.get("idle"),
      show: (index, byUser) => {
        model.set("index", index);
        model.save_changes();
        if (byUser) for (const view of views) view.say(index);
      },
      changed: (state) => { for (const view of views) view.state(state); },
    });
    return player;
  }

  return {
    initialize({ model }) {
      playerFor(model).hold();
      const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
      if (model.get("autoplay") && !reduced) player.play();
    },

    render({ model, el }) {
      playerFor(model);
      const figure = model.get("figure");
      const { root, parts } = buildChrome(el, figure);
      const draw = () => drawFrame(parts, figure, model.get("index"));
      const view = {
        state: (state) => drawState(parts, root, state),
        say: (index) => {
          const frame = figure.frames[index];
          parts.live.textContent = `${index + 1} of ${figure.frames.length}. ${frame.title}. ${frame.caption}`;
        },
      };
      const unfollow = followHostTheme(root);
      connect(root, parts, player);
      draw();
      view.state(player.state);
      model.on("change:index", draw);
      views.add(view);
      player.release();
      return () => {
        views.delete(view);
        model.off("change:index", draw);
        unfollow();
        if (views.size === 0) player.hold();
      };
    },
  };
};

export default widget;
