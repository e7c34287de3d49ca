"""Where training runs: which device, in which precision, as which process of how many."""

import os
from dataclasses import dataclass

import torch

from morph.errors import MorphError

MOST_THREADS = 256
FEW_FEATURES = 256
"""Below this width a second thread costs more than it brings: measured at nano and tiny, the same time at twice the CPU
seconds on free cores, and many times slower on busy ones."""


@dataclass(frozen=True)
class World:
    """This process among all that train together (`torchrun` sets the two numbers)."""

    rank: int = 0
    size: int = 1


def world() -> World:
    """Read rank and world size: the only place that does. Raises MorphError for more than one process."""
    for name, only in (("WORLD_SIZE", "1"), ("RANK", "0")):
        if (value := os.environ.get(name, only)) != only:
            raise MorphError(
                f"{name} is {value!r} and training uses one process, where it is {only}: "
                f"start it without torchrun, or unset {name}"
            )
    return World()


def available_devices() -> list[str]:
    """Names that `pick_device` accepts on this machine, best first."""
    names = [f"cuda:{i}" if i else "cuda" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    return [*names, "cpu"]


def use_threads(count: int) -> None:
    """Compute with `count` CPU threads. Raises MorphError for a number that no machine needs."""
    most = max(MOST_THREADS, os.cpu_count() or 1)
    if not 1 <= count <= most:
        raise MorphError(f"threads is {count}: give 1 to {most}")
    torch.set_num_threads(count)


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
