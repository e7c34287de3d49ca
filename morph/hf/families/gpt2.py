"""GPT-2 (Radford et al., 2019): learned positions, pre-LayerNorm, biases everywhere.

Its matrices are stored (in, out), queries, keys and values in one. Files of the first releases leave out the prefix
`transformer.` and hold each layer's causal mask.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from morph.config import MLP, AllGlobal, Attention, LayerNorm, LearnedPosition, ModelConfig
from morph.hf.families.family import Family
from morph.hf.families.parts import organ
from morph.hf.settings import Settings, activation_there
from morph.hf.weights import Rule, chained, copied, each, fused, linear, transposed


def read(s: Settings) -> ModelConfig:
    s.only("add_cross_attention", False)
    s.only("scale_attn_weights", True)
    s.only("scale_attn_by_inverse_layer_idx", False)
    s.ignore("n_ctx", "reorder_and_upcast_attn")  # an older name of n_positions; a matter of rounding
    width, heads, length = s.whole("n_embd"), s.whole("n_head"), s.whole("n_positions", 1024)
    return ModelConfig(
        vocab_size=s.whole("vocab_size"),
        d_model=width,
        n_layers=s.whole("n_layer"),
        context_length=length,
        placement="pre",
        norm=LayerNorm(eps=s.number("layer_norm_epsilon", 1e-5)),
        bias=True,
        position=LearnedPosition(length=length),
        attention=Attention(n_heads=heads, n_kv_heads=heads),
        layout=AllGlobal(),
        feed_forward=MLP(
            width=s.whole_or_none("n_inner", None) or 4 * width,
            activation=s.activation("activation_function", "gelu_new"),
        ),
        tied=s.flag("tie_word_embeddings", True),
        embedding_scale=1.0,
    )


def write(config: ModelConfig) -> dict[str, Any]:
    attention, mlp = (
        organ(config.attention, Attention, "attention"),
        organ(config.feed_forward, MLP, "feed_forward"),
    )
    return {
        "vocab_size": config.vocab_size,
        "n_positions": config.context_length,
        "n_embd": config.d_model,
        "n_layer": config.n_layers,
        "n_head": attention.n_heads,
        "n_inner": mlp.width,
        "activation_function": activation_there(mlp.activation),
        "layer_norm_epsilon": config.norm.eps,
        "tie_word_embeddings": config.tied,
    }


def rules(config: ModelConfig, prefix: str = "transformer.") -> list[Rule]:
    turn = each(lambda tensor: tensor.transpose(0, 1))
    found = [copied("embedding.weight", f"{prefix}wte.weight"), copied("positions.weight", f"{prefix}wpe.weight")]
    for layer in range(config.n_layers):
        ours, theirs = f"blocks.{layer}", f"{prefix}h.{layer}"
        three, sizes = [f"{ours}.attention.{part}_proj" for part in "qkv"], [config.d_model] * 3
        weights, biases = [f"{name}.weight" for name in three], [f"{name}.bias" for name in three]
        found += linear(f"{ours}.attention_norm", f"{theirs}.ln_1", bias=True)
        found += [
            chained(fused(weights, f"{theirs}.attn.c_attn.weight", sizes, dim=1), turn, turn),
            fused(biases, f"{theirs}.attn.c_attn.bias", sizes),
        ]
        found += linear(f"{ours}.feed_forward_norm", f"{theirs}.ln_2", bias=True)
        for mine, other in (
            ("attention.o_proj", "attn.c_proj"),
            ("feed_forward.up", "mlp.c_fc"),
            ("feed_forward.down", "mlp.c_proj"),
        ):
            found += [
                transposed(f"{ours}.{mine}.weight", f"{theirs}.{other}.weight"),
                copied(f"{ours}.{mine}.bias", f"{theirs}.{other}.bias"),
            ]
    found += linear("norm", f"{prefix}ln_f", bias=True)
    return found if config.tied else [*found, copied("head.weight", "lm_head.weight")]


GPT2 = Family(
    "gpt2",
    "GPT2LMHeadModel",
    read,
    write,
    rules,
    other_rules=(partial(rules, prefix=""),),
    ignored=lambda config: ("*.attn.bias", "*.attn.masked_bias"),
)
