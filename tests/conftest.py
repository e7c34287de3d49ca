"""The same conditions for every test: one thread, fixed seeds, no window. Nothing here imports torch."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings

# Read by torch and NumPy when they are imported, here and in the processes that tests start.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "Agg"

# The same examples in every run; HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None, database=None, max_examples=50)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    """Seed every generator that is loaded, so that no test depends on the ones before it."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - libraries still draw from this one
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
    yield


@pytest.fixture(autouse=True, scope="session")
def _store(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Figures that tests make are kept for this session only."""
    os.environ["MORPH_CACHE"] = str(tmp_path_factory.mktemp("figures"))
