"""The scripts and styles of served pages. All of them are files: a page runs only what its own server sends."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from visioneval.report.html.pages import style, theme

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

FOLDER = Path(__file__).parent / "pages"
STYLE = "view.css"


@cache
def read_asset(name: str) -> str:
    """A file of the pages. A style begins with what it shares with others: at least the named colors and sizes."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    if name.endswith(".css"):
        return (style() if name == STYLE else theme()) + text
    return text


def asset_response(name: str, _: Request) -> Response:
    """Sends a page without values, a script or a style."""
    from starlette.responses import Response

    kind = {"css": "css", "html": "html"}.get(name.rpartition(".")[2], "javascript")
    return Response(read_asset(name), media_type=f"text/{kind}")
