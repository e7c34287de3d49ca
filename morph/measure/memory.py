"""How much memory there is to work with."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import torch


def available_memory(device: torch.device) -> int | None:
    """Bytes that a new process could use on `device`; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    known = []
    with contextlib.suppress(OSError):
        if found := re.search(r"^MemAvailable: *(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE):
            known.append(int(found[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # a container's limit, unless it is "max"
        known.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    if not known:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(known, default=None)


def gigabytes(size: int) -> str:
    """`1.5 GB`."""
    return f"{size / 1e9:,.1f} GB"
