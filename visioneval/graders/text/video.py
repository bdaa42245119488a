"""The copy of a video: what OCR reads in frames sampled from it, and when the expected lines are there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from visioneval.errors import GraderError, ImageError
from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.pixels.difference import SCORE_DIGITS
from visioneval.graders.text import TextGrader, ocr
from visioneval.graders.text.check import CopyCheck, check
from visioneval.graders.text.edits import normalized_edit_distance, word_accuracy
from visioneval.graders.text.layout import Reading
from visioneval.graders.text.match import copy_of
from visioneval.graders.text.missing import CopyPair, Miss
from visioneval.graders.text.reasons import extra_doubt, forbidden_doubt, line_doubt, no_text, quoted, read_instead
from visioneval.media.video import sample_images
from visioneval.suite.case import ExpectText
from visioneval.types import Score

T = TypeVar("T")
MAX_LISTED = 50
"""Texts of one kind in a record."""


@dataclass(frozen=True, slots=True)
class FrameReadings:
    """What OCR reads in a frame, at any confidence; ``seconds`` are those of the middle of its part of the video."""

    seconds: float
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class VideoReadings:
    """The frame of each equal part of a video, in order."""

    frames: tuple[FrameReadings, ...]


@dataclass(frozen=True, slots=True)
class LineSeen:
    """Where a required line is read: a sign for each sampled frame, ``None`` if that frame does not decide.

    ``edits`` counts the characters to change in the frame in which it is read best, and ``miss`` is what that frame
    shows instead. ``doubt`` is what may be it in the first frame that does not decide.
    """

    line: str
    copies: int
    seen: tuple[bool | None, ...]
    edits: int
    miss: Miss | None
    doubt: CopyPair | None

    def is_shown(self, least: int) -> bool | None:
        """Whether at least this many frames show it."""
        certain, possible = self.seen.count(True), len(self.seen) - self.seen.count(False)
        return True if certain >= least else None if possible >= least else False

    def longest(self, step: float) -> float:
        """Seconds of the longest row of frames that show it, ``step`` being those of a frame."""
        return max((len(list(row)) for seen, row in groupby(self.seen) if seen), default=0) * step


async def grade_video(config: TextGrader, context: GradingContext, expected: ExpectText) -> Grade:
    """Reads the sampled frames and compares each. Raises ``GraderError``."""
    path = context.generated.path
    run = partial(_read, path, config.frames)
    try:
        video = await ocr.measured(context, "text of a video", run, VideoReadings, frames=config.frames)
    except ImageError as error:
        raise GraderError(f"{path.name}: {error}") from None
    comparisons = await asyncio.to_thread(
        lambda: [
            check(frame.readings, expected, fold=True, min_confidence=config.min_confidence) for frame in video.frames
        ]
    )
    return _VideoCopy(config, expected, video.frames, comparisons).grade()


def _read(path: Path, count: int) -> VideoReadings:
    """Reads each frame once: many frames of a video may be the same."""
    known: dict[bytes, tuple[Reading, ...]] = {}

    def readings(image: Image.Image) -> tuple[Reading, ...]:
        pixels = image.tobytes()
        if pixels not in known:
            known.clear()
            known[pixels] = tuple(ocr.read(image))
        return known[pixels]

    return VideoReadings(
        tuple(FrameReadings(sample.seconds, readings(sample.image)) for sample in sample_images(path, count))
    )


class _VideoCopy:
    """The comparisons of all sampled frames, taken together."""

    def __init__(
        self,
        config: TextGrader,
        expected: ExpectText,
        frames: Sequence[FrameReadings],
        comparisons: Sequence[CopyCheck],
    ) -> None:
        self._config, self._expected, self._frames, self._comparisons = config, expected, frames, comparisons
        self._step = 2 * frames[0].seconds
        """The seconds for which a sampled frame stands: those of a part, and the first frame is from its middle."""
        least = config.min_frames
        self._lines = [_line_seen(line, expected, comparisons) for line in dict.fromkeys(expected.required)]
        self._extra = self._times(lambda found: [extra.label for extra in found.extra], least)
        self._doubtful = self._times(lambda found: [extra.label for extra in found.doubtful_extra], least)
        self._forbidden = self._times(lambda found: [(pair.line, pair.read) for pair in found.forbidden])
        # Without the places, which are others in each frame.
        self._uncertain = self._times(lambda found: [replace(pair, spans=()) for pair in found.unsettled_forbidden])
        self._maybe_extra = self._times(
            lambda found: [replace(pair, spans=()) for pair in found.unsettled_extra], least
        )

    def _times(self, items_of: Callable[[CopyCheck], Iterable[T]], least: int = 1) -> dict[T, list[float]]:
        """What at least this many frames show, with the seconds of these frames."""
        times: dict[T, list[float]] = {}
        for frame, comparison in zip(self._frames, self._comparisons, strict=True):
            for item in dict.fromkeys(items_of(comparison)):
                times.setdefault(item, []).append(frame.seconds)
        return {item: seconds for item, seconds in times.items() if len(seconds) >= least}

    def grade(self) -> Grade:
        """The grade of the video."""
        key, shown = self._config.key, [line.is_shown(self._config.min_frames) for line in self._lines]
        failures = list(self._failures())
        is_decided = None not in shown and not self._uncertain and not self._maybe_extra
        scores: dict[str, Score] = {key: False if failures else True if is_decided else None}
        if self._lines:
            scores |= self._line_scores(shown)
        scores |= self._benchmark_scores()
        if self._expected.extra == "forbid":
            scores[f"{key}.doubtful_extra"] = len(self._doubtful)
        doubts = "; ".join(self._doubts(shown))
        return Grade(
            scores=scores,
            reasons={key: "; ".join(failures) or doubts or self._success()},
            details=self._details(),
            error=f"OCR cannot decide: {doubts}" if doubts and None in scores.values() else None,
            tool_versions=ocr.all_versions(),
        )

    def _line_scores(self, shown: Sequence[bool | None]) -> dict[str, Score]:
        key, certain = self._config.key, None not in shown
        copies = [line.copies for line in self._lines]
        edits = sum(line.edits * line.copies for line in self._lines)
        characters = sum(len(copy_of(line.line, fold=True).chars) * line.copies for line in self._lines)
        shown_copies = sum(count for count, is_shown in zip(copies, shown, strict=True) if is_shown)
        longest = min(line.longest(self._step) for line in self._lines)
        return {
            f"{key}.recall": shown_copies / sum(copies) if certain else None,
            f"{key}.cer": min(edits / characters, 1.0) if certain and characters else None,
            f"{key}.shown_s": round(longest, SCORE_DIGITS) if certain else None,
        }

    def _benchmark_scores(self) -> dict[str, Score]:
        """The scores of ``measure``, of the frame with the best one."""
        required = self._expected.required
        texts = [
            [reading.text for reading in frame.readings if reading.confidence >= self._config.min_confidence]
            for frame in self._frames
        ]
        best: dict[str, Callable[[], Score]] = {
            "word_accuracy": lambda: round(max(word_accuracy(required, text) for text in texts), SCORE_DIGITS),
            "ned": lambda: round(min(normalized_edit_distance(required, text) for text in texts), SCORE_DIGITS),
            "complete": lambda: any(normalized_edit_distance(required, text) == 0 for text in texts),
        }
        return {f"{self._config.key}.{name}": best[name]() for name in self._config.measured(self._expected)}

    def _failures(self) -> Iterator[str]:
        least, count = self._config.min_frames, len(self._frames)
        nothing = None if any(frame.readings for frame in self._frames) else no_text("in the sampled frames")
        for line in self._lines:
            if line.is_shown(least) is False:
                seen = line.seen.count(True)
                text = f"{quoted(line.line)} is in {seen} of {count} sampled frames, at least {least} expected"
                instead = None if line.miss is None or any(line.seen) else read_instead(line.miss) or nothing
                yield f"{text}: {instead}" if instead else text
        for (line_text, read), seconds in self._forbidden.items():
            as_read = "" if read == line_text else f", read as {quoted(read)}"
            yield f"forbidden {quoted(line_text)} is present at {seconds[0]:.2f} s{as_read}"
        for text, seconds in self._extra.items():
            yield f"extra text: {text} (in {len(seconds)} of {count} sampled frames, from {seconds[0]:.2f} s)"

    def _doubts(self, shown: Sequence[bool | None]) -> Iterator[str]:
        for line, is_shown in zip(self._lines, shown, strict=True):
            if is_shown is None and line.doubt is not None:
                yield line_doubt(line.doubt)
        yield from map(forbidden_doubt, self._uncertain)
        yield from map(extra_doubt, self._maybe_extra)

    def _success(self) -> str:
        parts = [f"all required lines are in at least {self._config.min_frames} of {len(self._frames)} sampled frames"]
        parts = parts if self._lines else []
        parts += ["nothing forbidden"] if self._expected.forbidden else []
        parts += ["nothing extra"] if self._expected.extra == "forbid" else []
        return ", ".join(parts)

    def _details(self) -> dict[str, Any]:
        required = [
            {
                "line": line.line,
                "frames": line.seen.count(True),
                "longest_s": round(line.longest(self._step), 3),
                "nearest": line.miss.nearest if line.miss and not line.seen.count(True) else None,
            }
            for line in self._lines
        ]
        seconds = [round(frame.seconds, 3) for frame in self._frames]
        texts = [" / ".join(reading.text for reading in frame.readings)[:500] for frame in self._frames]
        sampled = [{"seconds": second, "text": text} for second, text in zip(seconds, texts, strict=True)]
        details: dict[str, Any] = {"extract": "ocr", "required": required, "sampled": sampled}
        for name, texts_seen in (("extra", self._extra), ("doubtful_extra", self._doubtful)):
            details[name] = [{"text": text, "seconds": times} for text, times in _listed(texts_seen)]
        pairs = _listed(self._forbidden)
        details["forbidden"] = [{"line": line, "read": read, "seconds": times} for (line, read), times in pairs]
        if self._lines:
            frames = zip(*(line.seen for line in self._lines), strict=True)
            shares = [round(frame.count(True) / len(self._lines), 4) for frame in frames]
            details["over_time"] = {"seconds": seconds, "required_text": shares}
        return details


def _listed(seen: dict[T, list[float]]) -> list[tuple[T, list[float]]]:
    return [(item, [round(time, 3) for time in times]) for item, times in list(seen.items())[:MAX_LISTED]]


def _line_seen(line: str, expected: ExpectText, comparisons: Sequence[CopyCheck]) -> LineSeen:
    copies = expected.required.count(line)
    seen: list[bool | None] = []
    misses: list[Miss | None] = []
    for comparison in comparisons:
        matched = sum(pair.line == line for pair in comparison.matched)
        unsettled = sum(pair.line == line for pair in comparison.unsettled)
        seen.append(True if matched >= copies else None if matched + unsettled >= copies else False)
        of_line = (miss for miss in comparison.missing if miss.line == line)
        misses.append(min(of_line, key=lambda miss: miss.edits, default=None))
    best = min(misses, key=_edits)
    doubts = (pair for comparison in comparisons for pair in comparison.unsettled if pair.line == line)
    return LineSeen(line, copies, tuple(seen), _edits(best), best, next(doubts, None))


def _edits(miss: Miss | None) -> int:
    return 0 if miss is None else miss.edits
