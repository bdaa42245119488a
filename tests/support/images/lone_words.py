"""Cells of a lone word on a flat image: in Pillow's typeface, on large canvases, and varied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw

from tests.support.images.typefaces import OWN, typeface

_FIRST = ("SALE", "DRAFT", "Soup", "v1.2", "OK")
_FIRST_SIZES, _FIRST_CANVASES = (20, 24, 28, 32, 36), ((1024, 1024), (1536, 1024))
_LARGE = (("Fresh bread", 40, (3000, 2000)), ("Fresh bread", 60, (4096, 4096)), ("Fresh bread", 24, (4096, 4096)))
_VARIED = 60
_WORDS = (
    "Menu", "EXIT", "Beta", "Free", "Hello", "Ginger", "24/7", "Zürich", "Café", "Łódź", "São Paulo", "NEW", "Open",
    "Lemon", "Rye", "Jazz", "50%", "€9", "A4", "Press here",
)  # fmt: skip
_FACES = ("aileron", "inter", "playfair", "roboto slab", "barlow", "caveat", "lobster", "space mono", "poppins bold")
_COLORS = (
    ("#111111", "#ffffff"), ("#ffffff", "#111111"), ("#7a1f1f", "#fff3da"), ("#ffe45c", "#2b1055"), ("#26547c", "#ffe8d1"),
    ("#8a8a8a", "#ffffff"), ("#d1495b", "#1b3a4b"), ("#b8c4cc", "#e8eef2"),
)  # fmt: skip
_CANVASES = ((512, 512), (768, 1024), (1024, 1024), (1536, 1024), (2048, 2048), (3000, 2000), (4096, 4096))
_RIM = 4
"""Pixels between the ink's box and the rim of the canvas, at the least."""
_SMALLEST = 170
"""A word is at least this part of the longer side, which is 24 pixels of 4096."""


@dataclass(frozen=True, slots=True)
class WordCell:
    """A word and where it stands. ``at`` is 0 to 1 from the left and from the top of the free room."""

    name: str
    kind: str
    word: str
    size: int
    canvas: tuple[int, int]
    how: Literal["forbidden", "required"]
    face: str = OWN
    ink: str = "#111111"
    paper: str = "#ffffff"
    at: tuple[float, float] = (0.5, 0.45)
    further: tuple[str, ...] = ()


def word_cells() -> Iterator[WordCell]:
    """All cells; a part of them also with one and two further words."""
    first = [
        WordCell(f"first_{word}_{size}_{canvas[0]}", f"first {size} px", word, size, canvas, "forbidden")
        for canvas in _FIRST_CANVASES
        for size in _FIRST_SIZES
        for word in _FIRST
    ]
    large = [
        WordCell(f"large_{size}_{canvas[0]}", "large canvas", word, size, canvas, "required")
        for word, size, canvas in _LARGE
    ]
    varied = list(_varied())
    yield from (*first, *large, *varied)
    for number, further in enumerate((("Garden",), ("Garden", "Tuesday")), 1):
        for cell in (*first[:10], *first[30:35], *first[45:50], *large[:2], *varied[::5]):
            name = f"{cell.name}_with_{number}"
            yield replace(cell, name=name, kind=f"with {number} further", further=further)


def _varied() -> Iterator[WordCell]:
    chance = np.random.default_rng(2026)
    for number in range(_VARIED):
        canvas = _CANVASES[number % len(_CANVASES)]
        smallest = max(14, max(canvas) // _SMALLEST)
        at = (float(chance.choice((0.0, 0.2, 0.5, 0.8, 1.0))), float(chance.choice((0.0, 0.3, 0.6, 1.0))))
        ink, paper = _COLORS[int(chance.integers(len(_COLORS)))]
        word, size = _WORDS[number % len(_WORDS)], int(chance.integers(smallest, 81))
        face = _FACES[int(chance.integers(len(_FACES)))]
        yield WordCell(
            name=f"varied_{number:02}",
            kind="varied",
            word=word,
            size=size,
            canvas=canvas,
            how="forbidden" if number % 2 else "required",
            face="inter" if face == OWN and not word.isascii() else face,  # OWN has not all accents
            ink=ink,
            paper=paper,
            at=at,
        )


def draw_word(cell: WordCell) -> Image.Image:
    """The image of a cell. Further words stand in corners, in the same type, far from the word."""
    image = Image.new("RGB", cell.canvas, cell.paper)
    pen = ImageDraw.Draw(image)
    corners = sorted(((0.1, 0.1), (0.9, 0.9), (0.1, 0.9), (0.9, 0.1)), key=lambda at: -abs(at[1] - cell.at[1]))
    spots = (cell.at, *corners)
    for word, at in zip((cell.word, *cell.further), spots, strict=False):
        font = typeface(cell.face, cell.size)
        left, top, right, bottom = font.getbbox(word)
        room = cell.canvas[0] - (right - left) - 2 * _RIM, cell.canvas[1] - (bottom - top) - 2 * _RIM
        spot = _RIM - left + room[0] * at[0], _RIM - top + room[1] * at[1]
        pen.text((round(spot[0]), round(spot[1])), word, font=font, fill=cell.ink)
    return image
