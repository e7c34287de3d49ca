// One token's way: a row for each depth, with the size of the stream, what the half layer added, and what the head would
// say there. A table, so that it can be read without seeing it.

const widget = explorer({
  name: "One token’s way",
  keys: "← → token, ↑ ↓ depth",
  start: ({ tokens }) => ({ token: Math.max(0, tokens.length - 2), depth: 0 }),

  build({ model, picture, place, move }) {
    const { tokens, writes, likely } = model.get("data");
    const S = tokens.length;
    const W = writes.length;
    const top = likely[0][0].length;
    const [rms, write, cosine, probability, surprise] = arraysOf(
      model.get("numbers"), Float32Array, [(W + 1) * S, W * S, W * S, (W + 1) * S * top, S],
    );
    const longest = Math.max(...rms, ...write);
    Object.assign(place, { token: clamp(place.token, 0, S - 1), depth: clamp(place.depth, 0, W) });

    const words = tokens.map((token, i) => {
      const word = make("button", "lm-token", { type: "button", tabindex: "-1", "aria-label": `token ${i}: ${token}` }, token);
      word.addEventListener("click", () => move({ token: i }));
      return word;
    });
    const heads = ["after", "stream, RMS", "added, RMS", "cosine", "the head would say"];
    const body = make("tbody", "");
    const rows = Array.from({ length: W + 1 }, (_, depth) => {
      const role = depth === 0 ? "ink" : writes[depth - 1].startsWith("attention") ? "attention" : "ffn";
      const cells = heads.map((_, i) => make(i ? "td" : "th", "", i ? {} : { scope: "row" }));
      cells[0].append(make("span", `lm-dot lm-is-${role}`), depth ? writes[depth - 1] : "embedding");
      const row = make("tr", "", {}, ...cells);
      row.addEventListener("click", () => move({ depth }));
      body.append(row);
      return { row, cells, role };
    });
    const head = make("tr", "", {}, ...heads.map((text) => make("th", "", { scope: "col" }, text)));
    const table = make("table", "lm-way", {}, make("caption", "lm-hidden", {}, model.get("data").alt), make("thead", "", {}, head), body);
    const scroll = make("div", "lm-wayscroll", {}, table);
    picture.append(make("div", "lm-tokens", {}, ...words), scroll);

    const bar = (value, role) => {
      const fill = make("span", `lm-bar lm-is-${role}`);
      fill.style.width = `${(46 * value) / longest}%`;
      return [fill, value.toFixed(2)];
    };
    const said = (depth) => likely[depth][place.token].map((token, rank) => [token, probability[(depth * S + place.token) * top + rank]]);

    function draw() {
      words.forEach((word, i) => {
        word.classList.toggle("lm-chosen", i === place.token);
        word.setAttribute("aria-pressed", String(i === place.token));
      });
      rows.forEach(({ row, cells, role }, depth) => {
        row.classList.toggle("lm-chosen", depth === place.depth);
        cells[1].replaceChildren(...bar(rms[depth * S + place.token], "ink"));
        const i = (depth - 1) * S + place.token;
        cells[2].replaceChildren(...(depth ? bar(write[i], role) : []));
        cells[3].textContent = depth ? cosine[i].toFixed(2).replace("-", "−") : "";
        cells[4].replaceChildren(...said(depth).map(([token, chance]) => {
          const guess = make("span", "lm-guess", {}, make("b", "", {}, token), ` ${chance.toFixed(2)}`);
          guess.style.setProperty("--share", chance.toFixed(3));
          return guess;
        }));
      });
      const { row } = rows[place.depth];
      if (scroll.scrollHeight > scroll.clientHeight) scroll.scrollTop = row.offsetTop - scroll.clientHeight / 2;
    }

    return {
      draw,
      words() {
        const where = place.depth ? `After ${writes[place.depth - 1]}` : "At the embedding";
        const guesses = said(place.depth).map(([token, chance]) => `“${token}” ${chance.toFixed(2)}`).join(", ");
        const bits = surprise[place.token];
        const came = Number.isNaN(bits) ? "" : ` What came, “${tokens[place.token + 1]}”, cost the model ${bits.toFixed(2)} bits.`;
        return `${where}, token ${place.token} “${tokens[place.token]}”: RMS ${rms[place.depth * S + place.token].toFixed(2)}; next ${guesses}.${came}`;
      },
      act(key) {
        const steps = { ArrowLeft: ["token", -1], ArrowRight: ["token", 1], ArrowUp: ["depth", -1], ArrowDown: ["depth", 1] };
        const ends = { Home: { token: 0 }, End: { token: S - 1 }, PageUp: { depth: 0 }, PageDown: { depth: W } };
        if (key in steps) {
          const [what, by] = steps[key];
          move({ [what]: clamp(place[what] + by, 0, what === "token" ? S - 1 : W) });
        } else if (key in ends) {
          move(ends[key]);
        }
        return key in steps || key in ends;
      },
    };
  },
});

export default widget;
