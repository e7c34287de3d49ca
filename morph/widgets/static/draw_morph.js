// Figure 1 in the browser: the decoder block on the residual stream, drawn from a frame's facts.
//
// Every organ has a place of its own, so an organ that a step leaves alone does not move. What the step changed is
// lit; what it took away stays for this one frame as a dashed outline with its name struck out.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 400;
const HEIGHT = 628;
const STREAM_X = 62;
const BRANCH_X = 200;
const CHIP_X = 340;

// Centre and size of every place, in the units of the view box; y grows downwards, the stream flows upwards.
const PLACES = {
  embedding: { x: STREAM_X, y: 610, w: 112, h: 30 },
  "position.added": { x: BRANCH_X + 24, y: 566, w: 208, h: 44 },
  final_norm: { x: STREAM_X, y: 44, w: 112, h: 32 },
};
const SUBLAYERS = {
  attention: { out: 514, norm: 482, box: 420, add: 363, after: 326 },
  feed_forward: { out: 290, norm: 258, box: 196, add: 139, after: 102 },
};

// Side organs of a sublayer, bottom to top; a key that is not listed takes the next free row.
const ROWS = {
  attention: ["attention.rope", "attention.qk_norm", "attention.mask"],
  feed_forward: ["feed_forward.router", "feed_forward.shared", "feed_forward.balance"],
};
const ROW_HEIGHT = 54;
const LINE = 16;

function element(parent, name, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  parent.append(node);
  return node;
}

// Lines of at most `width` units at `size`; letters of a sans face are about 0.55 em wide on average.
function wrap(text, width, size) {
  const limit = Math.max(4, Math.floor(width / (0.55 * size)));
  const lines = [""];
  for (const word of String(text).split(" ")) {
    const last = lines[lines.length - 1];
    if (last && last.length + 1 + word.length > limit) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines;
}

// Where an organ stands: on the stream, on a branch, or beside the sublayer that it belongs to.
export function placeOf(key, placement, strangers = []) {
  if (PLACES[key]) return { ...PLACES[key], kind: "box" };
  const [owner, part] = key.split(".");
  const sublayer = SUBLAYERS[owner];
  if (!sublayer) return null;
  if (!part) return { x: BRANCH_X, y: sublayer.box, w: 160, h: 66, kind: "box" };
  if (part === "norm") {
    return placement === "post"
      ? { x: STREAM_X, y: sublayer.after, w: 112, h: 32, kind: "box" }
      : { x: BRANCH_X, y: sublayer.norm, w: 132, h: 32, kind: "box" };
  }
  const known = ROWS[owner].indexOf(key);
  const row = known >= 0 ? known : ROWS[owner].length + strangers.indexOf(key);
  return { x: CHIP_X, y: sublayer.box + ROW_HEIGHT * (0.75 - row), w: 108, h: 48, kind: "chip" };
}

function drawWires(svg, facts) {
  element(svg, "rect", { class: "lm-block", x: 2, y: 76, width: 396, height: 458, rx: 14 });
  element(svg, "text", { class: "lm-small lm-muted", x: 388, y: 524, "text-anchor": "end" }, "one layer of the stack");
  element(svg, "path", { class: "lm-stream", d: `M ${STREAM_X} 596 V 22` });
  element(svg, "path", { class: "lm-tip", d: `M ${STREAM_X - 8} 23 L ${STREAM_X} 7 L ${STREAM_X + 8} 23 Z` });
  element(svg, "text", { class: "lm-small lm-muted", x: STREAM_X + 20, y: 20 }, "to the next-token logits");
  const along = `translate(${STREAM_X - 14} 438) rotate(-90)`;
  element(svg, "text", { class: "lm-small lm-muted", "text-anchor": "middle", transform: along }, "residual stream");
  for (const { out, add } of Object.values(SUBLAYERS)) {
    element(svg, "path", { class: "lm-wire", d: `M ${STREAM_X} ${out} H ${BRANCH_X} V ${add} H ${STREAM_X + 22}` });
    element(svg, "path", { class: "lm-wire-tip", d: `M ${STREAM_X + 24} ${add - 5} L ${STREAM_X + 13} ${add} L ${STREAM_X + 24} ${add + 5} Z` });
    drawSum(svg, add);
  }
}

function drawSum(svg, y) {
  element(svg, "circle", { class: "lm-sum", cx: STREAM_X, cy: y, r: 11 });
  element(svg, "path", { class: "lm-plus", d: `M ${STREAM_X - 6} ${y} h 12 M ${STREAM_X} ${y - 6} v 12` });
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
  const small = place.kind === "chip";
  const lines = wrap(organ.label, place.w - 8, small ? 13 : 15).map((text) => ({ text, detail: false }));
  const room = Math.floor((place.h - 4) / LINE) - lines.length;
  if (organ.detail && room > 0 && !ghost) {
    lines.push(...wrap(organ.detail, place.w - 8, 13).slice(0, room).map((text) => ({ text, detail: true })));
  }
  lines.forEach(({ text, detail }, i) => {
    const y = place.y + (i - (lines.length - 1) / 2) * LINE + 4.5;
    const className = detail ? "lm-detail" : small ? "lm-label lm-label-small" : "lm-label";
    element(group, "text", { class: className, x: place.x, y, "text-anchor": "middle" }, text);
  });
  if (organ.detail) element(group, "title", {}, `${organ.label}: ${organ.detail}`);
  return group;
}

function strangersOf(organs) {
  const listed = new Set(Object.values(ROWS).flat());
  return organs.map((organ) => organ.key).filter((key) => !listed.has(key) && !placeIsFixed(key));
}

function placeIsFixed(key) {
  return key in PLACES || key in SUBLAYERS || key.endsWith(".norm");
}

// Organs of the frame before that are gone now, or that left their place.
export function departed(facts, before) {
  if (!before) return [];
  const now = new Map(facts.organs.map((organ) => [organ.key, organ]));
  return before.organs.filter(({ key }) => {
    if (!now.has(key)) return true;
    const from = placeOf(key, before.placement);
    const to = placeOf(key, facts.placement);
    return from && to && (from.x !== to.x || from.y !== to.y);
  });
}

export function drawMorph(svg, facts, before) {
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.replaceChildren();
  drawWires(svg, facts);
  drawOrgan(svg, { key: "embedding", role: "ink", label: "Embedding" }, PLACES.embedding);
  const strangers = strangersOf(facts.organs);
  for (const organ of departed(facts, before)) {
    const place = placeOf(organ.key, before.placement, strangersOf(before.organs));
    if (place) drawOrgan(svg, organ, place, { ghost: true });
  }
  const changed = new Set(facts.changed);
  for (const organ of facts.organs) {
    const place = placeOf(organ.key, facts.placement, strangers);
    if (!place) continue;
    if (organ.key === "position.added") {
      element(svg, "path", { class: "lm-wire", d: `M ${place.x - place.w / 2} ${place.y} H ${STREAM_X + 22}` });
      element(svg, "path", { class: "lm-wire-tip", d: `M ${STREAM_X + 24} ${place.y - 5} L ${STREAM_X + 13} ${place.y} L ${STREAM_X + 24} ${place.y + 5} Z` });
      drawSum(svg, place.y);
    }
    drawOrgan(svg, organ, place, { lit: changed.has(organ.key) });
  }
}
