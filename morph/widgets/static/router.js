// Experts (rows) against tokens (columns) in one layer: a chosen cell is filled by its weight. Right of it, how often each
// expert was chosen.

const widget = explorer({
  name: "Experts",
  keys: "← → token, ↑ ↓ expert. Page up, down: layer",
  start: () => ({ layer: 0, token: 0, expert: 0 }),

  build({ model, picture, place, move, root }) {
    const { tokens, layers, n_experts: E, top_k: k } = model.get("data");
    const S = tokens.length;
    const L = layers.length;
    const [weights, probabilities] = arraysOf(model.get("numbers"), Float32Array, [L * S * E, L * S * E]);
    const at = (array, token, expert) => array[(place.layer * S + token) * E + expert];
    Object.assign(place, { layer: clamp(place.layer, 0, L - 1), token: clamp(place.token, 0, S - 1), expert: clamp(place.expert, 0, E - 1) });
    const most = Math.max(...weights);

    const tabs = layers.map((layer, i) => {
      const tab = make("button", "", { type: "button" }, `layer ${layer}`);
      tab.addEventListener("click", () => move({ layer: i }));
      return tab;
    });
    const grid = gridMap(E, S, (expert, token, byUser) => {
      if (expert !== place.expert || token !== place.token) move({ expert, token }, byUser);
    });
    grid.canvas.setAttribute("role", "img");
    grid.canvas.setAttribute("aria-label", model.get("data").alt);
    const loads = make("div", "lm-loads", { "aria-hidden": "true" });
    const words = tokens.map((token, i) => {
      const word = make("span", "lm-token", { title: `token ${i}` }, token);
      word.addEventListener("click", () => move({ token: i }));
      return word;
    });
    const row = make("div", `lm-tokens ${S <= 48 && tokens.every((token) => token.length <= 2) ? "lm-under" : ""}`, { "aria-hidden": "true" }, ...words);
    row.style.setProperty("--columns", S);
    const limits = make("p", "lm-limits", {}, `A row an expert (0 to ${E - 1}), a column a token; colour from 0 to ${most.toFixed(2)}, the weight of a chosen expert. Right: how often each was chosen.`);
    picture.append(
      make("div", "lm-tabs", { role: "group", "aria-label": "Layers" }, ...tabs),
      make("div", "lm-routed", {}, grid.holder, loads, row),
      limits,
    );

    const chosen = (token) => Array.from({ length: E }, (_, expert) => expert)
      .filter((expert) => at(weights, token, expert) > 0)
      .sort((a, b) => at(weights, token, b) - at(weights, token, a));

    function draw() {
      const colour = ramp(root, "ffn");
      const panel = rgbOf(root, "--lm-panel");
      paint(grid.canvas, E, S, (expert, token) => {
        const weight = at(weights, token, expert);
        return weight > 0 ? colour(0.25 + (0.75 * weight) / most) : panel;
      });
      grid.point(place.expert, place.token);
      const counts = Array.from({ length: E }, (_, expert) => tokens.filter((_, token) => at(weights, token, expert) > 0).length);
      const fullest = Math.max(...counts, 1);
      loads.replaceChildren(...counts.map((count, expert) => {
        const bar = make("span", "lm-load", { title: `expert ${expert}: ${count}` });
        bar.style.width = `${(100 * count) / fullest}%`;
        bar.classList.toggle("lm-chosen", expert === place.expert);
        return bar;
      }));
      tabs.forEach((tab, i) => tab.setAttribute("aria-pressed", String(i === place.layer)));
      words.forEach((word, i) => {
        word.style.setProperty("--share", Math.min(1, at(weights, i, place.expert) / most).toFixed(3));
        word.classList.toggle("lm-chosen", i === place.token);
      });
    }

    return {
      draw,
      words() {
        const weight = at(weights, place.token, place.expert);
        const chance = at(probabilities, place.token, place.expert).toFixed(3);
        const verdict = weight > 0 ? `chosen, weight ${weight.toFixed(2)}` : "not chosen";
        const others = chosen(place.token).map((expert) => `${expert} (${at(weights, place.token, expert).toFixed(2)})`).join(", ");
        return `Layer ${layers[place.layer]}, token ${place.token} “${tokens[place.token]}”, expert ${place.expert}: ${verdict}, router probability ${chance}. Its ${k}: ${others}.`;
      },
      act(key) {
        const steps = { ArrowLeft: ["token", -1], ArrowRight: ["token", 1], ArrowUp: ["expert", -1], ArrowDown: ["expert", 1] };
        const ends = { Home: { token: 0 }, End: { token: S - 1 } };
        const turn = { PageUp: -1, PageDown: 1 }[key];
        if (key in steps) {
          const [what, by] = steps[key];
          move({ [what]: clamp(place[what] + by, 0, what === "token" ? S - 1 : E - 1) });
        } else if (key in ends) {
          move(ends[key]);
        } else if (turn) {
          move({ layer: (place.layer + turn + L) % L });
        }
        return key in steps || key in ends || Boolean(turn);
      },
    };
  },
});

export default widget;
