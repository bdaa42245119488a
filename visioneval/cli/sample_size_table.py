"""Prints how many cases and samples detect a difference, and what they cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console

from visioneval.analysis.sample_size import MAX_CASES, Detect
from visioneval.counted import count_of
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import plain
from visioneval.running.sizes import SampleSize, SampleSizes


def print_sizes(sizes: SampleSizes, console: Console) -> None:
    """Prints a row for each number of samples, what the suite itself detects, and what the numbers refer to."""
    columns = [Column(name, right=True) for name in ("samples", "cases needed", "cells", "cost")]
    rows: list[list[Cell]] = [
        [str(row.samples), *_numbers(row), _cost(row, has_costs=sizes.has_costs)] for row in sizes.rows
    ]
    title = f"To detect {_size(sizes.detect, sizes.detect.difference)} with {sizes.power:.0%} power"
    console.print()
    console.print(with_title(title, table(columns, rows, console.width)))
    console.print(plain(suite_line(sizes), "bold"))
    for line in _meaning(sizes):
        console.print(plain(line))


def suite_line(sizes: SampleSizes) -> str:
    """``your 40 cases x 3 samples detect 9.8 points``."""
    cases = f"your {count_of(sizes.cases, 'case')} x {count_of(sizes.samples, 'sample')}"
    flaky = f" (without {sizes.flaky:,} flaky)" if sizes.flaky else ""
    verb = "detects" if sizes.cases == 1 else "detect"
    size = "no difference" if sizes.detectable is None else _size(sizes.detect, sizes.detectable)
    return f"{cases}{flaky} {verb} {size}"


def _size(detect: Detect, difference: float) -> str:
    """``9.8 points``, or a difference of the metric in its unit."""
    of_metric = "" if detect.metric is None else f" of {detect.metric}"
    if detect.kind.type != "bool":
        return f"{difference:.3g}{of_metric}"
    points = f"{difference * 100:.3g}"
    return f"{points} point{'s' * (points != '1')}{of_metric}"


def _numbers(row: SampleSize) -> tuple[str, str]:
    if row.cases is None or row.cells is None:
        return f"over {MAX_CASES:,}", "-"
    return f"{row.cases:,}", f"{row.cells:,}"


def _cost(row: SampleSize, *, has_costs: bool) -> str:
    if not has_costs:
        return "none"
    if row.cases is None:
        return "-"
    return "unknown" if row.usd is None else f"{row.usd:,.2f} USD"


def _meaning(sizes: SampleSizes) -> tuple[str, ...]:
    detect = sizes.detect
    models = f", over its {sizes.model_runs:,} model runs together" if sizes.model_runs > 1 else ""
    comparison = f"A comparison of two runs of this suite, paired by case{models},"
    if detect.metric is None:
        what = (
            f"{comparison} tests the pass rate at the 5% level. The rows are equal if samples vary. If whole cases"
            " break instead, more samples help less: 8 samples then find the difference in about 70%."
        )
    else:
        what = (
            f"{comparison} tests {count_of(detect.family, 'metric')} at 5% together: {detect.metric} at the"
            f" {detect.level * 100:.2g}% level, the first of Holm's procedure."
        )
    cases = "cases that have the metric" if detect.metric else "cases"
    return (
        f"{what} Each of the two runs needs these {cases}; cells and cost are those of one run.",
        *sizes.noise.notes,
    )


def sizes_data(sizes: SampleSizes) -> dict[str, Any]:
    """The sizes as JSON data."""
    return {
        "metric": sizes.detect.metric,
        "difference": sizes.detect.difference,
        "level": sizes.detect.level,
        "power": sizes.power,
        "rate_or_mean": sizes.noise.rate,
        "variance_within_cases": sizes.noise.within,
        "variance_of_changes": sizes.noise.change,
        "notes": sizes.noise.notes,
        "samples": sizes.samples,
        "cases": sizes.cases,
        "flaky_cases": sizes.flaky,
        "detectable": sizes.detectable,
        "sizes": [asdict(row) for row in sizes.rows],
    }
