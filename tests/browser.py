"""Chromium for tests, started with flags that keep it quiet and off the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.tools import need

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser (a Playwright `Browser`)."""
    path = need("chromium")
    need("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


Show = Callable[..., Any]


@contextmanager
def pages(browser: Any, folder: Path) -> Iterator[Show]:
    """Opens pages given as text; at the end no request, error or warning may have been seen on any of them.

    `show(text, width, height=900, has_clock=True, **style)` answers with the page once its figure is there; without a
    clock of its own, time stands still but for `page.clock.run_for`.
    """
    seen: list[str] = []
    contexts = []

    def show(text: str, width: int, height: int = 900, has_clock: bool = True, **style: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **style)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: seen.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"error: {error}"))
        page.on("request", lambda request: seen.append(request.url) if not request.url.startswith("file:") else None)
        if not has_clock:
            page.clock.install(time=0)
            page.clock.pause_at(1)
        path = folder / f"page{len(contexts)}.html"
        path.write_text(text, encoding="utf-8")
        page.goto(path.as_uri())
        page.locator(".lm-figure").first.wait_for()
        return page

    yield show
    for context in contexts:
        context.close()
    assert seen == []
