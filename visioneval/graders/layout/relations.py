"""Whether relations hold between places. Pure geometry: no image, no OCR.

A relation of several names is that of each two of them. Where a line stands in several places of an image, a relation
holds if it holds for all of them, and fails if it fails for all. It is undecided for what is in between, and close to a
boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, pairwise, product

from visioneval.graders.layout.places import Place
from visioneval.suite.relations import Relation, quoted

_APART, _TOGETHER = 0.25, 0.5
"""Two boxes share at most this part of the smaller side if one is above or beside the other, and at least this part if
they are in one row or column."""
_INSIDE, _OUTSIDE = 0.95, 0.8
"""The share of a line's box within a region from which it is inside, and below which it is not."""
LARGER = 1.1
"""Letters are larger if they are this many times as high."""

Places = Mapping[str, tuple[Place, ...]]
"""The places of each name: none of a line that was not read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a relation holds: ``None`` if that is undecided. ``why`` says why it does not hold, or is undecided, and
    ``between`` are the names that this is about."""

    relation: Relation
    holds: bool | None
    why: str = ""
    between: tuple[str, ...] = ()


def find(relation: Relation, places: Places, others: Sequence[Place], tolerance: float) -> Finding:
    """Looks at a relation. ``others`` are the places of all text, and ``tolerance`` is in pixels."""
    unread = [name for name in relation.names if not places[name]]
    failed: Finding | None = None
    undecided = Finding(relation, None, _not_read(unread), tuple(unread)) if unread else None
    for first, second, holds in _pairs(relation, others, tolerance):
        results = {holds(a, b) for a, b in product(places[first], places[second])}
        if not results or results == {(True, "")}:
            continue
        answers = {answer for answer, _ in results}
        why = min(text for answer, text in results if answer is not True)
        if answers == {False}:
            failed = failed or Finding(relation, False, _about(first, second, why), (first, second))
        elif len(answers) > 1 and max(len(places[first]), len(places[second])) > 1:
            name = first if len(places[first]) > 1 else second
            why = f"{quoted(name)} is there {len(places[name])} times, and not all of them are as asked"
            undecided = undecided or Finding(relation, None, why, (first, second))
        else:
            undecided = undecided or Finding(relation, None, _about(first, second, why), (first, second))
    return failed or undecided or Finding(relation, True)


Answer = tuple[bool | None, str]
"""Whether two places are as asked, and why not, about ``A`` and ``B``."""
Pair = Callable[[Place, Place], Answer]


def _pairs(relation: Relation, others: Sequence[Place], tolerance: float) -> Iterator[tuple[str, str, Pair]]:
    """The pairs of names of a relation, and what is asked of each."""
    names = relation.names
    if relation.kind == "order":
        yield from ((first, second, _before) for first, second in pairwise(names))
    elif relation.kind == "aligned":
        aligned = partial(_aligned, edge=relation.edge or "left", tolerance=tolerance)
        yield from ((first, second, aligned) for first, second in combinations(names, 2))
    elif relation.kind == "larger_than":
        yield from ((names[0], other, _larger) for other in names[1:])
    elif relation.kind == "inside":
        yield names[0], names[1], _inside
    else:
        first, second = names[::-1] if relation.kind == "below" else names
        holds = _left_of if relation.kind == "left_of" else _above
        yield first, second, partial(_directly, holds=holds, others=others) if relation.direct else holds


_SLANTED = "A or B is slanted, so that their boxes overlap"


def _above(a: Place, b: Place) -> Answer:
    shared = _shared(a.top, a.bottom, b.top, b.bottom)
    if shared > _APART and (a.is_slanted or b.is_slanted):
        return None, _SLANTED
    if a.top + a.bottom >= b.top + b.bottom and shared < _TOGETHER:
        return False, "A is below B"
    if shared >= _TOGETHER:
        return False, "A and B are in one row"
    return (True, "") if shared <= _APART else (None, "A and B overlap, so that neither is clearly above the other")


def _left_of(a: Place, b: Place) -> Answer:
    shared = _shared(a.left, a.right, b.left, b.right)
    if shared > _APART and (a.is_slanted or b.is_slanted):
        return None, _SLANTED
    if a.left + a.right >= b.left + b.right and shared < _TOGETHER:
        return False, "A is right of B"
    if shared >= _TOGETHER:
        return False, "A and B are not side by side"
    slack = 0.0 if a.readings & b.readings else max(a.slack, b.slack)  # the order of one reading's parts is sure
    if shared <= _APART and slack <= b.left - a.right + _APART * min(a.width, b.width):
        return True, ""
    return None, "A and B overlap, so that neither is clearly left of the other"


def _before(a: Place, b: Place) -> Answer:
    """By rows from top to bottom, and in a row from left to right."""
    shared = _shared(a.top, a.bottom, b.top, b.bottom)
    if shared > _APART and (a.is_slanted or b.is_slanted):
        return None, _SLANTED
    if shared >= _TOGETHER:
        beside, _ = _left_of(a, b)
        return beside, "" if beside else "A does not come before B in its row"
    is_lower, is_right = a.top + a.bottom >= b.top + b.bottom, a.left + a.right >= b.left + b.right
    if shared <= _APART or is_lower is is_right:
        return not is_lower, "A comes after B" if is_lower else ""
    return None, "A and B overlap, so that neither clearly comes first"


def _larger(a: Place, b: Place) -> Answer:
    if a.size is None or b.size is None:
        return None, "the size of letters cannot be measured"
    ratio, error = a.size / b.size, max(a.size_error, b.size_error, _other_shapes(a, b))
    sizes = f"A has about {a.size:.0f} px, B has about {b.size:.0f} px"
    if ratio >= LARGER + error:
        return True, ""
    return (False if ratio <= LARGER - error else None), sizes


_OTHER_SHAPES, _SIMILAR_SHAPES = 0.2, 0.12
"""How far the ratio of sizes may be off where the letters of two lines have other heights, such as capitals and small
ones, and where they are nearly as high, such as capitals and ascenders."""
_SIMILAR = 0.1


def _other_shapes(a: Place, b: Place) -> float:
    if a.extents == b.extents:
        return 0.0
    heights = (*a.extents, *b.extents)
    return _SIMILAR_SHAPES if max(heights) - min(heights) <= _SIMILAR else _OTHER_SHAPES


def _inside(a: Place, region: Place) -> Answer:
    share = _share_inside(a, region)
    if share >= _INSIDE:
        return True, ""
    most = max(_share_inside(replace(a, left=a.left + off, right=a.right + off), region) for off in (-a.slack, a.slack))
    return (False if max(share, most) < _OUTSIDE else None), f"{share:.0%} of A is inside B"


def _share_inside(a: Place, region: Place) -> float:
    width = max(0.0, min(a.right, region.right) - max(a.left, region.left))
    height = max(0.0, min(a.bottom, region.bottom) - max(a.top, region.top))
    return width * height / (a.width * a.height)


def _aligned(a: Place, b: Place, *, edge: str, tolerance: float) -> Answer:
    if edge == "center":
        apart = abs(a.left + a.right - b.left - b.right) / 2
    else:
        apart = abs(getattr(a, edge) - getattr(b, edge))
    error = max(a.edge_error, b.edge_error) + (0.0 if edge in ("top", "bottom") else max(a.slack, b.slack))
    if apart <= max(0.0, tolerance - error) or (apart <= tolerance and error <= 1):
        return True, ""
    where = "centers" if edge == "center" else f"{edge} edges"
    return (False if apart > tolerance + error else None), f"the {where} of A and B are {apart:.0f} px apart"


def _directly(a: Place, b: Place, *, holds: Pair, others: Sequence[Place]) -> Answer:
    """Whether a pair is as asked, and no other text is between the two."""
    answer, why = holds(a, b)
    if answer is False:
        return answer, why
    is_row = holds is _left_of
    doubt = False
    for other in others:
        if other.readings & (a.readings | b.readings):
            continue
        if is_row:
            beside = _shared(other.top, other.bottom, min(a.top, b.top), max(a.bottom, b.bottom))
        else:
            beside = _shared(other.left, other.right, min(a.left, b.left), max(a.right, b.right))
        if beside <= 0:
            continue
        between = {holds(a, other)[0], holds(other, b)[0]}
        if between == {True} and beside > _APART:
            return False, f'"{" ".join(other.texts)}" is between A and B'
        doubt = doubt or False not in between
    if answer and doubt:
        return None, "other text is perhaps between A and B"
    return answer, why


def _shared(start: float, end: float, other_start: float, other_end: float) -> float:
    """How much two spans have in common, as a share of the smaller one; below 0 if they are apart."""
    smaller = max(1.0, min(end - start, other_end - other_start))
    return (min(end, other_end) - max(start, other_start)) / smaller


def _about(first: str, second: str, why: str) -> str:
    """A reason about two names instead of A and B. What it quotes is text of the image, which may have these words."""
    names = {"A": quoted(first), "B": quoted(second)}
    quote, mark, rest = why.rpartition('"')
    words = [
        names.get(word.rstrip(","), word) + "," * (word.endswith(",") and word[:-1] in names)
        for word in rest.split(" ")
    ]
    return f"{quote}{mark}{' '.join(words)}"


def _not_read(names: Sequence[str]) -> str:
    return f"{' and '.join(map(quoted, names))} {'was' if len(names) == 1 else 'were'} not read"
