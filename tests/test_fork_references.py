"""Forks against Hugging Face's models of those who chose them, weights carried over, every layer compared.

Initial weights are drawn at 1/√fan_in; gains and sinks are moved off their start; windows are shorter than the text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import morph
from morph.config import ModelConfig, Rope, Softcap
from morph.forks import FORKS, config_of
from morph.model import Decoder
from morph.nn.context import Context
from morph.steps import SIZES
from tests.models import random_ids, relative_error, stage_model
from tests.test_references import BOUND, CACHED, LENGTH, hugging_face_config, hugging_face_weights, streams
from tests.tools import need

FULL, SLIDING = "full_attention", "sliding_attention"


def composed(word: str, *slugs: str, **changes: Any) -> ModelConfig:
    """A stage with forks applied one after the other, each a change of its own, and then fields replaced."""
    config = config_of(word, "nano")
    for slug in slugs:
        config = FORKS[slug].apply(config, SIZES["nano"])
    return replace(config, **changes)


def require_same(model: Decoder, theirs: Any, seed: int) -> None:
    """Every layer's stream, the logits, and decoding after a prefill."""
    ids = random_ids(model, 2, LENGTH, seed)
    ours, logits = streams(model, ids)
    with torch.no_grad():
        expected = theirs.eval()(ids, output_hidden_states=True)
        for mine, other in zip(ours[:-1], expected.hidden_states, strict=False):  # their last one is normalized
            assert relative_error(mine, other) < BOUND
        assert relative_error(model.norm(ours[-1]), expected.hidden_states[-1]) < BOUND
        assert relative_error(logits, expected.logits) < BOUND
        cache = model.new_cache(2)
        decoded = [model(ids[:, :37], cache=cache), *[model(ids[:, t : t + 1], cache=cache) for t in range(37, LENGTH)]]
        assert relative_error(torch.cat(decoded, dim=1), expected.logits) < CACHED


def renamed(weights: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """Weights whose names have each part replaced that `names` lists."""
    out = {}
    for name, value in weights.items():
        for ours, other in names.items():
            name = name.replace(f".{ours}.", f".{other}.")
        out[name] = value
    return out


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("windowed", [False, True], ids=["olmo2", "olmo3"])
def test_post_branch_norm_and_qk_norm_across_heads_against_olmo(windowed: bool, seed: int) -> None:
    need("transformers")
    import transformers

    stage = "sliding-window" if windowed else "qk-norm"
    model = stage_model(composed(stage, "qk-norm-full-width", "post-branch-norm"), seed)
    shared = hugging_face_config(model.config) | {"intermediate_size": 128, "pad_token_id": None}
    if windowed:
        rope = dict.fromkeys((SLIDING, FULL), shared["rope_parameters"])
        shared |= {"sliding_window": 16, "layer_types": [SLIDING] * 3 + [FULL], "rope_parameters": rope}
        theirs = transformers.Olmo3ForCausalLM(transformers.Olmo3Config(**shared))
    else:
        theirs = transformers.Olmo2ForCausalLM(transformers.Olmo2Config(**shared))
    weights = renamed(hugging_face_weights(model), {"post_attention_layernorm": "post_feedforward_layernorm"})
    weights = renamed(weights, {"input_layernorm": "post_attention_layernorm"})
    theirs.load_state_dict(weights, strict=True)
    require_same(model, theirs, seed)


GEMMA_NORMS = {
    "self_attn_norm": "input_layernorm",
    "self_attn_out_norm": "post_attention_layernorm",
    "feed_forward_norm": "pre_feedforward_layernorm",
    "feed_forward_out_norm": "post_feedforward_layernorm",
}


ENDS = {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}


def gemma_weights(model: Decoder) -> dict[str, Tensor]:
    """Their names; they multiply the embedding by √D themselves."""
    out = {}
    for name, value in model.state_dict().items():
        for ours, other in GEMMA_NORMS.items():
            name = name.replace(f".{ours.replace('self_attn', 'attention')}.", f".{other}.")
        name = name.replace("blocks.", "model.layers.").replace(".attention.", ".self_attn.")
        for part in ("gate", "up", "down"):
            name = name.replace(f"feed_forward.{part}.", f"mlp.{part}_proj.")
        out[ENDS.get(name, name)] = value
    return out | {"lm_head.weight": model.embedding.weight}


@pytest.mark.parametrize("seed", [0, 1])
def test_sandwich_soft_cap_and_one_to_one_against_gemma_2(seed: int) -> None:
    need("transformers")
    import transformers

    config = composed("sliding-window", "sandwich-norm", "zero-centred-norm", "geglu", "window-1-1")
    attention = replace(config.attention, qk_norm=None, softcap=Softcap(cap=2.0))  # a cap that bites
    model = stage_model(replace(config, attention=attention), seed)
    shared = hugging_face_config(config) | {"tie_word_embeddings": True}
    theirs = transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(
            **shared,
            intermediate_size=128,
            hidden_activation="gelu",
            query_pre_attn_scalar=12,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=None,
            sliding_window=16,
            layer_types=[SLIDING, FULL] * 2,
        )
    )
    theirs.load_state_dict(gemma_weights(model), strict=True)
    require_same(model, theirs, seed)


@pytest.mark.parametrize("seed", [0, 1])
def test_sandwich_five_to_one_and_two_bases_against_gemma_3(seed: int) -> None:
    need("transformers")
    import transformers

    forks = ("sandwich-norm", "zero-centred-norm", "geglu", "window-5-1", "dual-rope-base")
    config = composed("sliding-window", *forks, n_layers=6)
    model = stage_model(config, seed)
    shared = hugging_face_config(config) | {"tie_word_embeddings": True}
    shared["rope_parameters"] = {
        kind: {"rope_type": "default", "rope_theta": base} for kind, base in ((SLIDING, 1e4), (FULL, 1e6))
    }
    theirs = transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(
            **shared,
            intermediate_size=128,
            hidden_activation="gelu",
            query_pre_attn_scalar=12,
            sliding_window=16,
            layer_types=[SLIDING] * 5 + [FULL],
        )
    )
    theirs.load_state_dict(gemma_weights(model), strict=True)
    require_same(model, theirs, seed)


@pytest.mark.parametrize("seed", [0, 1])
def test_parallel_block_and_layer_norm_without_shift_against_cohere(seed: int) -> None:
    """Cohere turns neighbouring features together, so rows of the maps to q and k change places."""
    need("transformers")
    import transformers

    model = stage_model(composed("gqa", "parallel-block", "layer-norm-no-bias"), seed)
    shared = hugging_face_config(model.config) | {"layer_norm_eps": 1e-5, "logit_scale": 1.0, "pad_token_id": None}
    theirs = transformers.CohereForCausalLM(transformers.CohereConfig(**shared, intermediate_size=128))
    weights = {}
    for name, value in hugging_face_weights(model).items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            value = value.view(-1, 2, 6, 48).transpose(1, 2).reshape(value.shape)
        weights[name if name == "model.norm.weight" else name.replace(".norm.", ".input_layernorm.")] = value
    theirs.load_state_dict(weights, strict=True)
    require_same(model, theirs, seed)


def layer_inputs(config: ModelConfig, seed: int) -> tuple[Tensor, tuple[Tensor, Tensor], Context]:
    """Random input of a layer, the cosines and sines of its tokens, and our context."""
    x = torch.randn(2, LENGTH, config.d_model, generator=torch.Generator().manual_seed(seed))
    context = Context(0, LENGTH, None, x.device, torch.float32)
    assert isinstance(config.position, Rope)
    cos, sin = context.rotation(config.position, config.attention.width)
    return x, (cos[None], sin[None]), context


def added_mask(window: int | None) -> Tensor:
    """0 where a query may see a key, else -inf."""
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    hidden = (distance < 0) | (distance >= (window or LENGTH))
    return torch.zeros(LENGTH, LENGTH).masked_fill(hidden, float("-inf"))[None, None]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("layer", [0, 1], ids=["windowed", "full"])
def test_sinks_against_gpt_oss(layer: int, seed: int) -> None:
    """Output and weights of the attention layer, biases on all its maps; in blocks, as a table and with a cache."""
    need("transformers")
    import transformers
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention

    config = composed("sliding-window", "no-qk-norm", "window-1-1", "attention-sink", bias=True)
    model = stage_model(config, seed)
    ours = model.blocks[layer].attention
    with torch.no_grad():
        ours.sink.logits.mul_(5).add_(0.5)
    shared = hugging_face_config(config) | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    hf = transformers.GptOssConfig(**shared, attention_bias=True, sliding_window=16, layer_types=[SLIDING, FULL] * 2)
    theirs = GptOssAttention(hf, layer_idx=layer).eval()
    state = ours.state_dict()
    theirs.load_state_dict({"sinks": state.pop("sink.logits")} | state, strict=True)

    x, rotation, context = layer_inputs(config, seed)
    with torch.no_grad(), morph.trace(model) as seen:
        out = ours(x, context)
        expected, weights = theirs(x, rotation, added_mask(16 if layer == 0 else None))
        cache = ours.new_cache()
        parts = [
            ours(x[:, a:b], Context(a, b - a, None, x.device, torch.float32), cache)
            for a, b in ((0, 30), (30, 31), (31, LENGTH))
        ]
    assert relative_error(out, expected) < BOUND
    assert relative_error(torch.cat(parts, dim=1), expected) < BOUND
    last = seen[f"blocks.{layer}.attention.weights"]
    assert relative_error(last, weights[:, :, 31:, LENGTH - last.shape[-1] :]) < BOUND
    assert float(1 - weights.sum(-1).min()) > 0.3, "sinks that take much"


@pytest.mark.parametrize("seed", [0, 1])
def test_gated_attention_against_qwen3_next(seed: int) -> None:
    """Their map to queries holds for each head the query's rows and then the gate's."""
    need("transformers")
    import transformers
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

    config = composed("qk-norm", "zero-centred-norm", "gated-attention")
    ours = stage_model(config, seed).blocks[0].attention
    shared = hugging_face_config(config)
    theirs = Qwen3NextAttention(transformers.Qwen3NextConfig(**shared), layer_idx=3).eval()
    state = ours.state_dict()
    heads = [state.pop(f"{name}_proj.weight").view(4, 12, 48) for name in ("q", "gate")]
    theirs.load_state_dict({"q_proj.weight": torch.cat(heads, dim=1).reshape(96, 48)} | state, strict=True)

    x, rotation, context = layer_inputs(config, seed)
    with torch.no_grad():
        twice = tuple(torch.cat((half, half), dim=-1) for half in rotation)  # a table for each half of a head
        expected, _ = theirs(x, twice, added_mask(None))
        assert relative_error(ours(x, context), expected) < BOUND
