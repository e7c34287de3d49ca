"""The lab: every pressure an experiment, declared before it runs, that anyone can run again on a CPU.

    morph lab list | run NAME ... [--quick] [--workers 2] [--out DIR] [--record] | report [NAME ...] [--out docs]
    morph.lab.recorded("recall").findings          # the results that come with Morph

Writing an experiment
---------------------
One file, `experiments/eNN_name.py`, that assigns `EXPERIMENT = Experiment(...)` (see `morph.lab.spec`):

* `arms`: `Arm(name, config, recipe={...}, is_trained=True)`. The config is a stage, a fork or a `replace` of one, or a
  function from the point of the grid to it. An arm with `is_trained=False` is only measured at init. What no config
  says, `alter` does to the freshly built model.
* `vary`: the grid, as `{"layers": (12, 24), "learning_rate": (1e-3, 3e-3, 1e-2)}`. An axis named like a recipe's field
  changes the recipe. Where one recipe could favour a side, vary the learning rate over three values and give
  `best=Best("learning_rate", by=MEASURE)`: every arm alike is then compared at its own best, chosen by the mean over
  seeds (a best at the edge of those tried is reported as such).
* `task`: `Text()`, `Recall(pairs=...)`, `Induction(...)` (`morph.lab.tasks`), or a function from the point.
* `measures`: `Measure(name, read, unit, at="end"|"init", diverged=..., is_log=...)`, where `read` takes a `Trial`
  (`morph.lab.trial`: the model, the task, every step's loss, gradient and expert loads, all evaluations) and gives a
  number or a list. `morph.lab.probes` has the usual ones; put a measure that only one experiment needs in its own file.
* `claims`: `Claim(text, measure, of=ARM, against=ARM, more_than=|less_than=|within=, ratio=, at={...}, needs=(...))`.
  Write them, with the size that would count, before the first run, and do not move them afterwards: a claim that the
  data refuse stays in, as "not supported". `needs` guards a claim: a control that must have worked, or an arm that must
  have stopped learning (`Need("late gain", arm, less_than=...)`) before it may be called unable.
* `minutes`: expected CPU minutes (all experiments together stay below 240); `not_shown`: what it does not show;
  `quick=Quick(steps=..., vary=...)`: what `--quick` runs (some ten CPU seconds).
* Where training once and measuring is not it, `procedure(cell, on_step)` returns the readings by name itself, and
  measures have no `read`: `start` and `fit` of `morph.lab.fit` build and train. Where the usual plot does not tell it,
  `draw(result, subfigure)` does.

A cell (an arm at a point with a seed) is named by a hash of its config, recipe, task, seed and measures, and computed
once: changing claims or words costs nothing, changing what is run computes what is new. When the code of a measure or a
procedure changes its numbers, raise the experiment's `version`; when that of models, tasks or training does,
`morph.lab.spec.FORMAT`. `morph lab run NAME --record` keeps the result as `results/NAME.json`; the tests hold it to
the declaration, so record again after changing one.
"""

from morph.lazy import on_first_use

_HOME = {
    "Experiment": "spec",
    "Result": "result",
    "recorded": "result",
    "find": "catalogue",
    "modules": "catalogue",
}

__all__ = sorted(_HOME)

__getattr__, __dir__ = on_first_use(__name__, _HOME)
