"""The sweep: one model entry with a grid becomes many model runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from visioneval.suite.providers import as_written


def grid_sweep(
    base: str, params: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]
) -> list[tuple[str, dict[str, Any]]]:
    """The cartesian product of ``grid`` over ``params``, as ``(label, params)`` in the grid's order.

    The last key varies fastest. A label is ``base,key=value,...`` with values as the suite wrote them; without
    a grid it is ``base`` alone.
    """
    runs = []
    for values in product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        label = ",".join([base, *(f"{key}={as_written(value)}" for key, value in chosen.items())])
        runs.append((label, {**params, **chosen}))
    return runs
