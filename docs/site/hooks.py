"""Hooks of MkDocs: pages from files at the top of the repository, and the references that are made from the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from reference import notebook

SITE = Path(__file__).parent
ROOT = SITE.parents[1]
TOP = {
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/notebook.ipynb": "notebook.md",
}
"""Pages outside docs/, and their names in the site."""


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are not files of docs/, and what the site itself needs."""
    pages = {name: (ROOT / path).read_text(encoding="utf-8") for path, name in TOP.items()}
    pages["notebook.md"] = notebook(pages["notebook.md"])
    for name, text in pages.items():
        files.append(File.generated(config, name, content=_with_links(text, depth=0 if name in TOP.values() else 1)))
    for name in ("extra.css", "iframe-worker.js"):
        files.append(File.generated(config, f"assets/{name}", content=(SITE / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links to files at the top of the repository into links to their pages."""
    return markdown if page.file.generated_by else _with_links(markdown, depth=page.file.src_uri.count("/") + 1)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Raises ``PluginError`` if a page would make a request to another server."""
    if request := re.search(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?https?:[^>]*>""", output):
        raise PluginError(f"{page.file.src_uri}: would make a request: {request[0]}")
    return output


def _with_links(text: str, *, depth: int) -> str:
    """``depth``: how many folders the page lies below the top of the repository."""
    up, from_site = "../" * depth, "../" * (depth - 1)
    for path, name in TOP.items():
        text = text.replace(f"]({up}{path})", f"]({from_site}{name})")
    return text if depth else re.sub(r"\]\((?:\.\./)?docs/", "](", text)
