"""What ``validate`` prints for programs: JSON, or annotations of GitHub Actions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from visioneval.cli.plan_table import missing_key_lines
from visioneval.counted import count_of
from visioneval.errors import Problem

_LEVELS = {"warning": "warning", "note": "notice"}
"""The words before messages that are no errors, and what GitHub calls them."""
_ESCAPED = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_ESCAPED_IN_PROPERTIES = {**_ESCAPED, ":": "%3A", ",": "%2C"}


@dataclass(frozen=True, slots=True)
class ValidSuite:
    """A suite without problems: its size, its warnings, and the key variables that are not set, with their users."""

    path: str
    cases: int
    model_runs: int
    cells: int
    warnings: tuple[Problem, ...]
    missing_keys: Mapping[str, Collection[str]]

    def lines(self) -> Iterator[str]:
        """What people read about it."""
        sizes = ((self.cases, "case"), (self.model_runs, "model run"), (self.cells, "cell"))
        yield f"{self.path}: valid: {', '.join(starmap(count_of, sizes))}"
        yield from map(str, self.warnings)
        yield from (f"{self.path}: missing key: {line}" for line in missing_key_lines(self.missing_keys))

    def data(self) -> dict[str, Any]:
        """What programs read about it."""
        sizes = {"cases": self.cases, "model_runs": self.model_runs, "cells": self.cells}
        return {"path": self.path, **sizes, "missing_keys": sorted(self.missing_keys)}


def problems_json(suites: Iterable[ValidSuite], problems: Iterable[Problem]) -> str:
    """One JSON object: the valid suites, and all problems and warnings with their positions."""
    rows = [
        {"file": problem.file, "line": problem.line, "column": problem.column, "severity": level, "message": message}
        for problem, level, message in _levels(problems)
    ]
    return json.dumps({"suites": [suite.data() for suite in suites], "problems": rows})


def github_annotations(problems: Iterable[Problem]) -> Iterator[str]:
    """A workflow command of GitHub Actions for each problem and warning, shown beside the line in a pull request."""
    for problem, level, message in _levels(problems):
        where = f"file={_escaped(problem.file, _ESCAPED_IN_PROPERTIES)}"
        if problem.line:
            where += f",line={problem.line},col={problem.column}"
        yield f"::{_LEVELS.get(level, level)} {where}::{_escaped(message, _ESCAPED)}"


def _levels(problems: Iterable[Problem]) -> Iterator[tuple[Problem, str, str]]:
    """Each problem with ``error``, ``warning`` or ``note``, and its message without this word."""
    for problem in problems:
        level, _, message = problem.message.partition(": ")
        yield (problem, level, message) if level in _LEVELS else (problem, "error", problem.message)


def _escaped(text: str, table: dict[str, str]) -> str:
    return "".join(table.get(sign, sign) for sign in text)
