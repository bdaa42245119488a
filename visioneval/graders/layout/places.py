"""Where the required lines stand on an image: the places of the readings that show them. Pure: no image, no OCR.

The boxes of OCR have a margin around the letters, which is taken off. A line that is a part of a reading, as the label
in "Total $48.20", gets its part of the box, by the widths of usual letters. So its left and right ends are less exact.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import dist
from statistics import median

from visioneval.errors import GraderError
from visioneval.graders.base import GradingContext
from visioneval.graders.layout import LinesGrader
from visioneval.graders.text import TextGrader
from visioneval.graders.text.check import CopyCheck
from visioneval.graders.text.grader import Text
from visioneval.graders.text.layout import Corners, Reading
from visioneval.graders.text.match import Match, Page, copy_of, covered, occurrences, page_of, simplest_first
from visioneval.graders.text.missing import CopyPair, Lines
from visioneval.suite.case import ExpectText

MARGIN = 0.17
"""The margin of a box above and below its letters, as a share of its height, and ``SIDE_MARGIN`` beside them."""
SIDE_MARGIN = 0.13
MAX_PLACES = 30
"""The most places of a line that are looked at."""
_RUNS_UP = 1.5
"""A box of several letters that is this many times as high as wide is a line that runs up or down."""
_NARROW, _WIDE = frozenset("iljtfrI.,:;!|'()[] "), frozenset("mwMW@%—")


BOX_SIZE_ERROR, INK_SIZE_ERROR = 0.35, 0.08
"""How far the ratio of two sizes may be off, by the boxes of OCR and by the ink."""
_BOX_EDGE_ERROR = 0.1
"""How far an edge of a box may be off, as a share of its height."""


_SLANT = 0.18
"""A line that is steeper, by a tenth of a right angle, is slanted."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line stands: the upright box around its letters in pixels, and the corners that OCR found.

    ``size`` is the height of the font in pixels; ``None`` for a region. ``slack`` is how far the left and right ends
    of a part of a reading may be off, ``size_error`` how far the size may be off as a share, and ``edge_error`` the
    edges in pixels.
    """

    left: float
    top: float
    right: float
    bottom: float
    size: float | None = None
    corners: tuple[Corners, ...] = ()
    texts: tuple[str, ...] = ()
    readings: frozenset[int] = frozenset()
    slack: float = 0.0
    size_error: float = BOX_SIZE_ERROR
    edge_error: float = 0.0

    @property
    def width(self) -> float:
        """At least a pixel."""
        return max(self.right - self.left, 1.0)

    @property
    def height(self) -> float:
        """At least a pixel."""
        return max(self.bottom - self.top, 1.0)

    @property
    def is_slanted(self) -> bool:
        """Whether a part of it runs neither level nor straight up or down, so that its upright box is too large."""
        slopes = (sorted((abs(b[0] - a[0]), abs(b[1] - a[1]))) for a, b, _, _ in self.corners)
        return any(low > _SLANT * max(high, 1.0) for low, high in slopes)

    @property
    def extents(self) -> tuple[float, ...]:
        """How high the ink of its texts is, as shares of the font size."""
        return tuple(sorted({extent(text) for text in self.texts}))


@dataclass(frozen=True, slots=True)
class FoundLines:
    """What OCR found: the places of each required line, none if it was not read, and those of all other readings."""

    places: Mapping[str, tuple[Place, ...]]
    others: tuple[Place, ...]
    """Of readings that count and have more than one letter or digit."""
    tool_versions: Mapping[str, str]


async def find_lines(context: GradingContext, config: LinesGrader, expected: ExpectText) -> FoundLines:
    """Reads the output as a grader ``text`` with defaults does, by the same cached measures. Raises ``GraderError``."""
    if context.generated.is_video:
        raise GraderError("this grader looks at images only, but the output is a video")
    reader = Text(TextGrader(type="text", key=config.key, min_confidence=config.min_confidence))
    _, text, comparison = await reader.read(context, expected)
    return await asyncio.to_thread(
        found_lines, text.readings, expected, comparison, config.min_confidence, text.tool_versions
    )


def found_lines(
    readings: Sequence[Reading],
    expected: ExpectText,
    comparison: CopyCheck,
    min_confidence: float,
    tool_versions: Mapping[str, str],
) -> FoundLines:
    """The places of the required lines by a comparison of readings."""
    page = page_of(readings, Lines.of(expected, fold=True).all, fold=True, min_confidence=min_confidence)
    assigned = [pair for pair in (*comparison.matched, *comparison.unsettled) if pair.spans and pair.doubt != "unread"]
    places: dict[str, tuple[Place, ...]] = {}
    for line in dict.fromkeys(expected.required):
        matches = _matches(page, line, assigned)
        places[line] = tuple(_place(page, match) for match in matches)
    others = [
        _place(page, ((index, 0, page.length(index)),)) for index in page.counted if _is_text(readings[index].text)
    ]
    return FoundLines(places, tuple(others), tool_versions)


def _is_text(text: str) -> bool:
    """Whether it has more than one letter or digit: a single one may be an icon."""
    return sum(map(str.isalnum, text)) > 1


def _matches(page: Page, line: str, assigned: Sequence[CopyPair]) -> list[Match]:
    """Where a line is: all places that show it and no other required line. If some show nothing but the line, and
    perhaps a number or marks, these."""
    copy = copy_of(line, fold=True)
    own = [pair.spans for pair in assigned if pair.line == copy.text]
    if not own:
        return []
    taken = covered(pair.spans for pair in assigned if pair.line != copy.text)
    is_alike = not any(pair.line == copy.text and pair.doubt is None for pair in assigned)
    matches: list[Match] = []
    for match in [*own, *simplest_first(page, occurrences(page, copy.chars, alike=is_alike))]:
        characters = covered([match])
        if match in own or characters.isdisjoint(taken):
            if match not in matches:
                matches.append(match)
            taken |= characters
    alone = [match for match in matches if not _has_other_letters(page, match)]
    return (alone or matches)[:MAX_PLACES]


def _has_other_letters(page: Page, match: Match) -> bool:
    """Whether a reading of the match has letters that are no part of it."""
    parts = covered([match])
    return any(
        char.isalpha() and (index, position) not in parts
        for index, _, _ in match
        for position, char in enumerate(page.copies[index].chars)
    )


def _place(page: Page, match: Match) -> Place:
    """The place of a match, around all of its parts."""
    parts = [_part(page.readings[index], *_share(page, index, start, end)) for index, start, end in match]
    return replace(
        Place(
            min(part.left for part in parts),
            min(part.top for part in parts),
            max(part.right for part in parts),
            max(part.bottom for part in parts),
        ),
        size=median(part.size or 0.0 for part in parts),
        corners=tuple(corners for part in parts for corners in part.corners),
        texts=tuple(text for part in parts for text in part.texts),
        readings=frozenset(index for index, _, _ in match),
        slack=max(part.slack for part in parts),
        edge_error=max(part.edge_error for part in parts),
    )


def _share(page: Page, index: int, start: int, end: int) -> tuple[float, float, str]:
    """Where compared characters begin and end in the width of a reading, 0 to 1, and their text."""
    copy = page.copies[index]
    if start == 0 and end == len(copy.chars):
        return 0.0, 1.0, copy.text
    first, last = copy.source[start], copy.source[end - 1] + 1
    total = sum(map(_width, copy.text)) or 1.0
    return (
        sum(map(_width, copy.text[:first])) / total,
        sum(map(_width, copy.text[:last])) / total,
        copy.text[first:last],
    )


def _width(char: str) -> float:
    """The width of a character in usual typefaces, relative to others."""
    if unicodedata.east_asian_width(char) in "WF":
        return 2.0
    if char in _NARROW:
        return 0.5
    return 1.5 if char in _WIDE else 1.25 if char.isupper() else 1.0


def _part(reading: Reading, start: float, end: float, text: str) -> Place:
    """The place of a part of a reading, in shares of its width."""
    if reading.corners is None:
        raise GraderError("OCR gave no place for a line")
    a, b, c, d = reading.corners
    long, high = (dist(a, b) + dist(d, c)) / 2, (dist(a, d) + dist(b, c)) / 2
    is_part = (start, end) != (0.0, 1.0)
    if high >= _RUNS_UP * long and len(text.strip()) > 1:
        long, high = high, long
        if is_part:
            a, b, c, d = _between(a, d, start), _between(b, c, start), _between(b, c, end), _between(a, d, end)
    elif is_part:
        a, b, c, d = _between(a, b, start), _between(a, b, end), _between(d, c, end), _between(d, c, start)
    corners = _pixels(a), _pixels(b), _pixels(c), _pixels(d)
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    is_wide = max(xs) - min(xs) >= max(ys) - min(ys)
    beside, above = (SIDE_MARGIN * high, MARGIN * high) if is_wide else (MARGIN * high, SIDE_MARGIN * high)
    return Place(
        min(xs) + beside,
        min(ys) + above,
        max(xs) - beside,
        max(ys) - above,
        size=round(high * (1 - 2 * MARGIN) / extent(text), 1),
        corners=(corners,),
        texts=(text,),
        slack=high if is_part else 0.0,
        edge_error=_BOX_EDGE_ERROR * high,
    )


Point = tuple[float, float]


def _between(first: Point, second: Point, share: float) -> Point:
    return first[0] + (second[0] - first[0]) * share, first[1] + (second[1] - first[1]) * share


def _pixels(point: Point) -> Point:
    return round(point[0], 1), round(point[1], 1)


_ASCENDING = frozenset("bdfhklij!?&%@#€£()[]{}|/\"'")
_DESCENDING, _BELOW = frozenset("gjpqy()[]{}|"), frozenset("Q,;$/@")
_ASCENT, _CAPITAL, _SMALL, _DESCENT, _LITTLE = 0.74, 0.72, 0.53, 0.21, 0.13
"""Heights in usual typefaces, as shares of the font size: of ascenders, capitals and small letters, and of what reaches
below the line, as descenders do or a little."""


def extent(text: str) -> float:
    """The height of a text's ink in usual typefaces, as a share of the font size."""
    letters = [char for char in unicodedata.normalize("NFD", text) if not char.isspace()]
    if any(unicodedata.east_asian_width(char) in "WF" for char in letters):
        return 0.9
    has_capitals = any(char.isupper() or char.isdigit() for char in letters)
    if any(char in _ASCENDING for char in letters):
        top = _ASCENT
    else:
        top = _SMALL if not has_capitals and any(char.isalpha() for char in letters) else _CAPITAL
    below = _DESCENT if any(char in _DESCENDING for char in letters) else 0.0
    return top + (below or (_LITTLE if any(char in _BELOW for char in letters) else 0.0))
