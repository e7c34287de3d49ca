// Figure 1 in the browser: the decoder block on the residual stream, drawn from a frame's facts.
//
// Every organ has a place of its own, so an organ that a step leaves alone does not move. What the step changed is
// lit; what it took away stays for this one frame as a dashed outline with its name struck out.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 402;
const HEIGHT = 632;
const STREAM_X = 50;
const BRANCH_X = 186;
const CHIP_X = 334;
const LINE = 16; // distance of two lines of text

// Heights on the stream, in the units of the view box; y grows downwards, the stream flows upwards. A branch leaves
// at `out`, meets its norm and its box, and is added back at `add`; the norm of 2017 stands at `after`.
const SUBLAYERS = {
  attention: { out: 518, norm: 486, box: 420, add: 358, after: 322 },
  feed_forward: { out: 288, norm: 256, box: 190, add: 128, after: 92 },
};

// Centre and size of every place that does not depend on the placement of the norms.
const onBranch = (y) => ({ x: BRANCH_X, y, w: 156, h: 82 });
const beside = (y, h = 46) => ({ x: CHIP_X, y, w: 128, h, chip: true });
const PLACES = {
  embedding: { x: STREAM_X + 4, y: 614, w: 100, h: 30 },
  "position.added": { x: BRANCH_X + 20, y: 570, w: 212, h: 44 },
  attention: onBranch(SUBLAYERS.attention.box),
  "attention.bias": beside(466),
  "attention.rope": beside(466), // biases left a step before RoPE came
  "attention.qk_norm": beside(414),
  "attention.mask": beside(338, 92),
  feed_forward: onBranch(SUBLAYERS.feed_forward.box),
  "feed_forward.bias": beside(236),
  "feed_forward.router": beside(236), // likewise
  "feed_forward.balance": beside(184),
  "feed_forward.shared": beside(132),
  final_norm: { x: STREAM_X + 4, y: 40, w: 100, h: 30 },
};

function element(parent, name, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  parent.append(node);
  return node;
}

// Lines of at most `width` units at `size`; letters of a sans face are about 0.55 em wide on average.
export function wrap(text, width, size) {
  const limit = Math.max(4, Math.floor(width / (0.55 * size)));
  const lines = [""];
  for (const word of String(text).split(" ")) {
    const last = lines[lines.length - 1];
    if (last && last.length + 1 + word.length > limit) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines;
}

// Where an organ stands; null for a key without a place.
export function placeOf(key, placement) {
  const [owner, part] = key.split(".");
  if (part === "norm" && SUBLAYERS[owner]) {
    const { norm, after } = SUBLAYERS[owner];
    return placement === "post"
      ? { x: STREAM_X + 4, y: after, w: 100, h: 30 }
      : { x: BRANCH_X, y: norm, w: 128, h: 30 };
  }
  return PLACES[key] ?? null;
}

// Organs of the frame before that are gone now, or that left their place.
export function departed(facts, before) {
  if (!before) return [];
  const now = new Set(facts.organs.map((organ) => organ.key));
  return before.organs.filter(({ key }) => {
    const from = placeOf(key, before.placement);
    const to = placeOf(key, facts.placement);
    return !now.has(key) || (from && (from.x !== to.x || from.y !== to.y));
  });
}

function drawSum(svg, y) {
  element(svg, "circle", { class: "lm-sum", cx: STREAM_X, cy: y, r: 11 });
  element(svg, "path", { class: "lm-plus", d: `M ${STREAM_X - 6} ${y} h 12 M ${STREAM_X} ${y - 6} v 12` });
}

function drawArrow(svg, path, y) {
  element(svg, "path", { class: "lm-wire", d: `${path} H ${STREAM_X + 22}` });
  element(svg, "path", { class: "lm-wire-tip", d: `M ${STREAM_X + 24} ${y - 5} L ${STREAM_X + 13} ${y} L ${STREAM_X + 24} ${y + 5} Z` });
  drawSum(svg, y);
}

function drawStream(svg) {
  element(svg, "rect", { class: "lm-block", x: 1, y: 66, width: 400, height: 472, rx: 14 });
  element(svg, "path", { class: "lm-stream", d: `M ${STREAM_X} 600 V 22` });
  element(svg, "path", { class: "lm-tip", d: `M ${STREAM_X - 8} 20 L ${STREAM_X} 4 L ${STREAM_X + 8} 20 Z` });
  const small = { class: "lm-small lm-muted" };
  element(svg, "text", { ...small, x: STREAM_X + 20, y: 18 }, "to the next-token logits");
  element(svg, "text", { ...small, x: 390, y: 528, "text-anchor": "end" }, "one layer of the stack");
  const along = `translate(${STREAM_X - 14} 438) rotate(-90)`;
  element(svg, "text", { ...small, "text-anchor": "middle", transform: along }, "residual stream");
  for (const { out, add } of Object.values(SUBLAYERS)) {
    drawArrow(svg, `M ${STREAM_X} ${out} H ${BRANCH_X} V ${add}`, add);
  }
}

// One small picture a layer of the period: the whole past, a window of it, or a state of fixed size.
function drawLayers(group, place, layers) {
  const side = 19;
  const gap = 6;
  const left = place.x - (layers.length * (side + gap) - gap) / 2;
  const top = place.y + place.h / 2 - side - 7;
  layers.forEach((kind, i) => {
    const x = left + i * (side + gap);
    element(group, "rect", { class: "lm-tile", x, y: top, width: side, height: side, rx: 2 });
    const shapes = {
      full: `M ${x} ${top} L ${x + side} ${top + side} H ${x} Z`,
      window: `M ${x} ${top} L ${x + side} ${top + side} H ${x + side - 7} L ${x} ${top + 7} Z`,
      state: `M ${x + 6} ${top + 6} h 7 v 7 h -7 Z`,
    };
    element(group, "path", { class: "lm-tile-fill", "data-layer": kind, d: shapes[kind] });
  });
}

// One tile an expert, the share that a token uses filled.
function drawExperts(group, place, { experts, chosen }) {
  const columns = Math.min(experts, 16);
  const rows = Math.ceil(experts / columns);
  const pitch = rows > 1 ? 9 : 17;
  const side = pitch - 2;
  const left = place.x - (columns * pitch - 2) / 2;
  const top = place.y + place.h / 2 - rows * pitch - 6;
  const filled = new Set(Array.from({ length: chosen }, (_, i) => Math.floor(((i + 0.5) * experts) / chosen)));
  for (let i = 0; i < experts; i += 1) {
    const x = left + (i % columns) * pitch;
    const y = top + Math.floor(i / columns) * pitch;
    element(group, "rect", { class: filled.has(i) ? "lm-tile lm-tile-fill" : "lm-tile", x, y, width: side, height: side, rx: 1 });
  }
}

function drawOrgan(svg, organ, place, { lit = false, ghost = false } = {}) {
  const group = element(svg, "g", {
    class: `lm-organ${lit ? " lm-lit" : ""}${ghost ? " lm-ghost" : ""}`,
    "data-key": organ.key,
    style: `--role: var(--lm-${organ.role})`,
  });
  const box = { x: place.x - place.w / 2, y: place.y - place.h / 2, width: place.w, height: place.h, rx: 7 };
  if (lit) element(group, "rect", { class: "lm-halo", ...box });
  element(group, "rect", { class: "lm-box", ...box });

  const { layers, experts, chosen } = organ.data ?? {};
  const picture = !ghost && (layers || (experts && chosen));
  const height = picture ? place.h - 28 : place.h;
  const label = wrap(organ.label, place.w - 8, place.chip ? 13 : 14);
  const room = Math.floor((height - 4) / LINE) - label.length;
  const detail = organ.detail && room > 0 && !ghost ? wrap(organ.detail, place.w - 8, 12.5).slice(0, room) : [];
  [...label, ...detail].forEach((text, i, lines) => {
    const y = place.y - (place.h - height) / 2 + (i - (lines.length - 1) / 2) * LINE + 4.5;
    const kind = i >= label.length ? "lm-detail" : place.chip ? "lm-label lm-label-small" : "lm-label";
    element(group, "text", { class: kind, x: place.x, y, "text-anchor": "middle" }, text);
  });
  if (picture && layers) drawLayers(group, place, layers);
  else if (picture) drawExperts(group, place, { experts, chosen });
}

export function drawMorph(svg, facts, before) {
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.replaceChildren();
  drawStream(svg);
  drawOrgan(svg, { key: "embedding", role: "ink", label: "Embedding" }, PLACES.embedding);
  for (const organ of departed(facts, before)) {
    const place = placeOf(organ.key, before.placement);
    if (place) drawOrgan(svg, organ, place, { ghost: true });
  }
  const changed = new Set(facts.changed);
  for (const organ of facts.organs) {
    const place = placeOf(organ.key, facts.placement);
    if (!place) continue;
    if (organ.key === "position.added") drawArrow(svg, `M ${place.x} ${place.y}`, place.y);
    drawOrgan(svg, organ, place, { lit: changed.has(organ.key) });
  }
}
