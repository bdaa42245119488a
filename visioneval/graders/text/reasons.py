"""What a text grader says and records about a comparison: the reasons of a verdict, and the details."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from visioneval.graders.text.config import TextGrader
from visioneval.graders.text.copy_check import CopyCheck, CopyPair, Miss
from visioneval.graders.text.copy_match import Reading
from visioneval.graders.text.spaces import SpaceFinding
from visioneval.suite.cases.case import ExpectText


def reason(config: TextGrader, expected: ExpectText, comparison: CopyCheck, reader: str) -> str:
    """Why the copy passes, fails or is undecided, in one line. ``reader`` is ``ocr`` or ``judge``."""
    reasons = [*_failures(config, comparison), *_extra_reasons(config, comparison, reader)]
    reasons += filter(None, [doubts(config, comparison)])
    return "; ".join(reasons) or _success_reason(config, expected, comparison)


def doubts(config: TextGrader, comparison: CopyCheck) -> str:
    """What the reader cannot decide, and what the user can do about it; empty if it decides everything."""
    text = "; ".join(dict.fromkeys(_doubts(comparison)))
    return f"{text}; 'extract: [ocr, judge]' lets a judge decide" if text and config.extract == "ocr" else text


def _failures(config: TextGrader, comparison: CopyCheck) -> Iterator[str]:
    yield from dict.fromkeys(map(_missing_reason, comparison.missing))
    if config.spaces == "exact":
        yield from dict.fromkeys(_space_reason(found) for found in comparison.spaces if found.kind != "unclear")
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


def _space_reason(found: SpaceFinding) -> str:
    first, last = found.words[0], found.words[-1]
    where = f'between "{first}" and "{last}"' if len(found.words) > 1 else f'within "{first}"'
    if found.kind == "missing":
        text = f"the space {where} is missing"
    elif found.kind == "added":
        text = f"a space stands {where}"
    else:
        text = f"whether a space stands {where} cannot be told"
    return text if tuple(found.line.split()) == found.words else f'"{found.line}": {text}'


def _doubts(comparison: CopyCheck) -> Iterator[str]:
    for pair in comparison.unsettled:
        yield f'"{pair.line}" was read as "{pair.read}", which differs only in look-alike characters'
    for pair in comparison.unsettled_forbidden:
        yield f'forbidden "{pair.line}" may be present: "{pair.read}" differs only in look-alike characters or spaces'
    for found in comparison.spaces:
        if found.kind == "unclear":
            yield _space_reason(found)


def _success_reason(config: TextGrader, expected: ExpectText, comparison: CopyCheck) -> str:
    count = len(expected.required)
    parts = ["required line found" if count == 1 else f"all {count} required lines found"] if count else []
    parts += ["nothing forbidden"] if expected.forbidden else []
    parts += ["nothing extra"] if expected.extra == "forbid" else []
    doubtful = [f"{extra.text} (confidence {extra.confidence:.2f})" for extra in comparison.doubtful_extra]
    parts += [f"doubtful extra: {', '.join(doubtful)}"] if doubtful else []
    return "; ".join([", ".join(parts), *_tolerated(config, comparison)])


def _tolerated(config: TextGrader, comparison: CopyCheck) -> Iterator[str]:
    """What differs from the required lines and does not count."""
    if config.spaces == "loose":
        lines = {found.line for found in comparison.spaces}
        read = [f'"{pair.read}"' for pair in comparison.matched if pair.line in lines]
        if read:
            yield f"spaces not checked in {', '.join(read)}"
    followed = dict.fromkeys((pair.line, pair.mark) for pair in comparison.matched if pair.mark)
    if followed:
        marks = " and ".join(f'"{line}" is followed by "{mark}"' for line, mark in followed)
        yield f"{marks}, which is tolerated unless extra: forbid"


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
        "unsettled": _pairs((*comparison.unsettled, *comparison.unsettled_forbidden)),
        "folded": dict(comparison.folded),
        **({"spaces": _spaces(config, comparison)} if comparison.spaces else {}),
    }


def _spaces(config: TextGrader, comparison: CopyCheck) -> list[dict[str, Any]]:
    is_checked = config.spaces == "exact"
    return [
        {"line": found.line, "kind": found.kind, "words": list(found.words), "checked": is_checked}
        for found in comparison.spaces
    ]


def _pairs(pairs: Sequence[CopyPair]) -> list[dict[str, Any]]:
    return [
        {
            "line": pair.line,
            "read": pair.read,
            "readings": list(pair.readings),
            **({"followed_by": pair.mark} if pair.mark else {}),
        }
        for pair in pairs
    ]
