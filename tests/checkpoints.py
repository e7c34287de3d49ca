"""Small checkpoint folders in the layout of released models, tokenizer files included, made on the spot."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import morph
from morph import hf
from morph.config import ModelConfig

ROOT = Path(__file__).parent.parent
TEXT = 'def é€(x):\n\treturn "  deep"  # naïve 漢字 🙂\n\n    for key in keys: total += counts[key]\n'
"""Signs of one to four bytes, runs of blanks, and words that a tokenizer of Python has as one piece."""


@cache
def maker() -> Any:
    """tools/make_checkpoint.py, imported."""
    spec = importlib.util.spec_from_file_location("make_checkpoint", ROOT / "tools" / "make_checkpoint.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def byte_level() -> Any:
    """A byte-level BPE tokenizer of 512 tokens (GPT-2, Llama 3, Qwen), which puts `<|begin|>` before every text."""
    return maker().make_tokenizer(maker().documents(200_000))


@cache
def sentence_pieces() -> Any:
    """BPE with `▁` for blanks and bytes where a letter is unknown (Llama 2, Gemma)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=480, special_tokens=["<unk>", "<s>", "</s>", *bytes_], show_progress=False, max_token_length=8
    )
    texts = maker().documents(60_000)
    tokenizer.train_from_iterator(["".join(sign for sign in text if sign.isascii()) for text in texts], trainer)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] not in bytes_]
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def write_checkpoint(
    folder: Path, config: ModelConfig, family: str, tokenizer: Any = None, seed: int = 0, **settings: Any
) -> Path:
    """A folder with an untrained model of a config; `settings` go to tokenizer_config.json, where there is one."""
    hf.save(morph.build(config, seed=seed), folder, family=family)
    if tokenizer is not None:
        (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
        config_file = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False} | settings
        (folder / "tokenizer_config.json").write_text(json.dumps(config_file), encoding="utf-8")
    return folder
