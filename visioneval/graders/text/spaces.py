"""Compares the spaces of a found line, which the search ignores, with those that were read and measured.

Where another space was read than expected, the line is looked at once more: what it says then, and the gaps between its
glyphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

from PIL import Image, ImageOps

from visioneval.graders.text import networks, ocr
from visioneval.graders.text.glyphs import Gap, gaps
from visioneval.graders.text.layout import Reading, in_one_row
from visioneval.graders.text.match import Copy, Match, copy_of, is_ideographic, skeleton
from visioneval.media.images import load_image, room_for
from visioneval.media.opencv import portable_opencv

Kind = Literal["missing", "added", "unclear"]

_THIN = frozenset("\u2006\u2007\u2008\u2009\u200a\u202f\u205f")
"""Expected spaces that may be set as any other, or left out."""
_MIN_SPACED = 2
"""So many spaces within words, and no two letters of a word without one, are letter spacing."""


@dataclass(frozen=True, slots=True)
class SpaceFinding:
    """A place of a found line whose space is missing, added or unclear.

    ``words`` are the two words of the line around an expected space, or the one in which none is expected.
    """

    line: str
    kind: Kind
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A place between two characters of a line, and before which character of which reading it is."""

    position: int
    reading: int
    offset: int
    is_expected: bool
    is_read: bool


def findings(
    line: Copy, match: Match, readings: Sequence[Reading], *, fold: bool, looks: Mapping[int, LineLook | None] | None
) -> Iterator[SpaceFinding]:
    """The places of a line whose spaces are not as expected, or cannot be told.

    With ``looks``, second looks at readings by their index, a space is as expected where it was read so, where all
    looks read it so, and where one does and the gap does not contradict; wrong where none does and the gap agrees.
    Without, what was read decides. Letter spacing and a word that continues in another row are layout.
    """
    places = [place for place in _places(line, match, readings, fold=fold) if not _is_free(line, place.position)]
    within = [place.is_read for place in places if not place.is_expected]
    if len(within) >= _MIN_SPACED and all(within):
        return
    for place in places:
        if place.is_read != place.is_expected:
            kind = _wrong(place) if looks is None else _kind(place, looks.get(place.reading))
            if kind is not None:
                yield SpaceFinding(line.text, kind, _words(line, place.position))


def _kind(place: _Place, look: LineLook | None) -> Kind | None:
    """What second looks say of a place with another space than expected."""
    if look is None or not place.offset:
        return "unclear"
    copies = [copy_of(text, fold=True) for text in look.texts]
    before = sum(not char.isspace() for char in copies[0].text[: copies[0].source[place.offset]])
    gap = look.gaps[before - 1] if 0 < before <= len(look.gaps) else "unclear"
    is_contradicted = gap == ("none" if place.is_expected else "space")
    as_expected = [(place.offset in copy.gaps) == place.is_expected for copy in copies]
    if any(as_expected):
        return "unclear" if is_contradicted and not all(as_expected) else None
    return _wrong(place) if is_contradicted else "unclear"


def _wrong(place: _Place) -> Kind:
    return "missing" if place.is_expected else "added"


def _places(line: Copy, match: Match, readings: Sequence[Reading], *, fold: bool) -> Iterator[_Place]:
    """The places of a line. Where it continues in another reading, there is a space; none counts where a word does in
    another row."""
    position = 0
    for number, (index, start, end) in enumerate(match):
        gaps = _gaps_as_read(readings[index], fold=fold)
        for offset in range(start, end):
            is_expected = position in line.gaps
            is_read = offset in gaps
            if number and offset == start:
                is_read = is_expected or in_one_row(readings[match[number - 1][0]], readings[index])
            if position:
                yield _Place(position, index, offset, is_expected, is_read)
            position += 1


def _gaps_as_read(reading: Reading, *, fold: bool) -> Set[int]:
    """The compared characters before which white space was read; of a text that was weighed, that of what was read."""
    copy = copy_of(reading.text, fold=fold)
    if reading.read_as is None:
        return copy.gaps
    read = copy_of(reading.read_as, fold=fold)
    blocks = SequenceMatcher(None, read.chars, copy.chars, autojunk=False).get_matching_blocks()
    before = {gap: [block for block in blocks if block.a <= gap][-1:] for gap in read.gaps}
    return {gap + sum(block.b - block.a for block in last) for gap, last in before.items()}


def _is_free(line: Copy, position: int) -> bool:
    """Whether a space may be there or not: beside a sign of a script without spaces, and for a thin space."""
    if any(map(is_ideographic, line.chars[position - 1 : position + 1])):
        return True
    return not _THIN.isdisjoint(line.text[line.source[position - 1] : line.source[position]])


def _words(line: Copy, position: int) -> tuple[str, ...]:
    """The words of a line around a space, or the word around another place."""
    before, after = line.text[: line.source[position]], line.text[line.source[position] :]
    first, second = before.split()[-1], after.split()[0]
    return (first, second) if position in line.gaps else (first + second,)


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
        images = ocr.on_backgrounds(loaded)
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
