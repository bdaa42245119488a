"""Lines in scripts that local OCR's models do not know, as Tesseract reads them.

Tesseract answers for an expected line only where it reads the line exactly, or surely reads one or two other characters
in it. All else stays undecided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from visioneval.errors import GraderError
from visioneval.graders.base import GradingContext
from visioneval.graders.measures import Measure
from visioneval.graders.text import scripts
from visioneval.graders.text.copy_diff import nearest
from visioneval.graders.text.copy_match import Copy, Match, Page, Reading, copy_of, occurrences, page_of
from visioneval.graders.text.reading import contrast, reading_order, tesseract
from visioneval.graders.text.reading.merging import apart
from visioneval.media.images import load_image, on_background, room_for
from visioneval.suite.cases.case import ExpectText

_MAX_EDITS = 2
"""As many other characters are a misspelled line; more may be another text, or a misread one."""
_SURE = 0.8
"""The confidence (0 to 1) of the weakest word from which Tesseract's reading of a misspelled line counts."""


@dataclass(frozen=True, slots=True)
class TesseractReadings:
    """What Tesseract reads in an image at each scale."""

    scales: tuple[tuple[Reading, ...], ...]


@dataclass(frozen=True, slots=True)
class ImageText:
    """The readings of an image. Where Tesseract read some, the ``legible`` lines that they decide, and its versions."""

    readings: tuple[Reading, ...]
    legible: frozenset[str] = frozenset()
    tool_versions: Mapping[str, str] = field(default_factory=dict)


async def read_other_scripts(
    context: GradingContext,
    readings: Sequence[Reading],
    expected: ExpectText,
    min_confidence: float,
    tools: dict[str, str],
) -> ImageText:
    """Adds what Tesseract reads of the expected lines in other scripts, at ``min_confidence`` (0 to 1) or more.

    Raises ``GraderError``.
    """
    path = context.generated.path
    lines = dict.fromkeys((*expected.required, *expected.forbidden, *expected.allowed))
    by_languages: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if names := scripts.languages(line):
            by_languages.setdefault(names, []).append(line)
    merged, legible, versions = tuple(readings), frozenset[str](), dict[str, str]()
    for names, texts in by_languages.items():
        if problem := scripts.missing(names):
            raise GraderError(problem)
        versions |= scripts.tool_versions(names)
        measure = Measure(
            "text by Tesseract",
            {"output": path},
            partial(_read, path, names),
            TesseractReadings,
            options={"languages": list(names)},
            tool_versions={**tools, **scripts.tool_versions(names)},
        )
        scales = [
            [reading for reading in scale if reading.confidence >= min_confidence]
            for scale in (await context.measure(measure)).scales
        ]
        for text in texts:
            by_tesseract, is_legible = _read_line(scales, copy_of(text, fold=True), expected.required.count(text))
            legible |= {text} if is_legible else set()
            merged = (*apart(merged, by_tesseract), *by_tesseract)
    return ImageText(merged, legible, versions)


def _read(path: Path, languages: Sequence[str]) -> TesseractReadings:
    with room_for(path):
        loaded = load_image(path)
        return TesseractReadings(tesseract.read(on_background(loaded, contrast.backgrounds(loaded)[0]), languages))


def _read_line(scales: Sequence[Sequence[Reading]], line: Copy, copies: int) -> tuple[list[Reading], bool]:
    """The readings of a line, and whether they decide it: it is there as often as required, or surely misspelled."""
    pages = [
        page_of(readings, reading_order.follows(readings), reading_order.near(readings), [line], fold=True)
        for readings in scales
    ]
    exact = [occurrences(page, line.chars) for page in pages]
    scale = max(range(len(pages)), key=lambda number: len(exact[number]))
    if exact[scale]:
        return _readings(scales[scale], exact[scale]), len(exact[scale]) >= copies
    sure = [_misspelled(page, readings, line) for page, readings in zip(pages, scales, strict=True)]
    texts = {tuple(copy_of(reading.text, fold=True).chars for reading in readings) for readings in sure}
    return (sure[0], True) if len(texts) == 1 and sure[0] else ([], False)


def _misspelled(page: Page, readings: Sequence[Reading], line: Copy) -> list[Reading]:
    """The readings that surely show the line with one or two other characters; none if it is not sure."""
    closest = nearest(page, line, set())
    if closest is None or closest.edits > _MAX_EDITS or not closest.is_close(line):
        return []
    misspelled = _readings(readings, [closest.match])
    return misspelled if all(reading.confidence >= _SURE for reading in misspelled) else []


def _readings(readings: Sequence[Reading], matches: Sequence[Match]) -> list[Reading]:
    return [readings[index] for index in dict.fromkeys(index for match in matches for index, _, _ in match)]
