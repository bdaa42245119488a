"""The sweep: expands a model entry with a grid into many model runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Self


class WrittenFloat(float):
    """A number that remembers its text in the suite, so that labels keep ``1.10`` unchanged."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number


def as_written(value: object) -> str:
    """A parameter's value in a label."""
    if isinstance(value, WrittenFloat):
        return value.text
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def grid_sweep(
    base: str, params: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]
) -> list[tuple[str, dict[str, Any]]]:
    """The Cartesian product of ``grid`` over ``params``, as ``(label, params)`` in the grid's order.

    The last key varies fastest. A label is ``base,key=value,...`` with values as written in the suite; without a
    grid, it is ``base``.
    """
    runs = []
    for values in product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        label = ",".join([base, *(f"{key}={as_written(value)}" for key, value in chosen.items())])
        runs.append((label, {**params, **chosen}))
    return runs
