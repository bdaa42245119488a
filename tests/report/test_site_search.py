"""The site's search when its pages are opened from disk, where browsers allow no worker: docs/site/iframe-worker.js."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from browser import OpenPage

SHIM = Path(__file__).parents[2] / "docs" / "site" / "iframe-worker.js"
PAGE = """\
<!doctype html><title>waiting</title><body>
<script src="iframe-worker.js"></script>
<script>
  const worker = new Worker(new URL("worker.js", location));
  worker.addEventListener("message", (event) => { document.title = event.data; });
  worker.postMessage("budget");
</script>
"""
WORKER = """\
const base = document.querySelector("script[src]").src;  // how the theme's worker looks for its languages
addEventListener("message", async (event) => {
  await importScripts(base.replace("worker.js", "language.js"));
  postMessage(translate(event.data) + ("IFrameWorker" in parent));
});
"""


def test_a_worker_answers_from_disk(tmp_path: Path, open_page: OpenPage) -> None:
    """What the theme's search does: a message each way, scripts that the worker imports, and the name that it looks for."""
    shutil.copy(SHIM, tmp_path)
    (tmp_path / "page.html").write_text(PAGE)
    (tmp_path / "worker.js").write_text(WORKER)
    (tmp_path / "language.js").write_text("function translate(text) { return text.toUpperCase() + ' '; }")
    page = open_page((tmp_path / "page.html").as_uri())
    page.wait_for_function("document.title !== 'waiting'")
    assert page.title() == "BUDGET true"
