"""Shows problems of a suite with the line that each is about and a caret below the column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from rich.cells import cell_len

from visioneval.errors import Problem
from visioneval.suite.secrets import SECRET_NAME

MAX_EXCERPTS = 20
"""Problems with an excerpt, so that many problems stay readable."""
_MAX_LINE_BYTES = 100_000
_MARGIN = 8
"""Columns for the line number and the bar."""


def with_excerpts(problems: Iterable[Problem], width: int) -> Iterator[str]:
    """The lines of each problem: its message, and for the first ``MAX_EXCERPTS`` the source line with a caret.

    ``width`` is in columns; longer source lines are cut around the caret. A line that may contain a key is left out.
    """
    for number, problem in enumerate(problems):
        yield str(problem)
        if number < MAX_EXCERPTS and (source := _source_line(problem)) is not None:
            yield from _excerpt(source, problem, max(20, width - _MARGIN))


def _source_line(problem: Problem) -> str | None:
    """The line of a problem as printable text; ``None`` if there is no such line, or a key may be in it."""
    if not problem.line or not Path(problem.file).is_file():
        return None
    try:
        with Path(problem.file).open("rb") as file:
            line = next(islice(iter(lambda: file.readline(_MAX_LINE_BYTES), b""), problem.line - 1, None), b"")
    except OSError:
        return None
    text = line.decode("utf-8-sig", errors="replace").rstrip()
    words = text.replace('"', " ").replace("'", " ").replace(":", " ").replace("=", " ").split()
    if not text or any(map(SECRET_NAME.fullmatch, words)):
        return None
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _excerpt(source: str, problem: Problem, width: int) -> Iterator[str]:
    """The source line, cut to ``width`` around the column, and a caret below the column."""
    column = min(problem.column, len(source) + 1) - 1
    start = max(0, min(column - width // 2, len(source) - width))
    cut = source[start : start + width]
    if start:
        cut = f"...{cut[3:]}"
    if start + width < len(source):
        cut = f"{cut[:-3]}..."
    yield f"{problem.line:>5} | {cut}"
    yield f"      | {' ' * cell_len(source[start:column])}^"
