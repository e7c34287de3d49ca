"""Forks and organs of a reader's own: what is declared is checked, and then they are like any other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import morph
from morph.config import GatedMLP, Listed, ModelConfig, RMSNorm, Rope
from morph.errors import MorphError
from morph.forks import FORKS, Fork
from morph.forks.own import register, unregister
from morph.forks.tree import tree
from morph.nn import feedforward, norm
from morph.nn.own import add_organ
from morph.spec import _extensions
from morph.steps import Size
from tests.models import random_ids


def global_first(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, layout=Listed(global_layers=(0,), local=config.layout.local))  # type: ignore[union-attr]


OWN = Fork(
    "global-first", "sliding-window", "The global layer first", 2026, "a test", "attention", ("layout",),
    "the last layer in four sees everything", "the first", "Which of them should?",
    "a window at least as long as the text", (), "none", global_first,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    known = set(FORKS)
    yield
    for slug in reversed([slug for slug in FORKS if slug not in known]):
        unregister(slug)


# ---- forks ----


def test_a_registered_fork_is_like_any_other() -> None:
    assert register(OWN) is OWN
    assert morph.fork("global-first", "nano") == global_first(morph.stage(9, "nano"), Size(256, 48, 4, 4, 2, 64, 16))
    assert morph.compose("moe", "global-first", "attention-sink").layout == morph.fork("global-first").layout
    assert "global-first" in [branch.slug for branch in tree()]
    on_it = replace(OWN, slug="wider", base="global-first", paths=("layout.local.window",), apply=wider)
    assert register(on_it) and morph.fork("wider", "nano").layout.local.window == 32  # type: ignore[union-attr]
    with pytest.raises(MorphError, match="'global-first' is the base of wider; unregister that first"):
        unregister("global-first")
    unregister("wider"), unregister("global-first")
    with pytest.raises(MorphError, match="unknown fork 'global-first'"):
        morph.fork("global-first")


def wider(config: ModelConfig, size: Size) -> ModelConfig:
    local = config.layout.local  # type: ignore[union-attr]
    return replace(config, layout=replace(config.layout, local=replace(local, window=2 * local.window)))


def test_a_cell_may_run_again() -> None:
    register(OWN)
    register(replace(OWN, title="Another title"))
    assert FORKS["global-first"].title == "Another title"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slug": "mla"}, "'mla' is a stage or fork of the project"),
        ({"slug": "rope"}, "'rope' is a stage or fork of the project"),
        ({"slug": "Global First"}, "must be words of small letters"),
        ({"slug": "7"}, "and no number"),
        ({"slug": 7}, "slug = 7 must be words"),
        ({"base": "nowhere"}, "base = 'nowhere' is no stage and no fork"),
        ({"base": 9}, "base = 9 is no stage and no fork; give a slug"),
        ({"role": "colour"}, "role = 'colour' is not one of: norm, position"),
        ({"paths": "layout"}, r"paths = 'layout' must be a tuple"),
        ({"paths": ()}, "must be a tuple of the config fields"),
        ({"paths": ("norm",)}, "'global-first' changes layout too, which its paths do not name"),
        ({"paths": ("layout", "norm")}, "names norm in its paths and does not change it"),
        ({"relation": ""}, "relation = '' must say something"),
        ({"apply": lambda config, size: config}, "changes nothing in 'sliding-window' at size nano"),
        ({"apply": lambda config, size: None}, "gives None, not a config"),
    ],
)
def test_what_is_not_as_declared_is_refused(changes: dict[str, Any], message: str) -> None:
    before = dict(FORKS)
    with pytest.raises(MorphError, match=message):
        register(replace(OWN, **changes))
    assert before == FORKS


def test_only_own_forks_can_be_forgotten() -> None:
    with pytest.raises(MorphError, match="'mla' was not registered; there is none"):
        unregister("mla")
    with pytest.raises(MorphError, match="'x' is no fork"):
        register("x")  # type: ignore[arg-type]
    register(OWN)
    with pytest.raises(MorphError, match="'global-first' is its own base"):
        register(replace(OWN, base="global-first"))


# ---- organs ----


@dataclass(frozen=True, kw_only=True)
class PowerNorm(RMSNorm):
    kind: ClassVar[str] = "power-norm"
    p: float = 1.0


class PowerNormModule(norm.Norm):
    """γ x over the p-th root of the mean of |x|ᵖ."""

    def __init__(self, spec: PowerNorm, width: int, gain: float) -> None:
        super().__init__(width, spec.eps, gain)
        self.p = spec.p

    def plain(self, x: Tensor) -> Tensor:
        return self.weight * x / (x.abs().pow(self.p).mean(-1, keepdim=True) + self.eps).pow(1 / self.p)

    fused = plain


@dataclass(frozen=True, kw_only=True)
class SwappedMLP(GatedMLP):
    kind: ClassVar[str] = "swapped-mlp"


class SwappedModule(feedforward.GatedMLP):
    """A gated network whose gate and value change places."""

    def forward(self, x: Tensor, context: Any) -> Tensor:
        return self.down(self.meet(self.up(x), self.gate(x)))


@pytest.fixture
def organs() -> Iterator[None]:
    add_organ(PowerNorm, PowerNormModule)
    add_organ(SwappedMLP, SwappedModule)
    yield
    _extensions.clear()


def with_power(p: float) -> ModelConfig:
    return replace(morph.stage(6, "nano"), norm=PowerNorm(p=p))


@torch.no_grad()
def test_an_own_norm_is_built_trained_and_counted(organs: None) -> None:
    base, own = morph.build(morph.stage(6, "nano"), seed=1), morph.build(with_power(2.0), seed=1)
    assert {type(m) for m in own.modules() if isinstance(m, norm.Norm)} == {PowerNormModule}
    ids = random_ids(base, 2, 20)
    torch.testing.assert_close(own(ids), base(ids), rtol=1e-4, atol=1e-4)  # with p = 2 it is its base
    assert (morph.build(with_power(1.0), seed=1)(ids) - base(ids)).abs().max() > 0.01
    assert morph.count(with_power(1.0)).total == morph.count(base.config).total
    with torch.enable_grad():
        loss = own.loss(ids[:, :-1], ids[:, 1:]).total
        loss.backward()
    assert own.blocks[0].attention_norm.weight.grad is not None


@torch.no_grad()
def test_an_own_network_is_built(organs: None) -> None:
    config = morph.stage(6, "nano")
    swapped = replace(config, feed_forward=SwappedMLP(width=config.feed_forward.width, activation="silu"))  # type: ignore[union-attr]
    base, own = morph.build(config, seed=1), morph.build(swapped, seed=1)
    ids = random_ids(base, 1, 10)
    assert (own(ids) - base(ids)).abs().max() > 0.01
    for block in own.blocks:
        network = block.feed_forward
        network.gate.weight, network.up.weight = network.up.weight, network.gate.weight
    torch.testing.assert_close(own(ids), base(ids))
    assert morph.count(swapped).flops(8) == morph.count(config).flops(8)


def test_configs_with_an_own_organ_are_written_read_and_compared(organs: None) -> None:
    config = with_power(1.5)
    assert ModelConfig.from_toml(config.to_toml()) == config == ModelConfig.from_dict(config.to_dict())
    (change,) = morph.diff(morph.stage(6, "nano"), config)
    assert str(change) == "norm: RMSNorm(eps=1e-05) → PowerNorm(eps=1e-05, p=1.5)"
    with pytest.raises(MorphError, match=r"config\.norm\.kind = 'powr-norm' is not one of.*did you mean 'power-norm'"):
        ModelConfig.from_dict(config.to_dict() | {"norm": {"kind": "powr-norm"}})
    position = config.to_dict() | {"position": {"kind": "power-norm"}}
    with pytest.raises(MorphError, match=r"position\.kind = 'power-norm' is not one of"):
        ModelConfig.from_dict(position)
    _extensions.clear()
    with pytest.raises(MorphError, match="'power-norm' is not one of: layer-norm, rms-norm"):
        ModelConfig.from_dict(config.to_dict())


def test_values_of_an_own_record_are_checked() -> None:
    with pytest.raises(MorphError, match=r"power-norm\.p = -1 must be a finite number above 0"):
        PowerNorm(p=-1)
    made: dict[str, Any] = {"ClassVar": ClassVar, "RMSNorm": RMSNorm, "dataclass": dataclass}
    exec(  # a notebook's cell: hints are types there, not text
        compile(
            "@dataclass(frozen=True, kw_only=True)\nclass Odd(RMSNorm):\n    kind: ClassVar[str] = 'odd'\n"
            "    p: float = 1.0\n    n: int | None = None\n    on: bool = False\n",
            "cell", "exec", dont_inherit=True,
        ),
        made,
    )  # fmt: skip
    for field, wrong in (("p", -1.0), ("n", 0), ("on", 1)):
        with pytest.raises(MorphError, match=f"odd.{field} = {wrong}"):
            made["Odd"](**{field: wrong})
    assert made["Odd"](p=2.0, n=3).n == 3


def test_what_is_no_organ_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Taken(RMSNorm):
        kind: ClassVar[str] = "rms-norm"

    class Bare(RMSNorm):
        kind: ClassVar[str] = "bare"

    @dataclass(frozen=True, kw_only=True)
    class Nameless(RMSNorm):
        p: float = 1.0

    @dataclass(frozen=True, kw_only=True)
    class Turn(Rope):
        kind: ClassVar[str] = "turn"

    for record, message in (
        (Taken, "'rms-norm' is a record of the project"),
        (Bare, "Bare needs @dataclass"),
        (Nameless, "Nameless needs @dataclass"),
        (Turn, "extends none of LayerNorm, LayerNormNoBias, RMSNorm"),
        (RMSNorm, "extends none of"),
        ("norm", "'norm' extends none of"),
    ):
        with pytest.raises(MorphError, match=message):
            add_organ(record, PowerNormModule)  # type: ignore[arg-type]
    with pytest.raises(MorphError, match="5 builds nothing"):
        add_organ(PowerNorm, 5)  # type: ignore[arg-type]


def test_a_record_without_a_module_says_what_is_missing() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Forgotten(RMSNorm):
        kind: ClassVar[str] = "forgotten"

    with pytest.raises(MorphError, match=r"Forgotten has no module; tell which: morph\.nn\.own\.add_organ"):
        morph.build(replace(morph.stage(2, "nano"), norm=Forgotten()))
    add_organ(Forgotten, lambda spec, width, gain: torch.nn.Identity())
    with pytest.raises(MorphError, match=r"Forgotten is built as Identity\(\); give a morph\.nn\.organ\.Organ"):
        morph.build(replace(morph.stage(2, "nano"), norm=Forgotten()))
    _extensions.clear()
