"""Positions in whole models that others wrote, weights carried over: every layer compared, and a decoded text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import morph
from morph import config as c
from tests.models import random_ids, relative_error
from tests.test_cache import read_in_chunks
from tests.test_positions import ROTATIONS, THEIRS, built, with_position
from tests.test_references import hugging_face_config, hugging_face_weights
from tests.tools import need


def recorded_rotations(monkeypatch: pytest.MonkeyPatch, module: Any) -> list[tuple[Tensor, Tensor]]:
    """The rotated queries and keys of every layer of a Hugging Face model, once it has run."""
    real, seen = module.apply_rotary_pos_emb, []

    def recorded(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        seen.append(real(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(module, "apply_rotary_pos_emb", recorded)
    return seen


@pytest.mark.parametrize("name", ["linear", "yarn", "yarn-exact-ends", "yarn-unscaled", "llama3", "partial"])
@torch.no_grad()
def test_rotated_models_against_hugging_face(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Llama with each kind of scaling, and GLM-4.5 without experts, half of whose head turns: every layer's queries and
    keys after rotation, the logits, and the logits of a decoded text."""
    need("transformers")
    from transformers import Glm4MoeConfig, Glm4MoeForCausalLM, LlamaConfig, LlamaForCausalLM
    from transformers.models.glm4_moe import modeling_glm4_moe
    from transformers.models.llama import modeling_llama

    spec = replace(ROTATIONS[name], original_length=48) if name.startswith(("yarn", "llama")) else ROTATIONS[name]
    model = built(with_position(7, spec))
    theirs = {"rope_theta": 10_000.0} | THEIRS[name]
    if "original_max_position_embeddings" in theirs:
        theirs["original_max_position_embeddings"] = 48
    shared = hugging_face_config(model.config) | {"rope_parameters": theirs, "intermediate_size": 128}
    shared["max_position_embeddings"] = 512
    if name == "partial":
        dense = Glm4MoeConfig(**shared, first_k_dense_replace=4, use_qk_norm=False, attention_bias=False)
        other, module = Glm4MoeForCausalLM(dense).eval(), modeling_glm4_moe
    else:
        other, module = LlamaForCausalLM(LlamaConfig(**shared)).eval(), modeling_llama
    other.load_state_dict(hugging_face_weights(model), strict=True)
    seen = recorded_rotations(monkeypatch, module)

    ids = random_ids(model, 2, 100)  # twice the original length
    with morph.trace(model) as ours:
        logits = model(ids)
    expected = other(ids).logits
    assert len(seen) == 4
    for layer, (queries, keys) in enumerate(seen):
        assert relative_error(ours[f"blocks.{layer}.attention.queries"], queries) < 1e-5
        assert relative_error(ours[f"blocks.{layer}.attention.keys"], keys) < 1e-5
    assert relative_error(logits, expected) < 1e-5
    assert relative_error(built(with_position(7, c.Rope()))(ids), expected) > 0.01, "it is the record that does it"
    assert relative_error(read_in_chunks(model, ids, list(range(90, 100))), expected) < 5e-5


@torch.no_grad()
def test_learned_positions_against_gpt2() -> None:
    need("transformers")
    from transformers import GPT2Config, GPT2LMHeadModel

    model = built(with_position(1, c.LearnedPosition(length=64)))
    sizes = dict(vocab_size=256, n_positions=64, n_embd=48, n_layer=4, n_head=4, n_inner=192)
    none = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    config = GPT2Config(**sizes, **none, activation_function="relu", tie_word_embeddings=False)
    other = GPT2LMHeadModel(config).eval()
    weights = {"lm_head.weight": model.embedding.weight}
    assert model.positions is not None
    for name, table in (("wte", model.embedding), ("wpe", model.positions)):
        weights[f"transformer.{name}.weight"] = table.weight * 48**0.5
    names = {"attention_norm": "ln_1", "feed_forward_norm": "ln_2", "attention.o_proj": "attn.c_proj"}
    names |= {"feed_forward.up": "mlp.c_fc", "feed_forward.down": "mlp.c_proj"}
    ours = model.state_dict()
    for kind in ("weight", "bias"):
        weights[f"transformer.ln_f.{kind}"] = ours[f"norm.{kind}"]
        for i in range(4):
            at = f"transformer.h.{i}"
            for mine, hers in names.items():
                value = ours[f"blocks.{i}.{mine}.{kind}"]
                weights[f"{at}.{hers}.{kind}"] = value.T if value.ndim == 2 else value  # they store (in, out)
            fused = torch.cat([ours[f"blocks.{i}.attention.{n}_proj.{kind}"] for n in "qkv"])
            weights[f"{at}.attn.c_attn.{kind}"] = fused.T if fused.ndim == 2 else fused
    other.load_state_dict(weights, strict=True)
    ids = random_ids(model, 2, 64)
    with morph.trace(model) as seen:
        logits = model(ids)
    expected = other(ids, output_hidden_states=True)
    streams = [seen["stream"], *(seen[f"blocks.{i}.stream"] for i in range(3))]
    for stream, hidden in zip(streams, expected.hidden_states[:4], strict=True):
        assert relative_error(stream, hidden) < 1e-5
    assert relative_error(logits, expected.logits) < 1e-5
    lengths = torch.tensor([64, 40])
    padding = torch.arange(64)[None] >= 64 - lengths[:, None]
    places = (padding.long().cumsum(-1) - 1).clamp(min=0)
    padded = other(ids, attention_mask=padding.long(), position_ids=places).logits
    assert relative_error(model(ids, lengths=lengths)[1, 24:], padded[1, 24:]) < 1e-5
    assert relative_error(read_in_chunks(model, ids, list(range(60, 64))), expected.logits) < 5e-5


@pytest.mark.parametrize("n_heads", [4, 6])
@torch.no_grad()
def test_alibi_against_mpt(n_heads: int) -> None:
    """Its feed-forward activation is replaced by ours, which is not what is compared here."""
    need("transformers")
    from transformers import MptConfig, MptForCausalLM

    attention = c.Attention(n_heads=n_heads, n_kv_heads=n_heads)
    model = built(with_position(3, c.Alibi(), norm=c.LayerNormNoBias(), attention=attention))
    config = MptConfig(
        d_model=48, n_heads=n_heads, n_layers=4, expansion_ratio=4, max_seq_len=128, vocab_size=256,
        tie_word_embeddings=False, attn_config={"alibi": True}, attn_implementation="eager",
    )  # fmt: skip
    other = MptForCausalLM(config).eval()
    ours = model.state_dict()
    weights = {"transformer.wte.weight": ours["embedding.weight"] * 48**0.5, "lm_head.weight": ours["embedding.weight"]}
    weights["transformer.norm_f.weight"] = ours["norm.weight"]
    names = {"attention_norm": "norm_1", "feed_forward_norm": "norm_2", "attention.o_proj": "attn.out_proj"}
    names |= {"feed_forward.up": "ffn.up_proj", "feed_forward.down": "ffn.down_proj"}
    for i in range(4):
        for mine, theirs in names.items():
            weights[f"transformer.blocks.{i}.{theirs}.weight"] = ours[f"blocks.{i}.{mine}.weight"]
        fused = torch.cat([ours[f"blocks.{i}.attention.{n}_proj.weight"] for n in "qkv"])
        weights[f"transformer.blocks.{i}.attn.Wqkv.weight"] = fused
        other.transformer.blocks[i].ffn.act = torch.nn.ReLU()
    other.load_state_dict(weights, strict=True)
    ids = random_ids(model, 2, 90)
    with morph.trace(model) as seen:
        logits = model(ids)
    expected = other(ids, output_attentions=True)
    for i, theirs in enumerate(expected.attentions):
        assert float((seen[f"blocks.{i}.attention.weights"] - theirs).abs().max()) < 1e-5
    assert relative_error(logits, expected.logits) < 1e-5
    assert relative_error(read_in_chunks(model, ids, list(range(80, 90))), expected.logits) < 5e-5
