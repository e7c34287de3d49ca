"""The house: imports go down only, and the core stands on three packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = [  # from the ground up
    ["morph.errors", "morph.lazy"],
    ["morph.vocabulary", "morph.shipped"],
    ["morph.spec"],
    ["morph.records"],
    ["morph.config"],
    ["morph.steps"],
    ["morph.forks"],
    ["morph.nn"],
    ["morph.model"],
    ["morph.measure", "morph.decoding"],
    ["morph.speculation"],
    ["morph.train", "morph.telling", "morph.upcycling"],
    ["morph.hf", "morph.lab"],
    ["morph.folder"],
    ["morph.writing", "morph.carrying"],
    ["morph.story", "morph.doctor"],
    ["morph.checks"],
    ["scenes"],
    ["morph.widgets"],
    ["morph.rendering"],
    ["morph.notebook", "morph.site"],
    ["morph.tour"],
    ["morph.cli"],
    ["morph.__main__"],
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
PUBLIC = {"MorphError", "ModelConfig", "Decoder", "STEPS", "SLUGS", "stage", "diff", "build", "generate", "count"}
PUBLIC |= {"trace", "FORKS", "compose", "fork", "generate_speculative", "upcycle"}


def room_of(module: str) -> str | None:
    """The room a module is in; None for other packages and for `morph` itself, which only hands names on."""
    return next((room for room in FLOOR_OF if module == room or module.startswith(room + ".")), None)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    """Modules of ours that a file names in import statements, at its top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return {name for name in found if name.split(".")[0] in ("morph", "scenes")}


FILES = sorted([*(ROOT / "morph").rglob("*.py"), *(ROOT / "scenes").rglob("*.py")])


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_go_down_only(path: Path) -> None:
    module = name_of(path)
    if module == "morph":
        return
    here = room_of(module)
    assert here is not None, f"{module} is in no room: add it to FLOORS"
    for name in imports(path):
        there = room_of(name)
        if there is not None and there != here:
            assert FLOOR_OF[there] < FLOOR_OF[here], f"{module} imports {name}, which is not below it"


def test_no_circle_inside_a_room() -> None:
    graph = {name_of(path): imports(path) for path in FILES}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            package_of = {m for m in graph if module.startswith(m + ".")}  # a file may name its own package
            for name in (graph[module] & graph.keys()) - package_of - {module, "morph"}:
                visit(name, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())
    assert done == graph.keys()


def test_the_core_needs_torch_numpy_and_jaxtyping_alone() -> None:
    """The packages of the extras are made unimportable; the core builds, runs, counts and writes all the same."""
    code = """
import sys
EXTRAS = {"typer", "click", "rich", "safetensors", "matplotlib", "manim", "anywidget", "ipywidgets", "transformers"}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
import torch, morph
print(sorted(morph.__all__))
model = morph.build(morph.stage(14, "nano"))
ids = torch.zeros(1, 4, dtype=torch.long)
with morph.trace(model) as seen:
    model(ids)
print(morph.generate(model, ids, 2).shape, morph.count(model.config).total, len(seen) > 20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names, result = done.stdout.splitlines()
    assert set(ast.literal_eval(names)) == PUBLIC | {"__version__"}
    assert result == "torch.Size([1, 6]) 359940 True"


def test_configs_and_steps_load_without_torch() -> None:
    code = "import sys, morph; morph.diff(morph.stage(0), morph.stage(14)); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
