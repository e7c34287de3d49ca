# %% [markdown]
# Solutions to the exercises of `08_beyond_softmax`; each cell replaces the one with the same first line.

# %%
import torch


# %%
# Exercise 1 · fade, erase, write, read
def delta_step(
    state: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q: torch.Tensor, alpha: float, beta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fade first; then move the faded state's answer to k towards v; read last."""
    state = alpha * state
    state = state + beta * torch.outer(k, v - state.T @ k)
    return state, state.T @ q


# %%
# Exercise 2 · when a cache has grown as heavy as a state
def level_at(kv_heads: int, head_dim: int, heads: int, key_dim: int, value_dim: int) -> float:
    """Four bytes a number of the state; two for each of a token's keys and values."""
    return 4 * heads * key_dim * value_dim / (2 * 2 * kv_heads * head_dim)


# %%
# Exercise 3 · parity
def alpha_beta(bit: int) -> tuple[float, float]:
    """Never fade; a one reflects the state, a zero leaves it alone."""
    return 1.0, 2.0 * bit


# %%
# Exercise 4 · from scores to a mask
def kept(scores: torch.Tensor, top_k: int) -> torch.Tensor:
    """A stable sort keeps equal scores in their order; what is in the future comes last and is cut off again."""
    causal = torch.ones_like(scores, dtype=torch.bool).tril()
    order = scores.masked_fill(~causal, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(causal).scatter(-1, order[:, :top_k], True) & causal
