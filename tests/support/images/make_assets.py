"""Draws the quickstart's images: the front of a shop that does not exist, and the mask over one word of its sign.

Run it with the folder to write to, ``python tests/support/images/make_assets.py suites/quickstart/assets``. A test
checks that the images in the repository are what it draws.
"""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

SIDE = 768
SHOP, WORD = "Butter & Flour", "FIELD"
MASK = (490, 330, 678, 394)
"""Left, top, right and bottom of the editable word, in pixels."""

Colour = tuple[int, int, int]

_SCALE = 2  # shapes are drawn at twice the size, for smooth edges
_SEED = 5
_MORTAR: Colour = (214, 198, 182)
_BRICK: Colour = (186, 118, 94)
_GREEN: Colour = (36, 68, 62)
_CREAM: Colour = (250, 240, 220)
_GOLD: Colour = (222, 174, 88)
_RED: Colour = (190, 74, 52)
_STONE: Colour = (168, 162, 156)
_CRUST: Colour = (204, 140, 66)
_WOOD: Colour = (112, 74, 48)


def main(folder: Path) -> None:
    """Writes ``storefront.png`` and ``storefront-mask.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    storefront().save(folder / "storefront.png", optimize=True)
    mask().save(folder / "storefront-mask.png", optimize=True)


def storefront() -> Image.Image:
    """The RGB image."""
    pen = _Pen(Image.new("RGB", (SIDE * _SCALE, SIDE * _SCALE), _MORTAR))
    _bricks(pen)
    _pavement(pen)
    _window(pen)
    _awning(pen)
    _door(pen)
    _fascia(pen)
    _word_sign(pen)
    image = pen.image.reduce(_SCALE)
    _letter(image, SHOP, (SIDE // 2, 106), 74)
    _letter(image, WORD, ((MASK[0] + MASK[2]) // 2, (MASK[1] + MASK[3]) // 2), 46)
    return image


def mask() -> Image.Image:
    """The mask: transparent over the word, opaque elsewhere."""
    image = Image.new("RGBA", (SIDE, SIDE), (255, 255, 255, 255))
    image.paste((0, 0, 0, 0), MASK)
    return image


class _Pen:
    """Draws in the pixels of the finished image. Its dice are the same on every machine."""

    def __init__(self, image: Image.Image) -> None:
        self.image = image
        self._draw = ImageDraw.Draw(image)
        self._dice = random.Random(_SEED)

    def roll(self, low: float, high: float) -> float:
        return low + (high - low) * self._dice.random()

    def shade(self, colour: Colour, by: float) -> Colour:
        change = self.roll(-by, by)
        red, green, blue = (max(0, min(255, round(value + change))) for value in colour)
        return red, green, blue

    def box(self, left: float, top: float, right: float, bottom: float, colour: Colour, radius: float = 0) -> None:
        self._draw.rounded_rectangle(
            (left * _SCALE, top * _SCALE, right * _SCALE - 1, bottom * _SCALE - 1), radius * _SCALE, fill=colour
        )

    def disc(self, x: float, y: float, across: float, down: float, colour: Colour) -> None:
        self._draw.ellipse(
            ((x - across) * _SCALE, (y - down) * _SCALE, (x + across) * _SCALE, (y + down) * _SCALE), fill=colour
        )

    def shape(self, points: list[tuple[float, float]], colour: Colour) -> None:
        self._draw.polygon([(x * _SCALE, y * _SCALE) for x, y in points], fill=colour)


def _bricks(pen: _Pen) -> None:
    for row, top in enumerate(range(0, 648, 24)):
        for left in range(-56 + 28 * (row % 2), SIDE, 56):
            pen.box(left, top, left + 53, top + 21, pen.shade(_BRICK, 16), 1)
            for _ in range(2):
                x, y = pen.roll(left + 4, left + 48), pen.roll(top + 4, top + 17)
                pen.disc(x, y, 1.6, 1.1, pen.shade(_BRICK, 34))


def _pavement(pen: _Pen) -> None:
    pen.box(0, 640, SIDE, 652, (126, 120, 116))
    for row, top in enumerate((652, 692, 732)):
        for left in range(-80 + 64 * (row % 2), SIDE, 128):
            pen.box(left, top, left + 125, top + 37, pen.shade(_STONE, 9), 2)


def _window(pen: _Pen) -> None:
    pen.box(84, 236, 420, 600, _GREEN, 4)
    pen.box(98, 236, 406, 586, (250, 226, 176))
    pen.shape([(330, 236), (382, 236), (180, 586), (128, 586)], (255, 240, 206))
    for number, shelf in enumerate((396, 486, 576)):
        pen.box(98, shelf, 406, shelf + 10, _WOOD)
        _loaves(pen, number, shelf)
    pen.box(248, 236, 256, 586, _GREEN)
    pen.box(76, 596, 428, 616, pen.shade(_STONE, 6), 3)


def _loaves(pen: _Pen, number: int, shelf: int) -> None:
    across, count = ((32, 4), (22, 6), (40, 3))[number]
    for position in range(count):
        x = 98 + 308 * (position + 0.5) / count
        crust = pen.shade(_CRUST, 14)
        pen.disc(x, shelf - 22, across, 24, crust)
        pen.box(x - across, shelf - 22, x + across, shelf, crust, 8)
        pen.disc(x - across * 0.12, shelf - 31, across * 0.62, 8, (232, 184, 112))


def _awning(pen: _Pen) -> None:
    stripe, top, bottom = 44, 172, 262
    for number in range(8):
        left = 76 + stripe * number
        colour = _CREAM if number % 2 else _RED
        pen.box(left, top, left + stripe, bottom, colour)
        pen.disc(left + stripe / 2, bottom, stripe / 2, 14, colour)
    pen.box(76, 172, 428, 182, (96, 40, 30))


def _door(pen: _Pen) -> None:
    pen.box(496, 424, 672, 640, _WOOD, 4)
    pen.box(508, 436, 660, 640, _GREEN)
    pen.box(528, 456, 640, 556, (250, 226, 176), 4)
    pen.shape([(600, 456), (628, 456), (570, 556), (542, 556)], (255, 240, 206))
    pen.box(528, 574, 640, 624, (46, 84, 76), 4)
    pen.box(644, 540, 651, 574, _GOLD, 3)
    pen.box(484, 632, 684, 648, pen.shade(_STONE, 6), 2)


def _fascia(pen: _Pen) -> None:
    pen.box(48, 40, 720, 172, (24, 48, 44), 6)
    pen.box(54, 46, 714, 166, _GOLD, 5)
    pen.box(57, 49, 711, 163, _GREEN, 4)


def _word_sign(pen: _Pen) -> None:
    pen.box(470, 196, 698, 412, (24, 48, 44), 10)
    pen.box(475, 201, 693, 407, _GOLD, 8)
    pen.box(478, 204, 690, 404, _GREEN, 7)
    _wheat(pen, 584, 272)


def _wheat(pen: _Pen, x: float, y: float) -> None:
    """Three ears of wheat in a fan."""
    for turn in (-28, 28, 0):
        up = math.radians(turn)
        foot = (x, y + 52)

        def at(along: float, aside: float, up: float = up, foot: tuple[float, float] = foot) -> tuple[float, float]:
            return (
                foot[0] + along * math.sin(up) + aside * math.cos(up),
                foot[1] - along * math.cos(up) + aside * math.sin(up),
            )

        pen.shape([at(0, -1.5), at(0, 1.5), at(88, 1.5), at(88, -1.5)], _GOLD)
        for step in range(4):
            low = 40 + 12 * step
            for side in (-1, 1):
                grain = [at(low, side * 1.5), at(low + 5, side * 9), at(low + 17, side * 9), at(low + 13, side * 2)]
                pen.shape(grain, _GOLD)
        pen.shape([at(86, -4), at(86, 4), at(101, 0)], _GOLD)


def _letter(image: Image.Image, text: str, middle: tuple[int, int], size: int) -> None:
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)
    font = font.font_variant(layout_engine=ImageFont.Layout.BASIC)
    baseline = middle[1] + 0.35 * size
    ImageDraw.Draw(image).text(
        (middle[0], baseline), text, fill=_CREAM, font=font, anchor="ms", stroke_width=size * 0.022
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
