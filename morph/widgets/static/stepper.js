// A figure stepped by keys, buttons, a slider or by itself. One player per model, made by the factory below, however many
// views show it; a view draws and forwards input.

const STATE_WORDS = { stopped: "", playing: "Playing", paused: "Paused while you step" };

function drawState(parts, root, state) {
  const running = state !== STOPPED;
  root.dataset.state = state;
  parts.play.textContent = running ? "Stop" : "Play";
  parts.play.setAttribute("aria-label", running ? "Stop autoplay" : "Start autoplay");
  parts.play.title = `${running ? "Stop" : "Start"} autoplay (space)`;
  parts.state.textContent = STATE_WORDS[state];
}

function drawWords(parts, figure, index) {
  const now = figure.frames[index];
  parts.counter.textContent = `${pad(index + 1)} / ${pad(figure.frames.length)}`;
  parts.title.textContent = now.title;
  parts.aside.textContent = now.aside;
  parts.picture.setAttribute("aria-label", now.alt);
  parts.caption.textContent = now.caption;
  parts.note.textContent = now.note;
  parts.range.value = String(index);
  parts.range.setAttribute("aria-valuetext", `Frame ${index + 1} of ${figure.frames.length}: ${now.title}`);
}

function buildStepper(el, figure, player) {
  const kicker = `Figure ${figure.number} · ${figure.title}`;
  const last = String(figure.frames.length - 1);
  const root = frame(
    `${kicker}. Arrow keys step, Home and End jump, space starts and stops autoplay.`,
    (key, event) => {
      const action = actionFor(key);
      if (!action || (key === " " && event.target.closest("button"))) return false; // the button's own click
      player[action]();
      return true;
    },
  );
  const parts = {
    counter: make("span", "lm-counter"),
    title: make("h3", "lm-title"),
    aside: make("span", "lm-aside"),
    picture: make("div", "lm-picture"),
    caption: make("p", "lm-caption"),
    note: make("p", "lm-note"),
    previous: make("button", "", { type: "button", "aria-label": "Previous frame", title: "Previous frame (left arrow)" }, "◀"),
    play: make("button", "lm-play", { type: "button" }),
    next: make("button", "", { type: "button", "aria-label": "Next frame", title: "Next frame (right arrow)" }, "▶"),
    range: make("input", "lm-range", { type: "range", min: "0", max: last, step: "1", "aria-label": "Frame" }),
    state: make("span", "lm-state"),
    live: liveRegion(),
  };
  root.append(
    make("div", "lm-head", {}, make("span", "lm-kicker", {}, kicker), parts.counter),
    make("div", "lm-heading", {}, parts.title, parts.aside),
    make("div", "lm-scroll", {}, parts.picture),
    make("div", "lm-words", {}, parts.caption, parts.note),
    make("div", "lm-controls", {}, parts.previous, parts.play, parts.next, parts.range, parts.state),
    parts.live,
  );
  parts.previous.addEventListener("click", () => player.previous());
  parts.next.addEventListener("click", () => player.next());
  parts.play.addEventListener("click", () => player.toggle());
  parts.range.addEventListener("input", () => player.go(Number(parts.range.value)));
  parts.picture.addEventListener("pointerdown", () => player.touch());
  el.append(root);
  return { root, parts };
}

const widget = () => {
  const views = new Set();
  let player = null;

  function playerFor(model) {
    player ??= makePlayer({
      count: () => model.get("figure").frames.length,
      index: () => model.get("index"),
      interval: () => model.get("interval"),
      idle: () => 1000 * model.get("idle"),
      show: (index, byUser) => {
        model.set("index", index);
        model.save_changes();
        if (byUser) for (const view of views) view.say(index);
      },
      changed: (state) => { for (const view of views) view.state(state); },
    });
    return player;
  }

  return {
    initialize({ model }) {
      playerFor(model).hold();
      const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
      if (model.get("autoplay") && !reduced) player.play();
    },

    render({ model, el }) {
      const figure = model.get("figure");
      const { root, parts } = buildStepper(el, figure, playerFor(model));
      const canvas = makeCanvas(parts.picture, figure.drawing);
      const draw = () => {
        canvas.show(model.get("index"));
        drawWords(parts, figure, model.get("index"));
      };
      const view = {
        state: (state) => drawState(parts, root, state),
        say: (index) => {
          const { title, caption } = figure.frames[index];
          parts.live.textContent = `${index + 1} of ${figure.frames.length}. ${title}. ${caption}`;
        },
      };
      const unfollow = followHostTheme(root, canvas.colour);
      draw();
      view.state(player.state);
      model.on("change:index", draw);
      views.add(view);
      player.release();
      return () => {
        views.delete(view);
        model.off("change:index", draw);
        unfollow();
        canvas.close();
        if (views.size === 0) player.hold();
      };
    },
  };
};

export default widget;
