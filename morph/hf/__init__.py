"""Checkpoint folders of Hugging Face's transformers, in and out: config.json and weights in safetensors.

    model = morph.hf.load("Qwen3-0.6B")              # a Decoder, in the precision of the files
    morph.hf.save(model, "copy", family="qwen3")     # transformers reads it

Folders are on this machine: nothing is downloaded, no pickle is opened, and code that a folder brings is never run.
`morph.hf.check` compares a loaded model with transformers' own, layer by layer. The names load on first use.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "load": "checkpoint",
    "save": "checkpoint",
    "read_config": "checkpoint",
    "check": "compare",
    "FAMILIES": "families",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
