"""Lines in scripts that local OCR's models do not know, as the program ``tesseract`` reads them.

Tesseract answers for an expected line only where it reads the line exactly, or surely reads one or two other characters
in it. All else stays undecided.
"""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from PIL import Image

from visioneval.errors import GraderError
from visioneval.graders.base import GradingContext
from visioneval.graders.text import alphabet, ocr
from visioneval.graders.text.edits import nearest
from visioneval.graders.text.layout import Reading, apart
from visioneval.graders.text.match import Copy, Match, Page, copy_of, occurrences, page_of
from visioneval.graders.text.ocr import CONFIDENCE_DIGITS
from visioneval.media.images import encode_png, load_image, on_background, room_for
from visioneval.suite.case import ExpectText

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
) -> ImageText:
    """Adds what Tesseract reads of the expected lines in other scripts, at ``min_confidence`` (0 to 1) or more.

    Raises ``GraderError``.
    """
    path = context.generated.path
    lines = dict.fromkeys((*expected.required, *expected.forbidden, *expected.allowed))
    by_languages: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if names := alphabet.languages(line):
            by_languages.setdefault(names, []).append(line)
    merged, legible, versions = tuple(readings), frozenset[str](), dict[str, str]()
    for names, texts in by_languages.items():
        if problem := alphabet.missing(names):
            raise GraderError(problem)
        run, tools = partial(_read, path, names), alphabet.tool_versions(names)
        versions |= tools
        by_scale = await ocr.measured(
            context, "text by Tesseract", run, TesseractReadings, tools=tools, languages=list(names)
        )
        scales = [[reading for reading in scale if reading.confidence >= min_confidence] for scale in by_scale.scales]
        for text in texts:
            by_tesseract, is_legible = _read_line(scales, copy_of(text, fold=True), expected.required.count(text))
            legible |= {text} if is_legible else set()
            merged = (*apart(merged, by_tesseract), *by_tesseract)
    return ImageText(merged, legible, versions)


def _read(path: Path, languages: Sequence[str]) -> TesseractReadings:
    with room_for(path):
        loaded = load_image(path)
        image = on_background(loaded, ocr.backgrounds(loaded)[0])
        scales = [scale for scale in _SCALES if scale == 1 or scale * scale * image.width * image.height <= _MAX_AREA]
        return TesseractReadings(tuple(tuple(_read_scale(image, languages, scale)) for scale in scales))


def _read_line(scales: Sequence[Sequence[Reading]], line: Copy, copies: int) -> tuple[list[Reading], bool]:
    """The readings of a line, and whether they decide it: it is there as often as required, or surely misspelled."""
    pages = [page_of(readings, [line], fold=True) for readings in scales]
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


_SCALES = (1, 2)
"""The image is read at its size and enlarged: small signs and marks of vowels are lost in one or the other."""
_MAX_AREA = 16_000_000
"""Pixels up to which an image is enlarged."""
_SPARSE_TEXT = "11"
"""Page segmentation: find as much text as possible, in no order."""
_WAIT_S = 120
_LINE_KEYS = ("block_num", "par_num", "line_num")
_MARKS = str.maketrans("", "", "\u200e\u200f\u202a\u202b\u202c")
"""The marks of direction that it adds: texts are in logical order."""


def _read_scale(image: Image.Image, languages: Sequence[str], scale: int) -> Iterator[Reading]:
    """The lines of text, with corners in pixels of ``image`` and the confidence of the weakest word."""
    size = (image.width * scale, image.height * scale)
    data = encode_png(image.resize(size, Image.Resampling.LANCZOS) if scale > 1 else image)
    words: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in csv.DictReader(_table(data, languages).splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE):
        if row["level"] == "5" and row["text"].strip():
            words.setdefault(tuple(row[key] for key in _LINE_KEYS), []).append(row)
    for line in words.values():
        boxes = [tuple(int(word[key]) / scale for key in ("left", "top", "width", "height")) for word in line]
        left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
        right, bottom = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
        confidence = round(min(max(float(word["conf"]), 0.0) for word in line) / 100, CONFIDENCE_DIGITS)
        text = " ".join(word["text"] for word in line).translate(_MARKS)
        yield Reading(text, confidence, ((left, top), (right, top), (right, bottom), (left, bottom)))


def _table(data: bytes, languages: Sequence[str]) -> str:
    options = ["-l", "+".join(languages), "--psm", _SPARSE_TEXT, "tsv"]
    try:
        done = subprocess.run(  # noqa: S603 - its own options
            ["tesseract", "-", "-", *options],  # noqa: S607 - found in the PATH, as any installed program
            input=data,
            capture_output=True,
            timeout=_WAIT_S,
            check=True,
            env={**os.environ, "OMP_THREAD_LIMIT": "1"},  # images run in parallel instead
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        raise GraderError(f"Tesseract failed: {lines[-1] if lines else f'exit code {error.returncode}'}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GraderError(f"Tesseract failed: {error}") from error
    return done.stdout.decode(errors="replace")
