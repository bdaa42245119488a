"""What a text grader says and records about a comparison: the reasons of a verdict, and the details."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from visioneval.graders.text.config import TextGrader
from visioneval.graders.text.copy_check import CopyCheck, CopyPair, Miss
from visioneval.graders.text.copy_match import Reading
from visioneval.graders.text.doubts import doubts_of
from visioneval.suite.cases.case import ExpectText


def reason(config: TextGrader, expected: ExpectText, comparison: CopyCheck, reader: str) -> str:
    """Why the copy passes, fails or is undecided, in one line. ``reader`` is ``ocr`` or ``judge``."""
    reasons = [*_failures(comparison), *_extra_reasons(config, comparison, reader)]
    reasons += filter(None, [doubts(config, comparison)])
    return "; ".join(reasons) or _success_reason(expected, comparison)


def doubts(config: TextGrader, comparison: CopyCheck) -> str:
    """What the reader cannot decide, and what the user can do about it; empty if it decides everything."""
    text = "; ".join(doubts_of(comparison))
    return f"{text}; 'extract: [ocr, judge]' lets a judge decide" if text and config.extract == "ocr" else text


def _failures(comparison: CopyCheck) -> Iterator[str]:
    yield from dict.fromkeys(map(_missing_reason, comparison.missing))
    for pair in comparison.forbidden:
        yield f'forbidden "{pair.line}" is present' + ("" if pair.read == pair.line else f', read as "{pair.read}"')


def _extra_reasons(config: TextGrader, comparison: CopyCheck, reader: str) -> Iterator[str]:
    """One reason for each extra text, and what the user can do about those that may be there."""
    if not comparison.extra:
        return
    for extra in comparison.extra:
        notes = [f"in {extra.context}"] if extra.context else []
        notes += [f"confidence {extra.confidence:.2f}"] if reader == "ocr" else []
        yield f"extra text: {extra.text}" + (f" ({', '.join(notes)})" if notes else "")
    hint = "list text that may be there under 'allowed'"
    yield hint + (f", or raise 'min_confidence' ({config.min_confidence:g})" if reader == "ocr" else "")


def _missing_reason(miss: Miss) -> str:
    text = f'missing "{miss.line}"'
    if miss.want > 1:
        text += f" ({miss.have} of {miss.want} found)"
    if miss.faint is not None:
        return f"{text}: read only at confidence {miss.faint:.2f}, which is too low"
    if miss.nearest is None:
        return f"{text}: nothing similar was read"
    return f'{text}: the nearest text is "{miss.nearest}" ({", ".join(miss.differences)})'


def _success_reason(expected: ExpectText, comparison: CopyCheck) -> str:
    count = len(expected.required)
    parts = ["required line found" if count == 1 else f"all {count} required lines found"] if count else []
    parts += ["nothing forbidden"] if expected.forbidden else []
    parts += ["nothing extra"] if expected.extra == "forbid" else []
    doubtful = [f"{extra.text} (confidence {extra.confidence:.2f})" for extra in comparison.doubtful_extra]
    parts += [f"doubtful extra: {', '.join(doubtful)}"] if doubtful else []
    return ", ".join(parts)


def details(config: TextGrader, readings: Sequence[Reading], comparison: CopyCheck, reader: str) -> dict[str, Any]:
    """The details for the record, ready for JSON. Boxes are four corners in pixels."""
    return {
        "extract": reader,
        "lines": [
            {
                "text": reading.text,
                **({"shown_text": reading.shown_text} if reading.shown else {}),
                "confidence": reading.confidence,
                "box": [list(corner) for corner in reading.corners or ()],
                "counted": reading.confidence >= config.min_confidence,
            }
            for reading in readings
        ],
        "found": _pairs(comparison.matched),
        "missing": [
            {
                "line": miss.line,
                "nearest": miss.nearest,
                "differences": list(miss.differences),
                "edits": miss.edits,
            }
            for miss in comparison.missing
        ],
        "forbidden": _pairs(comparison.forbidden),
        "extra": [extra.label for extra in comparison.extra],
        "unsettled": _pairs((*comparison.unsettled, *comparison.unsettled_forbidden, *comparison.unsettled_extra)),
        "folded": dict(comparison.folded),
    }


def _pairs(pairs: Sequence[CopyPair]) -> list[dict[str, Any]]:
    return [
        {
            "line": pair.line,
            "read": pair.read,
            "readings": list(pair.readings),
            **({"unreadable": list(pair.unreadable)} if pair.unreadable else {}),
        }
        for pair in pairs
    ]
