// The stepping contract under a mock clock: `node --test tests/js/`. No package is needed.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mock, test } from "node:test";

// Read as text: Node before 20.19 takes a bare .js file for CommonJS.
const source = readFileSync(new URL("../../morph/widgets/static/player.js", import.meta.url), "utf8");
const { actionFor, makePlayer } = await import(`data:text/javascript,${encodeURIComponent(source)}`);

const INTERVAL = 1500;
const IDLE = 12000;

function rig(t, { index = 0, count = 14 } = {}) {
  mock.timers.enable({ apis: ["setTimeout"] });
  t.after(() => mock.timers.reset());
  const seen = { index, states: [], shows: [] };
  const player = makePlayer({
    count: () => count,
    index: () => seen.index,
    interval: () => INTERVAL,
    idle: () => IDLE,
    show: (target, byUser) => { seen.index = target; seen.shows.push([target, byUser]); },
    changed: (state) => seen.states.push(state),
  });
  // One millisecond at a time: a mock tick does not fire the timers that its own callbacks set.
  const pass = (ms) => { for (let i = 0; i < ms; i += 1) mock.timers.tick(1); };
  return { player, seen, pass };
}

test("starts stopped and never moves by itself", (t) => {
  const { player, seen, pass } = rig(t);
  pass(100_000);
  assert.equal(player.state, "stopped");
  assert.deepEqual(seen.shows, []);
});

test("autoplay advances one frame an interval and wraps", (t) => {
  const { player, seen, pass } = rig(t, { index: 12 });
  player.play();
  pass(INTERVAL - 1);
  assert.equal(seen.index, 12);
  pass(1);
  assert.equal(seen.index, 13);
  pass(INTERVAL);
  assert.equal(seen.index, 0);
  assert.deepEqual(seen.shows, [[13, false], [0, false]]);
});

test("a step pauses autoplay, which resumes 12 s after the last input", (t) => {
  const { player, seen, pass } = rig(t);
  player.play();
  player.next();
  assert.equal(player.state, "paused");
  pass(IDLE - 1);
  player.next();
  pass(IDLE - 1);
  assert.equal(player.state, "paused");
  assert.equal(seen.index, 2);
  pass(1);
  assert.equal(player.state, "playing");
  pass(INTERVAL);
  assert.equal(seen.index, 3);
  assert.deepEqual(seen.states, ["playing", "paused", "playing"]);
});

test("a touch without a step pauses too", (t) => {
  const { player, seen, pass } = rig(t);
  player.play();
  player.touch();
  pass(IDLE - 1);
  assert.equal(player.state, "paused");
  assert.equal(seen.index, 0);
  pass(1);
  assert.equal(player.state, "playing");
});

test("an explicit stop is final: neither silence nor a step resumes it", (t) => {
  const { player, seen, pass } = rig(t);
  player.play();
  player.toggle();
  assert.equal(player.state, "stopped");
  player.next();
  pass(60_000);
  assert.equal(player.state, "stopped");
  assert.equal(seen.index, 1);
});

test("toggle while paused stops", (t) => {
  const { player, pass } = rig(t);
  player.play();
  player.next();
  player.toggle();
  pass(60_000);
  assert.equal(player.state, "stopped");
});

test("steps wrap at both ends; Home and End jump", (t) => {
  const { player, seen } = rig(t);
  player.previous();
  assert.equal(seen.index, 13);
  player.next();
  assert.equal(seen.index, 0);
  player.last();
  assert.equal(seen.index, 13);
  player.first();
  assert.equal(seen.index, 0);
  assert.ok(seen.shows.every(([, byUser]) => byUser));
});

test("playing twice keeps one clock", (t) => {
  const { player, seen, pass } = rig(t);
  player.play();
  player.play();
  pass(INTERVAL * 3);
  assert.equal(seen.index, 3);
});

test("nothing ticks while held, and the state survives", (t) => {
  const { player, seen, pass } = rig(t);
  player.play();
  player.hold();
  pass(60_000);
  assert.equal(seen.index, 0);
  player.next();
  player.hold();
  pass(60_000);
  assert.equal(player.state, "paused");
  player.release();
  pass(IDLE);
  assert.equal(player.state, "playing");
});

test("every documented key has an action and others have none", () => {
  assert.equal(actionFor("ArrowRight"), "next");
  assert.equal(actionFor("ArrowLeft"), "previous");
  assert.equal(actionFor("Home"), "first");
  assert.equal(actionFor("End"), "last");
  assert.equal(actionFor(" "), "toggle");
  assert.equal(actionFor("b"), null);
  assert.equal(actionFor("toString"), null);
});
