"""What local OCR cannot decide, in words."""

from __future__ import annotations

from collections.abc import Iterator

from visioneval.graders.text.alphabet import cannot_read
from visioneval.graders.text.copy_check import CopyCheck
from visioneval.graders.text.copy_hits import CopyPair
from visioneval.graders.text.spaces import SpaceFinding

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
