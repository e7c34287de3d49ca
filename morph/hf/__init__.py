"""Checkpoint folders of Hugging Face's transformers, in and out: config.json and weights in safetensors.

    model = morph.hf.load("Qwen3-0.6B")              # a Decoder, in the precision of the files
    morph.hf.save(model, "copy", family="qwen3")     # transformers reads it

Folders are on this machine: nothing is downloaded, no pickle is opened, and code that a folder brings is never run.
`morph.hf.check` compares a loaded model with transformers' own, layer by layer. The names load on first use.
"""

from morph.lazy import on_first_use

_HOME = {
    "load": "checkpoint",
    "save": "checkpoint",
    "read_config": "checkpoint",
    "check": "compare",
    "FAMILIES": "families",
}

__all__ = sorted(_HOME)

__getattr__, __dir__ = on_first_use(__name__, _HOME)
