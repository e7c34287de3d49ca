"""The notebooks: built from their sources to the byte, run as shipped and solved, and used in a real JupyterLab."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import chromium
from tests.tools import need

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
NAMES = sorted(path.stem for path in (NOTEBOOKS / "src").glob("*.py"))
PROGRESS = r"\[(\*|\d+)\]"


def _load_build() -> Any:
    spec = importlib.util.spec_from_file_location("notebooks_build", NOTEBOOKS / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


build = _load_build()


@pytest.fixture
def jupyter_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jupyter and IPython without the settings, history and extensions of whoever runs the tests."""
    home = tmp_path_factory.mktemp("jupyter")
    for name in (
        "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR",
        "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR",
    ):  # fmt: skip
        (home / name).mkdir()
        monkeypatch.setenv(name, str(home / name))
    monkeypatch.setenv("MORPH_QUICK", "1")
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOKS.parent))
    return home


# ---- the builder ----


def test_there_is_a_notebook() -> None:
    assert "00_the_morph" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_committed_notebook_is_what_its_source_gives(name: str) -> None:
    built = build.notebook(name, build.cells_of(name))
    assert (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8") == built, "run python notebooks/build.py"


@pytest.mark.parametrize("name", NAMES)
def test_notebook_is_valid_and_holds_no_outputs(name: str) -> None:
    need("nbclient")
    import nbformat

    book = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    nbformat.validate(book)
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    assert "widgets" not in book["metadata"]
    ids = [cell["id"] for cell in book["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_check_reports_and_writes_nothing(tmp_path: Path) -> None:
    copy = tmp_path / "notebooks"
    shutil.copytree(NOTEBOOKS, copy)
    target = copy / "00_the_morph.ipynb"
    target.write_text("{}", encoding="utf-8")
    command = [sys.executable, str(copy / "build.py")]
    check = subprocess.run([*command, "--check"], capture_output=True, text=True)
    assert (check.returncode, target.read_text(encoding="utf-8")) == (1, "{}")
    assert "00_the_morph.ipynb is out of date" in check.stdout
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert target.read_bytes() == (NOTEBOOKS / "00_the_morph.ipynb").read_bytes()
    assert subprocess.run([*command, "--check"], capture_output=True).returncode == 0


def test_parse_splits_cells_and_refuses_stray_text() -> None:
    cells = build.parse("# %% [markdown]\n# # A\n#\n# b\n\n# %%\nx = 1\n\n# a comment\n")
    assert [(cell.kind, cell.source) for cell in cells] == [
        ("markdown", "# A\n\nb"),
        ("code", "x = 1\n\n# a comment"),
    ]
    with pytest.raises(ValueError, match="before the first cell"):
        build.parse("x = 1\n# %%\n")
    with pytest.raises(ValueError, match="bare line 'oops'"):
        build.parse("# %% [markdown]\n# a\noops\n")


def test_a_solution_without_its_exercise_is_refused() -> None:
    cells = build.parse("# %%\n# Exercise 1 · a\nx = ...\n")
    with pytest.raises(ValueError, match="do not match"):
        build.with_solutions(cells, build.parse("# %%\n# Exercise 2 · b\nx = 1\n"))


# ---- running them ----

NO_NETWORK = """
import socket

def _refuse(*_):
    raise OSError("a notebook asked for the network")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = _refuse
"""


def run_cells(name: str, cells: list[Any], folder: Path) -> list[Any]:
    """Execute the cells in a fresh kernel without a network; returns the executed code cells."""
    need("nbclient")
    need("anywidget")
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.reads(build.notebook(name, [build.Cell("code", NO_NETWORK), *cells]), as_version=4)
    NotebookClient(book, timeout=200, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell for cell in book.cells if cell.cell_type == "code"][1:]


def check_replies(cells: list[Any]) -> list[str]:
    """What the check cells answered."""
    return [
        str(output["data"]["text/plain"])
        for cell in cells
        if cell.source.startswith("checks.")
        for output in cell.outputs
    ]


@pytest.mark.timeout(240)  # the whole notebook, on a machine that may be busy with other tests
@pytest.mark.parametrize("name", NAMES)
def test_runs_as_shipped_in_any_folder(name: str, tmp_path: Path, jupyter_home: Path) -> None:
    done = run_cells(name, build.cells_of(name), tmp_path)
    replies = check_replies(done)
    assert replies
    assert all(reply.startswith("Not yet · ") for reply in replies)
    assert not any(output.output_type == "stream" and output.name == "stderr" for c in done for output in c.outputs)
    assert list(tmp_path.iterdir()) == []  # nothing is left where the reader works


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NAMES)
def test_solutions_pass_their_checks(name: str, tmp_path: Path, jupyter_home: Path) -> None:
    solutions = build.cells_of(name, NOTEBOOKS / "solutions")
    replies = check_replies(run_cells(name, build.with_solutions(build.cells_of(name), solutions), tmp_path))
    assert replies
    assert all(reply.startswith("PASS · ") for reply in replies), replies


# ---- a person in JupyterLab ----


@pytest.fixture
def lab(jupyter_home: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a notebook, with a place for its name, in a JupyterLab that shows every cell and no news."""
    need("jupyterlab")
    need("anywidget")
    for name in DRIVEN:
        shutil.copy(NOTEBOOKS / f"{name}.ipynb", tmp_path)
    settings = jupyter_home / "JUPYTERLAB_SETTINGS_DIR" / "@jupyterlab"
    for plugin, values in {
        "notebook-extension/tracker": {"windowingMode": "none"},
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    }.items():
        path = settings / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
        "--ServerApp.port_retries=0", "--IdentityProvider.token=morph", f"--ServerApp.root_dir={tmp_path}",
        *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
    ]  # fmt: skip
    log = jupyter_home / "server.log"
    with log.open("w", encoding="utf-8") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        base = f"http://127.0.0.1:{port}"
        _wait_for(f"{base}/api?token=morph", server, log)
        yield f"{base}/lab/workspaces/{{0}}/tree/{{0}}.ipynb?token=morph"  # a workspace each: no tabs of another test
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text(encoding="utf-8")
        try:
            urllib.request.urlopen(address, timeout=2).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"JupyterLab did not answer:\n{log.read_text(encoding='utf-8')}")


def run_all(page: Any) -> None:
    """Run all cells and wait for the last; asked again when the menu had no effect, as it sometimes has not."""
    prompts = "[...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(p => p.textContent)"
    from playwright.sync_api import TimeoutError as NoEffect

    for _ in range(5):
        page.locator(".jp-Notebook .jp-Cell").first.click()
        page.keyboard.press("Escape")
        page.locator(".lm-MenuBar-item", has_text="Run").click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        try:
            page.wait_for_function(f"() => {prompts}.some(text => /{PROGRESS}/.test(text))", timeout=4000)
            break
        except NoEffect:
            continue
    failed = "document.querySelector('[data-mime-type=\"application/vnd.jupyter.error\"]')?.textContent"
    page.wait_for_function(f"() => {failed} || {prompts}.every(text => /\\[\\d+\\]/.test(text))", timeout=150_000)
    assert page.evaluate(f"() => {failed} ?? null") is None


CELLS = """() => [...document.querySelectorAll(".jp-Notebook .jp-Cell")].map(
  (cell) => `${cell.className.match(/jp-\\w+Cell/)} ${cell.querySelector(".jp-InputArea-editor").textContent}`)"""


def in_code_of(page: Any, widget: Any) -> None:
    """Put the cursor into the cell that shows a widget."""
    page.locator(".jp-CodeCell", has=widget).locator(".cm-content").click()


def keys_step_the_figure(page: Any, frames: int) -> None:
    """Its own keys move it; Lab's keys for adding, cutting and changing cells do nothing from in there."""
    figure = page.locator(".lm-figure", has=page.locator(".lm-counter"))
    counter = figure.locator(".lm-counter")
    figure.scroll_into_view_if_needed()
    figure.focus()
    before = page.evaluate(CELLS)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert counter.text_content() == f"03 / {frames}"
    for key in ("b", "a", "x", "m", "d", "d", "z"):
        page.keyboard.press(key)
    page.wait_for_timeout(500)
    assert page.evaluate(CELLS) == before
    assert page.evaluate("() => document.activeElement.className") == "lm-figure"

    in_code_of(page, figure)
    page.keyboard.press("Control+Enter")
    page.wait_for_function(f"() => document.querySelector('.lm-counter')?.textContent === '01 / {frames}'")
    figure.focus()
    page.keyboard.press("End")
    assert counter.text_content() == f"{frames} / {frames}"


def router_reads_through_the_kernel(page: Any) -> None:
    """Another text is read by the model, drawn, and read by keys; an empty text is answered; a re-run starts anew."""
    from morph.story.explore import routing
    from morph.story.subject import subject

    text = "if a[0] == b:"
    chosen = routing(subject("experts-auxiliary"), text).arrays["chosen"].values
    shown = page.locator(".lm-figure", has=page.locator(".lm-text"))
    field, reading = shown.get_by_label("Text to read"), shown.locator(".lm-reading")
    before = page.evaluate(CELLS)
    colours = """map => {
      const { data } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
      return new Set(new Uint32Array(data.buffer)).size;
    }"""
    shown.scroll_into_view_if_needed()
    assert shown.locator(".lm-map").evaluate(colours) > 10
    field.fill(text)
    field.press("Enter")
    page.wait_for_function(f"() => document.querySelectorAll('.lm-token').length === {len(text)}")
    assert shown.locator(".lm-map").evaluate("map => map.width") == len(text)
    shown.focus()
    for key in ("Home", "PageDown", "b", "x"):
        page.keyboard.press(key)
    words = str(reading.text_content())
    assert words.startswith("Layer 1, token 0 “i”")
    assert re.findall(r"(\d+) \(", words.split("Its 7: ")[1]) == [str(e) for e in chosen[1, 0]]
    field.fill("")
    field.press("Enter")
    page.wait_for_function("() => document.querySelector('.lm-form .lm-state').textContent !== 'Reading …'")
    assert "write 1 to 96 bytes" in shown.locator(".lm-state").text_content()
    assert page.evaluate(CELLS) == before

    in_code_of(page, shown)
    page.keyboard.press("Control+Enter")
    page.wait_for_function(f"() => document.querySelectorAll('.lm-token').length > {len(text)}")
    assert page.locator(".lm-text").count() == 1


def attention_reads_through_the_kernel(page: Any) -> None:
    """Another text is read by the model: its weights, chosen by keys that do nothing to the cells."""
    from morph.story.explore import attention
    from morph.story.subject import subject

    text = "while x: x -= y"
    weights = attention(subject("windows"), text).arrays["weights"].values
    shown = page.locator(".lm-figure", has=page.locator(".lm-text"))
    field, before = shown.get_by_label("Text to read"), page.evaluate(CELLS)
    shown.scroll_into_view_if_needed()
    field.fill(text)
    field.press("Enter")
    page.wait_for_function(f"() => document.querySelectorAll('.lm-tokens .lm-token').length === {len(text)}")
    shown.focus()
    for key in ("PageDown", "End", "ArrowLeft", "a", "x"):
        page.keyboard.press(key)
    last = len(text) - 1
    expected = (
        f"layer 0, head 1: “y” ({last}) looks at “␣” ({last - 1}) with weight {weights[0, 1, last, last - 1]:.3f}"
    )
    assert shown.locator(".lm-reading").text_content() == expected
    assert page.evaluate(CELLS) == before


def training_is_stopped_by_its_button(page: Any) -> None:
    """A run of the cell starts anew; Start, Stop and Go on are heard; what was drawn survives a reload of the page."""
    shown = page.locator(".lm-figure[aria-label*='15 models']")
    lines = "() => document.querySelector('.lm-monitor').querySelectorAll('polyline').length"

    def is_at(state: str) -> None:
        found = "document.querySelector('.lm-figure:has(.lm-models)')?.dataset.state"  # the first of two
        page.wait_for_function(f"() => {found} === '{state}'", timeout=60_000)

    assert "Done: 15 models, 3 steps each." in shown.locator(".lm-reading").text_content()
    cells = page.evaluate(CELLS)
    in_code_of(page, shown)
    page.keyboard.press("Control+Enter")
    is_at("ready")
    shown.scroll_into_view_if_needed()
    shown.get_by_role("button", name="Start").click()
    is_at("training")
    page.wait_for_function(f"() => ({lines})() > 0", timeout=60_000)
    shown.get_by_role("button", name="Stop").click()
    is_at("stopped")
    words = shown.locator(".lm-reading").text_content()
    assert re.match(r"Stopped at \d+ [\w-]+, step \d of 3; Go on takes it up from there", words)
    assert shown.get_by_role("status").text_content() == words
    drawn = page.evaluate(lines)
    shown.focus()
    for key in ("ArrowUp", "b", "x", "d", "d"):
        page.keyboard.press(key)
    assert page.evaluate(CELLS) == cells

    page.locator(".jp-Notebook").first.click(position={"x": 3, "y": 3})
    page.keyboard.press("Control+s")
    page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')")
    page.wait_for_timeout(1000)
    page.reload()
    is_at("stopped")
    page.wait_for_function(f"() => ({lines})() === {drawn}")
    assert shown.locator(".lm-reading").text_content() == words
    shown.focus()
    page.keyboard.press(" ")  # and it goes on
    is_at("finished")
    assert page.evaluate(lines) == 15


DRIVEN: dict[str, tuple[int, list[Any]]] = {
    "00_the_morph": (14, []),
    "02_position": (12, []),
    "06_masks": (12, [attention_reads_through_the_kernel]),
    "07_mixture_of_experts": (12, [router_reads_through_the_kernel]),
    "11_train_every_stage": (14, [training_is_stopped_by_its_button]),
}
"""Notebooks that are used in JupyterLab: how many frames their figure has, and what else is done."""


@pytest.mark.browser
@pytest.mark.timeout(900)
def test_a_reader_works_in_jupyterlab(lab: str, tmp_path: Path) -> None:
    with chromium() as browser:
        for name, (frames, more) in DRIVEN.items():  # one server for all: starting it costs more than a notebook
            page = browser.new_context(viewport={"width": 1280, "height": 1000}).new_page()
            foreign: list[str] = []
            page.on("request", lambda r, seen=foreign: None if _is_local(r.url) else seen.append(r.url))
            page.goto(lab.format(name))
            page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]", timeout=90_000)
            run_all(page)
            keys_step_the_figure(page, frames)
            for act in more:
                act(page)
            page.screenshot(path=tmp_path / f"{name}.png")
            assert foreign == []
            page.context.close()


def _is_local(address: str) -> bool:
    return address.startswith(("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:"))
