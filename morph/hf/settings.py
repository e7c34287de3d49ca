"""What a config.json says, read key by key; what nobody read is an error at the end.

An option that is passed over in silence gives a model that runs and is wrong. So every key is either read, or on the
short list of those without effect on the forward pass.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from morph.errors import MorphError, short, spelled
from morph.spec import MOST

HARMLESS = (
    # what the folder is
    "model_type", "architectures", "auto_map", "transformers_version", "_name_or_path", "name_or_path", "_commit_hash",
    "tokenizer_class", "torch_dtype", "dtype", "unsloth_*",
    # tokens
    "*_token_id", "*_token_index", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens",
    # training
    "initializer_range", "*dropout", "*_pdrop", "*_dropout_prob", "gradient_checkpointing", "pretraining_tp",
    # how results are handed over, and kernels that compute the same
    "use_cache", "output_*", "return_dict", "return_dict_in_generate", "chunk_size_feed_forward", "torchscript",
    "use_bfloat16", "attn_implementation", "_attn_implementation*", "_experts_implementation*",
    "experts_implementation", "cache_implementation", "use_kernel*",
    # defaults of text generation
    "do_sample", "temperature", "top_p", "typical_p", "max_length", "min_length", "max_new_tokens", "early_stopping",
    "num_beams", "num_beam_groups", "num_return_sequences", "diversity_penalty", "length_penalty",
    "repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "remove_invalid_values",
    "exponential_decay_length_penalty", "task_specific_params", "prefix",
    # other heads than the one that predicts tokens
    "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "summary_*",
)  # fmt: skip
"""Keys, some as patterns, that change no logit of a forward pass."""

ACTIVATIONS = {
    "relu": "relu", "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh", "gelu_fast": "gelu-tanh", "relu2": "relu-squared",
}  # fmt: skip
"""transformers' names of activations, and ours."""


def activation_there(name: str) -> str:
    """transformers' name of one of our activations."""
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == name)


LAYERS = ("num_hidden_layers", "n_layer")
"""Keys that count layers; lists as long as that are made of them before a config of ours is."""

_REQUIRED: Any = object()


class Settings:
    """A table of config.json. Its methods note which keys were asked for; a null counts as absent, as there.

    Each takes the key and, where folders may leave it out, the value that transformers then assumes.
    """

    def __init__(self, values: dict[str, Any], source: str, path: str = "") -> None:
        self.values, self.source, self.path = values, source, path
        self._seen: set[str] = set()
        self._inner: list[Settings] = []

    def __contains__(self, name: str) -> bool:
        """Whether the key is there and not null; asking is not reading."""
        return self.values.get(name) is not None

    def raw(self, name: str, default: Any = _REQUIRED) -> Any:
        """The value as it stands. Raises MorphError when it is missing and has no default."""
        self._seen.add(name)
        value = self.values.get(name)
        if value is None:
            if default is _REQUIRED:
                raise MorphError(f"{self.source} lacks {self.path}{name}; every model of this family needs it")
            return default
        return value

    def whole(self, name: str, default: int | None = _REQUIRED, least: int = 0) -> int:
        """A whole number of at least `least`, and no larger than a config of ours can hold."""
        value = self.raw(name, default)
        most = MOST["n_layers" if name in LAYERS else "any"]
        if type(value) is not int or not least <= value <= most:
            self.refuse(name, f"give a whole number from {least} to {most:,}")
        return int(value)

    def wholes(self, name: str, default: list[int] = _REQUIRED) -> list[int]:
        """A list of whole numbers, none below 0."""
        value = self.raw(name, default)
        if not isinstance(value, list) or not all(type(each) is int and 0 <= each <= MOST["any"] for each in value):
            self.refuse(name, "give a list of whole numbers")
        return list(value)

    def number(self, name: str, default: float | None = _REQUIRED) -> float:
        """A number, which may be negative."""
        value = self.raw(name, default)
        if type(value) not in (int, float) or not abs(value) < 1e30:
            self.refuse(name, "give a number below 1e30")
        return float(value)

    def positive(self, name: str, default: float | None = _REQUIRED) -> float:
        """A number above 0."""
        value = self.number(name, default)
        if value <= 0:
            self.refuse(name, "give a number above 0")
        return value

    def flag(self, name: str, default: bool = _REQUIRED) -> bool:
        """True or false."""
        value = self.raw(name, default)
        if type(value) is not bool:
            self.refuse(name, "give true or false")
        return bool(value)

    def whole_or_none(self, name: str, default: int | None, least: int = 0) -> int | None:
        """A whole number; None for a null, which is not the default that a missing key stands for."""
        is_none = self._is_null(name) or (default is None and name not in self)
        return None if is_none else self.whole(name, default, least)

    def number_or_none(self, name: str, default: float | None) -> float | None:
        """A number, or None alike."""
        return None if self._is_null(name) or (default is None and name not in self) else self.number(name, default)

    def _is_null(self, name: str) -> bool:
        self._seen.add(name)
        return name in self.values and self.values[name] is None

    def activation(self, name: str, default: str = _REQUIRED) -> Any:
        """An activation by our name."""
        value = self.raw(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            self.refuse(name, f"Morph has {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def words(self, name: str, length: int, allowed: tuple[str, ...]) -> list[str]:
        """A list of `length` words, each among `allowed`."""
        value = self.raw(name)
        if not isinstance(value, list) or len(value) != length:
            self.refuse(name, f"give a list of {length}, one for each layer")
        for word in value:
            if word not in allowed:
                self.refuse(name, f"{word!r} is not supported; Morph has {', '.join(allowed)} in this family")
        return list(value)

    def only(self, name: str, *allowed: Any) -> None:
        """Make sure that an option has one of these values, of which the first is meant when it is absent."""
        value = self.raw(name, allowed[0])
        if not any(value == option and type(value) is type(option) for option in allowed):
            given = " or ".join(repr(option) for option in allowed)
            self.refuse(name, f"Morph supports {given} in this family; choose another checkpoint")

    def table(self, name: str) -> Settings | None:
        """A nested table, read to its end as well; None when it is absent."""
        value = self.raw(name, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(name, "give a table of keys")
        inner = Settings(value, self.source, f"{self.path}{name}.")
        self._inner.append(inner)
        return inner

    def ignore(self, *names: str) -> None:
        """Note keys that mean nothing for this model, whatever they say."""
        self._seen |= set(names)

    def refuse(self, name: str, remedy: str) -> None:
        """Raise the MorphError for the value of a key."""
        raise MorphError(f"{self.source}: {self.path}{name} = {short(self.values.get(name))} is unsupported; {remedy}")

    def finish(self) -> None:
        """Raise MorphError for a key that was not read and may matter."""
        for name, value in self.values.items():
            harmless = any(fnmatchcase(name, pattern) for pattern in HARMLESS)
            if name not in self._seen and not harmless and value is not None:
                if name == "quantization_config":
                    self.refuse(name, "Morph reads fp32, fp16 and bf16; convert the weights to one of them first")
                raise MorphError(
                    f"{self.source}: {self.path}{spelled(name)} = {short(value)} is an option that Morph does not know "
                    f"in this family; remove the key if it changes nothing, or choose another checkpoint"
                )
        for inner in self._inner:
            inner.finish()
