"""Checks of text graders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visioneval.graders.text.alphabet import cannot_read, languages, missing, unreadable
from visioneval.graders.text.config import TextGrader
from visioneval.suite.case import TestCase
from visioneval.suite.checks.rules import Problems
from visioneval.suite.entries.graders import is_video
from visioneval.suite.model import Suite


def problems(suite: Suite, graders: Sequence[tuple[int, TextGrader]]) -> Problems:
    """Yields judges, and Tesseract, that would have to read a video."""
    for index, grader in graders:
        name = next((case.id for case in _cases(suite, grader) if is_video(case)), None)
        if name is None:
            continue
        if grader.other_scripts is not None:
            yield (
                ("graders", index, "other_scripts"),
                f"Tesseract reads copy in images only, but the case {name!r} is about a video: restrict 'when'",
            )
        if grader.extract != "ocr":
            yield (
                ("graders", index, "extract"),
                f"a judge reads copy in images only, but the case {name!r} is about a video: use 'extract: ocr'",
            )


def warnings(suite: Suite, graders: Sequence[tuple[int, TextGrader]]) -> Problems:
    """Yields the expected lines with characters that local OCR cannot read, if no judge may, and what to install."""
    for index, grader in graders:
        if grader.extract == "ocr":
            yield from _unreadable_lines(suite, grader)
        if grader.other_scripts is not None:
            copies = (case.expect.text for case in _cases(suite, grader) if case.expect.text is not None)
            lines = (line for copy in copies for line in (*copy.required, *copy.forbidden, *copy.allowed))
            if problem := missing({name for line in lines for name in languages(line)}):
                yield ("graders", index, "other_scripts"), problem


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
                by_tesseract = languages(line)
                if (characters := unreadable(line)) and not (by_tesseract and grader.other_scripts):
                    advice = "" if is_video(case) else "; 'extract: [ocr, judge]' lets a judge read it"
                    advice += ", or 'other_scripts: tesseract' Tesseract" if advice and by_tesseract else ""
                    yield (
                        ("cases", index, "expect", "text", key, at),
                        f"{cannot_read(characters)}, so this line may be undecided (null){advice}",
                    )
