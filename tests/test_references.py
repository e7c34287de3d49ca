"""Our stages against implementations that others wrote, weights carried over, every layer compared.

Torch's own `TransformerEncoderLayer` for 2017 and pre-norm; Hugging Face's Llama, Qwen3, Qwen3-MoE and Qwen3.5 for what
came later. Those read an embedding that is not multiplied by √D, so it is handed to them multiplied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import morph
from morph.config import AllGlobal, GatedDeltaNet, ModelConfig, SlidingWindow
from morph.model import Decoder
from morph.nn.context import Context
from morph.nn.delta import GatedDeltaNet as DeltaLayer
from morph.steps import stage
from tests.models import random_ids, relative_error, stage_model
from tests.tools import need

BOUND, CACHED = 1e-5, 5e-5
LENGTH = 45  # beyond two windows of 16


def streams(model: Decoder, ids: Tensor) -> tuple[list[Tensor], Tensor]:
    """The stream before the first block and after each one, and the logits."""
    with morph.trace(model) as seen, torch.no_grad():
        logits = model(ids)
    blocks = [seen[f"blocks.{i}.stream"] for i in range(model.config.n_layers)]
    return [seen["stream"], *blocks], logits


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_post_and_pre_norm_against_torch(number: int, seed: int) -> None:
    model = stage_model(number, seed)
    ours, _ = streams(model, random_ids(model, 2, LENGTH, seed))
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    for i, block in enumerate(model.blocks):
        theirs = nn.TransformerEncoderLayer(48, 4, 192, dropout=0.0, batch_first=True, norm_first=number == 1).eval()
        attention, feed_forward = block.attention, block.feed_forward
        stacked = {
            kind: torch.cat([getattr(getattr(attention, f"{n}_proj"), kind) for n in "qkv"])
            for kind in ("weight", "bias")
        }
        theirs.self_attn.in_proj_weight.data, theirs.self_attn.in_proj_bias.data = stacked["weight"], stacked["bias"]
        for mine, other in (
            (attention.o_proj, theirs.self_attn.out_proj),
            (feed_forward.up, theirs.linear1),
            (feed_forward.down, theirs.linear2),
            (block.attention_norm, theirs.norm1),
            (block.feed_forward_norm, theirs.norm2),
        ):
            other.load_state_dict(mine.state_dict())  # type: ignore[union-attr]
        with torch.no_grad():
            expected = theirs(ours[i], src_mask=mask, is_causal=True)
        assert relative_error(ours[i + 1], expected) < BOUND


def hugging_face_config(config: ModelConfig) -> dict[str, Any]:
    """The fields that Hugging Face's Llama-like configs share."""
    return dict(
        vocab_size=config.vocab_size,
        hidden_size=config.d_model,
        num_hidden_layers=config.n_layers,
        num_attention_heads=config.attention.n_heads,
        num_key_value_heads=config.attention.n_kv_heads,
        head_dim=config.attention.head_dim,
        rms_norm_eps=config.norm.eps,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        attn_implementation="eager",
    )


def hugging_face_weights(model: Decoder) -> dict[str, Tensor]:
    """Our parameters under Hugging Face's names."""
    out = {}
    for name, value in model.state_dict().items():
        if name == "embedding.weight":
            out["model.embed_tokens.weight"], out["lm_head.weight"] = value * 48**0.5, value
            continue
        name = name.replace("blocks.", "model.layers.").replace("attention.", "self_attn.")
        name = name.replace("attention_norm", "input_layernorm").replace(
            "feed_forward_norm", "post_attention_layernorm"
        )
        for part in ("gate", "up", "down"):
            name = name.replace(f"feed_forward.{part}.weight", f"mlp.{part}_proj.weight")
        name = name.replace("feed_forward.router.logits", "mlp.gate").replace("feed_forward.", "mlp.")
        out["model.norm.weight" if name == "norm.weight" else name] = value
    for name in [n for n in out if n.endswith("experts.gate")]:
        out[name + "_up_proj"] = torch.cat((out.pop(name), out.pop(name[:-4] + "up")), dim=1)
        down = name[:-4] + "down"
        out[down + "_proj"] = out.pop(down) * model.config.moe.routed_scale  # type: ignore[union-attr]
    return out


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["llama-mha", "llama", "qwen3", "qwen3-windowed", "qwen3-moe", "qwen3-moe-fine"])
def test_later_stages_against_hugging_face(name: str, seed: int) -> None:
    need("transformers")
    import transformers

    numbers = {"llama-mha": 6, "llama": 7, "qwen3": 8, "qwen3-windowed": 9, "qwen3-moe": 10, "qwen3-moe-fine": 11}
    model = stage_model(numbers[name], seed)
    config = model.config
    if name.startswith("qwen3-moe"):  # Qwen3-MoE has no windowed layers
        config = replace(config, layout=AllGlobal())
        full = morph.build(config).eval()
        full.load_state_dict(model.state_dict())
        model = full
    shared = hugging_face_config(config)
    if name.startswith("llama"):
        theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shared, intermediate_size=128))
    elif name == "qwen3":
        theirs = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**shared, intermediate_size=128))
    elif name == "qwen3-windowed":
        layers = ["sliding_attention"] * 3 + ["full_attention"]
        windowed = dict(use_sliding_window=True, sliding_window=16, layer_types=layers)
        theirs = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**shared, **windowed, intermediate_size=128))
    else:
        moe = config.feed_forward
        sizes = dict(num_experts=moe.n_experts, num_experts_per_tok=moe.top_k, moe_intermediate_size=moe.expert.width)  # type: ignore[union-attr]
        theirs = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**shared, **sizes, norm_topk_prob=True))
    theirs.eval()
    theirs.load_state_dict(hugging_face_weights(model), strict=True)

    ids = random_ids(model, 2, LENGTH, seed)
    ours, logits = streams(model, ids)
    with torch.no_grad():
        expected = theirs(ids, output_hidden_states=True)
        hidden = expected.hidden_states
        for i in range(config.n_layers):  # their last one has passed the final norm
            assert relative_error(ours[i], hidden[i]) < BOUND
        assert relative_error(model.norm(ours[-1]), hidden[-1]) < BOUND
        assert relative_error(logits, expected.logits) < BOUND
        cache = model.new_cache(2)
        decoded = [model(ids[:, :37], cache=cache), *[model(ids[:, t : t + 1], cache=cache) for t in range(37, LENGTH)]]
        assert relative_error(torch.cat(decoded, dim=1), expected.logits) < CACHED


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("heads", [(2, 4, 12, 12), (3, 3, 8, 5)])
def test_gated_delta_net_against_qwen3_5(heads: tuple[int, int, int, int], seed: int) -> None:
    """Odd sizes, key and value widths that differ, a padded row, and a text longer than two chunks."""
    need("transformers")
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet

    n_key, n_value, key_dim, value_dim = heads
    spec = GatedDeltaNet(n_key_heads=n_key, n_value_heads=n_value, key_head_dim=key_dim, value_head_dim=value_dim)
    config = stage("hybrid", "nano")
    layer = DeltaLayer(replace(config, layout=replace(config.layout, local=spec)), 0)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in layer.modules():
            if hasattr(module, "init_weights"):
                module.init_weights(generator)
        layer.out_norm.weight.add_(0.2 * torch.randn(value_dim, generator=generator))
    theirs = Qwen3_5GatedDeltaNet(
        Qwen3_5TextConfig(
            hidden_size=48,
            num_hidden_layers=4,
            linear_num_key_heads=n_key,
            linear_num_value_heads=n_value,
            linear_key_head_dim=key_dim,
            linear_value_head_dim=value_dim,
            rms_norm_eps=1e-5,
            num_attention_heads=4,
            num_key_value_heads=2,
        ),
        layer_idx=0,
    ).eval()
    with torch.no_grad():
        theirs.in_proj_qkv.weight.copy_(torch.cat([layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight]))
        theirs.in_proj_z.weight.copy_(layer.z_proj.weight)
        theirs.in_proj_b.weight.copy_(layer.beta_proj.weight)
        theirs.in_proj_a.weight.copy_(layer.decay_proj.weight)
        theirs.conv1d.weight.copy_(layer.conv.weight[:, None])
        theirs.A_log.copy_(layer.log_A)
        theirs.dt_bias.copy_(layer.dt_bias)
        theirs.norm.weight.copy_(layer.out_norm.weight)
        theirs.out_proj.weight.copy_(layer.o_proj.weight)

        x = torch.randn(2, 77, 48, generator=generator)
        pads = torch.tensor([0, 9])
        real = torch.arange(77)[None] >= pads[:, None]
        ours = layer(x, Context(0, 77, pads, x.device, torch.float32))
        expected = theirs(x, attention_mask=real.long())
        for row in range(2):
            assert relative_error(ours[row, real[row]], expected[row, real[row]]) < BOUND


def test_the_windowed_stage_has_windows() -> None:
    assert stage("sliding-window", "nano").mixer(0) == SlidingWindow(window=16)
