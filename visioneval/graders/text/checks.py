"""Checks of text graders."""

from __future__ import annotations

from collections.abc import Sequence

from visioneval.graders.text.alphabet import unreadable
from visioneval.graders.text.config import TextGrader
from visioneval.suite.checks.rules import Problems
from visioneval.suite.model import Suite


def problems(suite: Suite, graders: Sequence[tuple[int, TextGrader]]) -> Problems:
    """Yields the expected lines that local OCR cannot read."""
    for _, grader in graders:
        if grader.extract == "ocr":
            yield from _alphabet(suite, grader)


def _alphabet(suite: Suite, grader: TextGrader) -> Problems:
    for index, case in enumerate(suite.cases):
        expected = case.expect.text
        if expected is None or (grader.when and not grader.when.fits(case.id, case.task_type, case.tags)):
            continue
        for key in ("required", "forbidden", "allowed"):
            for at, line in enumerate(getattr(expected, key)):
                if foreign := unreadable(line):
                    yield (
                        ("cases", index, "expect", "text", key, at),
                        f"local OCR cannot read {' '.join(foreign)}: use a text grader with 'extract: judge'",
                    )
