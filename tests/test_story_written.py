"""Numbers as captions write them."""

from __future__ import annotations

from morph.story.written import in_bytes, in_millions, many, percent, relative, small, ten, times


def test_shares_have_no_space_before_the_sign() -> None:
    assert [percent(x) for x in (0.073, 1, -0.5)] == ["7%", "100%", "−50%"]


def test_how_tiny_numbers_read() -> None:
    assert [small(x) for x in (0.0, 4.2e-14, 0.25)] == ["0", "4\u00a0×\u00a010⁻¹⁴", "2\u00a0×\u00a010⁻¹"]
    assert [ten(n) for n in (14, -3)] == ["10¹⁴", "10⁻³"]


def test_how_many_of_some() -> None:
    assert [many(n, 4) for n in (0, 1, 3, 4)] == ["none", "1", "3", "all"]


def test_bytes_and_operations() -> None:
    sizes = (500, 1024, 1536, 214528, 3 * 2**30)
    assert [in_bytes(n) for n in sizes] == ["500 B", "1 KiB", "1.5 KiB", "210 KiB", "3 GiB"]
    assert [in_millions(n) for n in (1_213_000, 123_456_789)] == ["1.21 M", "123 M"]


def test_factors() -> None:
    assert [times(x) for x in (3.44, 9.96, 12.3)] == ["3.4", "10.0", "12"]


def test_how_a_count_changed() -> None:
    assert [relative(100, n) for n in (100, 50, 101, 250, 1000)] == ["", "−50%", "+1%", "× 2.5", "× 10"]
    assert relative(10_000, 9_991) == "−9"
