"""Make a small checkpoint in the layout of released models: something to try every command on, without a download.

    python tools/make_checkpoint.py [FOLDER] [--family NAME] [--steps N] [--seed N]

On the text of this Python's standard library it trains a byte-level BPE tokenizer of 512 tokens (with the library
`tokenizers`) and then, in a minute or two, a model of half a million parameters (`--family gpt_oss`: 1.3 million,
with windows, sinks and experts). The folder holds what a download would: config.json, model.safetensors,
tokenizer.json, tokenizer_config.json and generation_config.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import morph
from morph import hf
from morph.config import (
    Attention,
    AuxiliaryLoss,
    ClampedGatedMLP,
    ExpertBiases,
    Interleaved,
    ModelConfig,
    MoE,
    Rope,
    Sink,
    SlidingWindow,
)
from morph.errors import MorphError, nearest
from morph.train.data import load_corpus, training_offsets, windows
from morph.train.device import use_threads
from morph.train.files import replace_bytes, replace_json, require_free
from morph.train.loop import make_optimizer
from morph.train.recipe import Recipe

BEGIN, END = "<|begin|>", "<|end|>"
VOCABULARY, CONTEXT = 512, 128
LEARNED_FROM = 2_000_000
"""Bytes of text that the tokenizer sees."""
RECIPE = Recipe(steps=300, batch_size=16)


def llama() -> ModelConfig:
    """Llama 3, small: what stage 7 is made of, and two ends that transformers has, untied and without a scale."""
    return replace(
        morph.stage("gqa", size="tiny"), vocab_size=VOCABULARY, context_length=CONTEXT, embedding_scale=1.0, tied=False
    )


def gpt_oss() -> ModelConfig:
    """gpt-oss, small: windows in every other layer, a sink in each head, and 16 experts of which a token uses 4."""
    experts = MoE(
        expert=ClampedGatedMLP(width=64), n_experts=16, top_k=4, routed_scale=1.0, balance=AuxiliaryLoss(),
        biases=ExpertBiases(),
    )  # fmt: skip
    return replace(
        llama(),
        bias=True,
        position=Rope(base=150_000.0),
        layout=Interleaved(n_local=1, local=SlidingWindow(window=16)),
        attention=Attention(n_heads=4, n_kv_heads=2, head_dim=24, sink=Sink()),
        feed_forward=experts,
    )


CONFIGS: dict[str, Callable[[], ModelConfig]] = {"llama": llama, "gpt_oss": gpt_oss}
"""Family -> a small model of it."""


def make(
    folder: Path, family: str = "llama", recipe: Recipe = RECIPE, learned_from: int = LEARNED_FROM, quiet: bool = True
) -> Path:
    """Train tokenizer and model, and write the folder. Raises MorphError when it is taken."""
    if family not in CONFIGS:
        raise MorphError(f"family is {family!r}: choose one of {', '.join(CONFIGS)}{nearest(family, CONFIGS)}")
    require_free(folder, "FOLDER", "remove it")
    texts = documents(learned_from)
    tokenizer = make_tokenizer(texts)
    ids = token_ids(tokenizer, texts)
    model = fit(morph.build(CONFIGS[family](), seed=recipe.seed), ids, recipe, quiet)
    hf.save(model.to(torch.bfloat16), folder, family=family)
    write_tokenizer(folder, tokenizer)
    return folder


def documents(most: int) -> list[str]:
    """The training text of the default corpus, cut where two empty lines stand: mostly one definition each."""
    text = load_corpus().train.tobytes()[:most].decode(errors="replace")
    return [part + "\n" for part in text.split("\n\n\n") if part.strip()]


def make_tokenizer(texts: list[str]) -> Any:
    """A byte-level BPE tokenizer like those of GPT-2 and Llama 3, small; it puts `BEGIN` before every text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[BEGIN, END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    begin = tokenizer.token_to_id(BEGIN)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, begin)])
    return tokenizer


def token_ids(tokenizer: Any, texts: list[str]) -> np.ndarray:
    """All texts, one after the other, each with its begin and its end."""
    end = tokenizer.token_to_id(END)
    return np.concatenate([[*encoding.ids, end] for encoding in tokenizer.encode_batch(texts)])


def fit(model: morph.Decoder, ids: np.ndarray, recipe: Recipe, quiet: bool) -> morph.Decoder:
    """Train on windows of the ids, as the training loop does on bytes."""
    optimizer = make_optimizer(model.train(), recipe)
    for step in range(recipe.steps):
        offsets = training_offsets(len(ids), CONTEXT, recipe.batch_size, recipe.seed, step, 0)
        loss = model.loss(*map(torch.from_numpy, windows(ids, offsets, CONTEXT)))
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step)
        loss.total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        model.end_step()
        if not quiet and (step + 1) % 50 == 0:
            print(f"step {step + 1} of {recipe.steps}: {loss.cross_entropy.item():.2f} nats a token", file=sys.stderr)
    return model.eval()


def write_tokenizer(folder: Path, tokenizer: Any) -> None:
    """The tokenizer, and what the other files say of its first and last token."""
    begin, end = (tokenizer.token_to_id(token) for token in (BEGIN, END))
    ids = {"bos_token_id": begin, "eos_token_id": end}
    replace_bytes(folder / "tokenizer.json", tokenizer.to_str(pretty=True).encode())
    replace_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END,
            "clean_up_tokenization_spaces": False, "model_max_length": CONTEXT,
        },
    )  # fmt: skip
    replace_json(folder / "generation_config.json", ids)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    replace_json(folder / "config.json", config | ids)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/checkpoint"), metavar="FOLDER")
    parser.add_argument("--family", default="llama", help=f"one of {', '.join(CONFIGS)}")
    parser.add_argument("--steps", type=int, default=RECIPE.steps, help="of the optimizer")
    parser.add_argument("--seed", type=int, default=RECIPE.seed)
    given = parser.parse_args(arguments)
    try:
        recipe = RECIPE.with_(steps=given.steps, seed=given.seed)
        use_threads(1)  # so narrow a model gains nothing by a second one
        made = make(given.folder, given.family, recipe, quiet=False)
    except MorphError as error:
        print(f"make_checkpoint: {error}", file=sys.stderr)
        return 2
    print(f"{made}: a {given.family} checkpoint. Try: morph generate {made} --prompt 'def '")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
