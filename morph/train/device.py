"""Where training runs: which device, in which precision, as which process of how many."""

import os
from dataclasses import dataclass

import torch

from morph.errors import MorphError


@dataclass(frozen=True)
class World:
    """This process among all that train together (`torchrun` sets the two numbers)."""

    rank: int = 0
    size: int = 1


def world() -> World:
    """Read rank and world size: the only place that does. Raises MorphError for more than one process."""
    found = World(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
    if found.size != 1:
        raise MorphError(f"WORLD_SIZE is {found.size}: training uses one process; start it without torchrun")
    return found


def available_devices() -> list[str]:
    """Names that `pick_device` accepts on this machine, best first."""
    names = [f"cuda:{i}" if i else "cuda" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    return [*names, "cpu"]


def pick_device(name: str = "auto") -> torch.device:
    """The device called `name`; "auto" is CUDA, else MPS, else CPU. Raises MorphError if it is not there."""
    present = available_devices()
    if name == "auto":
        return torch.device(present[0])
    if name.removesuffix(":0") not in present:
        raise MorphError(f"no device {name!r} on this machine: choose auto or one of {', '.join(present)}")
    return torch.device(name)


def pick_precision(name: str, device: torch.device) -> str:
    """Resolve "auto": bf16 autocast on CUDA, fp32 elsewhere."""
    return ("bf16" if device.type == "cuda" else "fp32") if name == "auto" else name
