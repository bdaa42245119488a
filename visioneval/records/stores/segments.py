"""How a run lies in an object store, which has no appends.

RUN/run.json, summary.json, ...        documents: each write replaces the object
    results/<writer>-<n>.jsonl         segments: each append is a new object, which never changes
    artifacts/...                      as in a local run
    claims/<n>.json, <n>.beat.json     who writes the run

The segments of a log are one file, in the order of their names. A segment ``<writer>-<n>.whole.jsonl`` replaces all
before it. A writer is a number, higher than those of all earlier writers, and a random part.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from visioneval.errors import RunFormatError

LOGS = (
    "results",
    "stale",
    "preferences",
    "confirmations",
    "labels",
    "anchors",
    "labeling",
    "labeling_draws",
)
"""The files of a run that grow, without ``.jsonl``."""
DOCUMENTS = ("questions.json", "diversity.jsonl", "summary.json", "run.json")
"""The files of a run that are written whole. ``run.json`` comes last: it says that the run is complete."""
OUTPUTS = "artifacts"

_SEGMENT = re.compile(r"(?P<epoch>\d{6})-(?P<nonce>[0-9a-f]{8})-(?P<number>\d{6})(?P<whole>\.whole)?\.jsonl")
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """The name of a segment. They sort by writer, and by number within a writer."""

    epoch: int
    nonce: str
    number: int
    is_whole: bool = False
    """Whether it replaces all segments before it."""

    def __str__(self) -> str:
        return f"{self.epoch:06d}-{self.nonce}-{self.number:06d}{'.whole' if self.is_whole else ''}.jsonl"

    @property
    def writer(self) -> tuple[int, str]:
        """Identifies the writer."""
        return self.epoch, self.nonce

    def next(self, *, is_whole: bool = False) -> SegmentName:
        """The name of the next segment of the same writer."""
        return SegmentName(self.epoch, self.nonce, self.number + 1, is_whole)


def new_writer(names: Iterable[SegmentName], minimum: int = 1) -> SegmentName:
    """A writer after all that wrote these segments: the name before its first segment."""
    epoch = max((name.epoch for name in names), default=0) + 1
    return SegmentName(max(epoch, minimum), secrets.token_hex(4), 0)


def parse_segments(names: Iterable[str], where: str) -> list[SegmentName]:
    """The segments among the names of objects, in order.

    Raises ``RunFormatError`` if one is missing: a writer numbers its segments from 1.
    """
    segments = sorted(_parse(name, where) for name in names if name.endswith(".jsonl"))
    expected: dict[tuple[int, str], int] = {}
    for segment in segments:
        number = expected.get(segment.writer, 1)
        if segment.number != number:
            missing = SegmentName(segment.epoch, segment.nonce, number)
            raise RunFormatError(f"{where}: the segment {missing} is missing: restore it, or run the suite again")
        expected[segment.writer] = number + 1
    return segments


def _parse(name: str, where: str) -> SegmentName:
    match = _SEGMENT.fullmatch(name)
    if match is None:
        raise RunFormatError(f"{where}/{name}: is not a segment of a run: move it away")
    return SegmentName(int(match["epoch"]), match["nonce"], int(match["number"]), match["whole"] is not None)


def effective(segments: Sequence[SegmentName]) -> list[SegmentName]:
    """The segments that count: from the last one that replaces all before it."""
    start = max((index for index, segment in enumerate(segments) if segment.is_whole), default=0)
    return list(segments[start:])


def is_run_id(name: str) -> bool:
    """Whether the name of a folder in a store can be that of a run, and of a folder on this machine."""
    return _RUN_ID.fullmatch(name) is not None


def is_safe_key(key: str) -> bool:
    """Whether a key can be a path below a folder of this machine: a store may be a stranger's."""
    parts = key.split("/")
    return "\0" not in key and "\\" not in key and not any(part in ("", ".", "..") for part in parts)
