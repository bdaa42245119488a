"""The browser that tests look at pages with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from browser import OpenPage


def test_a_page_from_disk_is_opened(tmp_path: Path, open_page: OpenPage) -> None:
    page_file = tmp_path / "page.html"
    page_file.write_text(
        "<!doctype html><title>here</title><script>document.title += ' now'</script>", encoding="utf-8"
    )
    assert open_page(page_file.as_uri()).title() == "here now"
