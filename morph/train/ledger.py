"""The ledger: one line of text a stage, for the terminal."""

from morph.train.sweep import ONE_SEED, StageResult, Sweep

_HEAD = (
    "stage",
    "",
    "params",
    "active",
    "KV B/token",
    "cache KiB",
    "MFLOP/tok",
    "bits/byte",
    "vs previous",
    "CPU s",
)
_WIDTH = (5, 18, 9, 9, 10, 9, 9, 9, 34, 5)


def head(sweep_context: int) -> str:
    """The ledger's heading, two lines."""
    return f"cache and forward FLOPs at {sweep_context:,} tokens; bits per byte of held-out text\n{_line(_HEAD)}"


def row(sweep: Sweep, result: StageResult) -> str:
    """One stage: what it costs and what it reached."""
    difference = sweep.difference(result.stage)
    change = ""
    if difference is not None:
        interval = "" if difference.interval is None else f" ± {difference.interval:.3f}"
        change = f"{difference.mean:+.3f}{interval} {'' if difference.verdict == ONE_SEED else difference.verdict}"
    return _line(
        (
            str(result.stage),
            result.slug,
            f"{result.parameters_total:,}",
            f"{result.parameters_active:,}",
            f"{result.kv_bytes_per_token:,}",
            f"{result.cache_bytes / 1024:,.0f}",
            f"{result.flops_per_token / 1e6:.2f}",
            f"{result.mean:.3f}",
            change,
            f"{result.cpu_seconds:.0f}",
        )
    )


def foot(sweep: Sweep) -> str:
    """How to read the differences."""
    if len(sweep.seeds) == 1:
        return "One seed shows no spread: no difference above is a finding. Three seeds: morph sweep"
    return (
        f"Differences are paired over {len(sweep.seeds)} seeds, ± the half-width of a 95 % t-interval; "
        f"one inside its interval is within the spread, and about one in twenty lands outside by luck alone."
    )


def _line(cells: tuple[str, ...]) -> str:
    words = zip(cells, _WIDTH, strict=True)
    return "  ".join(w.ljust(n) if i in (1, 8) else w.rjust(n) for i, (w, n) in enumerate(words)).rstrip()
