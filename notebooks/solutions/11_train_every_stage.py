# %% [markdown]
# Solutions to the exercises of `11_train_every_stage`; each cell replaces the one with the same first line.

# %%
import statistics

import morph
from morph.train import Sweep

recorded = Sweep.reference()


# %%
# Exercise 1 · FLOPs of a training
def training_flops(config: morph.ModelConfig, steps: int, batch: int) -> int:
    """Forward and backward are three forward passes, for each window of each step."""
    return 3 * steps * batch * morph.count(config).flops(config.context_length).total


# %%
# Exercise 2 · lower, higher, or within the spread
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # degrees of freedom -> two-sided 95 % point of Student's t


def verdict(after: list[float], before: list[float]) -> str:
    """Paired differences: their mean against the half-width of its interval."""
    d = [a - b for a, b in zip(after, before)]
    mean, half = statistics.fmean(d), T95[len(d) - 1] * statistics.stdev(d) / len(d) ** 0.5
    if abs(mean) <= half:
        return "within the spread"
    return "lower" if mean < 0 else "higher"


# %%
# Exercise 3 · the front of quality and arithmetic
points = {stage.slug: (stage.mean, stage.flops_per_token) for stage in recorded.stages}
front = {
    slug
    for slug, (bits, flops) in points.items()
    if not any(b <= bits and f <= flops and (b, f) != (bits, flops) for b, f in points.values())
}
