"""Draws cards: lines of copy in a typeface, as a design asks for."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFilter

from tests.support.images.typefaces import typeface

_LEADING = 1.65
"""From line to line, in sizes of the type."""


@dataclass(frozen=True, slots=True)
class Card:
    """A design. ``size`` is that of the type in pixels; the first line is ``heading`` times as large.

    ``tracking`` is the space after each letter in sizes, ``angle`` degrees counterclockwise, ``quality`` that of a JPEG.
    """

    name: str
    kind: str
    face: str
    size: int
    lines: tuple[str, ...]
    canvas: tuple[int, int] = (1024, 1024)
    ink: str = "#1c1c22"
    paper: str = "#f6f1e7"
    heading: float = 1.0
    tracking: float = 0.0
    angle: int = 0
    ground: Literal["flat", "gradient", "noise", "blobs"] = "flat"
    layout: Literal["left", "center", "columns", "arc", "stack"] = "left"
    quality: int | None = None

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.name}.{'png' if self.quality is None else 'jpg'}"


def encoded(card: Card, lines: Sequence[str]) -> bytes:
    """The file of the card with these lines. Raises ``ValueError`` if a line does not fit."""
    file = io.BytesIO()
    image = draw(card, lines)
    if card.quality is None:
        image.save(file, "PNG")
    else:
        image.save(file, "JPEG", quality=card.quality)
    return file.getvalue()


def draw(card: Card, lines: Sequence[str]) -> Image.Image:
    """The card with these lines. Raises ``ValueError`` if a line does not fit."""
    image = ground(card)
    if card.layout == "arc":
        _arc(image, card, lines)
    elif card.layout == "stack":
        _stack(image, card, lines)
    elif card.layout == "columns":
        middle = (len(lines) + 1) // 2
        _column(image, card, lines[:middle], card.canvas[0] // 12)
        _column(image, card, lines[middle:], card.canvas[0] * 13 // 24)
    else:
        _column(image, card, lines, card.canvas[0] // 12)
    if card.angle:
        image = image.rotate(card.angle, Image.Resampling.BICUBIC, expand=True, fillcolor=card.paper)
    return image


def ground(card: Card) -> Image.Image:
    """What is behind the lines."""
    width, height = card.canvas
    paper = np.array(ImageColor.getrgb(card.paper), np.float32)
    if card.ground == "flat":
        return Image.new("RGB", card.canvas, card.paper)
    chance = np.random.default_rng(width * height + card.size)
    if card.ground == "gradient":
        pixels = paper * np.linspace(0.72, 1.08, height, dtype=np.float32)[:, None, None].repeat(width, 1)
    else:
        pixels = np.broadcast_to(paper, (height, width, 3))
        if card.ground == "noise":
            pixels = pixels + chance.normal(0, 14, (height, width, 1))
        else:
            rough = chance.normal(0, 34, (9, 9, 3)).astype(np.float32)
            parts = [Image.fromarray(rough[:, :, at]).resize(card.canvas, Image.Resampling.BICUBIC) for at in range(3)]
            pixels = pixels + np.dstack([np.asarray(part) for part in parts])
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _column(image: Image.Image, card: Card, lines: Sequence[str], left: int) -> None:
    """Lines below each other."""
    top = card.canvas[1] / 9
    for row, line in enumerate(lines):
        size = round(card.size * (card.heading if row == 0 else 1.0))
        font = typeface(card.face, size)
        width = font.getlength(line) + card.tracking * size * (len(line) - 1)
        x: float = left if card.layout != "center" else (card.canvas[0] - width) / 2
        if x < 0 or x + width > card.canvas[0] or top + size * 1.3 > card.canvas[1]:
            raise ValueError(f"{card.name}: the line {line!r} does not fit")
        pen = ImageDraw.Draw(image)
        if not card.tracking:
            pen.text((x, top), line, font=font, fill=card.ink)
        for letter in line if card.tracking else ():
            pen.text((x, top), letter, font=font, fill=card.ink)
            x += font.getlength(letter) + card.tracking * size
        top += size * _LEADING


def _arc(image: Image.Image, card: Card, lines: Sequence[str]) -> None:
    """Each line on a circle of its own around a point below the middle, the first one outermost."""
    for row, line in enumerate(lines):
        font = typeface(card.face, card.size)
        radius = card.canvas[1] * 0.55 - row * card.size * 2.2
        angle = -font.getlength(line) * 1.08 / radius / 2
        for letter in line:
            step = font.getlength(letter) * 1.08 / radius
            side = card.size * 3
            tile = Image.new("L", (side, side))
            ImageDraw.Draw(tile).text((side / 2, side / 2), letter, font=font, fill=255, anchor="ms")
            middle = angle + step / 2
            tile = tile.rotate(-math.degrees(middle), Image.Resampling.BICUBIC)
            x = card.canvas[0] / 2 + radius * math.sin(middle) - side / 2
            y = card.canvas[1] * 0.75 - radius * math.cos(middle) - side / 2
            image.paste(card.ink, (round(x), round(y)), tile)
            angle += step


def _stack(image: Image.Image, card: Card, lines: Sequence[str]) -> None:
    """Each line as a column of upright letters."""
    pen = ImageDraw.Draw(image)
    for column, line in enumerate(lines):
        x = card.canvas[0] * (column + 1) / (len(lines) + 1)
        for row, letter in enumerate(line):
            y = card.size * (1.4 + 1.25 * row)
            if y > card.canvas[1]:
                raise ValueError(f"{card.name}: the line {line!r} does not fit")
            pen.text((x, y), letter, font=typeface(card.face, card.size), fill=card.ink, anchor="ms")


def blank(number: int) -> Image.Image:
    """One of 20 images without text: gradients, grain, blurred shapes and icons."""
    kind, variant = divmod(number, 5)
    side = (640, 768, 1024, 1024, 1280)[variant]
    chance = np.random.default_rng(number)
    across = np.linspace(0, 1, side)
    if kind == 0:
        slope = np.add.outer(across * variant, across * (4 - variant)) / 4
        ends = chance.integers(0, 256, (2, 3))
        return _image(ends[0] + slope[:, :, None] * (ends[1] - ends[0]))
    if kind == 1:
        grain = chance.normal(0, 12 + 12 * variant, (side // (variant + 1), side // (variant + 1), 3))
        return _image(grain + chance.integers(60, 200, 3)).resize((side, side), Image.Resampling.BICUBIC)
    image = Image.new("RGB", (side, side), tuple(int(level) for level in chance.integers(40, 230, 3)))
    pen = ImageDraw.Draw(image)
    if kind == 2:
        for _ in range(30 + 20 * variant):
            x, y, radius = (int(value) for value in chance.integers(0, side, 3) // (1, 1, 6))
            color = tuple(int(level) for level in chance.integers(0, 256, 3))
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color)
        return image.filter(ImageFilter.GaussianBlur(3 + variant))
    _icon(pen, variant, side)
    return image


def _icon(pen: ImageDraw.ImageDraw, variant: int, side: int) -> None:
    """A star, a house, an arrow, a chart with bars, or a check mark in a ring."""
    unit, middle = side / 10, side / 2
    if variant == 0:
        angles = [math.pi * step / 5 for step in range(10)]
        radii = [unit * (3 if step % 2 else 1.3) for step in range(10)]
        spots = zip(angles, radii, strict=True)
        pen.polygon([(middle + r * math.sin(a), middle + r * math.cos(a)) for a, r in spots], fill="#ffd23f")
    elif variant == 1:
        pen.polygon([(middle, 2 * unit), (8 * unit, 5 * unit), (2 * unit, 5 * unit)], fill="#8c2f39")
        pen.rectangle((3 * unit, 5 * unit, 7 * unit, 8 * unit), fill="#f2e9dc")
        pen.rectangle((4.5 * unit, 6 * unit, 5.5 * unit, 8 * unit), fill="#3d405b")
    elif variant == 2:
        pen.rectangle((2 * unit, 4.5 * unit, 6 * unit, 5.5 * unit), fill="#111111")
        pen.polygon([(6 * unit, 3.5 * unit), (8 * unit, middle), (6 * unit, 6.5 * unit)], fill="#111111")
    elif variant == 3:
        for bar, level in enumerate((3, 5, 2, 6)):
            left = (2 + 1.6 * bar) * unit
            pen.rectangle((left, (8 - level) * unit, left + unit, 8 * unit), fill="#1d7874")
    else:
        pen.ellipse((2 * unit, 2 * unit, 8 * unit, 8 * unit), outline="white", width=round(unit / 2))
        corners = [(3.5 * unit, middle), (4.6 * unit, 6.2 * unit), (6.6 * unit, 3.8 * unit)]
        pen.line(corners, fill="white", width=round(unit / 2), joint="curve")


def _image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
