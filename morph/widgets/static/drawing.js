// A frame of a figure as SVG. A drawing holds every distinct fragment once; a frame lists its parts, bottom to top, as
// [key, fragment]. A part that two frames share stays the node that it is; what is new fades in.

const SVG = "http://www.w3.org/2000/svg";
const NARROW = 620; // pixels of width below which a picture with a cut is shown as two, one above the other

function svgElement(className) {
  const node = document.createElementNS(SVG, "svg");
  node.setAttribute("class", className);
  node.setAttribute("aria-hidden", "true"); // the picture as a whole has a name, in words
  return node;
}

// Draws into `mount`: `show(index)` puts a frame there, `colour(theme)` paints it, `close()` ends it.
function makeCanvas(mount, drawing) {
  const [left, top, width, height] = drawing.view;
  const panes = [svgElement("lm-pane"), svgElement("lm-pane")];
  const held = new Map(); // key -> { fragment, node }
  let shown = 0;
  let isNarrow = false;
  mount.append(...panes);
  mount.setAttribute("role", "img");

  function nodeOf(key, fragment) {
    const before = held.get(key);
    if (before?.fragment === fragment) {
      before.node.removeAttribute("class");
      return before.node;
    }
    const node = document.createElementNS(SVG, "g");
    node.dataset.key = key;
    if (held.size) node.setAttribute("class", "lm-new");
    node.innerHTML = drawing.fragments[fragment];
    return node;
  }

  function show(index) {
    shown = index;
    const { parts, cut, right: atRight } = drawing.frames[index];
    const inTwo = isNarrow && cut !== null;
    const isRight = new Set(inTwo ? atRight : []);
    const sides = [[], []];
    const now = new Map();
    parts.forEach(([key, fragment], i) => {
      const node = nodeOf(key, fragment);
      now.set(key, { fragment, node });
      sides[isRight.has(i) ? 1 : 0].push(node);
    });
    held.clear();
    for (const [key, part] of now) held.set(key, part);
    const right = left + width;
    panes[0].setAttribute("viewBox", [left, top, inTwo ? cut - left : width, height].join(" "));
    panes[1].setAttribute("viewBox", inTwo ? [cut, top, right - cut, height].join(" ") : "0 0 0 0");
    panes[1].style.display = inTwo ? "" : "none";
    panes.forEach((pane, i) => pane.replaceChildren(...sides[i]));
    mount.classList.toggle("lm-in-two", inTwo);
  }

  // One drawing serves both themes: its colours are variables, set for the theme that the host shows.
  function colour(theme) {
    drawing.palette.forEach((pair, i) => mount.style.setProperty(`--c${i}`, pair[theme === "dark" ? 0 : 1]));
  }

  const observer = new ResizeObserver(([entry]) => {
    const narrow = entry.contentRect.width < NARROW;
    if (narrow === isNarrow) return;
    isNarrow = narrow;
    show(shown);
  });
  observer.observe(mount);
  return { show, colour, close: () => observer.disconnect() };
}
