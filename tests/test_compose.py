"""Compositions: steps and forks made to a config one after another, in any order that fits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

import morph
from morph.config import DenseFirst, FullWidthRMSNorm, MoE, Sink, SwitchRouter, ZeroCentredRMSNorm
from morph.errors import MorphError
from morph.forks import CHANGES, FORKS, apply, config_of, name_of
from morph.forks.tree import tree
from morph.steps import SIZES, SLUGS, STEPS


def test_a_composition_makes_its_changes_in_order() -> None:
    config = morph.compose("hybrid", "attention-sink", "sandwich-norm", size="nano")
    assert {str(change) for change in morph.diff(morph.stage(14, "nano"), config)} == {
        "placement: pre → sandwich",
        "attention.sink: none → Sink()",
    }
    assert morph.compose("2017", *SLUGS[1:]) == morph.stage(14) == morph.compose(14) == morph.compose("14")
    assert morph.compose("2017", "pre-norm", "rms-norm", "sandwich-norm") == morph.fork("sandwich-norm")
    assert morph.compose("moe", "switch-top-1") == morph.fork("switch-top-1") == morph.compose("switch-top-1")
    assert morph.compose(0, 4, 7, size="nano") == replace(
        morph.stage(0, "nano"),
        position=morph.stage(4, "nano").position,
        attention=morph.stage(7, "nano").attention,
    )


@pytest.mark.parametrize("size", SIZES)
def test_every_stage_and_fork_is_its_bases_composition(size: str) -> None:
    for fork in FORKS.values():
        assert morph.compose(fork.base, fork.slug, size=size) == morph.fork(fork.slug, size)
    for before, step in itertools.pairwise(SLUGS):
        assert morph.compose(before, step, size=size) == morph.stage(step, size)


def test_a_plus_joins_the_parts_of_a_name() -> None:
    assert name_of("14+attention-sink") == name_of("hybrid + attention-sink") == "hybrid+attention-sink"
    assert config_of("14+attention-sink", "nano") == morph.compose("hybrid", "attention-sink", size="nano")
    assert config_of("hybrid+attention-sink").attention.sink == Sink()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), ["nothing to compose"]),
        (("hybrid", "gqa"), ["'gqa' changes nothing in 'hybrid'", "leave it out"]),
        (("hybrid", "attention-sink", "attention-sink"), ["changes nothing in 'hybrid+attention-sink'"]),
        (("gqa", "2017"), ["'2017'", "let it come first"]),
        (("gqa", "attention-sinc"), ["'attention-sinc'", "did you mean 'attention-sink'"]),
        (("hybrid", ""), ["unknown stage ''"]),
        (("2017", "moe"), ["'moe' does not fit '2017'", "feed_forward is 'mlp'", "'gated-mlp'"]),
        (("gqa", "shared-expert"), ["'shared-expert' does not fit 'gqa'", "feed_forward is 'gated-mlp'", "'moe'"]),
        (("gqa", "hybrid"), ["'hybrid' does not fit 'gqa'", "layout is 'all-global'", "'interleaved'"]),
        (("hybrid", "all-local"), ["layout.local is 'gated-delta-net'", "'sliding-window'"]),
        (("nope", "yarn"), ["'yarn' does not fit 'nope'", "position is 'no-position'", "'rope'"]),
        (("moe", "gelu"), ["feed_forward is 'moe'", "'gated-mlp'"]),
        (("moe", "group-limited-router"), ["n_groups = 8", "n_experts = 8"]),
        (("switch-top-1", "shared-expert"), ["top_k is 1"]),
    ],
)
def test_a_change_that_does_not_fit_is_refused(words: tuple[str, ...], told: list[str]) -> None:
    with pytest.raises(MorphError) as error:
        morph.compose(*words)
    assert "\n" not in str(error.value)
    assert all(part in str(error.value) for part in told), str(error.value)


def test_two_changes_in_any_order_fit_or_are_refused() -> None:
    """After every stage and fork, every step and fork: another config, or a refusal that names the change."""
    fitting, size = 0, SIZES["nano"]
    for start in (*SLUGS, *FORKS):
        config = config_of(start, size)
        for change in CHANGES:
            try:
                fitting += apply(change, config, size) != config
            except MorphError as error:
                assert str(error).startswith(f"{change!r} ")
    assert fitting > len(CHANGES) * 20


def test_experts_change_below_dense_layers_too() -> None:
    config = morph.compose("dense-first", "group-limited-router", "switch-top-1", size="nano")
    ffn = config.feed_forward
    assert isinstance(ffn, DenseFirst) and isinstance(ffn.experts.router, SwitchRouter)
    assert ffn.dense == morph.fork("dense-first", "nano").feed_forward.dense  # type: ignore[union-attr]
    with pytest.raises(MorphError, match=r"'dense-first' does not fit.*feed_forward is 'dense-first'"):
        morph.compose("dense-first", "sigmoid-router", "dense-first")


def test_finer_and_shared_experts_follow_what_they_start_from() -> None:
    """A step is a rule and not a list of numbers: the budget of a token is kept wherever it starts."""
    switch = morph.compose("switch-top-1", "fine-grained", size="nano").feed_forward
    assert isinstance(switch, MoE)
    assert (switch.n_experts, switch.top_k, switch.routed_scale, switch.expert.width) == (16, 4, 4.0, 32)
    shared = morph.compose("moe", "shared-expert", size="nano").feed_forward
    assert isinstance(shared, MoE)
    assert (shared.n_shared, shared.top_k, shared.routed_scale) == (1, 1, 1.0)
    assert shared.active_width == morph.stage("moe", "nano").feed_forward.active_width  # type: ignore[union-attr]


def test_what_a_change_does_not_name_it_keeps() -> None:
    norm = morph.compose("qk-norm-full-width", "zero-centred-norm").attention.qk_norm  # type: ignore[union-attr]
    assert isinstance(norm, FullWidthRMSNorm)
    norm = morph.compose("attention-sink", "zero-centred-norm").attention.qk_norm  # type: ignore[union-attr]
    assert isinstance(norm, ZeroCentredRMSNorm)


def test_the_tree_holds_every_stage_and_fork_below_its_base() -> None:
    lines = list(tree())
    assert sorted(line.slug for line in lines) == sorted((*SLUGS, *FORKS))
    assert [line.slug for line in lines if line.is_stage] == list(SLUGS)
    place = {line.slug: i for i, line in enumerate(lines)}
    for fork in FORKS.values():
        between = lines[place[fork.base] + 1 : place[fork.slug] + 1]
        depth = len(lines[place[fork.base]].lead)
        assert between and all(len(line.lead) > depth for line in between), fork.slug
    assert len(STEPS) + 1 + len(FORKS) == len(lines)
