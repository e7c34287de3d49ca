"""Numbers as captions write them."""

from __future__ import annotations

from morph.story.written import many, percent, small, ten


def test_shares_have_no_space_before_the_sign() -> None:
    assert [percent(x) for x in (0.073, 1, -0.5)] == ["7%", "100%", "−50%"]


def test_how_tiny_numbers_read() -> None:
    assert [small(x) for x in (0.0, 4.2e-14, 0.25)] == ["0", "4\u00a0×\u00a010⁻¹⁴", "2\u00a0×\u00a010⁻¹"]
    assert [ten(n) for n in (14, -3)] == ["10¹⁴", "10⁻³"]


def test_how_many_of_some() -> None:
    assert [many(n, 4) for n in (0, 1, 3, 4)] == ["none", "1", "3", "all"]
