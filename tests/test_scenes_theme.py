"""The palette's promises, in numbers, and the theme's arithmetic."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from morph.errors import MorphError
from morph.story.palette import ORGAN_ROLES
from scenes.theme import MINIMUM_HOLD, contrast, hold, mix, rgb, theme

# Machado, Oliveira & Fernandes, 2009: complete deficiency, on linear RGB.
DEFICIENCIES = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def _oklab(colour: str, deficiency: str) -> np.ndarray:
    """OKLab (Ottosson, 2020) of a colour as seen with a deficiency."""
    srgb = np.array(rgb(colour))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(DEFICIENCIES[deficiency]) @ linear, 0, 1)
    cones = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip  # noqa: E501
    lab = np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099], [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip  # noqa: E501
    return lab @ np.cbrt(cones @ linear)


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("name", ["dark", "light"])
def test_roles_can_be_told_apart(name: str, deficiency: str) -> None:
    look = theme(name)
    seen = {role: _oklab(look.colour(role), deficiency) for role in (*ORGAN_ROLES, "ink")}
    nearest = min((float(np.linalg.norm(seen[a] - seen[b])), a, b) for a, b in combinations(seen, 2))
    assert nearest[0] >= 0.10, nearest


@pytest.mark.parametrize("name", ["dark", "light"])
def test_contrasts(name: str) -> None:
    look = theme(name)
    for ground in ("background", "panel"):
        for text in ("ink", "muted"):
            assert contrast(look.colour(text), look.colour(ground)) >= 4.5
    for role in ORGAN_ROLES:
        assert contrast(look.colour(role), look.colour("background")) >= 3
        assert contrast(look.colour("ink"), look.tint(role, 0.14)) >= 4.5
        assert contrast(look.text_on(look.colour(role)), look.colour(role)) >= 4.5, role


def test_arithmetic() -> None:
    assert contrast("#FFFFFF", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)
    assert mix("#000000", "#FF8000", 0.5) == "#804000"
    assert theme("dark").colour("#123456") == "#123456"
    assert hold("one two") == MINIMUM_HOLD
    assert hold("word " * 35) == 10


def test_an_unknown_theme_names_the_nearest() -> None:
    with pytest.raises(MorphError, match="did you mean 'light'"):
        theme("lihgt")
