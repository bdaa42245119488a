"""Exact copy: what local OCR reads in a picture, against the lines that it must and must not show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from visioneval.errors import GraderError
from visioneval.graders import ocr
from visioneval.graders.base import Grade, Subject
from visioneval.graders.copy_check import CopyCheck, Miss, Pair, check
from visioneval.graders.copy_match import Reading
from visioneval.images import load_rgb
from visioneval.suite.alphabet import unreadable
from visioneval.suite.case import ExpectText
from visioneval.suite.graders import TextGrader
from visioneval.types import Score


class Text:
    """Grades a picture's copy. Raises ``GraderError`` where OCR is not installed or cannot read the lines."""

    def __init__(self, config: TextGrader) -> None:
        self._config = config

    async def grade(self, subject: Subject) -> Grade:
        """Reads the picture once and compares; nothing leaves the machine."""
        expected = subject.case.expect.text
        if expected is None:
            return Grade(scores={})
        _refuse_unreadable(expected)
        readings = await asyncio.to_thread(lambda: ocr.read(load_rgb(subject.picture.path)))
        found = await asyncio.to_thread(
            lambda: check(readings, expected, fold=True, min_confidence=self._config.min_confidence)
        )
        return _grade(self._config, expected, readings, found)


def _refuse_unreadable(expected: ExpectText) -> None:
    lines = (*expected.required, *expected.forbidden, *expected.allowed)
    strange = unreadable("".join(lines))
    if strange:
        raise GraderError(f"local OCR cannot read {' '.join(strange[:10])}: use a vision judge, 'extract: judge'")


def _grade(config: TextGrader, expected: ExpectText, readings: Sequence[Reading], found: CopyCheck) -> Grade:
    key = config.key
    scores: dict[str, Score] = {key: found.passed}
    if expected.required:
        scores |= {f"{key}.recall": found.recall, f"{key}.cer": found.cer}
    doubts = "; ".join(_doubts(found))
    return Grade(
        scores=scores,
        reasons={key: "; ".join([*_faults(found), *_doubts(found)]) or _praise(expected)},
        details=_details(config, readings, found),
        error=f"OCR cannot settle it: {doubts}" if doubts and None in scores.values() else None,
        tool_versions=ocr.tool_versions(),
    )


def _faults(found: CopyCheck) -> Iterator[str]:
    yield from dict.fromkeys(map(_missing, found.missing))
    for pair in found.forbidden:
        yield f'forbidden "{pair.line}" is there' + ("" if pair.read == pair.line else f', read as "{pair.read}"')
    for text in found.extra:
        yield f"extra text: {text}"


def _missing(miss: Miss) -> str:
    text = f'missing "{miss.line}"'
    if miss.want > 1:
        text += f" ({miss.have} of {miss.want} found)"
    if miss.faint is not None:
        return f"{text}: read only at confidence {miss.faint:.2f}, which is too low to count"
    if miss.nearest is None:
        return f"{text}: nothing like it was read"
    return f'{text}: nearest is "{miss.nearest}" ({", ".join(miss.differences)})'


def _doubts(found: CopyCheck) -> Iterator[str]:
    for pair in found.unsettled:
        yield f'"{pair.line}" was read as "{pair.read}", which differs in look-alikes alone'
    for pair in found.unsettled_forbidden:
        yield f'forbidden "{pair.line}" may be there: "{pair.read}" differs in look-alikes or spaces alone'


def _praise(expected: ExpectText) -> str:
    parts = [f"all {len(expected.required)} required lines found"] if expected.required else []
    parts += ["nothing forbidden"] if expected.forbidden else []
    parts += ["nothing extra"] if expected.extra == "forbid" else []
    return ", ".join(parts)


def _details(config: TextGrader, readings: Sequence[Reading], found: CopyCheck) -> dict[str, Any]:
    """What was seen, ready for JSON. Boxes are four corners in pixels."""
    return {
        "extract": config.extract,
        "lines": [
            {
                "text": reading.text,
                "confidence": round(reading.confidence, 4),
                "box": [list(corner) for corner in reading.corners or ()],
                "counted": reading.confidence >= config.min_confidence,
            }
            for reading in readings
        ],
        "found": _pairs(found.found),
        "missing": [
            {
                "line": miss.line,
                "nearest": miss.nearest,
                "differences": list(miss.differences),
                "edits": miss.edits,
            }
            for miss in found.missing
        ],
        "forbidden": _pairs(found.forbidden),
        "extra": list(found.extra),
        "unsettled": _pairs((*found.unsettled, *found.unsettled_forbidden)),
        "folded": dict(found.folded),
    }


def _pairs(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    return [{"line": pair.line, "read": pair.read, "readings": list(pair.readings)} for pair in pairs]
