"""Checks of text graders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visioneval.graders.text.alphabet import cannot_read, unreadable
from visioneval.graders.text.config import TextGrader
from visioneval.suite.cases.case import TestCase
from visioneval.suite.checks.rules import Problems
from visioneval.suite.entries.graders import is_video
from visioneval.suite.model import Suite


def problems(suite: Suite, graders: Sequence[tuple[int, TextGrader]]) -> Problems:
    """Yields judges that would have to read a video."""
    for index, grader in graders:
        if grader.extract == "ocr":
            continue
        if name := next((case.id for case in _cases(suite, grader) if is_video(case)), None):
            yield (
                ("graders", index, "extract"),
                f"a judge reads copy in images only, but the case {name!r} is about a video: use 'extract: ocr'",
            )


def warnings(suite: Suite, graders: Sequence[tuple[int, TextGrader]]) -> Problems:
    """Yields the expected lines with characters that local OCR cannot read, if no judge may read them."""
    for _, grader in graders:
        if grader.extract == "ocr":
            yield from _unreadable_lines(suite, grader)


def _cases(suite: Suite, grader: TextGrader) -> Iterator[TestCase]:
    """The cases with copy that the grader is for."""
    for case in suite.cases:
        if case.expect.text is not None and grader.is_for(case):
            yield case


def _unreadable_lines(suite: Suite, grader: TextGrader) -> Problems:
    for index, case in enumerate(suite.cases):
        expected = case.expect.text
        if expected is None or not grader.is_for(case):
            continue
        for key in ("required", "forbidden", "allowed"):
            for at, line in enumerate(getattr(expected, key)):
                if characters := unreadable(line):
                    advice = "" if is_video(case) else "; 'extract: [ocr, judge]' lets a judge read it"
                    yield (
                        ("cases", index, "expect", "text", key, at),
                        f"{cannot_read(characters)}, so this line may be undecided (null){advice}",
                    )
