"""Small models that differ in how tokens are mixed and in nothing else: what made tasks compare.

Stage 7 (RMSNorm, RoPE, gated network, no QK-norm) with two layers of width 32 and one attention head of width 16: one
head, as a head of a few features matches few tokens apart, and the stages' four would have 8 each.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from morph.config import (
    MLA,
    AllGlobal,
    Attention,
    GatedDeltaNet,
    GatedMLP,
    Indexer,
    Interleaved,
    Layout,
    Lightning,
    Listed,
    Local,
    ModelConfig,
    SlidingWindow,
)
from morph.model import Decoder
from morph.nn.deltalayer import DeltaLayer
from morph.steps import stage

LAYERS = 2
WIDTH = 32
HEAD = 16


def full(vocabulary: int) -> ModelConfig:
    """Both layers see everything."""
    return replace(
        stage("gqa", "nano"),
        vocab_size=vocabulary,
        d_model=WIDTH,
        n_layers=LAYERS,
        attention=Attention(n_heads=1, n_kv_heads=1, head_dim=HEAD),
        feed_forward=GatedMLP(width=WIDTH, activation="silu"),
        layout=AllGlobal(),
    )


def laid_out(vocabulary: int, layout: Layout) -> ModelConfig:
    """The same model with another layout."""
    return replace(full(vocabulary), layout=layout)


def everywhere(local: Local) -> Interleaved:
    """Both layers are local."""
    return Interleaved(n_local=LAYERS, local=local)


def below_full(local: Local) -> Listed:
    """The first layer is local, the last sees everything."""
    return Listed(local=local, global_layers=(LAYERS - 1,))


def window(tokens: int) -> SlidingWindow:
    """The last `tokens` tokens, the own included."""
    return SlidingWindow(window=tokens)


def delta(width: int, heads: int = 1, taps: int = 4) -> GatedDeltaNet:
    """Gated DeltaNet; each head keeps `width` x `width` numbers. With one tap its convolution joins no tokens."""
    return GatedDeltaNet(
        n_key_heads=heads, n_value_heads=heads, key_head_dim=width, value_head_dim=width, conv_size=taps
    )


def linear(width: int) -> Lightning:
    """Linear attention, near enough: lightning attention with one head, which hardly fades.

    Of one head the slope is 2^-8 in the first of two layers (e^(-24/256) = 0.91 is left after 24 tokens) and below
    10^-7 in the last (`morph.nn.lightning.decay_slopes`).
    """
    return Lightning(n_heads=1, head_dim=width)


def lightning(width: int, heads: int = 4) -> Lightning:
    """Lightning attention; the first layer's heads fade at speeds 2^-2 to 2^-8, the last layer's hardly."""
    return Lightning(n_heads=heads, head_dim=width)


def sparse(vocabulary: int, top_k: int, warm_up: int) -> ModelConfig:
    """Latent attention in both layers, to `top_k` tokens that an indexer chooses; dense in the first `warm_up` steps.

    An indexer that is to learn from attention must see it attend: without dense steps it would have to guess which
    tokens attention would have liked.
    """
    latent = MLA(n_heads=1, q_rank=HEAD, kv_rank=HEAD, nope_dim=HEAD, rope_dim=HEAD // 2, v_dim=HEAD)
    indexer = Indexer(n_heads=16, head_dim=HEAD, rope_dim=HEAD // 2, top_k=top_k, warm_up=warm_up)
    return replace(full(vocabulary), attention=replace(latent, indexer=indexer))


def start_without_fading(model: Decoder) -> None:
    """The delta layers' decays start at almost 1 (A = 0.01): less than 1 % is lost a token, until they learn otherwise.

    They start anywhere between a memory of one token and of a thousand, a head each. With one head that would decide
    how far a model can look back, and not how much its state has room for.
    """
    for layer in model.modules():
        if isinstance(layer, DeltaLayer):
            torch.nn.init.constant_(layer.log_A, math.log(0.01))
