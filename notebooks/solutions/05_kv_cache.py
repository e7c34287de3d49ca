# %% [markdown]
# Solutions to the exercises of `05_kv_cache`; each cell replaces the one with the same first line.

# %%
import torch


# %%
# Exercise 1 · bytes of layers with and without windows
def my_cache_bytes(windows: list[int | None], n_kv: int, d_h: int, s: int, b: int, size: int) -> int:
    """A layer keeps s tokens, or its window's worth."""
    kept = sum(s if window is None else min(s, window) for window in windows)
    return 2 * n_kv * d_h * size * kept * b


# %%
# Exercise 2 · operations a byte of absorbed latents
def latent_intensity(n_q: int, r: int, d_rope: int, size: int) -> float:
    """A score takes r + d_rope products for each head, gathering r."""
    return 2 * n_q * ((r + d_rope) + r) / ((r + d_rope) * size)


# %%
# Exercise 3 · scores from latents, nothing unfolded
def absorbed_scores(
    q: torch.Tensor, q_rope: torch.Tensor, w_uk: torch.Tensor, latents: torch.Tensor, rotary_keys: torch.Tensor
) -> torch.Tensor:
    """The query folds into the latents' space; the rotated part meets the one key of all heads."""
    folded = (q[:, None] @ w_uk)[:, 0]
    return folded @ latents.T + q_rope @ rotary_keys.T


# %%
# Exercise 4 · texts beside the weights
weights = 2 * 8_030_261_248
one_text = 2 * 32 * 8 * 128 * 8192 * 2
texts = (80 * 10**9 - weights) // one_text
