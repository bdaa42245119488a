"""Reads two runs and compares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from visioneval.analysis.compare.compare import Comparison, compare
from visioneval.analysis.compare.filters import ComparisonFilters
from visioneval.analysis.compare.gates import FailOn
from visioneval.analysis.run_lookup import Warn, read_side
from visioneval.analysis.sides import newest_run, with_built_in


def compare_stored(
    a: str,
    b: str,
    runs: Path,
    gates: Sequence[FailOn],
    *,
    filters: ComparisonFilters,
    model_map: Sequence[str] = (),
    is_confirmed: bool = False,
    warn: Warn,
) -> Comparison:
    """Compares two sides, named as for ``read_side``; the metrics that ``gates`` name are among its metrics.

    Of a baseline of several runs as B, the newest run counts.

    ``is_confirmed``: B's samples of an earlier confirmation are used. Raises ``UsageError`` and ``RunFormatError``.
    """
    named = (*filters.metrics, *(gate.metric or "" for gate in gates))
    first, second = (with_built_in(read_side(name, runs, warn), named) for name in (a, b))
    second = newest_run(second)
    if is_confirmed:
        second = replace(second, unused_confirmations=False)
    return compare(first, second, filters, model_map)
