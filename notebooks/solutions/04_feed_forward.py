# %% [markdown]
# Solutions to the exercises of `04_feed_forward`; each cell replaces the one with the same first line.

# %%
import torch


# %%
# Exercise 1 · the hidden width of a Llama
def hidden_width(d: int, factor: float, multiple: int) -> int:
    """Two thirds of 4d, times the factor, rounded up."""
    width = int(factor * (2 * 4 * d // 3))
    return -(-width // multiple) * multiple


# %%
# Exercise 2 · two channels that multiply
my_gate = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])  # a and -a
my_up = torch.tensor([[0.0, 1.0], [0.0, -1.0]])  # b and -b
my_down = torch.ones(1, 2)  # SiLU(a) b + SiLU(-a) (-b) = (SiLU(a) - SiLU(-a)) b = ab


# %%
# Exercise 3 · the fewest channels with most of the signal
def working(hidden: torch.Tensor, share: float) -> torch.Tensor:
    """Largest squares first, summed until they are enough."""
    squares = hidden.square().sort(dim=-1, descending=True).values
    sums = squares.cumsum(dim=-1)
    return (sums < share * sums[:, -1:]).sum(dim=-1) + 1
