"""A real browser for the project's pages: the system's Chromium, driven by Playwright, with no network.

``browser`` is one Chromium for the tests of a module. ``open_page`` opens pages in it and checks what holds for every
page: no error in the console, and no request beyond what the test allows.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    OpenPage = Callable[..., Page]

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The first starts and opens a page in a third of the time of the others."""
CHROMIUM = next((match for name in NAMES if (match := shutil.which(name))), None)
IS_REQUIRED = os.environ.get("CI") == "true"
"""Where CI runs, pages are tested."""
WIDTH, HEIGHT = 1280, 800
PHONE = {"width": 380, "height": 760}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium. Where it or Playwright is absent, the test is skipped, and fails in CI.

    Not for the whole session: while it is open, an event loop runs in this thread, and no other test could start one.
    """
    give_up = pytest.fail if IS_REQUIRED else pytest.skip
    if find_spec("playwright") is None:
        give_up("playwright is not installed")
    if CHROMIUM is None:
        give_up("there is no Chromium on this machine (apt-get install chromium-headless-shell)")
    from playwright import sync_api

    with sync_api.sync_playwright() as driver:
        result = driver.chromium.launch(executable_path=CHROMIUM, args=ARGS, env=dict(os.environ))
        yield result
        result.close()


@dataclass
class Watched:
    """What pages asked for and complained of."""

    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda output: self.errors.append(output.text) if output.type == "error" else None)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """``open_page(url, allowed=("file:", "data:"), **context)``: a page in a new context, such as a phone's.

    When the test ends, every request must start with an ``allowed`` prefix, and the console must have no errors.
    """
    contexts: list[Any] = []
    watched = Watched()
    starts = {"file:", "data:", "blob:"}

    def open_new_page(url: str, *, allowed: tuple[str, ...] = (), **context: Any) -> Page:
        starts.update(allowed)
        contexts.append(browser.new_context(**{"viewport": {"width": WIDTH, "height": HEIGHT}, **context}))
        contexts[-1].set_default_timeout(30_000)
        page: Page = contexts[-1].new_page()
        watched.watch(page)
        page.goto(url)
        return page

    yield open_new_page
    for context in contexts:
        context.close()
    assert not [url for url in watched.requests if not url.startswith(tuple(starts))]
    assert not watched.errors, watched.errors


def wait_until(page: Page, expression: str, seconds: float = 30.0) -> None:
    """Waits until an expression is true in the page, whose policy forbids Playwright's ``wait_for_function``."""
    for _ in range(int(seconds * 50)):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"not within {seconds:g} s: {expression}")
