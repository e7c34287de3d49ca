"""What the README shows runs, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import morph

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_python_example_prints_the_diff_and_the_count(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    exec(code, {})
    *changes, total = capsys.readouterr().out.splitlines()
    assert changes == [str(change) for change in morph.diff(morph.stage(6), morph.stage(7))] != []
    assert int(total) == morph.count(morph.stage(7)).total


def test_every_file_and_folder_it_names_exists() -> None:
    named = re.findall(r"`([\w./]+\.(?:py|md|toml|txt|yml|cff)|[\w./]+/)`", README)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_make_target_and_command_it_shows_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"make ([a-z-]+)", README))
    assert {"tour", "test", "test-full"} <= targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)] == []
    shown = set(re.findall(r"`morph ([a-z]+)", README))
    cli = (ROOT / "morph" / "cli.py").read_text()
    assert {"train", "render", "doctor"} <= shown
    assert [command for command in shown if f"def {command}(" not in cli and f'name="{command}"' not in cli] == []
