"""What local OCR cannot decide, in words."""

from __future__ import annotations

from collections.abc import Iterator

from visioneval.graders.text.alphabet import cannot_read
from visioneval.graders.text.copy_check import CopyCheck, CopyPair


def doubts_of(comparison: CopyCheck) -> Iterator[str]:
    """One sentence for each line that only look-alikes or unreadable characters decide."""
    yield from map(line_doubt, comparison.unsettled)
    yield from map(forbidden_doubt, comparison.unsettled_forbidden)
    yield from map(extra_doubt, comparison.unsettled_extra)


def line_doubt(pair: CopyPair) -> str:
    """Why a required line is undecided."""
    if not pair.unreadable:
        return f'"{pair.line}" was read as "{pair.read}", which differs only in look-alike characters'
    read = f'may be "{pair.read}"' if pair.read else "may be there"
    return f'"{pair.line}" {read}: {cannot_read(pair.unreadable)}'


def forbidden_doubt(pair: CopyPair) -> str:
    """Why a forbidden line may be present."""
    if not pair.unreadable:
        return f'forbidden "{pair.line}" may be present: "{pair.read}" differs only in look-alike characters or spaces'
    read = f', read as "{pair.read}"' if pair.read else ""
    return f'forbidden "{pair.line}" may be present{read}: {cannot_read(pair.unreadable)}'


def extra_doubt(pair: CopyPair) -> str:
    """Why text is not surely extra."""
    return f'extra text "{pair.read}" may be the expected "{pair.line}": {cannot_read(pair.unreadable)}'
