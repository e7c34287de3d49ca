// Loss curves of models that train in the kernel. The kernel sends points, the browser draws them; two buttons ask the
// kernel to start and to stop. Curves are told apart by the mark at their end, by dashes and by colour.

const VIEW = { width: 540, height: 380, left: 40, right: 34, top: 24, bottom: 40 };
const CEILING = 10; // bits per byte, where a guess that knows nothing has 8: what lies above is drawn at the edge
const DASHES = ["", "7 4", "2 4", "10 3 2 3"];
const MARK = 15; // pixels between two marks, one above the other

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const within = (value, low, high) => Math.min(high, Math.max(low, value));
const shown = (bits) => bits.toFixed(2);

// Whole bits around what there is.
function limitsOf(curves) {
  const known = curves.flatMap(({ points, held }) => [...points, ...held].map(([, bits]) => Math.min(bits, CEILING)));
  if (!known.length) return [0, CEILING];
  const low = Math.floor(Math.min(...known));
  return [low, Math.max(Math.ceil(Math.max(...known)), low + 1)];
}

// The heights of marks beside the ends of their curves, moved as little as keeps them apart.
function apart(ends) {
  const groups = [];
  [...ends].sort((a, b) => a.y - b.y).forEach((end, i) => {
    let group = { sum: end.y - i * MARK, ends: [end] };
    while (groups.length && groups.at(-1).sum / groups.at(-1).ends.length >= group.sum / group.ends.length) {
      const before = groups.pop();
      group = { sum: before.sum + group.sum, ends: [...before.ends, ...group.ends] };
    }
    groups.push(group);
  });
  let i = 0;
  for (const { sum, ends: members } of groups) {
    for (const end of members) { end.at = sum / members.length + i * MARK; i += 1; }
  }
  const all = groups.flatMap((group) => group.ends);
  all.forEach((end, place) => { // on the picture; these bounds keep what is apart apart
    end.at = within(end.at, VIEW.top + place * MARK, VIEW.height - VIEW.bottom - (all.length - 1 - place) * MARK);
  });
  return all;
}

// Draws all curves into `chart`; the chosen one is heavy, and `step` of it is marked.
function drawCurves(chart, { models, steps }, curves, chosen, place) {
  const [low, high] = limitsOf(curves);
  const width = Math.round(chart.parentElement.clientWidth) || VIEW.width; // letters keep their size at any width
  chart.setAttribute("viewBox", `0 0 ${width} ${VIEW.height}`);
  const right = width - VIEW.right;
  const bottom = VIEW.height - VIEW.bottom;
  const x = (step) => VIEW.left + ((right - VIEW.left) * step) / steps;
  const y = (bits) => bottom - ((bottom - VIEW.top) * (Math.min(bits, CEILING) - low)) / (high - low);
  const grid = svg("g", { class: "lm-grid" });
  for (let bits = low; bits <= high; bits += 1) {
    grid.append(svg("line", { x1: VIEW.left, x2: right, y1: y(bits), y2: y(bits) }));
    grid.append(svg("text", { x: VIEW.left - 8, y: y(bits) + 4, "text-anchor": "end" }, String(bits)));
  }
  for (const step of new Set([0, Math.round(steps / 2), steps])) {
    grid.append(svg("text", { x: x(step), y: bottom + 17, "text-anchor": "middle" }, String(step)));
  }
  grid.append(svg("text", { x: VIEW.left, y: VIEW.top - 10 }, "bits per byte"));
  grid.append(svg("text", { x: right, y: bottom + 34, "text-anchor": "end" }, "training steps"));
  const order = models.map((_, i) => i).sort((a, b) => (a === chosen) - (b === chosen)); // the chosen one on top
  const ends = [];
  const lines = svg("g");
  for (const i of order) {
    const { points, held } = curves[i];
    if (!points.length) continue;
    const curve = svg("g", { class: `lm-curve lm-is-${models[i].role}${i === chosen ? " lm-chosen" : ""}` });
    curve.append(svg("polyline", { points: points.map(([step, bits]) => `${x(step)},${y(bits)}`).join(" "), "stroke-dasharray": DASHES[models[i].dash] }));
    for (const [step, bits] of held) curve.append(svg("circle", { cx: x(step), cy: y(bits), r: 3.5 }));
    lines.append(curve);
    const [step, bits] = points.at(-1);
    ends.push({ i, x: x(step), y: y(bits) });
  }
  for (const end of apart(ends)) {
    const beside = end.x + 12;
    const name = svg("text", { class: end.i === chosen ? "lm-mark lm-chosen" : "lm-mark", x: beside + 3, y: end.at + 4 }, models[end.i].mark);
    lines.append(svg("line", { class: "lm-lead", x1: end.x, y1: end.y, x2: beside, y2: end.at }), name);
  }
  const here = curves[chosen].points[place];
  if (here) lines.append(svg("line", { class: "lm-here", x1: x(here[0]), x2: x(here[0]), y1: VIEW.top, y2: bottom }));
  chart.replaceChildren(grid, lines);
}

// A table of the models: what stands in the picture, for the ear too.
function modelTable(models, choose) {
  const heads = ["", "model", "step", "batch", "held out"];
  const body = make("tbody", "");
  const rows = models.map((model, i) => {
    const dash = svg("svg", { class: `lm-sample lm-is-${model.role}`, viewBox: "0 0 28 8", "aria-hidden": "true" }, svg("line", { x1: 0, x2: 28, y1: 4, y2: 4, "stroke-dasharray": DASHES[model.dash] }));
    const cells = [make("td", "", {}, dash), make("th", "", { scope: "row" }, make("b", "", {}, model.mark), model.mark === model.shown.split(" ")[0] ? ` ${model.name}` : ` ${model.shown}`), make("td"), make("td"), make("td")];
    const row = make("tr", "", {}, ...cells);
    row.addEventListener("click", () => choose(i));
    body.append(row);
    return { row, cells };
  });
  const head = make("tr", "", {}, ...heads.map((text) => make("th", "", { scope: "col" }, text)));
  const caption = make("caption", "lm-hidden", {}, "Models, steps taken, bits per byte of the last batches and of the held-out text");
  return { table: make("table", "lm-models", {}, caption, make("thead", "", {}, head), body), rows };
}

const CAN_START = new Set(["ready", "stopped", "failed"]);
const KEYS = "↑ ↓ model, ← → step. Space: start, stop";

const widget = () => ({
  initialize({ model }) {
    model.send?.({ do: "hello" }); // a kernel may keep a widget's first message until its cells are done: not the Stop
  },

  render({ model, el }) {
    const data = model.get("data");
    const isLive = model.get("live");
    let chosen = 0;
    let place = 0;
    let isByHand = false; // until the reader chooses, the chosen curve is the one that grows
    let asked = "";
    const at = () => model.get("state").at;
    const root = frame(`${data.title}. Arrow keys choose a model and a step, space starts and stops the training.`, (key, event) => {
      if (key === " " || key === "Enter") {
        if (key === "Enter" || event.target.closest("button")) return false; // the button's own click
        ask(at() === "training" ? "stop" : "start");
        return true;
      }
      return act(key);
    });

    const chart = svg("svg", { class: "lm-chart", "aria-hidden": "true" });
    const picture = make("div", "lm-picture", { role: "img", "aria-label": data.alt });
    picture.append(chart);
    const { table, rows } = modelTable(data.models, (i) => choose(i, Infinity));
    const start = make("button", "", { type: "button" }, "Start");
    const stop = make("button", "", { type: "button" }, "Stop");
    const words = make("p", "lm-reading");
    const reading = make("p", "lm-limits");
    const live = liveRegion();
    root.append(
      make("div", "lm-head", {}, make("span", "lm-kicker", {}, data.title), make("span", "lm-keys", {}, KEYS)),
      make("div", "lm-monitor", {}, picture, make("div", "lm-modelscroll", {}, table)),
      make("div", "lm-controls", {}, start, stop, reading),
      words, live,
    );
    el.append(root);

    function ask(what) {
      const can = what === "start" ? CAN_START.has(at()) : at() === "training";
      if (!isLive || !can || asked) return;
      asked = what === "start" ? "The kernel is asked to start …" : "The kernel is asked to stop …";
      model.send({ do: what });
      draw();
    }
    start.addEventListener("click", () => ask("start"));
    stop.addEventListener("click", () => ask("stop"));

    function said() {
      const { points, held } = model.get("curves")[chosen];
      const name = data.models[chosen].shown;
      if (!points.length) return `${name}: no step yet`;
      const [step, bits] = points[place];
      const measured = held.filter(([when]) => when <= step).at(-1);
      return `${name}, step ${step}: batch ${shown(bits)} bits per byte${measured ? `, held out ${shown(measured[1])} at step ${measured[0]}` : ""}`;
    }

    function choose(i, point) {
      isByHand = true;
      chosen = within(i, 0, data.models.length - 1);
      place = within(point, 0, Math.max(0, model.get("curves")[chosen].points.length - 1));
      draw();
      live.textContent = said();
    }

    function act(key) {
      const end = Infinity;
      const moves = {
        ArrowUp: [chosen - 1, end], ArrowDown: [chosen + 1, end], ArrowLeft: [chosen, place - 1], ArrowRight: [chosen, place + 1],
        PageUp: [0, end], PageDown: [data.models.length - 1, end], Home: [chosen, 0], End: [chosen, end],
      };
      if (key in moves) choose(...moves[key]);
      return key in moves;
    }

    function draw() {
      const curves = model.get("curves");
      const state = model.get("state");
      if (!isByHand) {
        chosen = Math.max(0, data.models.findIndex(({ name }) => name === state.current));
        place = Math.max(0, curves[chosen].points.length - 1);
      }
      drawCurves(chart, data, curves, chosen, isByHand ? place : -1);
      rows.forEach(({ row, cells }, i) => {
        const { points, held, taken } = curves[i];
        row.classList.toggle("lm-chosen", i === chosen);
        cells[2].textContent = `${taken}`;
        cells[3].textContent = points.length ? shown(points.at(-1)[1]) : "";
        cells[4].textContent = held.length ? shown(held.at(-1)[1]) : "";
      });
      root.dataset.state = state.at;
      words.textContent = asked || (isLive ? state.words : `${state.words} No kernel here: nothing can be started.`);
      reading.textContent = said();
      start.textContent = state.at === "stopped" ? "Go on" : "Start";
      // Not `disabled`: a button that goes dead under the reader's finger takes the focus with it.
      start.setAttribute("aria-disabled", String(!isLive || Boolean(asked) || !CAN_START.has(state.at)));
      stop.setAttribute("aria-disabled", String(!isLive || Boolean(asked) || state.at !== "training"));
    }

    let spoken = model.get("state").said;
    const told = () => {
      asked = "";
      draw();
      if (model.get("state").said !== spoken) live.textContent = spoken = model.get("state").said;
    };
    const unfollow = followHostTheme(root);
    const resized = new ResizeObserver(draw);
    resized.observe(picture);
    model.on("change:curves", draw);
    model.on("change:state", told);
    return () => {
      model.off("change:curves", draw);
      model.off("change:state", told);
      resized.disconnect();
      unfollow();
    };
  },
});

export default widget;
