"""Colours by meaning, the one source for the video, the notebook figures and the plots.

A role is what a thing *is* (a norm, attention, the cache), never how it should look, so an organ keeps its colour in
every figure. The role colours stay apart under the three common colour-vision deficiencies: the smallest distance
between any two of them is 0.10 in OKLab. On the light background they hold 3:1, enough for lines and fills but not
for letters: write text in ``ink`` or ``muted``, which hold 4.5:1 on ``background`` and on ``panel`` in both themes.
"""

from __future__ import annotations

from typing import Final

ORGAN_ROLES: Final = ("norm", "attention", "position", "ffn", "cache")

DARK: Final[dict[str, str]] = {
    "background": "#10141B",
    "panel": "#1A212C",
    "ink": "#E8ECF1",
    "muted": "#9AA4B1",
    "wire": "#7D8794",
    "ghost": "#6B7685",
    "focus": "#58A6FF",
    "norm": "#E4CE1C",
    "attention": "#398BFD",
    "position": "#C39ED4",
    "ffn": "#9BD5A6",
    "cache": "#EF682D",
}

LIGHT: Final[dict[str, str]] = {
    "background": "#FBFAF7",
    "panel": "#F0EEE8",
    "ink": "#1B2430",
    "muted": "#55606D",
    "wire": "#7C8693",
    "ghost": "#8A93A0",
    "focus": "#0969DA",
    "norm": "#B98610",
    "attention": "#01367B",
    "position": "#9F44BD",
    "ffn": "#417261",
    "cache": "#693600",
}

THEMES: Final[dict[str, dict[str, str]]] = {"dark": DARK, "light": LIGHT}
