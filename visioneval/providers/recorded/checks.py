"""Checks of files with recorded answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from visioneval.errors import Problem, SuiteError, VisionEvalError
from visioneval.providers.recorded.config import RecordedJudge
from visioneval.suite.loading.datasets.rows import missing_columns
from visioneval.suite.loading.datasets.tables import read_rows
from visioneval.suite.loading.messages import Loc
from visioneval.suite.loading.paths import Trust


def problems(judge: RecordedJudge, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str] | Problem]:
    """Yields unreadable files and missing columns. Locations are relative to the judge's entry."""
    if refusal := trust.refusal(judge.path, folder):
        yield ("path",), refusal
        return
    try:
        rows = read_rows(folder / judge.path, judge.path)
    except SuiteError as error:
        yield from error.problems
    except VisionEvalError as error:
        yield ("path",), f"{judge.path}: {error}"
    else:
        for key, message in missing_columns(rows, judge.fields.model_dump(exclude_none=True)):
            yield ("fields", key), message
