"""What families share: which layers see the whole past, sizes of heads, and the weights of a decoder by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from morph.config import (
    AllGlobal,
    AllLocal,
    Attention,
    GatedMLP,
    InLayer,
    Interleaved,
    Layout,
    Listed,
    Local,
    ModelConfig,
    PerLayer,
    Placement,
    Position,
    SlidingWindow,
    Spec,
)
from morph.errors import MorphError
from morph.hf.families.rotation import write_rotation
from morph.hf.settings import Settings, activation_there
from morph.hf.weights import Rule, copied, linear

FULL, SLIDING = "full_attention", "sliding_attention"

S = TypeVar("S", bound=Spec)
LayerRules = Callable[[ModelConfig, int], list[Rule]]

# ---- layers --------------------------------------------------------------------------------------------------


def layout_of(global_layers: list[int], n_layers: int, local: Local) -> Layout:
    """The layout in which these layers see the whole past and all others use `local`, by its shortest name."""
    if len(global_layers) == n_layers:
        return AllGlobal()
    if not global_layers and isinstance(local, SlidingWindow):
        return AllLocal(local=local)
    period = global_layers[0] + 1 if global_layers else n_layers + 1
    if period > 1 and global_layers == list(range(period - 1, n_layers, period)):
        return Interleaved(n_local=period - 1, local=local)
    return Listed(local=local, global_layers=tuple(global_layers))


def every(period: int, n_layers: int) -> list[str]:
    """The names of the layers when each `period`-th one sees the whole past."""
    return [SLIDING if (layer + 1) % period else FULL for layer in range(n_layers)]


def read_windows(settings: Settings, n_layers: int, default: list[str], default_window: int | None) -> Layout:
    """The layout of layers that see all tokens or the last `sliding_window`, from `layer_types` where it is given."""
    types = settings.words("layer_types", n_layers, (FULL, SLIDING)) if "layer_types" in settings else default
    settings.ignore("layer_types")
    window = settings.whole_or_none("sliding_window", default_window)
    global_layers = [layer for layer, name in enumerate(types) if name == FULL]
    if len(global_layers) == n_layers:
        return AllGlobal()
    if window is None:
        settings.refuse("sliding_window", "layers of sliding_attention need a whole number of tokens")
    assert window is not None
    return layout_of(global_layers, n_layers, SlidingWindow(window=window))


def write_windows(config: ModelConfig) -> dict[str, Any]:
    """`layer_types` and `sliding_window` for a config; null without windows."""
    layers = [config.mixer(layer) for layer in range(config.n_layers)]
    windows = {mixer.window for mixer in layers if isinstance(mixer, SlidingWindow)}
    return {
        "layer_types": [SLIDING if isinstance(mixer, SlidingWindow) else FULL for mixer in layers],
        "sliding_window": next(iter(windows), None),
    }


def windows_differ(layout: Layout, local: InLayer, global_: InLayer) -> Position:
    """How layers know places when those with a window do it in one way and all others in another."""
    if isinstance(layout, AllGlobal) or local == global_:
        return global_
    return local if isinstance(layout, AllLocal) else PerLayer(local=local, global_=global_)


def write_both(position: Position) -> dict[str, Any]:
    """`rope_parameters` for each kind of layer."""
    both = position if isinstance(position, PerLayer) else None
    return {
        "rope_parameters": {
            FULL: write_rotation(both.global_ if both else position),
            SLIDING: write_rotation(both.local if both else position),
        }
    }


# ---- heads ---------------------------------------------------------------------------------------------------


def read_heads(
    settings: Settings, default_kv: int | None = None, default_width: int | None = None, default: int | None = None
) -> dict[str, Any]:
    """`n_heads`, `n_kv_heads` and `head_dim`; the defaults are those of the family's class in transformers."""
    key = "num_attention_heads"
    heads = settings.whole(key, least=1) if default is None else settings.whole(key, default, least=1)
    return {
        "n_heads": heads,
        "n_kv_heads": settings.whole_or_none("num_key_value_heads", default_kv, least=1) or heads,
        "head_dim": settings.whole_or_none("head_dim", default_width, least=1),
    }


def write_heads(config: ModelConfig) -> dict[str, Any]:
    """The same, the other way."""
    attention = softmax_attention(config)
    return {
        "num_attention_heads": attention.n_heads,
        "num_key_value_heads": attention.n_kv_heads,
        "head_dim": attention.width,
    }


def require_even_heads(config: ModelConfig) -> None:
    """Raise MorphError for a width that heads do not divide, which some of transformers' classes refuse."""
    heads = softmax_attention(config).n_heads
    if config.d_model % heads:
        raise MorphError(
            f"attention.n_heads = {heads} does not divide d_model = {config.d_model}, as this family wants"
        )


def write_common(config: ModelConfig) -> dict[str, Any]:
    """What dense families with gated networks write alike."""
    mlp = organ(config.feed_forward, GatedMLP, "feed_forward")
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": mlp.width,
        "num_hidden_layers": config.n_layers,
        **write_heads(config),
        "hidden_act": activation_there(mlp.activation),
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm.eps,
        "tie_word_embeddings": config.tied,
    }


def organ(value: Spec, kind: type[S], field: str) -> S:
    """`value` itself, which the family needs to be of this kind. Raises MorphError when it is another."""
    if not isinstance(value, kind):
        raise MorphError(f"{field} is {value.kind!r}, where this family has {kind.kind!r}")
    return value


def softmax_attention(config: ModelConfig) -> Attention:
    """The config's attention. Raises MorphError when it is that of latents."""
    return organ(config.attention, Attention, "attention")


def same_biases(settings: Settings) -> bool:
    """Whether maps have biases, where a family could give them to attention and feed-forward network apart."""
    bias = settings.flag("attention_bias", False)
    if settings.flag("mlp_bias", False) != bias:
        settings.refuse("attention_bias", "in Morph all maps have biases or none has, so mlp_bias must be the same")
    return bias


# ---- weights -------------------------------------------------------------------------------------------------

NORMS: dict[Placement, dict[str, str]] = {
    "pre": {"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"},
    "post-branch": {"attention_norm": "post_attention_layernorm", "feed_forward_norm": "post_feedforward_layernorm"},
    "sandwich": {
        "attention_norm": "input_layernorm",
        "attention_out_norm": "post_attention_layernorm",
        "feed_forward_norm": "pre_feedforward_layernorm",
        "feed_forward_out_norm": "post_feedforward_layernorm",
    },
    "parallel": {"norm": "input_layernorm"},
    "on-normed-stream": {"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"},
}
"""Our norms in a block and their usual names."""


def norm_rules(config: ModelConfig, layer: int) -> list[Rule]:
    """The norms of one block, which have a gain and no shift."""
    names = NORMS.get(config.placement_in(layer), {})
    return [
        copied(f"blocks.{layer}.{ours}.weight", f"model.layers.{layer}.{theirs}.weight")
        for ours, theirs in names.items()
    ]


def attention_rules(config: ModelConfig, layer: int) -> list[Rule]:
    """Softmax attention as `self_attn`: four maps, and the norms of queries and keys where there are any."""
    spec = softmax_attention(config)
    ours, theirs = f"blocks.{layer}.attention", f"model.layers.{layer}.self_attn"
    rules = []
    for part in ("q_proj", "k_proj", "v_proj"):
        rules += linear(f"{ours}.{part}", f"{theirs}.{part}", config.bias or spec.qkv_bias is not None)
    rules += linear(f"{ours}.o_proj", f"{theirs}.o_proj", config.bias)
    if spec.qk_norm is not None:
        rules += linear(f"{ours}.q_norm", f"{theirs}.q_norm") + linear(f"{ours}.k_norm", f"{theirs}.k_norm")
    return rules


def mlp_rules(config: ModelConfig, layer: int) -> list[Rule]:
    """A gated network as `mlp`."""
    ours, theirs = f"blocks.{layer}.feed_forward", f"model.layers.{layer}.mlp"
    return [
        rule
        for part in ("gate", "up", "down")
        for rule in linear(f"{ours}.{part}", f"{theirs}.{part}_proj", config.bias)
    ]


def decoder_rules(
    config: ModelConfig,
    norms: LayerRules = norm_rules,
    mixer: LayerRules = attention_rules,
    feed_forward: LayerRules = mlp_rules,
) -> list[Rule]:
    """A whole decoder: table, the three parts of every layer, final norm, and the head unless it is the table."""
    rules = [copied("embedding.weight", "model.embed_tokens.weight")]
    for layer in range(config.n_layers):
        rules += norms(config, layer) + mixer(config, layer) + feed_forward(config, layer)
    rules.append(copied("norm.weight", "model.norm.weight"))
    return rules if config.tied else [*rules, copied("head.weight", "lm_head.weight")]
