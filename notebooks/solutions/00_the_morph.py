# %% [markdown]
# Solutions to the exercises of `00_the_morph`; each cell replaces the one with the same first line.

# %%
import morph


# %%
# Exercise 1 · bytes that one token adds to the cache
def kv_bytes_per_token(config: morph.ModelConfig) -> int:
    """Two bytes for each number of a key and a value, in every key-value head of every layer."""
    return config.n_layers * 2 * config.attention.n_kv_heads * config.attention.head_dim * 2


# %%
# Exercise 2 · steps that leave both parameter counts unchanged
counts = [morph.count(morph.stage(stage)) for stage in range(len(morph.SLUGS))]
same_parameters = {
    step.slug
    for step in morph.STEPS
    if counts[step.number].total == counts[step.number - 1].total
    and counts[step.number].active.all == counts[step.number - 1].active.all
}

# %%
# Exercise 3 · a window that gives stage 8 back
from dataclasses import replace

nine = morph.stage(9)
wide = replace(nine, layout=replace(nine.layout, local=replace(nine.layout.local, window=1024)))
