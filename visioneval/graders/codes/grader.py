"""Codes: the QR codes and bar codes in an image are exactly those that its case expects.

Metrics:

- ``<key>``: the contents of ``expect.codes`` are there, each as often as it is listed, and no other code. A code that
  can be seen but not read fails ``codes: none``, and is an extra one where all others are there; where one is missing,
  it may be that one, so the score is null. Where more are missing than there are such codes, it fails.
- ``<key>.count``: the number of codes, with those that cannot be read.

Contents are compared letter by letter. The digits of EAN and UPC are the same with and without leading zeros, as
readers disagree on which of the two a code is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.codes import CodesGrader
from visioneval.graders.codes.reading import Code, CodesFinding, measure_file, tool_versions
from visioneval.graders.measures import Measure
from visioneval.types import Score

_RETAIL = ("EAN13", "EAN8", "UPCA", "UPCE")
_GTIN = 14
"""Digits of the longest number of EAN and UPC."""
SHOWN = 80
"""So many characters of a content are in a reason."""


class Codes:
    """The grader. Stateless, so that cells can be graded concurrently."""

    def __init__(self, config: CodesGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Raises ``GraderError`` if the file does not decode, or the extra is not installed."""
        key, path, versions = self._config.key, context.generated.path, tool_versions()
        measure = Measure(
            "codes",
            {"output": path},
            partial(measure_file, path),
            CodesFinding,
            tool_versions=versions,
            code=("codes",),
        )
        codes = (await context.measure(measure)).codes
        failures, unknown = compare(codes, context.case.expect.codes or ())
        passed: Score = False if failures else None if unknown else True
        return Grade(
            scores={key: passed, f"{key}.count": len(codes)},
            reasons={key: "; ".join(failures)} if failures else {},
            details={"codes": [_row(code) for code in codes]},
            error=None if failures else unknown,
            tool_versions=versions,
        )


def compare(codes: Sequence[Code], expected: Sequence[str]) -> tuple[list[str], str | None]:
    """Why the codes are not the expected contents, and what is not known of them."""
    left = [code for code in codes if code.content is not None]
    unreadable = [code for code in codes if code.content is None]
    failures, missing = [], []
    for content, times in Counter(expected).items():
        fitting = [code for code in left if _has(code, content)]
        left = [code for code in left if code not in fitting]
        if len(fitting) > times:
            failures.append(f"{_quoted(content)} is there {_times(len(fitting))}, expected {_times(times)}")
        missing += [content] * (times - len(fitting))
        failures += [
            f"{_quoted(content)} can be read on {code.only_on} only: the code has transparent parts"
            for code in fitting
            if code.only_on
        ]
    for code in left:
        near = next((content for content in missing if content.casefold() == (code.content or "").casefold()), None)
        differs = "" if near is None else f", which differs from {_quoted(near)} in upper and lower case"
        failures.append(f"there is a code {_place(code)} with {_quoted(code.content or '')}{differs}")
    if unreadable and len(unreadable) >= len(missing) > 0:
        what = f"the code {_place(unreadable[0])} cannot be read, so it is not known whether it has"
        return failures, f"{what} {_quoted(missing[0])}"
    failures += [f"there is a code {_place(code)} that cannot be read" for code in unreadable]
    readable = "no code that can be read" if unreadable else "no code"
    return failures + [f"{readable} has {_quoted(content)}" for content in missing], None


def _has(code: Code, content: str) -> bool:
    read = code.content or ""
    if code.format in _RETAIL and content.isascii() and content.isdigit():
        return read.zfill(_GTIN) == content.zfill(_GTIN)
    return read == content


def _row(code: Code) -> dict[str, object]:
    row: dict[str, object] = {"box": [list(corner) for corner in code.corners], "format": code.format}
    row["content"] = "cannot be read" if code.content is None else code.content
    return row | ({"only_on": code.only_on} if code.only_on else {})


def _place(code: Code) -> str:
    left, top = (round(min(corner[axis] for corner in code.corners)) for axis in (0, 1))
    return f"at x {left}, y {top}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _quoted(content: str) -> str:
    return repr(content if len(content) <= SHOWN else f"{content[:SHOWN]}...")
