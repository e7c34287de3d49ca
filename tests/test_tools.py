"""`need` skips on a reader's machine and fails in CI, and names the remedy in both."""

from __future__ import annotations

import pytest

from morph import doctor
from tests import tools


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_missing_tool_skips_here_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(doctor.Tool, "find", lambda self: None)
    monkeypatch.setattr(tools, "find_spec", lambda name: None)
    with pytest.raises(outcome, match=r"node is missing: .*node"):
        tools.need("node")
    with pytest.raises(outcome, match=r"manim is missing: pip install -e '\.\[scenes\]'"):
        tools.need("manim")


def test_a_tool_that_is_here_is_returned() -> None:
    assert tools.need("nbclient") == "nbclient"


def test_every_package_is_of_an_extra() -> None:
    assert set(tools.PACKAGES.values()) <= set(doctor.EXTRAS)
