"""The mock's text: Pillow's built-in font, lines fitted to a box, and typos.

Dashes and bullets, which the font lacks, are plain shapes. Any other missing character is an error: an image with a
placeholder box would be graded as if a model had generated it.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont, features

from visioneval.errors import ProviderError
from visioneval.media import is_ignorable

Color = tuple[int, int, int]

MIN_SIZE = 10
"""Pixels: smaller letters are hard to read for people and for OCR."""

_PITCH = 1.24
_STROKE = 0.022
_BOLD_FROM = 16
_FINE_BELOW = 40
_SHRINK = 0.95
_NO_GLYPH = "\uffff"  # a noncharacter: what every font shows for it is its sign for a missing glyph

_SHAPES = {"–": 0.52, "—": 0.86, "•": 0.42}  # noqa: RUF001 - the characters themselves
"""Characters that are drawn as shapes: their widths as shares of the letter size."""

_FINE_SIGNS = ("™",)
"""Signs whose glyphs are so small that a stroke would fill them."""

# Each letter maps to one with another shape, so that no reader can confuse them.
_LETTER_TYPOS = {
    **dict.fromkeys("OQCGDSUJ", "K"),
    **dict.fromkeys("ILTEFHN", "O"),
    **dict.fromkeys("AVWXYKMZ", "B"),
    **dict.fromkeys("BPR", "T"),
    **dict.fromkeys("oceasuqdgbpr", "k"),
    **dict.fromkeys("iltfj", "m"),
    **dict.fromkeys("vwxyzk", "a"),
    **dict.fromkeys("hnm", "z"),
}
_DIGIT_TYPOS = {**dict.fromkeys("0356892", "4"), **dict.fromkeys("147", "8")}


class Dice:
    """Random numbers that depend only on the seed and a name."""

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
    """A fitted line of copy: its rows and letter size, in pixels."""

    rows: tuple[str, ...]
    size: int
    width: int

    @property
    def pitch(self) -> int:
        """The distance between rows."""
        return round(self.size * _PITCH)

    @property
    def height(self) -> int:
        """The height of all rows."""
        return self.pitch * len(self.rows)

    def draw(self, image: Image.Image, x: float, top: float, align: str, colour: Color) -> None:
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
            _draw_row(pen, (start, baseline), row, size, align, _stroke(self.size) * scale)
        image.paste(colour, (round(left), round(top - self.size / 2)), mask.reduce(scale) if scale > 1 else mask)


def _draw_row(
    pen: ImageDraw.ImageDraw, at: tuple[float, float], row: str, size: int, align: str, stroke: float
) -> None:
    """Draws a row at ``at``, its left end (``align`` "l") or its middle ("m") on the baseline."""
    if _SHAPES.keys().isdisjoint(row):
        weight = 0 if row in _FINE_SIGNS else stroke
        pen.text(at, row, 255, font(size), f"{align}s", stroke_width=weight)
        return
    left, baseline = at[0] - (_row_length(row, size) / 2 if align == "m" else 0), at[1]
    for part in _row_parts(row):
        width = _row_length(part, size)
        if part == "•":
            middle, radius = left + width / 2, 0.13 * size
            pen.ellipse(
                (middle - radius, baseline - 0.35 * size - radius, middle + radius, baseline - 0.35 * size + radius),
                255,
            )
        elif part in _SHAPES:
            pen.rectangle(
                (left + 0.04 * size, baseline - 0.3 * size, left + width - 0.04 * size, baseline - 0.23 * size), 255
            )
        else:
            pen.text((left, baseline), part, 255, font(size), "ls", stroke_width=stroke)
        left += width


def _row_parts(row: str) -> list[str]:
    """The row, split before and after each shape."""
    return [part for part in re.split(f"([{''.join(_SHAPES)}])", row) if part]


def _row_length(row: str, size: int) -> float:
    """The width of a row in pixels, without its stroke."""
    return sum(_SHAPES[part] * size if part in _SHAPES else font(size).getlength(part) for part in _row_parts(row))


@lru_cache(maxsize=256)
def font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's built-in font. Raises ``ProviderError`` if Pillow was built without FreeType."""
    if not features.check("freetype2"):
        raise ProviderError("mock needs a Pillow build with FreeType support", kind="invalid")
    default = ImageFont.load_default(size)
    assert isinstance(default, ImageFont.FreeTypeFont)
    # The other layout engine is not available everywhere, and the same request must give the same image.
    return default.font_variant(layout_engine=ImageFont.Layout.BASIC)


def tidy(lines: Iterable[str]) -> tuple[str, ...]:
    """Normalizes lines and drops empty ones. Raises ``ProviderError`` for characters that the font lacks."""
    cleaned = []
    for line in lines:
        visible = (char for char in unicodedata.normalize("NFC", line) if char.isspace() or not is_ignorable(char))
        text = " ".join("".join(visible).split())
        lacking = sorted({char for char in text if char not in _SHAPES and not _has_glyph(char)})
        if lacking:
            chars = ", ".join(f"{ascii(char)[1:-1]} ({unicodedata.name(char, 'no name')})" for char in lacking)
            hint = "write it in unaccented Latin letters, such as EUR for the euro sign"
            raise ProviderError(f"mock: the font has no glyph for {chars} in the line {line!r}: {hint}", kind="invalid")
        if text:
            cleaned.append(text)
    return tuple(cleaned)


def set_line(line: str, size: int, width: int) -> Setting | None:
    """The line in one row at ``size`` or slightly smaller, else wrapped; ``None`` if it does not fit ``width``."""
    for smaller in _sizes(size, round(size * 0.72)):
        if _length(line, smaller) <= width:
            return Setting((line,), smaller, _length(line, smaller))
    for smaller in _sizes(round(size * 0.9), MIN_SIZE):
        rows = _wrap(line, smaller, width)
        if rows is not None:
            return Setting(rows, smaller, max(_length(row, smaller) for row in rows))
    return None


def fit_box(line: str, width: int, height: int, largest: int) -> Setting | None:
    """The line as large as the box allows, up to ``largest``; ``None`` if it would be unreadably small."""
    for size in _sizes(min(largest, height), MIN_SIZE):
        rows = _wrap(line, size, width)
        if rows is not None:
            setting = Setting(rows, size, max(_length(row, size) for row in rows))
            if setting.height <= height or (len(rows) == 1 and size <= height):
                return setting
    return None


def with_typo(lines: Sequence[str], dice: Dice, excluded: Iterable[str] = ()) -> tuple[str, ...]:
    """The lines with one letter of one of them changed, never into a line of ``lines`` or ``excluded``.

    Without letters, a digit is changed; without both, nothing.
    """
    known = {*lines, *excluded}
    for table in (_LETTER_TYPOS, _DIGIT_TYPOS):
        options = [
            (number, position)
            for number, line in enumerate(lines)
            for position, char in enumerate(line)
            if char in table and line[:position] + table[char] + line[position + 1 :] not in known
        ]
        inner = [(n, i) for n, i in options if lines[n][i - 1 : i].isalpha() and lines[n][i + 1 : i + 2].isalpha()]
        options = inner or options
        if options:
            number, position = options[dice.pick("typo", len(options))]
            line = lines[number]
            wrong = line[:position] + table[line[position]] + line[position + 1 :]
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
    """As few rows as possible, of similar length; ``None`` if a word is too long."""
    rows = _wrap_greedily(line, size, width)
    if rows is None:
        return None
    for narrower in range(95, 45, -5):
        even = _wrap_greedily(line, size, width * narrower // 100)
        if even is None or len(even) > len(rows):
            break
        rows = even
    return tuple(rows)


def _wrap_greedily(line: str, size: int, width: int) -> list[str] | None:
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
    return int(_row_length(text, size * scale) / scale + 2 * _stroke(size)) + 1


def _scale(size: int) -> int:
    """Small letters are rendered larger and scaled down: hinting would distort their shapes and spaces."""
    return 4 if size < _FINE_BELOW else 1


def _stroke(size: int) -> float:
    """Additional stroke width in pixels; none for small letters, which would touch."""
    return size * _STROKE if size >= _BOLD_FROM else 0.0


@lru_cache(maxsize=4096)
def _has_glyph(char: str) -> bool:
    sample = font(40)
    return bytes(sample.getmask(char)) != bytes(sample.getmask(_NO_GLYPH))
