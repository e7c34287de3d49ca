"""A prompt continued by the model in a folder: text in, text out."""

from __future__ import annotations

from pathlib import Path

import torch

from morph.decoding import generate
from morph.errors import MorphError
from morph.folder import Folder
from morph.vocabulary import encoded


def continue_text(
    path: Path,
    prompt: str,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
) -> str:
    """The prompt and what the folder's model makes of it; it ends early where the model says that the text ends.

    Raises:
        MorphError: for a folder without a model, a prompt without text, and what `generate` refuses.
    """
    if not prompt:
        raise MorphError("the prompt is empty: give at least one character to continue")
    if not 0 <= seed < 2**32:
        raise MorphError(f"seed is {seed}: give a whole number from 0 to {2**32 - 1}")
    encoded(prompt, "prompt")
    folder = Folder.at(path)
    vocabulary = folder.vocabulary
    ids = [*vocabulary.start, *vocabulary.read(prompt)]
    if not ids:
        raise MorphError("the tokenizer finds no token in the prompt: give another one")
    model = folder.model()
    size = model.config.vocab_size
    if unknown := vocabulary.unknown(size):  # an id that stands for no text is never drawn
        dead = torch.tensor(unknown)
        model.register_forward_hook(lambda module, inputs, logits: logits.index_fill(-1, dead, float("-inf")))
    written = generate(
        model,
        torch.tensor([ids]),
        max_new_tokens,
        temperature=temperature,
        top_k=None if top_k is None else min(top_k, size),
        top_p=top_p,
        stop=vocabulary.stop,
        generator=torch.Generator().manual_seed(seed),
    )
    return vocabulary.write(written[0].tolist())
