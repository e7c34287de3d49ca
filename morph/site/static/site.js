// Starts a page: its theme switch, its widgets, and on a figure's page the list of frames and the stills for paper.

(() => {
  const KEY = "morph-theme";
  const page = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const themeNow = () => page.dataset.theme ?? (system.matches ? "dark" : "light");

  function remember(theme) { // a browser may keep nothing for files
    try {
      if (theme) localStorage.setItem(KEY, theme);
      else localStorage.removeItem(KEY);
    } catch { /* the choice holds for this page */ }
  }

  function startSwitch(button) {
    const say = () => {
      const other = themeNow() === "dark" ? "light" : "dark";
      button.textContent = other === "dark" ? "☾" : "☀";
      button.setAttribute("aria-label", `Show the ${other} theme`);
      button.title = `Show the ${other} theme`;
    };
    button.addEventListener("click", () => {
      const wanted = themeNow() === "dark" ? "light" : "dark";
      const isSystems = wanted === (system.matches ? "dark" : "light");
      if (isSystems) delete page.dataset.theme; // follow the system again
      else page.dataset.theme = wanted;
      remember(isSystems ? null : wanted);
      say();
    });
    system.addEventListener("change", say);
    say();
  }

  function startWidgets() {
    return [...document.querySelectorAll(".widget")].map((mount) => {
      mount.replaceChildren(); // its words
      const model = showOnPage(morphWidgets[mount.dataset.widget], mount, document.getElementById(`${mount.id}-state`));
      return { mount, model };
    });
  }

  // Left and right step the page's own figure even when nothing on the page has the focus.
  function lendKeys(mount) {
    document.addEventListener("keydown", (event) => {
      if (event.target !== document.body || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      mount.querySelector(".lm-figure").dispatchEvent(new KeyboardEvent("keydown", { key: event.key }));
      event.preventDefault();
    });
  }

  // The list under a figure: a click shows that frame, the frame on show is marked, an address may name one.
  function linkFrames({ mount, model }, items) {
    const numberOf = (hash) => items.findIndex((item) => `#${item.id}` === hash);
    const go = (index) => {
      if (index < 0) return;
      model.set("index", index);
      mount.scrollIntoView({ block: "start" });
    };
    const mark = () => items.forEach((item, i) => item.classList.toggle("is-shown", i === model.get("index")));
    for (const [i, item] of items.entries()) {
      item.querySelector("a").addEventListener("click", (event) => {
        event.preventDefault();
        history.replaceState(null, "", `#${item.id}`);
        go(i);
        mount.querySelector(".lm-figure").focus({ preventScroll: true });
      });
    }
    addEventListener("hashchange", () => go(numberOf(location.hash)));
    model.on("change:index", mark);
    mark();
    go(numberOf(location.hash));
  }

  // On paper every frame is a still of its own, drawn from what the stepper has.
  function stillsForPaper({ model }, items) {
    const { view, palette, fragments, frames } = model.get("figure").drawing;
    const draw = (item, i) => {
      const still = make("div", "still", { "aria-hidden": "true" });
      palette.forEach((pair, colour) => still.style.setProperty(`--c${colour}`, pair[1]));
      still.innerHTML = `<svg viewBox="${view.join(" ")}">${frames[i].parts.map(([, part]) => fragments[part]).join("")}</svg>`;
      item.append(still);
    };
    const printing = matchMedia("print");
    const change = () => {
      for (const still of document.querySelectorAll(".still")) still.remove();
      if (printing.matches) items.forEach(draw);
    };
    printing.addEventListener("change", change);
    change();
  }

  // Paper is light, whatever the screen shows.
  function lightOnPaper() {
    const printing = matchMedia("print");
    let before;
    printing.addEventListener("change", () => {
      if (printing.matches) {
        before = page.dataset.theme;
        page.dataset.theme = "light";
      } else if (before) page.dataset.theme = before;
      else delete page.dataset.theme;
    });
  }

  // Beside the text there is room for the contents; above it they are folded.
  function foldContents(contents) {
    const isBeside = matchMedia("(min-width: 1180px)");
    const fold = () => { contents.open = isBeside.matches; };
    isBeside.addEventListener("change", fold);
    fold();
  }

  startSwitch(document.querySelector(".switch"));
  lightOnPaper();
  document.querySelectorAll(".contents").forEach(foldContents);
  const widgets = startWidgets();
  const own = document.querySelector("[data-own-figure] .widget");
  if (own) lendKeys(own);
  const items = [...document.querySelectorAll(".frames > li")];
  if (items.length) {
    const shown = widgets.find(({ mount }) => mount === own);
    linkFrames(shown, items);
    stillsForPaper(shown, items);
  }
})();
