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

// Shows a widget, given by its factory, in `mount`; `state` is the element that holds its values. Answers with its model.
function showOnPage(factory, mount, state) {
  const model = pageModel(JSON.parse(state.textContent));
  const { initialize, render } = factory();
  initialize?.({ model });
  render({ model, el: mount });
  return model;
}
