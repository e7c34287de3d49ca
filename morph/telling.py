"""What the command line tells of stages, forks and their compositions: lines of text."""

from __future__ import annotations

from collections.abc import Iterator

import morph
from morph.config import ModelConfig
from morph.forks import CHANGES, FORKS, JOIN, Fork, config_of, name_of
from morph.steps import SLUGS, Step, number_of


def change(word: str, size: str) -> Iterator[str]:
    """What a step, a fork or the last change of a composition changes, why, and what it costs."""
    name = name_of(word)
    before, _, last = name.rpartition(JOIN)
    if last == SLUGS[0]:
        original = morph.stage(0, size=size).to_toml()
        yield "Stage 0, 2017: the block of Attention Is All You Need (Vaswani et al., 2017), as a decoder.\n"
        yield original
        return
    entry = CHANGES[last]
    base = before or (entry.base if isinstance(entry, Fork) else SLUGS[entry.number - 1])
    old, new = config_of(base, size), config_of(name, size)  # before a line is out, for they may be refused
    heading, told = _of_fork(entry) if isinstance(entry, Fork) else _of_step(entry)
    yield f"{heading}, on {before}\n" if before else f"{heading}\n"
    yield from (f"{label:<12}{text}" for label, text in told.items())
    yield ""
    yield from (f"{'config':<12}{each}" for each in morph.diff(old, new))
    yield ""
    yield from costs({title(base): old, title(name): new}, context=1024)


def _of_step(step: Step) -> tuple[str, dict[str, str]]:
    told = {"from": step.before, "to": step.after, "why": step.pressure, "relation": step.relation}
    return (
        f"Step {step.number}, {step.slug}: {step.title} ({step.origin}, {step.year})",
        told | {"source": step.source},
    )


def _of_fork(fork: Fork) -> tuple[str, dict[str, str]]:
    told = {"from": fork.before, "to": fork.after, "question": fork.question, "relation": fork.relation}
    shipped_by = ", ".join(fork.shipped_by) or "no model that we know of"
    heading = f"Fork {fork.slug}: {fork.title} ({fork.origin}, {fork.year})"
    return heading, told | {"shipped by": shipped_by, "source": fork.source}


def title(word: str) -> str:
    """The heading of a column: `stage 7`, a fork's slug, or a composition's name."""
    name = name_of(word)
    return name if name in FORKS or JOIN in name else f"stage {number_of(name)}"


def costs(configs: dict[str, ModelConfig], context: int) -> Iterator[str]:
    """Parameters, cache and FLOPs of each config, a column each."""
    counts = [morph.count(config) for config in configs.values()]
    table = [
        ("", *configs),
        ("parameters", *(f"{c.total:,}" for c in counts)),
        ("  active for a token", *(f"{c.active.all:,}" for c in counts)),
        ("  active, without embeddings", *(f"{c.active.without_embeddings:,}" for c in counts)),
        ("KV bytes per token (bf16)", *(f"{c.kv_bytes_per_token:,}" for c in counts)),
        (f"cache bytes at {context:,} tokens", *(f"{c.cache_bytes(context):,}" for c in counts)),
        (f"forward FLOPs per token at {context:,}", *(f"{c.flops(context).per_token:,}" for c in counts)),
    ]
    width = max(16, *(len(name) + 2 for name in configs))
    for label, *values in table:
        yield f"{label:<38}" + "".join(f"{value:>{width}}" for value in values)
