"""How large a tensor is, in one number."""

from torch import Tensor


def rms(x: Tensor) -> float:
    """Root mean square of all numbers, summed in fp64."""
    return float(x.double().square().mean().sqrt())
