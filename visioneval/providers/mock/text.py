"""The mock's lettering: Pillow's built-in font, lines set to fit a box, and typos.

A character that the font lacks is an error, never a little box: an image that shows a box instead of a letter
would be graded as if a model had drawn it.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont, features

from visioneval.characters import is_ignorable
from visioneval.errors import ProviderError

Colour = tuple[int, int, int]

MIN_SIZE = 10
"""Pixels: smaller letters are hard to read, for people and for OCR."""

_PITCH = 1.24
_STROKE = 0.022
_BOLD_FROM = 16
_FINE_BELOW = 40
_SHRINK = 0.95
_NO_GLYPH = "\uffff"  # a noncharacter: what every font shows for it is its sign for a missing glyph

# Each letter becomes one of another build, so that no reader can take one for the other.
_OTHER = {
    **dict.fromkeys("OQCGDSUJ", "K"),
    **dict.fromkeys("ILTEFHN", "O"),
    **dict.fromkeys("AVWXYKMZ", "B"),
    **dict.fromkeys("BPR", "T"),
    **dict.fromkeys("oceasuqdgbpr", "k"),
    **dict.fromkeys("iltfj", "m"),
    **dict.fromkeys("vwxyzk", "a"),
    **dict.fromkeys("hnm", "z"),
}
_OTHER_DIGIT = {**dict.fromkeys("0356892", "4"), **dict.fromkeys("147", "8")}


class Dice:
    """Rolls that depend on nothing but the seed and a roll's name."""

    def __init__(self, *seed: object) -> None:
        self._seed = "\0".join(map(str, seed))

    def share(self, name: str) -> float:
        """A number from 0 up to 1."""
        digest = hashlib.sha256(f"{self._seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:6]) / 2**48

    def pick(self, name: str, count: int) -> int:
        """A number from 0 up to ``count``."""
        return int(self.share(name) * count)


@dataclass(frozen=True, slots=True)
class Setting:
    """A line of copy, set: its rows and its letters' size, all in pixels."""

    rows: tuple[str, ...]
    size: int
    width: int

    @property
    def pitch(self) -> int:
        """From one row to the next."""
        return round(self.size * _PITCH)

    @property
    def height(self) -> int:
        """Of all rows."""
        return self.pitch * len(self.rows)

    def draw(self, image: Image.Image, x: float, top: float, align: str, colour: Colour) -> None:
        """Draws the rows. ``x`` is the left end (``align`` "l") or the middle ("m") of every row."""
        scale = _scale(self.size)
        size = self.size * scale
        left = x - self.size if align == "l" else x - self.width / 2 - self.size
        mask = Image.new("L", ((self.width + 2 * self.size) * scale, (self.height + self.size) * scale), 0)
        pen = ImageDraw.Draw(mask)
        for number, row in enumerate(self.rows):
            # Capitals are 0.7 of a size high, so this puts their middle in the middle of the row.
            baseline = self.pitch * scale * (number + 0.5) + 0.85 * size
            start = size if align == "l" else mask.width / 2
            pen.text((start, baseline), row, 255, font(size), f"{align}s", stroke_width=_stroke(self.size) * scale)
        image.paste(colour, (round(left), round(top - self.size / 2)), mask.reduce(scale) if scale > 1 else mask)


@lru_cache(maxsize=256)
def font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font. Raises ``ProviderError`` where Pillow was built without FreeType."""
    if not features.check("freetype2"):
        raise ProviderError("mock needs a Pillow that was built with FreeType", kind="invalid")
    default = ImageFont.load_default(size)
    assert isinstance(default, ImageFont.FreeTypeFont)
    # The other engine is there on some machines only, and the same request must give the same image.
    return default.font_variant(layout_engine=ImageFont.Layout.BASIC)


def tidy(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines as they can be drawn; empty ones are left out. Raises ``ProviderError`` for what the font lacks."""
    found = []
    for line in lines:
        visible = (char for char in unicodedata.normalize("NFC", line) if char.isspace() or not is_ignorable(char))
        text = " ".join("".join(visible).split())
        lacking = sorted({char for char in text if not _has_glyph(char)})
        if lacking:
            chars = ", ".join(f"{ascii(char)[1:-1]} ({unicodedata.name(char, 'no name')})" for char in lacking)
            raise ProviderError(f"mock: its font cannot draw {chars} in the line {line!r}", kind="invalid")
        if text:
            found.append(text)
    return tuple(found)


def set_line(line: str, size: int, width: int) -> Setting | None:
    """The line at ``size`` or a little below in one row, else wrapped; ``None`` where it does not fit ``width``."""
    for smaller in _sizes(size, round(size * 0.72)):
        if _length(line, smaller) <= width:
            return Setting((line,), smaller, _length(line, smaller))
    for smaller in _sizes(round(size * 0.9), MIN_SIZE):
        rows = _wrap(line, smaller, width)
        if rows is not None:
            return Setting(rows, smaller, max(_length(row, smaller) for row in rows))
    return None


def fit_box(line: str, width: int, height: int, largest: int) -> Setting | None:
    """The line as large as a box takes it, up to ``largest``; ``None`` where it would be too small to read."""
    for size in _sizes(min(largest, height), MIN_SIZE):
        rows = _wrap(line, size, width)
        if rows is not None:
            setting = Setting(rows, size, max(_length(row, size) for row in rows))
            if setting.height <= height or (len(rows) == 1 and size <= height):
                return setting
    return None


def with_typo(lines: Sequence[str], dice: Dice, keep: Iterable[str] = ()) -> tuple[str, ...]:
    """The lines with one letter of one of them changed, never into a line of ``lines`` or ``keep``.

    A digit is changed where there is no letter at all; without either, nothing is.
    """
    known = {*lines, *keep}
    for table in (_OTHER, _OTHER_DIGIT):
        options = [
            (number, place)
            for number, line in enumerate(lines)
            for place, char in enumerate(line)
            if char in table and line[:place] + table[char] + line[place + 1 :] not in known
        ]
        inside = [(n, p) for n, p in options if lines[n][p - 1 : p].isalpha() and lines[n][p + 1 : p + 2].isalpha()]
        options = inside or options
        if options:
            number, place = options[dice.pick("typo", len(options))]
            line = lines[number]
            wrong = line[:place] + table[line[place]] + line[place + 1 :]
            return (*lines[:number], wrong, *lines[number + 1 :])
    return tuple(lines)


def _sizes(largest: int, smallest: int) -> list[int]:
    """Sizes to try, from large to small."""
    sizes = []
    size = largest
    while size >= max(smallest, MIN_SIZE):
        sizes.append(size)
        size = min(size - 1, int(size * _SHRINK))
    return sizes


def _wrap(line: str, size: int, width: int) -> tuple[str, ...] | None:
    """As few rows as possible, of about the same length; ``None`` where a word is too long."""
    rows = _greedy(line, size, width)
    if rows is None:
        return None
    for narrower in range(95, 45, -5):
        even = _greedy(line, size, width * narrower // 100)
        if even is None or len(even) > len(rows):
            break
        rows = even
    return tuple(rows)


def _greedy(line: str, size: int, width: int) -> list[str] | None:
    rows: list[str] = []
    for word in line.split():
        if rows and _length(f"{rows[-1]} {word}", size) <= width:
            rows[-1] += f" {word}"
        elif _length(word, size) <= width:
            rows.append(word)
        else:
            return None
    return rows


def _length(text: str, size: int) -> int:
    scale = _scale(size)
    return int(font(size * scale).getlength(text) / scale + 2 * _stroke(size)) + 1


def _scale(size: int) -> int:
    """Small letters are drawn larger and scaled down: fitted to whole pixels, they lose their shapes and spaces."""
    return 4 if size < _FINE_BELOW else 1


def _stroke(size: int) -> float:
    """How much bolder than the font, in pixels; small letters would run into one another."""
    return size * _STROKE if size >= _BOLD_FROM else 0.0


@lru_cache(maxsize=4096)
def _has_glyph(char: str) -> bool:
    sample = font(40)
    return bytes(sample.getmask(char)) != bytes(sample.getmask(_NO_GLYPH))
