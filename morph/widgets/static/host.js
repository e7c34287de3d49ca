// What every widget shares: elements, the host's theme, a frame that keeps the notebook's shortcuts out, spoken words.

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

// Keeps `data-theme` on `root` equal to the host's theme and calls `changed` when it moves; returns what ends that.
function followHostTheme(root, changed = () => {}) {
  const apply = () => {
    const theme = hostIsDark() ? "dark" : "light";
    if (root.dataset.theme === theme) return;
    root.dataset.theme = theme;
    changed(theme);
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(apply);
  for (const host of [document.documentElement, document.body]) observer.observe(host, { attributes: true });
  system.addEventListener("change", apply);
  apply();
  return () => { observer.disconnect(); system.removeEventListener("change", apply); };
}

// The outer element of a widget: named, focusable, and closed to the notebook's own shortcuts. `act(key, event)` says
// whether a key was meant for the widget.
function frame(label, act) {
  const root = make("div", "lm-figure", {
    role: "group", tabindex: "0", "aria-label": label, "data-lm-suppress-shortcuts": "true",
  });
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation(); // notebook shortcuts such as `b` or `x` must not act on cells from in here
    if (act(event.key, event)) event.preventDefault();
  });
  return root;
}

// Words for a screen reader, spoken when they change.
function liveRegion() {
  return make("div", "lm-hidden", { "aria-live": "polite", role: "status" });
}
