"""Reads text in images with the program ``tesseract``, in scripts that RapidOCR's models do not know."""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Iterator, Sequence

from PIL import Image

from visioneval.errors import GraderError
from visioneval.graders.text.copy_match import Reading
from visioneval.graders.text.reading.ocr import CONFIDENCE_DIGITS
from visioneval.media.images import encode_png

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


def read(image: Image.Image, languages: Sequence[str]) -> tuple[tuple[Reading, ...], ...]:
    """The lines of text at each scale, with corners in pixels of ``image`` and the confidence of the weakest word.

    Raises ``GraderError``.
    """
    scales = [scale for scale in _SCALES if scale == 1 or scale * scale * image.width * image.height <= _MAX_AREA]
    return tuple(tuple(_read(image, languages, scale)) for scale in scales)


def _read(image: Image.Image, languages: Sequence[str], scale: int) -> Iterator[Reading]:
    size = (image.width * scale, image.height * scale)
    data = encode_png(image.resize(size, Image.Resampling.LANCZOS) if scale > 1 else image)
    words: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in csv.DictReader(_table(data, languages).splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE):
        if row["level"] == "5" and row["text"].strip():
            words.setdefault(tuple(row[key] for key in _LINE_KEYS), []).append(row)
    yield from (_line(line, scale) for line in words.values())


def _line(words: Sequence[dict[str, str]], scale: int) -> Reading:
    boxes = [tuple(int(word[key]) / scale for key in ("left", "top", "width", "height")) for word in words]
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
    confidence = round(min(max(float(word["conf"]), 0.0) for word in words) / 100, CONFIDENCE_DIGITS)
    text = " ".join(word["text"] for word in words).translate(_MARKS)
    return Reading(text, confidence, ((left, top), (right, top), (right, bottom), (left, bottom)))


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
