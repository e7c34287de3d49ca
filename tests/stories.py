"""Frames with other numbers in them, for tests that a claim can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from morph.story.frame import Frame


def with_array(frame: Frame, name: str, change: Callable[[np.ndarray], Any]) -> Frame:
    """The frame with one array changed: to what `change` answers of a copy, or in place where it answers None."""
    values = frame.arrays[name].values.copy()
    changed = change(values)
    array = replace(frame.arrays[name], values=values if changed is None else np.asarray(changed))
    return replace(frame, arrays={**frame.arrays, name: array})
