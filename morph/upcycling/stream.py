"""Recipes for what stands on the stream: norms, biases, positions, the head."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from morph.config import (
    Attention,
    LayerNorm,
    LayerNormNoBias,
    LearnedPosition,
    LogitScale,
    ModelConfig,
    NoPosition,
    Norm,
    QKNorm,
    RMSNorm,
    Rotary,
    Sinusoid,
    ZeroCentredRMSNorm,
)
from morph.measure.size import rms
from morph.nn.attention import SoftmaxAttention
from morph.upcycling.move import Kind, Move, Told, readers, writers

# ---- where the norms stand -------------------------------------------------------------------------------------------


def to_pre_norm(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """From norms on the stream to norms on the branches."""
    return replace(config, placement="pre") if (config.placement, target.placement) == ("post", "pre") else None


def pre_norm(move: Move) -> Told:
    """Each norm goes to the branch that read what it made, the last one before the head; branches write louder.

    A post-norm stream is brought back to size after every addition, a pre-norm one grows. So that a branch keeps its
    share of the stream, what it writes is multiplied by the mean size that the stream would by then have had:

        s_0 = 1,    s_{j+1} = s_j · mean σ(x_j + f_j(x_j)) / RMS(γ_j)
    """
    x, scale = move.seen["stream"].double(), 1.0
    last = {"weight": torch.full_like(x[0, 0], float(x.std(-1, correction=0).mean())), "bias": None}
    for at, _, _ in move.blocks():
        for half, end in (("attention", "middle"), ("feed_forward", "stream")):
            for part, value in last.items():
                name = f"{at}.{half}_norm.{part}"
                if move.has(name):
                    move.put(name, torch.full_like(move.now(name), float(x.mean())) if value is None else value)
            for name in writers(move, at):
                if name.startswith(f"{at}.{half}."):
                    move.put(name, scale * move.was(name))
            last = {part: move.was(f"{at}.{half}_norm.{part}") for part in last if move.had(f"{at}.{half}_norm.{part}")}
            total = x + move.seen[f"{at}.{half}_delta"].double()
            scale *= float(total.std(-1, correction=0).mean()) / (rms(last["weight"]) or 1.0)  # type: ignore[arg-type]
            x = move.seen[f"{at}.{end}"].double()
    for part, value in last.items():
        assert value is not None
        move.put(f"norm.{part}", value)
    return Told(
        "recipe",
        "each norm moved to the branch that read what it made, the last one before the head; what a branch writes "
        f"times the measured growth of the stream, up to {scale:.3g}",
        ("the size of every single token's stream: its mean stands for it",),
    )


def to_depth_scaled(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Between the two sandwiches, which differ in where gains start."""
    pair = {config.placement, target.placement}
    return replace(config, placement=target.placement) if pair == {"sandwich", "depth-scaled-sandwich"} else None


# ---- what the norms are ----------------------------------------------------------------------------------------------


def to_rms_norm(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """From a norm that takes off the mean to one that does not."""
    centres = (LayerNorm, LayerNormNoBias)
    if isinstance(config.norm, centres) and not isinstance(target.norm, centres):
        return replace(config, norm=target.norm)
    return None


def rms_norm(move: Move) -> Told:
    """LN(x) = RMS(x - mean x) + shift (Zhang & Sennrich, 2019): the centring goes to those who write the stream.

    Where a plain sum reaches the norms (pre-norm), every writer is made to write vectors of mean 0, as in SliceGPT
    (Ashkboos et al., 2024), and each shift goes through the following matrix into its bias. With nothing lost on the
    way both models are the same function.
    """
    config, lost = move.new.config, _epsilon(move.old.config.norm, move.new.config.norm)
    offset = 1.0 if isinstance(config.norm, ZeroCentredRMSNorm) else 0.0
    if offset:
        for name in move.names():
            if name.endswith("norm.weight") and not name.endswith(
                ("q_norm.weight", "k_norm.weight", "out_norm.weight")
            ):
                move.add(name, torch.full_like(move.now(name), -offset))
    if config.placement != "pre":
        lost += ["the mean of every token, which these placements do not let the writers take off", "the norms' shifts"]
        return Told("recipe", "gains copied", tuple(lost))
    for at, block, _ in move.blocks():
        for name, axis in writers(move, at).items():
            value = move.now(name)
            move.put(name, value - value.mean(axis, keepdim=True))
        for half in ("attention", "feed_forward"):
            shift = _shift(move, f"{at}.{half}_norm")
            maps = [name for name in readers(at, block, half) if move.has(f"{name}.bias")]
            for name in maps:
                move.add(f"{name}.bias", move.was(f"{name}.weight") @ shift)
            if not maps and shift.any():
                lost.append(f"the shift of {at}.{half}_norm: what reads it has no bias to take it")
    lost += _centre_ends(move)
    how = "writers of the stream centred, shifts moved through the next matrix into its bias, gains copied"
    return Told("recipe" if lost else "function-preserving", how, tuple(lost))


def _epsilon(before: Norm | QKNorm | None, after: Norm | QKNorm | None) -> list[str]:
    """What is lost where both norms hold another ε."""
    if before is None or after is None or before.eps == after.eps:
        return []
    return [f"the norms' ε, {before.eps:g}, which is {after.eps:g} now"]


def _shift(move: Move, norm: str) -> Tensor:
    """A LayerNorm's shift, zeros for one without."""
    held = f"{norm}.bias"
    return move.was(held) if move.had(held) else torch.zeros_like(move.was(f"{norm}.weight"))


def _centre_ends(move: Move) -> list[str]:
    """Centre the tables that begin the stream; what is lost there and at the head."""
    config, lost = move.new.config, []
    table, gain = move.was("embedding.weight"), move.was("norm.weight")
    mean = table.mean(1, keepdim=True)
    move.put("embedding.weight", table - mean)
    if config.tied and mean.any() and (gain - gain.mean()).any():
        lost.append("what the tied head read of the mean of an embedding (it weighs only where the final gains differ)")
    if move.has("positions.weight"):
        places = move.was("positions.weight")
        move.put("positions.weight", places - places.mean(1, keepdim=True))
    if isinstance(config.position, Sinusoid):
        lost.append("the mean of a place's sinusoid, which no matrix writes")
    if _shift(move, "norm").any():
        lost.append("the final norm's shift: a head has no bias to take it")
    return lost


def to_zero_centred(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """From gains to their distances from 1."""
    wanted = isinstance(target.norm, ZeroCentredRMSNorm) and config.norm != target.norm
    if not wanted or not config.norm.kind.startswith("rms"):
        return None
    held, asked = config.attention, target.attention
    if not isinstance(held, Attention) or not isinstance(asked, Attention):
        return replace(config, norm=target.norm)
    if isinstance(held.qk_norm, RMSNorm) and isinstance(asked.qk_norm, ZeroCentredRMSNorm):
        held = replace(held, qk_norm=asked.qk_norm)
    return replace(config, norm=target.norm, attention=held)


def zero_centred(move: Move) -> Told:
    """1 is taken off every gain that is now stored so."""
    for (name, old), (_, new) in zip(move.old.named_modules(), move.new.named_modules(), strict=True):
        if type(old) is not type(new) and move.has(f"{name}.weight"):
            move.put(f"{name}.weight", move.was(f"{name}.weight") - 1)
    before, after = move.old.config, move.new.config
    lost = _epsilon(before.norm, after.norm)
    if isinstance(before.attention, Attention) and isinstance(after.attention, Attention):
        lost += _epsilon(before.attention.qk_norm, after.attention.qk_norm)
    kept: Kind = "recipe" if lost else "function-preserving"
    return Told(kept, "1 taken off every stored gain", tuple(dict.fromkeys(lost)))


# ---- biases ----------------------------------------------------------------------------------------------------------


def to_no_bias(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Without the biases of linear maps."""
    return replace(config, bias=False) if config.bias and not target.bias else None


def no_bias(move: Move) -> Told:
    """They are dropped. A key's bias adds the same to all scores of a query, which says nothing unless keys are turned
    or normed, or scores meet a cap or a sink.
    """
    lost = []
    for name in move.old.state_dict():
        if move.has(name) or not move.was(name).any():
            continue
        at, _, what = name.rpartition(".attention.")
        attention = move.old.get_submodule(f"{at}.attention") if at else None
        is_plain = isinstance(attention, SoftmaxAttention) and attention.rope is None and attention.k_norm is None
        if what == "k_proj.bias" and is_plain and attention.sink is None and attention.cap is None:  # type: ignore[union-attr]
            continue
        lost.append(name)
    what = "the biases" if any("k_proj" in name for name in lost) else "the biases, but for those of keys"
    told = (what,) if lost else ()
    return Told("recipe" if lost else "function-preserving", "matrices and gains copied, biases dropped", told)


# ---- position --------------------------------------------------------------------------------------------------------


def to_position(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Another way to tell places apart; one that names kinds of layers comes after these are there."""
    return replace(config, position=target.position) if config.position != target.position else None


def position(move: Move) -> Told:
    """Rotations, slopes and sinusoids have no weights: all others are copied."""
    before, after = move.old.config.position, move.new.config.position
    if isinstance(after, LearnedPosition) and isinstance(before, Sinusoid):
        context = move.old.context(0, after.length)
        rows = context.sinusoid(before, move.old.config.d_model)
        move.put("positions.weight", rows / move.old.config.embedding_factor)
        return Told("function-preserving", "the sinusoid written down as the table's rows", holds_for=after.length)
    how = "every weight copied; a way to tell places apart has none" + (
        " but the table, which is fresh" if isinstance(after, LearnedPosition) else ""
    )
    kept = "what the weights had learned of places" if not isinstance(before, NoPosition) else ""
    if isinstance(before, Rotary) and isinstance(after, Rotary):
        kept = "the speeds at which pairs turned"
    return Told("recipe", how, (kept,) if kept else ())


# ---- both ends -------------------------------------------------------------------------------------------------------


def to_untied(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """A head of its own."""
    return replace(config, tied=False) if config.tied and not target.tied else None


def untied(move: Move) -> Told:
    """The embedding is copied into the head."""
    move.put("head.weight", move.was("embedding.weight"))
    return Told("function-preserving", "the embedding copied into the head")


def to_logit_scale(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Logits times a constant, where a final norm can take it back."""
    wanted = isinstance(target.logits, LogitScale) and config.logits is None and config.placement != "post"
    return replace(config, logits=target.logits) if wanted else None


def logit_scale(move: Move) -> Told:
    """The final norm's gain (and shift) over that constant."""
    rule = move.new.config.logits
    assert isinstance(rule, LogitScale)
    offset = 1.0 if isinstance(move.new.config.norm, ZeroCentredRMSNorm) else 0.0
    for name in ("norm.weight", "norm.bias"):
        if move.has(name):
            extra = offset if name == "norm.weight" else 0.0
            move.put(name, (move.was(name) + extra) / rule.scale - extra)
    return Told("function-preserving", "the final norm's gain divided by the constant")


def to_dropout(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Features dropped while training, or no longer."""
    return replace(config, dropout=target.dropout) if config.dropout != target.dropout else None


def to_mtp(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Heads for later tokens."""
    return replace(config, mtp=target.mtp) if config.mtp is None and target.mtp is not None else None


def mtp(move: Move) -> Told:
    """They are fresh; the model's own logits do not depend on them."""
    return Told("function-preserving", "the model copied, fresh heads beside it")


def copied(move: Move) -> Told:
    """The same weights, and outside training the same function."""
    return Told("function-preserving", "every weight copied")
