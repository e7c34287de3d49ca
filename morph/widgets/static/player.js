// The stepping contract as a state machine: no page, no model, no clock of its own, so that `node --test` can drive it.
//
//   stopped --play--> playing --any step--> paused --`idle` ms without input--> playing
//   playing or paused --stop--> stopped, and only `play` leaves it
//
// `hold` freezes the clock while nobody looks (no view on the page); `release` carries on in the same state.

export const STOPPED = "stopped";
export const PLAYING = "playing";
export const PAUSED = "paused";

export function makePlayer({
  count,              // () => number of frames
  index,              // () => the frame shown now
  interval,           // () => milliseconds a frame stays on screen in autoplay
  idle,               // () => milliseconds of silence after which a paused autoplay resumes
  show,               // (index, byUser) => void: put a frame on screen
  changed = () => {}, // (state) => void: the state moved
  later = (action, ms) => setTimeout(action, ms),
  cancel = (timer) => clearTimeout(timer),
}) {
  let state = STOPPED;
  let timer = null;
  let held = false;

  function wait() {
    cancel(timer);
    timer = null;
    if (held || state === STOPPED) return;
    timer = state === PLAYING ? later(tick, interval()) : later(play, idle());
  }

  function enter(next) {
    const moved = state !== next;
    state = next;
    wait();
    if (moved) changed(state);
  }

  function wrapped(target) {
    const frames = count();
    return ((target % frames) + frames) % frames;
  }

  function tick() {
    show(wrapped(index() + 1), false);
    wait();
  }

  function play() {
    enter(PLAYING);
  }

  function stop() {
    enter(STOPPED);
  }

  // Something the reader did. It restarts the silence that autoplay waits for; an explicit stop stays a stop.
  function touch() {
    if (state !== STOPPED) enter(PAUSED);
  }

  function go(target) {
    touch();
    show(wrapped(target), true);
  }

  return {
    play,
    stop,
    touch,
    go,
    toggle: () => (state === STOPPED ? play() : stop()),
    next: () => go(index() + 1),
    previous: () => go(index() - 1),
    first: () => go(0),
    last: () => go(count() - 1),
    hold: () => { held = true; wait(); },
    release: () => { held = false; wait(); },
    get state() { return state; },
  };
}

// What a key does while the figure has focus; null leaves it to the browser.
const ACTIONS = new Map([
  ["ArrowRight", "next"], ["ArrowDown", "next"], ["PageDown", "next"],
  ["ArrowLeft", "previous"], ["ArrowUp", "previous"], ["PageUp", "previous"],
  ["Home", "first"], ["End", "last"], [" ", "toggle"],
]);

export function actionFor(key) {
  return ACTIONS.get(key) ?? null;
}
