"""Prints every sentence that a user can see, by file and line, so that an editor can review them in one pass.

Run it as ``make sentences``. It lists string constants and f-strings with a space, except docstrings, regular expressions
and SQL, and the text of the report and label pages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "visioneval"
_SKIPPED = re.compile(r"\\[dwsb.]|\(\?[:<=!]|^(SELECT|INSERT|CREATE|DELETE|UPDATE|PRAGMA|ALTER|BEGIN) |^[\W\d_]*$")
_PAGE_TEXT = re.compile(r">([^<>{}]*[A-Za-z]{2,}[^<>{}]*)<|[\"'`]([A-Z][^\"'`<>\n]* [^\"'`<>\n]*)[\"'`]")


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """The lines and texts of the strings of a Python file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(text) for node in ast.walk(tree) for text in _docstrings_and_parts(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        text = _text(node)
        if text is not None and " " in text.strip() and len(text) > 9 and not _SKIPPED.search(text):
            yield node.lineno, text  # type: ignore[attr-defined]


def _docstrings_and_parts(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.JoinedStr):
        yield from (part for part in ast.walk(node) if part is not node)
    elif isinstance(node, ast.Expr):
        yield node.value  # a docstring, or the description of an attribute


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"  # type: ignore[attr-defined]
            for part in node.values
        )
    return None


def page_texts(path: Path) -> Iterator[tuple[int, str]]:
    """The lines and texts of a page's template or script."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for match in _PAGE_TEXT.finditer(line):
            text = (match[1] or match[2]).strip()
            if text:
                yield number, text


def main() -> None:
    """Prints the list."""
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix == ".py":
            texts = sentences(path)
        elif path.suffix in (".j2", ".html", ".js") and "prompts" not in path.parts:
            texts = page_texts(path)
        else:
            continue
        for line, text in texts:
            print(f"{path.relative_to(PACKAGE)}:{line}: {text!r}")


if __name__ == "__main__":
    main()
