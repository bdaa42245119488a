"""Draws the images of ``suites/logo_edits``: logos of brands that do not exist, their masks, and the right answers.

Run it with the folder to write to, ``python tests/support/images/make_logos.py suites/logo_edits/assets``. A test
checks that the images in the repository are what it draws.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

SIZE = (768, 512)

Colour = tuple[int, int, int]
Point = tuple[float, float]
Box = tuple[int, int, int, int]

_SCALE = 4  # everything is drawn at four times the size, for smooth edges
_PAPER: Colour = (250, 247, 240)
_WHITE: Colour = (255, 255, 255)
_FERN: Colour = (38, 78, 62)
_LEAF: Colour = (132, 164, 120)
_OXBLOOD: Colour = (122, 40, 38)
_INK: Colour = (34, 36, 42)
_NAVY: Colour = (18, 32, 58)
_SKY: Colour = (96, 170, 216)
_NIGHT: Colour = (24, 30, 54)
_DUSK: Colour = (74, 86, 134)
_MIST: Colour = (134, 146, 188)
_GOLD: Colour = (228, 180, 84)
_TEAL: Colour = (22, 84, 96)
_REED: Colour = (196, 122, 66)


@dataclass(frozen=True, slots=True)
class Logo:
    """One case: what is edited, the boxes (left, top, right, bottom in pixels) that may change, and the right answer.

    ``halfway`` are images with some of the steps, but not all.
    """

    base: Callable[[], Image.Image]
    expected: Callable[[], Image.Image]
    editable: tuple[Box, ...]
    halfway: tuple[Callable[[], Image.Image], ...] = ()

    def mask(self) -> Image.Image:
        """RGBA: transparent where the edit may go, opaque elsewhere."""
        image = Image.new("RGBA", SIZE, (255, 255, 255, 255))
        for box in self.editable:
            image.paste((0, 0, 0, 0), box)
        return image


def main(folder: Path) -> None:
    """Writes ``<case>.png``, ``<case>-mask.png`` and ``<case>-expected.png`` for every case."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, image in images().items():
        image.save(folder / name, optimize=True)


def images() -> dict[str, Image.Image]:
    """Every image by the name of its file."""
    drawn = {}
    for case, logo in LOGOS.items():
        drawn |= {f"{case}.png": logo.base(), f"{case}-mask.png": logo.mask(), f"{case}-expected.png": logo.expected()}
    return drawn


class _Pen:
    """Draws in the pixels of the finished image."""

    def __init__(self, ground: Colour) -> None:
        self._image = Image.new("RGB", (SIZE[0] * _SCALE, SIZE[1] * _SCALE), ground)
        self._draw = ImageDraw.Draw(self._image)

    def done(self) -> Image.Image:
        return self._image.reduce(_SCALE)

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        self._draw.ellipse([item * _SCALE for item in (x - radius, y - radius, x + radius, y + radius)], fill=colour)

    def ring(self, x: float, y: float, radius: float, width: float, colour: Colour) -> None:
        around = [item * _SCALE for item in (x - radius, y - radius, x + radius, y + radius)]
        self._draw.ellipse(around, outline=colour, width=round(width * _SCALE))

    def half_disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        around = [item * _SCALE for item in (x - radius, y - radius, x + radius, y + radius)]
        self._draw.pieslice(around, 180, 360, fill=colour)

    def bar(self, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
        self._draw.rectangle((left * _SCALE, top * _SCALE, right * _SCALE - 1, bottom * _SCALE - 1), fill=colour)

    def shape(self, points: list[Point], colour: Colour) -> None:
        self._draw.polygon([(x * _SCALE, y * _SCALE) for x, y in points], fill=colour)

    def stroke(self, points: list[Point], width: float, colour: Colour) -> None:
        """A line with round ends and joints."""
        scaled = [(x * _SCALE, y * _SCALE) for x, y in points]
        self._draw.line(scaled, fill=colour, width=round(width * _SCALE), joint="curve")
        for x, y in (points[0], points[-1]):
            self.disc(x, y, width / 2, colour)

    def words(self, text: str, at: Point, size: float, colour: Colour, *, gap: float = 0, weight: float = 0) -> None:
        """A line of text around ``at``, the middle of its baseline. ``gap`` and ``weight`` are shares of the size."""
        font, between = _font(size), gap * size * _SCALE
        widths = [font.getlength(letter) for letter in text]
        left = at[0] * _SCALE - (sum(widths) + between * (len(text) - 1)) / 2
        for letter, width in zip(text, widths, strict=True):
            self.letter(letter, ((left + width / 2) / _SCALE, at[1]), size, colour, weight=weight)
            left += width + between

    def letter(self, letter: str, at: Point, size: float, colour: Colour, *, weight: float = 0) -> None:
        where = (round(at[0] * _SCALE), round(at[1] * _SCALE))
        stroke = round(weight * size * _SCALE)
        self._draw.text(where, letter, fill=colour, font=_font(size), anchor="ms", stroke_width=stroke)


def _font(size: float) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size * _SCALE)
    assert isinstance(font, ImageFont.FreeTypeFont)
    return font.font_variant(layout_engine=ImageFont.Layout.BASIC)


def fernhill(word: str, sign: str = "") -> Image.Image:
    """A sprig in a disc over the name and a trade between two rules; with or without a small sign after the name."""
    pen = _Pen(_PAPER)
    pen.disc(384, 142, 84, _FERN)
    pen.stroke([(384, 210), (384, 88)], 4, _PAPER)
    for step in range(5):
        low, reach = 192 - 24 * step, 44 - 6 * step
        for side in (-1, 1):
            pen.shape(_leaf((384, low), (384 + side * reach, low - reach * 0.72), 0.3), _PAPER)
    pen.shape(_leaf((384, 98), (384, 72), 0.34), _PAPER)
    pen.words("Fernhill", (384, 344), 108, _FERN, gap=-0.01, weight=0.012)
    pen.words(word, (384, 420), 42, _FERN, gap=0.22)
    for side in (-1, 1):
        pen.bar(384 + side * 178 - 34, 404, 384 + side * 178 + 34, 407, _LEAF)
    if sign:
        pen.letter(sign, (592, 296), 56, _FERN)
    return pen.done()


def harrow(year: str) -> Image.Image:
    """A shield with a peak over the name and the year."""
    pen = _Pen(_WHITE)
    pen.shape(_shield(384, 56, 78, 176), _OXBLOOD)
    pen.shape(_shield(384, 64, 70, 160), _WHITE)
    pen.shape(_shield(384, 69, 65, 150), _OXBLOOD)
    pen.shape([(326, 164), (368, 96), (392, 132), (406, 112), (442, 164)], _WHITE)
    pen.shape([(368, 96), (380, 114), (371, 122), (364, 116), (353, 121)], _OXBLOOD)
    pen.stroke([(350, 182), (418, 182)], 5, _WHITE)
    pen.stroke([(364, 196), (404, 196)], 5, _WHITE)
    pen.words("HARROW & PIKE", (384, 326), 74, _INK, gap=0.04, weight=0.02)
    pen.bar(118, 356, 650, 359, _OXBLOOD)
    pen.words(f"EST. {year}", (384, 420), 44, _OXBLOOD, gap=0.14, weight=0.008)
    return pen.done()


def orrin(second: str) -> Image.Image:
    """An orbit beside a name in wide capitals at fixed positions."""
    pen = _Pen(_NAVY)
    pen.ring(140, 256, 74, 11, _WHITE)
    pen.disc(140, 256, 26, _SKY)
    pen.disc(140 + 69 * math.cos(-0.8), 256 + 69 * math.sin(-0.8), 27, _NAVY)
    pen.disc(140 + 69 * math.cos(-0.8), 256 + 69 * math.sin(-0.8), 17, _SKY)
    for letter, x in zip(f"O{second}RIN", (310, 420, 524, 600, 676), strict=True):
        pen.letter(letter, (x, 294), 112, _WHITE, weight=0.018)
    return pen.done()


def northlight(line: str = "STARGAZING TOURS", *, star: bool = False) -> Image.Image:
    """Hills under a rising moon over the name and a line; with or without a star above the name's last letter."""
    pen = _Pen(_NIGHT)
    pen.half_disc(384, 196, 104, _DUSK)
    pen.disc(384, 140, 26, _WHITE)
    pen.shape([(268, 196), (330, 138), (372, 178), (352, 196)], _MIST)
    pen.shape([(324, 196), (408, 150), (500, 196)], _WHITE)
    pen.words("Northlight", (384, 352), 116, _WHITE, gap=-0.005, weight=0.006)
    pen.words(line, (384, 422), 32, _MIST, gap=0.2)
    if star:
        pen.shape(_star(640, 216, 32), _GOLD)
    return pen.done()


def saltmarsh(word: str, year: str) -> Image.Image:
    """Reeds over waves in a ring, beside the name, the trade and the year."""
    pen = _Pen(_PAPER)
    pen.ring(152, 256, 104, 6, _TEAL)
    for position, top in ((118, 214), (152, 186), (186, 206)):
        pen.stroke([(position, 286), (position, top)], 4, _TEAL)
        pen.stroke([(position, top + 10), (position, top + 36)], 13, _REED)
    for row in range(2):
        y, half = 292 + 20 * row, 66 - 16 * row
        wave = [(152 + x, y + 5 * math.sin(x / 8)) for x in range(-half, half + 1)]
        pen.stroke([(x, y) for x, y in wave], 5, _TEAL)
    pen.words("Saltmarsh", (512, 252), 96, _TEAL, gap=-0.005, weight=0.012)
    pen.words(word, (512, 318), 44, _TEAL, gap=0.3, weight=0.004)
    pen.words(f"SINCE {year}", (512, 374), 30, _REED, gap=0.2, weight=0.008)
    return pen.done()


def _leaf(foot: Point, tip: Point, width: float) -> list[Point]:
    """A pointed oval from ``foot`` to ``tip``; ``width`` is a share of its length."""
    across, down = tip[0] - foot[0], tip[1] - foot[1]
    sides: list[Point] = []
    for sign, steps in ((1, range(21)), (-1, range(20, -1, -1))):
        for step in steps:
            along = step / 20
            aside = sign * width * math.sin(math.pi * along) / 2
            sides.append((foot[0] + across * along - down * aside, foot[1] + down * along + across * aside))
    return sides


def _shield(x: float, top: float, half: float, height: float) -> list[Point]:
    """Straight above, and rounded to a point below."""
    right = []
    for step in range(31):
        turn = math.pi / 2 * step / 30
        right.append((half * math.cos(turn) ** 0.8, top + height * (0.42 + 0.58 * math.sin(turn))))
    curve = [(x + across, y) for across, y in right] + [(x - across, y) for across, y in reversed(right)]
    return [(x - half, top), (x + half, top), *curve]


def _star(x: float, y: float, radius: float) -> list[Point]:
    points: list[Point] = []
    for step in range(10):
        turn, reach = math.pi * step / 5, radius * (0.4 if step % 2 else 1)
        points.append((x + reach * math.sin(turn), y - reach * math.cos(turn)))
    return points


LOGOS = {
    "word": Logo(
        base=lambda: fernhill("BAKERY"), expected=lambda: fernhill("COFFEE"), editable=((256, 380, 512, 432),)
    ),
    "year": Logo(base=lambda: harrow("1986"), expected=lambda: harrow("1968"), editable=((374, 378, 524, 432),)),
    "letter": Logo(base=lambda: orrin("R"), expected=lambda: orrin("D"), editable=((376, 200, 470, 308),)),
    "mark": Logo(base=northlight, expected=lambda: northlight(star=True), editable=((600, 176, 680, 256),)),
    "longer_word": Logo(
        base=northlight, expected=lambda: northlight("STARGAZING EVENINGS"), editable=((84, 386, 684, 434),)
    ),
    "trademark": Logo(
        base=lambda: fernhill("BAKERY"), expected=lambda: fernhill("BAKERY", sign="™"), editable=((568, 248, 632, 304),)
    ),
    "two_steps": Logo(
        base=lambda: saltmarsh("POTTERY", "1996"),
        expected=lambda: saltmarsh("STUDIO", "1969"),
        editable=((360, 280, 664, 326), (522, 346, 632, 382)),
        halfway=(lambda: saltmarsh("STUDIO", "1996"), lambda: saltmarsh("POTTERY", "1969")),
    ),
}
"""By the case's id."""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
