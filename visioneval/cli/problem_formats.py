"""What ``validate`` prints for programs: JSON, or annotations of GitHub Actions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from visioneval.api.suites import ValidSuite
from visioneval.cli.plan_table import missing_key_lines
from visioneval.errors import Problem
from visioneval.suite.loading.messages import NOTE, WARNING

_LEVELS = {WARNING.removesuffix(": "): "warning", NOTE.removesuffix(": "): "notice"}
"""The words before messages that are no errors, and what GitHub calls them."""
_ESCAPED = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_ESCAPED_IN_PROPERTIES = {**_ESCAPED, ":": "%3A", ",": "%2C"}


def valid_lines(suite: ValidSuite) -> Iterator[str]:
    """What people read about a valid suite."""
    yield f"{suite.path}: valid: {suite.sizes}"
    yield from map(str, suite.warnings)
    yield from (f"{suite.path}: missing key: {line}" for line in missing_key_lines(suite.missing_keys))


def _valid_data(suite: ValidSuite) -> dict[str, Any]:
    """What programs read about it."""
    sizes = {"cases": suite.cases, "model_runs": suite.model_runs, "cells": suite.cells}
    return {"path": suite.path, **sizes, "missing_keys": sorted(suite.missing_keys)}


def problems_json(suites: Iterable[ValidSuite], problems: Iterable[Problem]) -> str:
    """One JSON object: the valid suites, and all problems and warnings with their positions."""
    rows = [
        {"file": problem.file, "line": problem.line, "column": problem.column, "severity": level, "message": message}
        for problem, level, message in _levels(problems)
    ]
    return json.dumps({"suites": [_valid_data(suite) for suite in suites], "problems": rows})


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
