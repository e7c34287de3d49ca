"""The shapes in the signatures hold: jaxtyping and beartype check every call that the stages and forks make.

In a process of its own, since the checks must be in place before the organs are imported, and must not stay.
"""

from __future__ import annotations

import subprocess
import sys

import morph

CODE = """
import jaxtyping

with jaxtyping.install_import_hook(["morph.nn", "morph.model"], "beartype.beartype"):
    import morph.model

import torch
import morph
from morph.forks import config_of

torch.set_num_threads(1)
for word in (*range(15), *morph.FORKS):
    model = morph.build(config_of(word, "nano"))
    ids = torch.randint(256, (2, 40))  # longer than two windows
    model.loss(ids, ids).total.backward()
    with torch.no_grad():
        cache = model.new_cache(2)
        model(ids[:, :20], lengths=torch.tensor([20, 13]), cache=cache)  # the second row is padded on the left
        for part in ids[:, 20:].split((1, 19), dim=1):
            model(part, cache=cache)
    print(word)

try:
    model(ids[None])
except jaxtyping.TypeCheckError as error:
    print("caught" if "Int[Tensor, 'B S']" in str(error) else error)
"""


def test_every_stage_and_fork_keeps_the_shapes_it_declares_and_a_wrong_one_is_caught() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.split() == [*map(str, range(15)), *morph.FORKS, "caught"]
