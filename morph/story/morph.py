"""Figure 1, the morph: fourteen frames, frame k showing step k being applied, with a ledger carried along.

The diagram comes from the configs, every number in the ledger from a `Sweep`. Each frame's arrays hold the history up
to its stage: `parameters_total`, `parameters_active`, `kv_bytes_per_token`, `cache_bytes`, `flops_per_token` with axes
(stage,) and `bits_per_byte` with axes (stage, seed). Its facts are

* `step`, `slug`, `title`, `year`, `origin`, `role`, `pressure`, `relation`: of the step (step 0 is the 2017 block);
* `placement`, `config`: the config after the step;
* `organs`: as dictionaries (`morph.story.block.Organ`), and `changed`: keys of those that came, went or changed;
* `changes`: the config's differences in full, and `config_lines`: the same, wrapped for a narrow column;
* `ledger`: rows of `key`, `label`, `value`, `note`, `raw`, `changed`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from morph.config import Change, ModelConfig, MoE, SlidingWindow, Spec, diff
from morph.errors import MorphError
from morph.steps import SLUGS, STEPS, Step, attention_of, stage
from morph.story.block import organs
from morph.story.frame import Array, Figure, Frame
from morph.story.morph_claims import CLAIMS
from morph.story.written import in_bytes, in_millions, relative
from morph.train.sweep import HIGHER, LOWER, ONE_SEED, WITHIN, Sweep

NAME, NUMBER, TITLE = "morph", 1, "Fourteen changes, 2017 to 2026"
LINE_WIDTH, MOST_LINES = 36, 4
NOTES = {WITHIN: "within spread", ONE_SEED: "one seed"}
COSTS = ("parameters_total", "parameters_active", "kv_bytes_per_token", "cache_bytes", "flops_per_token")


def figure(sweep: Sweep | str | Path | None = None) -> Figure:
    """Figure 1 from a sweep, a sweep's file or folder, or (None) the reference sweep.

    Raises:
        MorphError: when the sweep does not have all fifteen stages.
    """
    origin = "Reference sweep" if sweep is None else "Your sweep"
    data = Sweep.reference() if sweep is None else sweep if isinstance(sweep, Sweep) else Sweep.load(sweep)
    missing = sorted(set(range(len(SLUGS))) - {result.stage for result in data.stages})
    if missing:
        lacking = ", ".join(SLUGS[k] for k in missing)
        raise MorphError(f"figure {NAME!r} needs all {len(SLUGS)} stages, the sweep lacks {lacking}; run morph sweep")
    if len(data.seeds) > 1:
        reading = "± one deviation; right: paired, 95%"
    else:
        reading = f"FLOPs at {data[0].cache_context:,} tokens"
    source = f"{origin}: {data.size}, {data.steps:,} steps, {_seeds(data)}. {reading[0].upper() + reading[1:]}."
    return Figure(
        name=NAME,
        number=NUMBER,
        title=TITLE,
        opening=_frame(data, 0, source),
        frames=tuple(_frame(data, step.number, source) for step in STEPS),
        provenance={
            "origin": origin, "size": data.size, "steps": data.steps, "seeds": list(data.seeds),
            "corpus": data.corpus, "versions": data.versions, "date": data.date,
        },
    )  # fmt: skip


def _seeds(sweep: Sweep) -> str:
    if len(sweep.seeds) == 1:
        return f"seed {sweep.seeds[0]}"
    return f"seeds {', '.join(map(str, sweep.seeds))}"


def _frame(sweep: Sweep, k: int, source: str) -> Frame:
    size, step = sweep.size, STEPS[k - 1] if k else None
    after = stage(k, size)
    before = stage(k - 1, size) if k else after
    now, then = ({o.key: o.to_dict() for o in organs(c)} for c in (after, before))
    changed = [key for key in (*now, *(key for key in then if key not in now)) if now.get(key) != then.get(key)]
    changes = diff(before, after)
    ledger = _ledger(sweep, k)
    facts: dict[str, Any] = {
        "step": k,
        "slug": SLUGS[k],
        "title": step.title if step else "The 2017 block",
        "year": step.year if step else 2017,
        "origin": step.origin if step else "Vaswani et al.",
        "role": step.role if step else "attention",
        "pressure": step.pressure if step else "Speed: a recurrent network must read tokens one after another.",
        "relation": step.relation if step else "",
        "placement": after.placement,
        "config": after.to_dict(),
        "organs": list(now.values()),
        "changed": changed,
        "changes": [str(change) for change in changes],
        "config_lines": config_lines(changes) if step else start_lines(after),
        "ledger": ledger,
    }
    return Frame(
        key=SLUGS[k],
        title=facts["title"],
        caption=_caption(sweep, k, after),
        alt=_alt(facts, step),
        claim=CLAIMS[k],
        arrays=_arrays(sweep, k),
        facts=facts,
        source=source,
    )


def _arrays(sweep: Sweep, k: int) -> dict[str, Array]:
    history = [sweep[i] for i in range(k + 1)]
    losses = np.array([[run.bits_per_byte for run in result.runs] for result in history])
    return {
        **{name: Array(values=np.array([getattr(r, name) for r in history]), axes=("stage",)) for name in COSTS},
        "bits_per_byte": Array(values=losses, axes=("stage", "seed")),
    }


# ---- the ledger ----


def _ledger(sweep: Sweep, k: int) -> list[dict[str, Any]]:
    now, before = sweep[k], sweep[max(k - 1, 0)]

    def row(key: str, label: str, name: str, show: Callable[[int], str], note: str = "") -> dict[str, Any]:
        value, old = getattr(now, name), getattr(before, name)
        return {
            "key": key, "label": label, "value": show(value), "note": note or relative(old, value),
            "raw": value, "changed": value != old,
        }  # fmt: skip

    few = now.parameters_active < 10_000_000
    shown = f"{now.parameters_active:,}" if few else f"{now.parameters_active / 1e6:,.1f} M"
    active = f"{shown} active" if now.parameters_active != now.parameters_total else ""
    gap = sweep.difference(k)
    verdict = gap.verdict if gap else ""
    paired = f"{gap.mean:+.3f} ± {gap.interval:.3f}".replace("-", "−") if gap and gap.interval is not None else ""
    deviation = now.deviation
    return [
        row("parameters", "Parameters", "parameters_total", lambda n: f"{n:,}", active),
        row("kv", "KV bytes per token", "kv_bytes_per_token", lambda n: f"{n:,}"),
        row("cache", f"Cache, {now.cache_context:,} tokens", "cache_bytes", in_bytes),
        row("flops", "FLOPs per token", "flops_per_token", in_millions),
        {
            "key": "bits", "label": "Bits per byte",
            "value": f"{now.mean:.3f}" + (f" ± {deviation:.3f}" if deviation is not None else ""),
            "note": NOTES.get(verdict, paired), "verdict": verdict, "raw": now.mean,
            "changed": verdict in (LOWER, HIGHER),
        },
    ]  # fmt: skip


# ---- config lines ----


def config_lines(changes: list[Change]) -> list[str]:
    """The changes of one step in at most `MOST_LINES` lines of `LINE_WIDTH` characters."""
    lines: list[str] = []
    for change in changes:
        if not isinstance(change.after, Spec):
            # several fields of one record: the record is plain from the diagram, its name would fill the line
            shown = Change(change.path.split(".", 1)[-1], change.before, change.after) if len(changes) > 1 else change
            lines += _wrap(str(shown))
            continue
        before = type(change.before).__name__ if isinstance(change.before, Spec) else "none"
        lines += _wrap(f"{change.path}: {before} → {type(change.after).__name__}")
        old = _scalars(change.before) if isinstance(change.before, Spec) else {}
        new = {k: v for k, v in _scalars(change.after).items() if old.get(k) != v and k != "eps"}
        if new:
            lines += _wrap("  " + ", ".join(f"{k}={v}" for k, v in new.items()))
    return lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], lines[MOST_LINES - 1].rstrip(",") + " …"]


def start_lines(config: ModelConfig) -> list[str]:
    """What the 2017 block has that the steps will change."""
    kinds = {name: type(getattr(config, name)).__name__ for name in ("norm", "position", "feed_forward")}
    return [f"placement: {config.placement}", *(f"{name}: {kind}" for name, kind in kinds.items())]


def _wrap(text: str, width: int = LINE_WIDTH) -> list[str]:
    tied = text.replace("→ ", "→\u00a0")  # an arrow stays with what follows it
    return [
        line.replace("\u00a0", " ")
        for line in textwrap.wrap(tied, width, subsequent_indent="  ", break_on_hyphens=False)
    ]


def _scalars(spec: Spec) -> dict[str, str]:
    """The fields of a record, an inner record as `field=Kind` where it is not the usual one; zeros left out."""
    shown: dict[str, str] = {}
    usual = {field.name: field.default for field in fields(spec)}
    for name, value in vars(spec).items():
        if isinstance(value, Spec):
            if value == usual[name]:
                continue
            inner = ", ".join(_scalars(value).values()) if isinstance(value, SlidingWindow) else ""
            shown[name] = type(value).__name__ + (f"({inner})" if inner else "")
        elif value not in (0, None):
            shown[name] = f"{value:g}" if isinstance(value, float) else str(value)
    return shown


# ---- words ----


def _caption(sweep: Sweep, k: int, after: ModelConfig) -> str:
    now, then = sweep[k], sweep[max(k - 1, 0)]
    fewer = then.parameters_total - now.parameters_total
    heads, context = attention_of(after), f"{now.cache_context:,}"
    ffn = after.feed_forward
    window = getattr(getattr(after.layout, "local", None), "window", None)
    moe = ffn if isinstance(ffn, MoE) else None
    kv = f"{then.kv_bytes_per_token:,} to {now.kv_bytes_per_token:,}"
    captions: dict[int, Callable[[], str]] = {
        0: lambda: "Attention, then a feed-forward network; each adds its result to the stream, and a norm follows.",
        1: lambda: "Each norm leaves the stream for a branch. From here on, the layers only ever add to the stream.",
        2: lambda: f"No mean is subtracted and no shift is learned: {fewer:,} parameters fewer.",
        3: lambda: f"Every matrix drops its bias: {fewer:,} parameters fewer, {fewer / then.parameters_total:.1%}.",
        4: lambda: (
            "Position leaves the input. Every layer turns its queries and keys by an angle that grows with place."
        ),
        5: lambda: "The kink at zero becomes a smooth curve. Not one parameter comes or goes.",
        6: lambda: f"A gate multiplies a value. Three narrower matrices hold what two did: {now.parameters_total:,}.",
        7: lambda: (
            f"{heads.n_heads} query heads share {heads.n_kv_heads} pairs of keys and values: "
            f"{kv} bytes a token to store and re-read."
        ),
        8: lambda: "Every head's query and key is normalized: their length can no longer swell the logits.",
        9: lambda: (
            f"Three layers in four see the last {window} tokens: at {context} tokens the cache falls "
            f"from {in_bytes(then.cache_bytes)} to {in_bytes(now.cache_bytes)}."
        ),
        10: lambda: (
            f"A router picks {moe and moe.top_k} of {moe and moe.n_experts} experts per token. Parameters grow "
            f"× {now.parameters_total / then.parameters_total:.2g}, active ones by the router only."
        ),
        11: lambda: (
            f"The same hidden units in quarters: choose {moe and moe.top_k} of {moe and moe.n_experts}. "
            "Only the router grows."
        ),
        12: lambda: (
            f"One expert serves every token, {moe and moe.top_k} more are chosen: as many active parameters as before."
        ),
        13: lambda: "The balancing loss goes. A bias that only the choice sees moves against the observed load.",
        14: lambda: (
            f"A fixed state replaces windows: {kv} bytes a token; the cache, once "
            f"{in_bytes(then.cache_bytes)}, is {in_bytes(now.cache_bytes)}."
        ),
    }
    return captions[k]()


def _alt(facts: dict[str, Any], step: Step | None) -> str:
    """The picture in words."""
    named = {organ["key"]: organ for organ in facts["organs"]}
    where = {"post": "with a norm on the stream after each addition", "pre": "with a norm on each branch"}
    parts = [
        f"A decoder block on the residual stream, {where[facts['placement']]}.",
        *(f"{o['label']}: {o['detail']}." for key, o in named.items() if o["detail"] and not key.endswith("norm")),
    ]
    if step:
        lit = [named[key]["label"] for key in facts["changed"] if key in named]
        gone = [key for key in facts["changed"] if key not in named]
        parts.append(f"Step {step.number}, {step.title}: from {step.before} to {step.after}.")
        parts += [f"Lit: {', '.join(dict.fromkeys(lit))}."] if lit else []
        parts += [f"Gone: {', '.join(gone)}."] if gone else []
    rows = (f"{row['label']} {row['value']}" + (f", {row['note']}" if row["note"] else "") for row in facts["ledger"])
    return " ".join(parts) + f" Ledger: {'; '.join(rows)}."
