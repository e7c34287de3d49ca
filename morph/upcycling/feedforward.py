"""Recipes for what a token computes by itself: activations, gates, experts."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from morph.config import (
    MLP,
    AuxiliaryLoss,
    FeedForward,
    GatedMLP,
    GroupLimitedRouter,
    ModelConfig,
    MoE,
    SelectionBias,
    SoftmaxRouter,
    SwitchRouter,
)
from morph.nn.feedforward import MLP as Plain
from morph.nn.moe import MixtureOfExperts
from morph.nn.router import best
from morph.upcycling.move import Move, Told, fit

STEEP = "steep"
SCALES: dict[tuple[str, str], float | str] = {
    ("relu", "silu"): STEEP, ("relu", "gelu"): STEEP, ("relu", "gelu-tanh"): STEEP,
    ("silu", "gelu"): 1 / 1.702, ("silu", "gelu-tanh"): 1 / 1.702,
    ("gelu", "silu"): 1.702, ("gelu-tanh", "silu"): 1.702,
    ("gelu", "gelu-tanh"): 1.0, ("gelu-tanh", "gelu"): 1.0,
}  # fmt: skip
"""Old and new activation -> s for which new(s z) / s comes near old(z)."""


def activation_of(ffn: FeedForward) -> str | None:
    """What activates in it; None where that is no free choice."""
    spec = ffn.expert if isinstance(ffn, MoE) else ffn
    return spec.activation if isinstance(spec, MLP | GatedMLP) else None


# ---- activation ------------------------------------------------------------------------------------------------------


def to_activation(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Another bend, where one comes near the other on some scale."""
    old, new = activation_of(config.feed_forward), activation_of(target.feed_forward)
    ffn = config.feed_forward
    if old == new or (str(old), str(new)) not in SCALES or not isinstance(ffn, MLP | GatedMLP):
        return None
    return replace(config, feed_forward=replace(ffn, activation=new))  # type: ignore[arg-type]


def activation(move: Move) -> Told:
    """new(s z) / s in the place of old(z): what comes in times s, what goes out over s.

    SiLU(βz)/β is within 0.2785/β of ReLU(z). A large β is a better copy and a worse start: it stays a ReLU, and its
    matrices are so large that steps of one size barely move them.
    """
    old = str(activation_of(move.old.config.feed_forward))
    new = str(activation_of(move.new.config.feed_forward))
    found = SCALES[old, new]
    scale = move.options.steepness if isinstance(found, str) else found
    for at, block, _ in move.blocks():
        gate = "up" if isinstance(block.feed_forward, Plain) else "gate"
        for part in ("weight", "bias"):
            name = f"{at}.feed_forward.{gate}.{part}"
            if move.has(name):
                move.put(name, scale * move.was(name))
        move.put(f"{at}.feed_forward.down.weight", move.was(f"{at}.feed_forward.down.weight") / scale)
    return Told("recipe", f"{new}({scale:.4g} z) / {scale:.4g} in the place of {old}(z)")


# ---- gates -----------------------------------------------------------------------------------------------------------


def dense_width(ffn: FeedForward) -> int | None:
    """The width of the dense network that a token meets; None where there is none."""
    if isinstance(ffn, MoE):
        return ffn.active_width
    return ffn.width if isinstance(ffn, GatedMLP) else None


def to_gated(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """From two matrices to three."""
    ffn, width = config.feed_forward, dense_width(target.feed_forward)
    if not isinstance(ffn, MLP) or width is None:
        return None
    return replace(config, feed_forward=GatedMLP(width=width, activation=ffn.activation))


def gated(move: Move) -> Told:
    """The strongest units become gates, and the way out is fitted to what the old network wrote, as ThiNet does after
    taking channels away (Luo et al., 2017).

    Biases hold the values at 1. Without any no linear map is 1 everywhere: values are fresh then, and the fit is all.
    """
    spec = move.new.config.feed_forward
    assert isinstance(spec, GatedMLP)
    kept, has_bias = 0, move.new.config.bias
    for at, block, _ in move.blocks():
        own, old = f"{at}.feed_forward", block.feed_forward
        assert isinstance(old, Plain)
        x = move.read_by(own)  # (T, D)
        with torch.no_grad():
            hidden = old.activation(old.up(x))  # (T, F)
        down = move.was(f"{own}.down.weight")
        strength = hidden.square().mean(0) * down.square().sum(0)
        units = strength.argsort(descending=True)[: spec.width].sort().values
        kept = len(units)
        values = _values(move, own, x, kept)
        wanted = hidden @ down.T
        hidden = hidden[:, units] * values
        start = down[:, units] if has_bias else torch.zeros_like(down[:, units])
        start = start + fit(hidden, wanted - hidden @ start.T).T
        for name, rows in (("gate", move.was(f"{own}.up.weight")[units]), ("down", start)):
            full = move.now(f"{own}.{name}.weight").clone()
            if name == "gate":
                full[:kept] = rows
            else:
                full.zero_()[:, :kept] = rows
            move.put(f"{own}.{name}.weight", full)
        if has_bias:
            full = torch.zeros_like(move.now(f"{own}.gate.bias"))
            full[:kept] = move.was(f"{own}.up.bias")[units]
            move.put(f"{own}.gate.bias", full)
    return Told(
        "recipe",
        f"the strongest {kept} units kept as gates, {'values held at 1' if has_bias else 'fresh values'}, the way out "
        f"fitted to what was written",
        ("the other units", *(() if has_bias else ("a value of 1, which without bias none can hold",))),
    )


def _values(move: Move, own: str, x: Tensor, kept: int) -> Tensor:
    """What the first `kept` values say of what is read, (T, kept): 1 where biases can hold it, else what they drew."""
    rows = move.now(f"{own}.up.weight").clone()
    if not move.has(f"{own}.up.bias"):
        return x @ rows[:kept].T
    ones = torch.zeros_like(move.now(f"{own}.up.bias"))
    rows[:kept], ones[:kept] = 0, 1
    move.put(f"{own}.up.weight", rows)
    move.put(f"{own}.up.bias", ones)
    return torch.ones_like(x[:, :1]).expand(-1, kept)


# ---- experts ---------------------------------------------------------------------------------------------------------


def _plain_mixture(moe: MoE) -> MoE:
    """It without shared experts, balanced by a loss: experts first come so."""
    whole = moe.active_width // moe.expert.width
    balance = AuxiliaryLoss() if isinstance(moe.balance, SelectionBias) else moe.balance
    return replace(
        moe, n_shared=0, shared_gate=None, shared_width=None, top_k=whole, routed_scale=float(whole), balance=balance
    )


def to_experts(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """From a dense network to experts that are slices of it: two a token first, where those can be cut on."""
    dense, wanted = config.feed_forward, target.feed_forward
    if not isinstance(dense, GatedMLP) or not isinstance(wanted, MoE):
        return None
    whole = _plain_mixture(wanted)
    cut, rest = divmod(whole.top_k, 2)
    if not rest and cut > 1 and not whole.n_experts % cut:
        expert = replace(whole.expert, width=whole.expert.width * cut)
        whole = replace(whole, expert=expert, n_experts=whole.n_experts // cut, top_k=2, routed_scale=2.0)
    sliced = replace(dense, width=whole.expert.width)
    is_cut = whole.expert == sliced and whole.active_width == dense.width and not whole.n_experts % whole.top_k
    has_ties = isinstance(wanted.router, GroupLimitedRouter | SwitchRouter) or wanted.biases is not None
    if not is_cut or has_ties:
        return None
    return replace(config, feed_forward=whole)


def experts(move: Move) -> Told:
    """Sparse upcycling (Komatsuzaki et al., 2022) with sliced experts: router rows are equal in groups of k, and the
    experts of a group are the k slices of the dense network, each with weight 1.

    All groups compute the same until training, which sends each other tokens, tells them apart; `Options.noise` does so
    at once.
    """
    spec = move.new.config.feed_forward
    assert isinstance(spec, MoE)
    k, groups = spec.top_k, spec.n_experts // spec.top_k
    generator, has_bias = torch.Generator().manual_seed(move.options.seed), False
    for at, _, _ in move.blocks():
        own = f"{at}.feed_forward"
        dropped = [name for name in (f"{own}.{part}.bias" for part in ("gate", "up", "down")) if move.had(name)]
        has_bias |= any(bool(move.was(name).any()) for name in dropped)
        rows = move.now(f"{own}.router.logits.weight")
        move.put(f"{own}.router.logits.weight", rows[::k].repeat_interleave(k, dim=0))
        for matrix in ("gate", "up", "down"):
            dense = move.was(f"{own}.{matrix}.weight")
            slices = dense.unflatten(1, (k, -1)).transpose(0, 1) if matrix == "down" else dense.unflatten(0, (k, -1))
            copies = slices.repeat(groups, 1, 1)
            if move.options.noise:
                noise = torch.randn(copies.shape, generator=generator, dtype=copies.dtype)
                copies = copies + move.options.noise * copies.square().mean().sqrt() * noise
            move.put(f"{own}.experts.{matrix}", copies)
    how = (
        f"{groups} groups of {k} experts, a group the {k} slices of the dense network; fresh router rows, equal within "
        f"a group"
    )
    lost = ("the biases of the dense network, which experts have no place for",) if has_bias else ()
    if not move.options.noise:
        return Told("recipe" if lost else "function-preserving", how, lost)
    return Told("recipe", f"{how}; noise of {move.options.noise:g} of their size added to experts", lost)


def to_finer(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Each expert cut in equal parts, all of which are chosen where it was."""
    held, wanted = config.feed_forward, target.feed_forward
    if not (isinstance(held, MoE) and isinstance(wanted, MoE)) or held.n_shared or held.biases is not None:
        return None
    cut, rest = divmod(held.expert.width, wanted.expert.width)
    if rest or cut < 2 or isinstance(held.router, GroupLimitedRouter | SwitchRouter):
        return None
    finer = replace(
        held,
        expert=replace(held.expert, width=wanted.expert.width),
        n_experts=cut * held.n_experts,
        top_k=cut * held.top_k,
        routed_scale=cut * held.routed_scale,
    )
    return replace(config, feed_forward=finer)


def finer(move: Move) -> Told:
    """Router rows repeated, each expert cut."""
    before, after = move.old.config.feed_forward, move.new.config.feed_forward
    assert isinstance(before, MoE) and isinstance(after, MoE)
    cut = after.n_experts // before.n_experts
    for at, _, _ in move.blocks():
        own = f"{at}.feed_forward"
        rows = move.was(f"{own}.router.logits.weight")
        move.put(f"{own}.router.logits.weight", rows.repeat_interleave(cut, dim=0))
        if move.has(f"{own}.router.selection_bias"):  # probabilities are cut as well, sigmoids are not
            share = cut if isinstance(before.router, SoftmaxRouter) else 1
            biases = move.was(f"{own}.router.selection_bias") / share
            move.put(f"{own}.router.selection_bias", biases.repeat_interleave(cut, dim=0))
        for name in ("gate", "up"):
            parts = move.was(f"{own}.experts.{name}").unflatten(1, (cut, -1))
            move.put(f"{own}.experts.{name}", parts.flatten(0, 1))
        parts = move.was(f"{own}.experts.down").unflatten(2, (cut, -1)).transpose(1, 2)
        move.put(f"{own}.experts.down", parts.flatten(0, 1))
    return Told("function-preserving", f"router rows repeated {cut} times, each expert cut in {cut}")


def to_shared(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """One routed expert less for each token, and one that all use."""
    held, wanted = config.feed_forward, target.feed_forward
    if not (isinstance(held, MoE) and isinstance(wanted, MoE)) or held.biases is not None:
        return None
    if wanted.n_shared != held.n_shared + 1 or held.top_k < 2 or wanted.width_of_shared != held.expert.width:
        return None
    k, scale = held.top_k - 1, held.routed_scale / held.top_k
    return replace(config, feed_forward=replace(held, n_shared=held.n_shared + 1, top_k=k, routed_scale=k * scale))


def shared(move: Move) -> Told:
    """The shared expert is the mean of the experts that came last among a token's chosen, the ones that now fall out.

    Where those are copies of one, as right after experts were cut, nothing is lost.
    """
    spec = move.old.config.feed_forward
    assert isinstance(spec, MoE)
    for at, block, _ in move.blocks():
        own, mixture = f"{at}.feed_forward", block.feed_forward
        assert isinstance(mixture, MixtureOfExperts)
        share = _last_chosen(move, own, mixture)
        last = spec.routed_scale / spec.top_k
        for name in ("gate", "up", "down"):
            mean = torch.einsum("e,eab->ab", share, move.was(f"{own}.experts.{name}"))
            move.put(f"{own}.shared.{spec.n_shared}.{name}.weight", mean * (last if name == "down" else 1))
    return Told(
        "recipe",
        "the shared expert is the mean of those that fall out, the last of each token's chosen on the measured texts",
        ("each token's own last expert, where they differ",),
    )


def _last_chosen(move: Move, own: str, mixture: MixtureOfExperts) -> Tensor:
    """How often each expert came last among the chosen, (E,), adding to 1."""
    router, x = mixture.router, move.read_by(own)
    with torch.no_grad():
        scores = router.score(router.logits(x))
        if isinstance(router.balance, SelectionBias):
            scores = scores + router.selection_bias
        chosen = best(scores, router.top_k)[:, -1]
    return torch.bincount(chosen, minlength=scores.shape[1]).to(x.dtype) / len(chosen)


def to_shared_gate(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """A gate on the shared expert."""
    held, wanted = config.feed_forward, target.feed_forward
    if not (isinstance(held, MoE) and isinstance(wanted, MoE)) or not held.n_shared:
        return None
    if held.shared_gate is not None or wanted.shared_gate is None:
        return None
    return replace(config, feed_forward=replace(held, shared_gate=wanted.shared_gate))


def shared_gate(move: Move) -> Told:
    """It stands at 1/2, its matrix at 0; the shared expert's way out is doubled."""
    for name in move.names():
        if name.endswith("shared_gate.weight"):
            move.put(name, torch.zeros_like(move.now(name)))
        if ".shared." in name and name.endswith("down.weight"):
            move.put(name, 2 * move.was(name))
    return Told("function-preserving", "the gate at 1/2 (its matrix 0), the shared expert's way out doubled")


def to_balance(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Another way to spread the load."""
    held, wanted = config.feed_forward, target.feed_forward
    if not (isinstance(held, MoE) and isinstance(wanted, MoE)) or held.balance == wanted.balance:
        return None
    return replace(config, feed_forward=replace(held, balance=wanted.balance))


def balance(move: Move) -> Told:
    """Biases of the choice begin at 0; those that are left behind were part of the choice."""
    held = [n for n in move.old.state_dict() if n.endswith("selection_bias") and not move.has(n)]
    is_lost = any(bool(move.was(name).any()) for name in held)
    how = "every weight copied" + (", biases of the choice at 0" if not held else "")
    return Told("recipe" if is_lost else "function-preserving", how, ("the biases of the choice",) if is_lost else ())
