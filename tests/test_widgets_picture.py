"""Pictures and findings in a notebook, without a browser."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from morph.errors import MorphError
from morph.lab.result import recorded
from morph.train.plot import INK
from morph.widgets import show_findings, show_picture
from morph.widgets.picture import LINES


def draw(figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [1, 2], label="a line")
    left.bar([0, 1], [1, 2])
    left.legend()
    right.imshow([[0.0, 1.0]])
    figure.suptitle("Weights & measures")


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_colours_of_lines_are_seen_on_light_and_dark(ground: str) -> None:
    assert {colour: contrast(colour, ground) for colour in LINES if contrast(colour, ground) < 3} == {}


def test_a_picture_takes_the_pages_colour_and_lets_its_ground_through() -> None:
    svg = show_picture(draw, "two panels")._repr_html_()
    ElementTree.fromstring(svg)
    assert svg.startswith("<svg")
    assert svg.count("currentColor") > 10
    fills = set(re.findall(r"#[0-9a-f]{6}", svg.lower()))
    assert fills <= set(LINES)
    assert INK not in svg
    assert ">Weights &amp; measures<" in svg  # letters, not outlines of letters
    assert "<style" not in svg  # which would speak of the whole page
    assert "http" not in svg.replace("http://www.w3.org/", "")


def test_two_pictures_of_a_page_share_no_ids_and_one_is_the_same_again() -> None:
    first, again, other = (show_picture(draw, alt).svg for alt in ("one", "one", "two"))
    assert first == again

    def used(svg: str) -> set[str]:
        return set(re.findall(r"url\(#(\w+)\)|href=\"#(\w+)\"", svg))

    assert used(first)
    assert not used(first) & used(other)
    for svg in (first, other):
        assert set(re.findall(r' id="([^"]+)"', svg)) == {name for names in used(svg) for name in names if name}


def test_words_stand_for_the_picture() -> None:
    picture = show_picture(draw, 'the words "for" it')
    assert repr(picture) == 'the words "for" it'
    assert 'aria-label="the words &quot;for&quot; it"' in picture.svg
    with pytest.raises(MorphError, match="give alt"):
        show_picture(draw, "  ")


def test_findings_are_all_claims_with_their_verdicts_and_limits() -> None:
    result = recorded("sinks")
    text = show_findings("sinks").data
    for finding in result.findings:
        assert finding.claim.text in text
        assert f"**{finding.verdict}**" in text
    assert "What it does not show" in text
    assert f"{len(result.declared['seeds'])} seeds" in text
    with pytest.raises(MorphError, match="sinks"):
        show_findings("sink")
