"""Images of lines at known places, and the readings that OCR would give of them, so that a test needs no OCR."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from visioneval.graders.measures import Measure
from visioneval.graders.text.grader import OcrReadings
from visioneval.graders.text.layout import Corners, Reading


@dataclass(slots=True)
class DrawnLines:
    """A page. ``measure`` is for a grading context: it answers OCR with the lines, and measures all else."""

    image: Image.Image
    readings: list[Reading] = field(default_factory=list)
    measured: list[str] = field(default_factory=list)
    """The names of the measures that were made."""

    @classmethod
    def on(cls, color: Any = "white", size: tuple[int, int] = (600, 400), mode: str = "RGB") -> DrawnLines:
        return cls(Image.new(mode, size, color))

    def write(self, text: str, at: tuple[float, float], px: int = 30, ink: Any = "black", **reading: Any) -> DrawnLines:
        """Draws a line with its ink's left top corner there. ``reading`` has other values of its reading."""
        font = ImageFont.load_default(px)
        pen = ImageDraw.Draw(self.image)
        left, top, right, bottom = ink_box(text, font)
        x, y = at[0] - left, at[1] - top
        pen.text((x, y), text, ink, font)
        self.readings.append(Reading(text, 0.99, box_around(x + left, y + top, x + right, y + bottom)))
        if reading:
            self.readings[-1] = Reading(
                **{"text": text, "confidence": 0.99, "corners": self.readings[-1].corners, **reading}
            )
        return self

    def save(self, path: Path) -> Path:
        self.image.save(path)
        return path

    async def measure(self, measure: Measure[Any]) -> Any:
        self.measured.append(measure.name)
        if measure.name in ("text", "second look at text"):
            return OcrReadings(tuple(self.readings))
        return await asyncio.to_thread(measure.run)


def ink_box(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the ink of a text that is drawn at the origin."""
    shift = 50
    canvas = Image.new("L", (round(font.getbbox(text)[2]) + 2 * shift, round(font.getbbox(text)[3]) + 2 * shift))
    ImageDraw.Draw(canvas).text((shift, shift), text, 255, font)
    ink = canvas.point(lambda level: 255 * (level > 127)).getbbox()
    assert ink is not None
    return ink[0] - shift, ink[1] - shift, ink[2] - shift, ink[3] - shift


def box_around(left: float, top: float, right: float, bottom: float) -> Corners:
    """A box as OCR makes it: with a margin."""
    high = (bottom - top) / 0.66
    beside, above = 0.13 * high, 0.17 * high
    x0, y0, x1, y1 = left - beside, top - above, right + beside, bottom + above
    return (x0, y0), (x1, y0), (x1, y1), (x0, y1)


def rows(*texts: str, px: int = 30, left: float = 40, step: float = 60) -> DrawnLines:
    """Lines below each other."""
    page = DrawnLines.on()
    for number, text in enumerate(texts):
        page.write(text, (left, 30 + number * step), px)
    return page


def texts_of(items: Sequence[Any]) -> list[str]:
    """The texts of the lines in details."""
    return [item["text"] for item in items]
