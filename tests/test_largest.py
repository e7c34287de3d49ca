"""The largest tensor of a computation: of what is made inside, there and back, and of nothing else."""

from __future__ import annotations

import torch

from morph.measure.largest import largest


def test_the_largest_result_is_found_on_the_way_there() -> None:
    x, w = torch.ones(100, 3), torch.ones(50, 3)
    with largest() as made:
        (x @ w.T).sum()
    assert (made.nbytes, made.shape) == (100 * 50 * 4, (100, 50))


def test_a_backward_pass_counts() -> None:
    x = torch.ones(10, requires_grad=True)
    with largest() as made:
        y = x[None].expand(30, 10).sum()  # a view of ten numbers
        assert made.nbytes == 10 * 4
        y.backward()
    assert made.nbytes <= 30 * 10 * 4
    assert x.grad is not None


def test_what_was_there_before_or_comes_after_does_not_count() -> None:
    big = torch.ones(1000)
    with largest() as made:
        big[:4] + 1
    big + 1
    assert made.nbytes == 1000 * 4 or made.nbytes == 4 * 4
    assert made.nbytes == 4 * 4
