"""The sweep that comes with the package: whole, in step with the code, and told in docs/reference-sweep.md."""

from __future__ import annotations

import os
from pathlib import Path

import morph
from morph.steps import SLUGS, stage
from morph.train.sweep import Sweep, to_markdown

PAGE = Path(__file__).parent.parent / "docs" / "reference-sweep.md"


def test_it_has_all_stages_three_seeds_and_the_costs_of_todays_code() -> None:
    sweep = Sweep.reference()
    assert [result.slug for result in sweep.stages] == list(SLUGS)
    assert sweep.size == "tiny" and len(sweep.seeds) == 3
    for k, result in enumerate(sweep.stages):
        counted = morph.count(stage(k))
        assert [run.seed for run in result.runs] == list(sweep.seeds)
        assert result.parameters_total == counted.total
        assert result.parameters_active == counted.active.all
        assert result.kv_bytes_per_token == counted.kv_bytes_per_token
        assert result.cache_bytes == counted.cache_bytes(result.cache_context)
        assert result.flops_per_token == counted.flops(result.cache_context).per_token
        assert all(1.5 < run.bits_per_byte < 4 for run in result.runs)


def test_the_page_is_its_table() -> None:
    """After a new sweep: MORPH_GOLDEN=write pytest tests/test_reference_sweep.py, then read the difference."""
    made = to_markdown(Sweep.reference())
    if os.environ.get("MORPH_GOLDEN") == "write":
        PAGE.write_text(made)
    assert PAGE.read_text() == made
