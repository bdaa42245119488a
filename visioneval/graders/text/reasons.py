"""What a text grader says and records about a comparison: the reasons of a verdict, doubts, and the details."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from visioneval.graders.text import TextGrader
from visioneval.graders.text.alphabet import cannot_read
from visioneval.graders.text.check import CopyCheck, Extra
from visioneval.graders.text.layout import Corners, Reading
from visioneval.graders.text.missing import CopyPair, Miss
from visioneval.graders.text.spaces import SpaceFinding
from visioneval.suite.case import ExpectText


def reason(
    config: TextGrader, expected: ExpectText, readings: Sequence[Reading], comparison: CopyCheck, reader: str
) -> str:
    """Why the copy passes, fails or is undecided, in one line. ``reader`` is ``ocr`` or ``judge``."""
    if count := sum(_counts(config, reading) for reading in readings):
        nothing = f"nothing similar was read in {count} {'line' if count == 1 else 'lines'} of text"
    elif readings:
        nothing = f"nothing was read at a confidence of at least {config.min_confidence:g}"
    else:
        nothing = no_text("on the image") if reader == "ocr" else "the judge read no text"
    reasons = [*_failures(config, comparison, nothing), *_extra_reasons(config, comparison, reader)]
    reasons += filter(None, [doubts(config, comparison)])
    return "; ".join(reasons) or _success_reason(config, expected, comparison)


def doubts(config: TextGrader, comparison: CopyCheck) -> str:
    """What the reader cannot decide, and what the user can do about it; empty if it decides everything."""
    text = "; ".join(doubts_of(comparison))
    return f"{text}; 'extract: [ocr, judge]' lets a judge decide" if text and config.extract == "ocr" else text


def read_instead(miss: Miss) -> str | None:
    """What was read in place of a missing line, and how it differs; ``None`` if nothing is similar."""
    if len(miss.parts) > 1:
        *first, last = [quoted(part.read) for part in miss.parts]
        return f"read in parts: {', '.join(first)} and {last}"
    if miss.nearest is None:
        return None
    return f"the nearest text is {quoted(miss.nearest)} ({_difference(miss)})"


def no_text(place: str) -> str:
    """That OCR read no text at all, and why there may be some."""
    return f"no text was found {place} (curved, a logo, or a script that OCR cannot read?)"


def _difference(miss: Miss) -> str:
    """The differences between a line and the text nearest to it, by their kind if they are all of one."""
    line, read = _compact(miss.line), _compact(miss.nearest or "")
    if line.lower() == read.lower():
        return "differs only in case"
    changes = ", ".join(miss.differences)
    if _without_marks(line) != _without_marks(read):
        return changes
    is_at_end = _without_last_marks(line) == _without_last_marks(read)
    return f"differs only in {'the mark at the end' if is_at_end else 'punctuation'}: {changes}"


def _compact(text: str) -> str:
    return "".join(text.split())


def _without_marks(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _without_last_marks(text: str) -> str:
    while text and not text[-1].isalnum():
        text = text[:-1]
    return text


def _failures(config: TextGrader, comparison: CopyCheck, nothing: str) -> Iterator[str]:
    """One reason for each cause, with the missing lines that it explains, and for each forbidden line."""
    lines: dict[str, dict[str, None]] = {}
    for miss in comparison.missing:
        count = f" ({miss.have} of {miss.want} found)" if miss.want > 1 else ""
        cause = read_instead(miss) or ("nothing else that was read is similar" if miss.have else nothing)
        lines.setdefault(cause, {})[quoted(miss.line) + count] = None
    for cause, names in lines.items():
        yield f"missing {', '.join(names)}: {cause}"
    if config.spaces == "exact":
        yield from dict.fromkeys(space_finding(finding) for finding in comparison.spaces if finding.kind != "unclear")
    for pair in comparison.forbidden:
        as_read = "" if pair.read == pair.line else f", read as {quoted(pair.read)}"
        yield f"forbidden {quoted(pair.line)} is present{as_read}"


def _counts(config: TextGrader, reading: Reading) -> bool:
    return reading.confidence >= config.min_confidence


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


def _success_reason(config: TextGrader, expected: ExpectText, comparison: CopyCheck) -> str:
    """That the copy is as expected, and what differs from the required lines and does not count."""
    count = len(expected.required)
    parts = ["required line found" if count == 1 else f"all {count} required lines found"] if count else []
    parts += ["nothing forbidden"] if expected.forbidden else []
    parts += ["nothing extra"] if expected.extra == "forbid" else []
    doubtful = [f"{quoted(extra.text)} (confidence {extra.confidence:.2f})" for extra in comparison.doubtful_extra]
    parts += [f"doubtful extra text: {', '.join(doubtful)}"] if doubtful else []
    sentences = [", ".join(parts)]
    lines = {space.line for space in comparison.spaces} if config.spaces == "loose" else set[str]()
    if read := [f'"{pair.read}"' for pair in comparison.matched if pair.line in lines]:
        sentences.append(f"spaces not checked in {', '.join(read)}")
    if followed := dict.fromkeys((pair.line, pair.mark) for pair in comparison.matched if pair.mark):
        marks = " and ".join(f'"{line}" is followed by "{mark}"' for line, mark in followed)
        sentences.append(f"{marks}, which is tolerated unless extra: forbid")
    return "; ".join(sentences)


def details(config: TextGrader, readings: Sequence[Reading], comparison: CopyCheck, reader: str) -> dict[str, Any]:
    """The details for the record, ready for JSON.

    A ``box`` is where a text is: four corners in pixels, clockwise from the top left of the text; of several readings,
    the rectangle around them, in the direction of the first. A text of a judge has none.
    """
    uncertain = (*comparison.unsettled, *comparison.unsettled_forbidden, *comparison.unsettled_extra)
    recorded: dict[str, Any] = {
        "extract": reader,
        "lines": [
            {
                "text": reading.text,
                **({"shown_text": reading.shown_text} if reading.shown else {}),
                **({"read_as": reading.read_as} if reading.read_as else {}),
                **({"possible": reading.possible} if reading.possible else {}),
                "confidence": reading.confidence,
                "box": [list(corner) for corner in reading.corners or ()],
                "counted": _counts(config, reading),
            }
            for reading in readings
        ],
        "found": [_pair(pair) for pair in comparison.matched],
        "missing": [_missing(readings, miss) for miss in comparison.missing],
        "forbidden": [_pair_with_box(readings, pair) for pair in comparison.forbidden],
        "extra": [_extra(readings, extra) for extra in comparison.extra],
        "unsettled": [_pair_with_box(readings, pair) for pair in uncertain],
        "folded": dict(comparison.folded),
    }
    if comparison.spaces:
        is_checked = config.spaces == "exact"
        recorded["spaces"] = [
            {"line": finding.line, "kind": finding.kind, "words": list(finding.words), "checked": is_checked}
            for finding in comparison.spaces
        ]
    if comparison.doubtful_extra:
        recorded["doubtful_extra"] = [_extra(readings, extra) for extra in comparison.doubtful_extra]
    return recorded


def _missing(readings: Sequence[Reading], miss: Miss) -> dict[str, Any]:
    places = (
        {"parts": [_pair_with_box(readings, part) for part in miss.parts]}
        if len(miss.parts) > 1
        else _box(readings, miss.readings)
    )
    return {
        "line": miss.line,
        "nearest": miss.nearest,
        "differences": list(miss.differences),
        "edits": miss.edits,
        **places,
    }


def _pair(pair: CopyPair) -> dict[str, Any]:
    unreadable = {"unreadable": list(pair.unreadable)} if pair.unreadable else {}
    mark = {"followed_by": pair.mark} if pair.mark else {}
    return {"line": pair.line, "read": pair.read, "readings": list(pair.readings), **unreadable, **mark}


def _pair_with_box(readings: Sequence[Reading], pair: CopyPair) -> dict[str, Any]:
    return {**_pair(pair), **_box(readings, pair.readings)}


def _extra(readings: Sequence[Reading], extra: Extra) -> dict[str, Any]:
    context = {} if extra.context is None else {"in": extra.context}
    item = {"text": extra.text, **context, "confidence": extra.confidence, "reading": extra.reading}
    return {**item, **_box(readings, [extra.reading])}


def _box(readings: Sequence[Reading], indices: Iterable[int]) -> dict[str, Any]:
    """The box of readings, or nothing if a reader gave no place."""
    places = [corners for index in indices if (corners := readings[index].corners) is not None]
    if not places:
        return {}
    return {"box": [list(corner) for corner in (places[0] if len(places) == 1 else _around(places))]}


def _around(places: Sequence[Corners]) -> Corners:
    """The rectangle around all corners, in the direction of the first text."""
    (left, top), (right, bottom) = places[0][:2]
    along = complex(right - left, bottom - top)
    along = along / abs(along) if along else complex(1)
    turned = [complex(*corner) / along for corners in places for corner in corners]
    x0, x1 = min(point.real for point in turned), max(point.real for point in turned)
    y0, y1 = min(point.imag for point in turned), max(point.imag for point in turned)
    first, second, third, fourth = (complex(x, y) * along for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1)))
    return _point(first), _point(second), _point(third), _point(fourth)


def _point(number: complex) -> tuple[float, float]:
    return round(number.real, 1), round(number.imag, 1)


MAX_QUOTED = 80
"""Characters of a text in a reason; longer ones are cut in the middle."""


def doubts_of(comparison: CopyCheck) -> Iterator[str]:
    """One sentence for each line and each space that OCR cannot decide."""
    yield from map(line_doubt, comparison.unsettled)
    yield from map(forbidden_doubt, comparison.unsettled_forbidden)
    yield from map(extra_doubt, comparison.unsettled_extra)
    yield from dict.fromkeys(space_finding(finding) for finding in comparison.spaces if finding.kind == "unclear")


def line_doubt(pair: CopyPair) -> str:
    """Why a required line is undecided."""
    line, read = quoted(pair.line), quoted(pair.read)
    if pair.unreadable:
        return f"{line} may be {read if pair.read else 'there'}: {cannot_read(pair.unreadable)}"
    if pair.doubt == "weak":
        return f"{line} was read as {read}, and OCR cannot tell the two apart there"
    if pair.doubt == "faint":
        return f"{line} was read as {read}, at a confidence that is too low"
    if pair.doubt == "curved":
        return f"{line} was read as {read}, in parts that are tilted against each other, as on a curve"
    if pair.doubt == "unread":
        return f"{line} may be text that could not be read (curved, a logo, or too small), such as {read}"
    return f"{line} was read as {read}, which differs only in look-alike characters"


def forbidden_doubt(pair: CopyPair) -> str:
    """Why a forbidden line may be present."""
    line, read = quoted(pair.line), quoted(pair.read)
    if not pair.unreadable:
        return f"forbidden {line} may be present: {read} differs only in look-alike characters or spaces"
    as_read = f", read as {read}" if pair.read else ""
    return f"forbidden {line} may be present{as_read}: {cannot_read(pair.unreadable)}"


def extra_doubt(pair: CopyPair) -> str:
    """Why text is not surely extra."""
    return f"extra text {quoted(pair.read)} may be the expected {quoted(pair.line)}: {cannot_read(pair.unreadable)}"


def space_finding(finding: SpaceFinding) -> str:
    """What is wrong, or cannot be told, about a space in a line."""
    first, last = quoted(finding.words[0]), quoted(finding.words[-1])
    where = f"between {first} and {last}" if len(finding.words) > 1 else f"within {first}"
    if finding.kind == "missing":
        text = f"the space {where} is missing"
    elif finding.kind == "added":
        text = f"a space stands {where}"
    else:
        text = f"whether a space stands {where} cannot be told"
    return text if tuple(finding.line.split()) == finding.words else f"{quoted(finding.line)}: {text}"


def quoted(text: str) -> str:
    """A text in quotes and in one line, cut in the middle if it is longer than ``MAX_QUOTED``."""
    text = " ".join(text.split())
    if len(text) > MAX_QUOTED:
        half = (MAX_QUOTED - 3) // 2
        text = f"{text[:half].rstrip()} \u2026 {text[-half:].lstrip()}"
    return f'"{text}"'
