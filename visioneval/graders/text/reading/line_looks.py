"""Looks once more at single lines of an image: what they say then, and the gaps between their glyphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps

from visioneval.graders.text.copy_match import Reading, copy_of, skeleton
from visioneval.graders.text.reading import contrast, networks, ocr
from visioneval.graders.text.reading.gaps import Gap, gaps
from visioneval.media.images import load_image, room_for
from visioneval.media.opencv import portable_opencv

_READ_HEIGHT = 48
"""The height in pixels at which lines are read."""
_MARGIN = 0.12
"""The margin around a line, as a share of its height."""


@dataclass(frozen=True, slots=True)
class LineLook:
    """What second looks at a reading say, the same but for white space.

    ``gaps`` are those after each character of the first text but the last, white space left out.
    """

    texts: tuple[str, ...]
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class LineLooks:
    """A second look at each of some readings; ``None`` where it says something else."""

    looks: tuple[LineLook | None, ...]


def look_at_lines(path: Path, readings: Sequence[Reading]) -> LineLooks:
    """Looks again at readings of an image. Raises ``GraderError``."""
    with room_for(path):
        loaded = load_image(path)
        images = contrast.on_backgrounds(loaded)
        return LineLooks(
            tuple(next((look for image in images if (look := _look(image, reading))), None) for reading in readings)
        )


@portable_opencv()
def _look(image: Image.Image, reading: Reading) -> LineLook | None:
    if reading.corners is None:
        return None
    line = networks.crop(image, reading.corners)
    for turned in (line, line.rotate(180)):
        read = networks.read_line(turned)
        if _compared(read.text) == _compared(reading.text):
            other = networks.read_line(_enlarged(turned)).text
            texts = (read.text, other) if _compared(other) == _compared(read.text) else (read.text,)
            return LineLook(texts, gaps(turned, read.text, read.columns))
    return None


def _enlarged(line: Image.Image) -> Image.Image:
    """The line at the height that the recognizer reads at least, with a margin: the spaces in small print that it reads
    by mistake are then at other places."""
    if line.height < _READ_HEIGHT:
        size = (max(1, round(line.width * _READ_HEIGHT / line.height)), _READ_HEIGHT)
        line = line.resize(size, Image.Resampling.LANCZOS)
    return ImageOps.expand(line, round(line.height * _MARGIN), ocr.border_color(line))


def _compared(text: str) -> str:
    return skeleton(copy_of(text, fold=True).chars)
