// Attention maps: a small one for each layer and head to choose from, the chosen one large, and the text itself shaded by
// what the chosen token looks at.

const HIDDEN = 65535; // out of sight

const widget = explorer({
  name: "Attention",
  keys: "Arrows: cell. Page up, down: head",
  start: ({ tokens }) => ({ map: 0, query: tokens.length - 1, key: 0 }),

  build({ model, picture, place, move, root }) {
    const { tokens, layers, heads, n_heads: nHeads, missing } = model.get("data");
    const S = tokens.length;
    const count = layers.length * nHeads;
    const [weights] = arraysOf(model.get("numbers"), Uint16Array, [count * S * S]);
    const at = (map, query, key) => weights[(map * S + query) * S + key];
    const isThere = (map) => map % nHeads < heads[Math.floor(map / nHeads)]; // layers may differ in heads
    const nameOf = (map) => `layer ${layers[Math.floor(map / nHeads)]}, head ${map % nHeads}`;
    const largest = Array.from({ length: count }, (_, map) => {
      let most = 1;
      for (let i = map * S * S; i < (map + 1) * S * S; i += 1) if (weights[i] !== HIDDEN) most = Math.max(most, weights[i]);
      return most;
    });
    Object.assign(place, { map: isThere(clamp(place.map, 0, count - 1)) ? clamp(place.map, 0, count - 1) : 0, query: clamp(place.query, 0, S - 1) });
    place.key = nearest(place.map, place.query, place.key);

    const go = (query, key, byUser) => {
      const seen = at(place.map, query, key) !== HIDDEN;
      if (seen && (query !== place.query || key !== place.key)) move({ query, key }, byUser);
    };
    const small = Array.from({ length: count }, (_, map) => {
      const canvas = make("canvas", "lm-small");
      const button = make("button", "lm-thumb", { type: "button", "aria-label": nameOf(map), title: nameOf(map) }, canvas);
      button.addEventListener("click", () => move({ map, key: nearest(map, place.query, place.key) }));
      if (!isThere(map)) button.style.visibility = "hidden";
      return { canvas, button };
    });
    const thumbs = make("div", nHeads > 12 ? "lm-thumbs lm-many" : "lm-thumbs", { role: "group", "aria-label": "Layers (down) and heads (across)" }, ...small.map((s) => s.button));
    thumbs.style.setProperty("--heads", nHeads);
    const grid = gridMap(S, S, go);
    grid.canvas.setAttribute("role", "img");
    grid.canvas.setAttribute("aria-label", model.get("data").alt);
    const limits = make("p", "lm-limits");
    const words = tokens.map((token, i) => {
      const word = make("span", "lm-token", { title: `token ${i}` }, token);
      word.addEventListener("pointerenter", () => go(place.query, i, false));
      word.addEventListener("click", () => move({ query: i, key: nearest(place.map, i, place.key) }));
      return word;
    });
    const choice = make(
      "div", "", {},
      thumbs,
      make("p", "lm-limits", {}, `A row a layer, a column a head. ${missing}`),
      make("div", "lm-tokens", { "aria-hidden": "true" }, ...words),
      make("p", "lm-limits", {}, "Bars: what the shaded token looks at in the chosen map."),
    );
    picture.append(make("div", "lm-beside", {}, choice, make("div", "lm-large", {}, grid.holder, limits)));

    // The key nearest to one wanted that the query sees in this map.
    function nearest(map, query, wanted) {
      for (let key = clamp(wanted, 0, query); key <= query; key += 1) if (at(map, query, key) !== HIDDEN) return key;
      return query;
    }

    function draw() {
      const colour = ramp(root, "attention");
      const panel = rgbOf(root, "--lm-panel");
      const shade = (map) => (query, key) => {
        const value = at(map, query, key);
        return value === HIDDEN ? panel : colour(value / largest[map]);
      };
      small.forEach(({ canvas, button }, map) => {
        if (canvas.dataset.theme !== root.dataset.theme) paint(canvas, S, S, shade(map));
        canvas.dataset.theme = root.dataset.theme;
        button.setAttribute("aria-pressed", String(map === place.map));
      });
      paint(grid.canvas, S, S, shade(place.map));
      grid.point(place.query, place.key);
      limits.textContent = `${nameOf(place.map)}: a row looks, a column is looked at. Colour from 0 to ${(largest[place.map] / (HIDDEN - 1)).toFixed(2)}, grey is out of sight.`;
      words.forEach((word, i) => {
        const value = i <= place.query ? at(place.map, place.query, i) : HIDDEN;
        const share = value === HIDDEN ? 0 : value / (HIDDEN - 1);
        word.style.setProperty("--share", share.toFixed(4));
        word.classList.toggle("lm-unseen", value === HIDDEN);
        word.classList.toggle("lm-query", i === place.query);
        word.classList.toggle("lm-chosen", i === place.key);
      });
    }

    return {
      draw,
      words() {
        const weight = at(place.map, place.query, place.key) / (HIDDEN - 1);
        return `${nameOf(place.map)}: “${tokens[place.query]}” (${place.query}) looks at “${tokens[place.key]}” (${place.key}) with weight ${weight.toFixed(3)}`;
      },
      act(key) {
        const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
        if (key in steps) {
          const query = clamp(place.query + steps[key][0], 0, S - 1);
          const wanted = clamp(place.key + steps[key][1], 0, query);
          if (at(place.map, query, wanted) !== HIDDEN) move({ query, key: wanted });
          else if (steps[key][0]) move({ query, key: nearest(place.map, query, wanted) });
          return true;
        }
        const turn = { PageUp: -1, PageDown: 1 }[key];
        if (turn) {
          let map = (place.map + turn + count) % count;
          while (!isThere(map)) map = (map + turn + count) % count;
          move({ map, key: nearest(map, place.query, place.key) });
          return true;
        }
        if (key === "Home") move({ key: nearest(place.map, place.query, 0) });
        if (key === "End") move({ key: place.query });
        return key === "Home" || key === "End";
      },
    };
  },
});

export default widget;
