"""Text and the model in a folder: its tokens, and a prompt continued."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from morph.decoding import generate
from morph.errors import MorphError
from morph.folder import Folder
from morph.model import Decoder
from morph.speculation import Speculation, generate_speculative
from morph.vocabulary import Vocabulary, encoded


def tokens_of(path: Path, text: str) -> list[tuple[int, str]]:
    """The ids that the folder's model reads for a text, each with how it is written on a screen.

    Raises:
        MorphError: for a folder without a model or without a tokenizer, and for no text.
    """
    if not text:
        raise MorphError("the text is empty: give at least one character")
    vocabulary = Folder.at(path).vocabulary
    return [(token, vocabulary.shown(token)) for token in (*vocabulary.start, *vocabulary.read(text))]


def left_out(path: Path) -> list[str]:
    """What of a folder's weights was not read for its text, a sentence each."""
    return [f"left out {part}, which no text depends on" for part in Folder.at(path).left_out]


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
    if not 0 <= seed < 2**32:
        raise MorphError(f"seed is {seed}: give a whole number from 0 to {2**32 - 1}")
    model, vocabulary, ids = _opened(path, prompt)
    size = model.config.vocab_size
    written = generate(
        model,
        ids,
        max_new_tokens,
        temperature=temperature,
        top_k=None if top_k is None else min(top_k, size),
        top_p=top_p,
        stop=vocabulary.stop,
        never=vocabulary.unknown(size),
        generator=torch.Generator().manual_seed(seed),
    )
    return vocabulary.write(written[0].tolist())


def draft_text(path: Path, prompt: str, max_new_tokens: int) -> tuple[str, Speculation]:
    """The same at temperature 0, drafted by the model's MTP heads, and what it took.

    Raises:
        MorphError: as `continue_text` does, and for a model without such heads.
    """
    model, vocabulary, ids = _opened(path, prompt)
    never = vocabulary.unknown(model.config.vocab_size)
    done = generate_speculative(model, ids, max_new_tokens, stop=vocabulary.stop, never=never)
    return vocabulary.write(done.ids[0].tolist()), done


def _opened(path: Path, prompt: str) -> tuple[Decoder, Vocabulary, Tensor]:
    """The folder's model and vocabulary, and the prompt as ids (1, S)."""
    if not prompt:
        raise MorphError("the prompt is empty: give at least one character to continue")
    encoded(prompt, "prompt")
    folder = Folder.at(path)
    ids = [*folder.vocabulary.start, *folder.vocabulary.read(prompt)]
    if not ids:
        raise MorphError("the tokenizer finds no token in the prompt: give another one")
    return folder.model(), folder.vocabulary, torch.tensor([ids])
