"""Small checkpoint folders of Llama's and GPT-2's kind, and what can be done to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from morph import hf
from morph.config import (
    MLP,
    AllGlobal,
    Attention,
    GatedMLP,
    LayerNorm,
    LearnedPosition,
    ModelConfig,
    RMSNorm,
    Rope,
)
from morph.errors import MorphError
from morph.model import Decoder
from tests.models import stage_model

LLAMA = ModelConfig(
    vocab_size=61,
    d_model=24,
    n_layers=3,
    context_length=128,
    placement="pre",
    norm=RMSNorm(eps=1e-6),
    bias=False,
    position=Rope(),
    attention=Attention(n_heads=4, n_kv_heads=2),
    layout=AllGlobal(),
    feed_forward=GatedMLP(width=40, activation="silu"),
    tied=False,
    embedding_scale=1.0,
)
GPT2 = replace(
    LLAMA,
    norm=LayerNorm(),
    bias=True,
    position=LearnedPosition(length=128),
    attention=Attention(n_heads=4, n_kv_heads=4),
    feed_forward=MLP(width=96, activation="gelu-tanh"),
    tied=True,
)
WEIGHTS = "model.safetensors"


@pytest.fixture(name="folder")
def sound_folder(tmp_path: Path) -> Path:
    """A sound Llama."""
    return hf.save(stage_model(LLAMA), tmp_path / "llama", family="llama")


def edit_weights(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(MorphError) as error:
        hf.load(folder)
    told = str(error.value)
    assert all(word in told for word in words) and "\n" not in told, told


def same_tensors(a: Decoder, b: Decoder) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[n], theirs[n]) and ours[n].dtype == theirs[n].dtype for n in ours
    )
