// Runs a widget on a plain page: the part of a notebook's model that it uses, held in memory.

function pageModel(state) {
  for (const [key, value] of Object.entries(state)) {
    if (typeof value?.base64 === "string") {
      state[key] = new DataView(Uint8Array.from(atob(value.base64), (letter) => letter.charCodeAt(0)).buffer);
    }
  }
  const listeners = new Map();
  return {
    get: (key) => state[key],
    set(key, value) {
      if (state[key] === value) return;
      state[key] = value;
      for (const listener of listeners.get(`change:${key}`) ?? []) listener();
    },
    save_changes() {},
    on(event, listener) { listeners.set(event, [...(listeners.get(event) ?? []), listener]); },
    off(event, listener) { listeners.set(event, (listeners.get(event) ?? []).filter((other) => other !== listener)); },
  };
}

function showOnPage(mount, state) {
  const model = pageModel(JSON.parse(state.textContent));
  const { initialize, render } = widget();
  initialize?.({ model });
  render({ model, el: mount });
}

showOnPage(document.getElementById("figure"), document.getElementById("state"));
if (window.frameElement) { // inside a notebook page: as tall as the figure
  new ResizeObserver(() => { window.frameElement.style.height = `${document.documentElement.offsetHeight + 4}px`; }).observe(document.body);
}
