"""Where the lines of an image must stand: relations between required lines and named regions, and their problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from visioneval.errors import did_you_mean
from visioneval.types import Frozen

KINDS = ("above", "below", "left_of", "larger_than", "inside", "order", "aligned")
"""The keys of relations."""
MAX_RELATIONS = 200
"""Of a case."""
_CAN_BE_DIRECT = ("above", "below", "left_of")
Edge = Literal["left", "right", "center", "top", "bottom"]
Names = Sequence[str]

_Name = Annotated[str, StringConstraints(min_length=1)]
_Two = Annotated[tuple[_Name, ...], Field(min_length=2, max_length=2)]
_Several = Annotated[tuple[_Name, ...], Field(min_length=2)]
_Side = Annotated[float, Field(ge=0, le=1)]


def _check_area(sides: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    left, top, right, bottom = sides
    if left >= right or top >= bottom:
        raise ValueError("a region is [left, top, right, bottom]: left must be below right, and top below bottom")
    return sides


Region = Annotated[tuple[_Side, _Side, _Side, _Side], AfterValidator(_check_area)]
"""Left, top, right and bottom, as shares of the width and the height of the image."""


def quoted(name: str) -> str:
    """A line or a region in a message, in one line."""
    return f'"{" ".join(name.split())}"'


class Relation(Frozen):
    """One relation. A name is a required line, or a region of the case."""

    above: _Two | None = Field(
        default=None,
        description="`[A, B]`: A is higher than B, in another row. Two lines that share half of the height of the "
        "smaller one are in one row.",
    )
    below: _Two | None = Field(default=None, description="`[A, B]`: A is lower than B, in another row.")
    left_of: _Two | None = Field(default=None, description="`[A, B]`: A ends where B begins, or before.")
    larger_than: _Several | None = Field(
        default=None,
        description="`[A, B, ...]`: the font of line A is at least 1.1 times as large as that of each other line, by "
        "the height of the ink and the shapes of the letters.",
    )
    inside: _Two | None = Field(default=None, description="`[A, REGION]`: line A is inside a region.")
    order: _Several | None = Field(
        default=None,
        description="`[A, B, ...]`: they are read in this order: by rows, and from left to right in a row.",
    )
    aligned: _Several | None = Field(default=None, description="`[A, B, ...]`: they have an `edge` in common.")
    edge: Edge | None = Field(
        default=None, description="With `aligned`: the edge. `center` is the middle between left and right."
    )
    direct: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="With `above`, `below` and `left_of`: `true` allows no other text between the two, within their "
        "width (with `left_of`: height), and not in their rows. Shapes do not count, nor does a single letter or "
        "digit, which may be an icon.",
    )

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            given = " and ".join(kinds) or "none"
            raise ValueError(f"a relation has exactly one of {', '.join(KINDS)}, but this one has {given}")
        if self.edge is None and self.aligned is not None:
            raise ValueError("aligned needs an edge: left, right, center, top or bottom")
        if self.edge is not None and self.aligned is None:
            raise ValueError("edge is for aligned only")
        if self.direct and self.kind not in _CAN_BE_DIRECT:
            raise ValueError(f"direct is for {', '.join(_CAN_BE_DIRECT)} only")
        return self

    @property
    def kind(self) -> str:
        """Its key."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """The lines and regions that it is about, in the order of the suite."""
        names: tuple[str, ...] = getattr(self, self.kind)
        return names

    @property
    def text(self) -> str:
        """The relation in words."""
        first, *others = map(quoted, self.names)
        rest = ", ".join(others)
        if self.kind == "order":
            return f"{first}, {rest} in this order"
        if self.kind == "aligned":
            return f"{first}, {rest} aligned at {'the center' if self.edge == 'center' else f'the {self.edge}'}"
        return f"{first} {'directly ' if self.direct else ''}{self.kind.replace('_', ' ')} {rest}"


def relation_problems(
    relations: Sequence[Relation], required: Names, regions: Mapping[str, Region]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Names that are neither a required line nor a region, and relations that contradict each other.

    Yields the place below ``expect``, and a message.
    """
    used = {name for relation in relations for name in relation.names}
    for name in regions:
        if name in required:
            yield ("regions", name), f"{name!r} is also a required line: rename the region"
        elif name not in used:
            yield ("regions", name), f"no relation of expect.layout names the region {name!r}: remove it, or use it"
    known = True
    for at, relation in enumerate(relations):
        for loc, message in _name_problems(relation, required, regions):
            known = False
            yield ("layout", at, relation.kind, *loc), message
    if known:
        yield from _contradictions(relations)


def _name_problems(
    relation: Relation, required: Names, regions: Mapping[str, Region]
) -> Iterator[tuple[tuple[int, ...], str]]:
    names = relation.names
    for at, name in enumerate(names):
        if name not in required and name not in regions:
            hint = did_you_mean(name, [*required, *regions])
            yield (at,), f"{name!r} is neither a line of expect.text.required nor a region of expect.regions{hint}"
        elif name in names[:at]:
            yield (at,), f"{name!r} is named twice in this relation"
        elif relation.kind == "inside" and (name in regions) is (at == 0):
            yield (at,), f"inside takes a line and a region, in this order, but {name!r} is a {_sort(name, regions)}"
        elif relation.kind == "larger_than" and name in regions:
            yield (at,), f"larger_than compares letters, but {name!r} is a region"
        elif at and all(other in regions for other in names):
            yield (), "all names are regions, so no image can change this relation: name a line"
            return


def _sort(name: str, regions: Mapping[str, Region]) -> str:
    return "region" if name in regions else "line"


Step = tuple[str, str]
"""The name that comes first, and the one that comes after it."""


def _contradictions(relations: Sequence[Relation]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Relations that no image can satisfy together with those before them."""
    rows: set[Step] = set()
    reading: set[Step] = set()
    columns: set[Step] = set()
    sizes: set[Step] = set()
    for at, relation in enumerate(relations):
        steps = _steps(relation)
        graphs = {"above": (rows, reading), "below": (rows, reading), "order": (reading,), "left_of": (columns,)}
        graphs["larger_than"] = (sizes,)
        for graph in graphs.get(relation.kind, ()):
            graph.update(steps)
        circle = next(filter(None, map(_circle, (reading, columns, sizes))), None)
        apart = _cannot_align(relations[: at + 1], rows, columns)
        if circle:
            names = ", ".join(repr(name) for name in circle)
            yield (
                ("layout", at),
                f"no image can satisfy this relation and those before it: {names} and again {circle[0]!r}",
            )
            return
        if apart:
            names = f"{apart[0]!r} and {apart[1]!r}"
            yield (
                ("layout", at),
                f"no image can satisfy this relation and those before it: {names} are aligned and apart",
            )
            return


def _steps(relation: Relation) -> list[Step]:
    names = relation.names
    if relation.kind == "below":
        return [(names[1], names[0])]
    if relation.kind == "order":
        return list(pairwise(names))
    return [(names[0], other) for other in names[1:]]


def _circle(steps: set[Step]) -> list[str] | None:
    """Names of which each comes before the next, and the last before the first."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for first, second in sorted(steps):
        sorter.add(second, first)
    try:
        sorter.prepare()
    except CycleError as error:
        names: list[str] = error.args[1][:-1]
        return names
    return None


def _cannot_align(relations: Sequence[Relation], rows: set[Step], columns: set[Step]) -> Step | None:
    """Two names that are aligned at an edge, of which one stands above or beside the other."""
    for relation in relations:
        if relation.aligned is not None:
            apart = rows if relation.edge in ("top", "bottom") else columns
            for first, second in sorted(apart):
                if first in relation.aligned and second in relation.aligned:
                    return first, second
    return None
