"""SmolLM3 (Hugging Face, 2025): Llama's block in which every fourth layer rotates nothing."""

from __future__ import annotations

from typing import Any

from morph.config import AllGlobal, Attention, GatedMLP, ModelConfig, NoPosition, Position, RMSNorm, SomeLayers
from morph.hf.families.family import Family
from morph.hf.families.parts import FULL, decoder_rules, read_heads, same_biases, write_common
from morph.hf.families.rotation import read_rotation, write_rotation
from morph.hf.settings import Settings


def read(s: Settings) -> ModelConfig:
    s.only("use_sliding_window", False)
    s.ignore("sliding_window", "max_window_layers")
    context, layers = s.whole("max_position_embeddings", 32_768), s.whole("num_hidden_layers")
    if "layer_types" in s:
        s.words("layer_types", layers, (FULL,))
    return ModelConfig(
        vocab_size=s.whole("vocab_size"),
        d_model=s.whole("hidden_size"),
        n_layers=layers,
        context_length=context,
        placement="pre",
        norm=RMSNorm(eps=s.number("rms_norm_eps", 1e-6)),
        bias=same_biases(s),
        position=_position(s, context, layers),
        attention=Attention(**read_heads(s, default_kv=4)),
        layout=AllGlobal(),
        feed_forward=GatedMLP(width=s.whole("intermediate_size"), activation=s.activation("hidden_act", "silu")),
        tied=s.flag("tie_word_embeddings", True),
        embedding_scale=1.0,
    )


def _position(s: Settings, context: int, layers: int) -> Position:
    """`no_rope_layers` has a 1 for each layer that does rotate, whatever its name says."""
    rotation, interval = read_rotation(s, 2_000_000.0, context), s.whole("no_rope_layer_interval", 4, least=1)
    turns = s.raw("no_rope_layers", [int((layer + 1) % interval != 0) for layer in range(layers)])
    if not isinstance(turns, list) or len(turns) < layers or any(turn not in (0, 1) for turn in turns):
        s.refuse("no_rope_layers", f"give a list of {layers} times 1 (rotates) or 0")
    still = tuple(layer for layer in range(layers) if not turns[layer])
    if not still:
        return rotation
    return NoPosition() if len(still) == layers else SomeLayers(layers=still, inside=NoPosition(), outside=rotation)


def write(config: ModelConfig) -> dict[str, Any]:
    positions = [config.position_in(layer) for layer in range(config.n_layers)]
    turning = next((position for position in positions if not isinstance(position, NoPosition)), None)
    return write_common(config) | {
        "no_rope_layers": [int(not isinstance(position, NoPosition)) for position in positions],
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        **({"rope_parameters": write_rotation(turning)} if turning else {}),
    }


SMOLLM3 = Family("smollm3", "SmolLM3ForCausalLM", read, write, decoder_rules)
