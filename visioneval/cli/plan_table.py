"""A plan in a terminal: cases by model runs, the work, and what is missing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from visioneval.analysis.past_costs import read_past_costs
from visioneval.engine.calls.estimate import Cost, Estimate, estimate
from visioneval.plan import Plan, needed_keys
from visioneval.report.terminal.table import Cell, Column, fit_columns, key_values, table, with_title
from visioneval.report.text import clean, one_line
from visioneval.suite.case import TestCase

SHOWN_CASES = 30
SHOWN_RUNS = 40
SHOWN_FILES = 5
SHOWN_COSTS = 12


def print_plan(plan: Plan, console: Console, runs: Path, budget_usd: float | None = None) -> None:
    """Prints what a run of the plan would do; ``runs`` is the folder of earlier ones, which tell what things cost.

    ``budget_usd`` is instead of the suite's.
    """
    columns = (Column("#", right=True), Column("model run", min_width=16), Column("provider"))
    rows: list[list[Cell]] = [
        [str(number), run.label, run.provider] for number, run in enumerate(plan.runs[:SHOWN_RUNS], 1)
    ]
    console.print(with_title(f"{plan.suite.name}: model runs", table(columns, rows, console.width)))
    if len(plan.runs) > SHOWN_RUNS:
        console.print(f"... and {len(plan.runs) - SHOWN_RUNS:,} more: 'visioneval plan --json' tells all")
    console.print()
    _print_cases(plan, console)
    console.print(key_values(_work(plan, runs, budget_usd)))


def _print_cases(plan: Plan, console: Console) -> None:
    shown, runs = plan.suite.cases[:SHOWN_CASES], plan.runs[:SHOWN_RUNS]
    counted = [[str(plan.count(case, run)[1] or "-") for run in runs] for case in shown]
    start, title = 0, "Images by case and model run (#)"
    while start < len(runs):
        end = start + 1
        while end < len(runs) and fit_columns(*_side_by_side(shown, counted, start, end + 1), console.width):
            end += 1
        body = table(*_side_by_side(shown, counted, start, end), console.width)
        console.print(with_title(title, body) if start == 0 else body)
        console.print()
        start = end
    if len(plan.suite.cases) > SHOWN_CASES:
        console.print(f"... and {len(plan.suite.cases) - SHOWN_CASES:,} more cases\n")


def _side_by_side(
    cases: Sequence[TestCase], counted: Sequence[Sequence[str]], start: int, end: int
) -> tuple[list[Column], list[list[Cell]]]:
    numbers = [Column(f"#{number}", right=True) for number in range(start + 1, end + 1)]
    rows: list[list[Cell]] = [
        [case.id, case.task_type, *own[start:end]] for case, own in zip(cases, counted, strict=True)
    ]
    return [Column("case", min_width=16), Column("task"), *numbers], rows


def _work(plan: Plan, runs: Path, budget_usd: float | None) -> Iterator[tuple[str, Cell]]:
    work = estimate(plan, lambda: read_past_costs(runs), budget_usd)
    counts = ((work.calls, "generation call"), (work.cells, "image"), (work.grader_calls, "grader call"))
    yield "work", ", ".join(many(number, what) for number, what in counts)
    yield "cost", _cost(work)
    for cost in work.costs[:SHOWN_COSTS]:
        yield "", Text(f"{one_line(cost.name)}: {_priced(cost)}")
    if len(work.costs) > SHOWN_COSTS:
        yield "", f"... and {len(work.costs) - SHOWN_COSTS:,} more"
    yield from (("budget", Text(one_line(line))) for line in work.budget_warnings)
    missing = list(missing_keys(plan))
    yield from (("missing key", line) for line in missing)
    for path in work.missing_files[:SHOWN_FILES]:
        yield "missing image", Text(one_line(path))
    if len(work.missing_files) > SHOWN_FILES:
        yield "", f"... and {len(work.missing_files) - SHOWN_FILES:,} more"


def many(number: int, what: str) -> str:
    """``1 cell``, ``1,200 cells``."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def _cost(work: Estimate) -> str:
    if not work.costs:
        return "nothing: all of it runs on this machine"
    unknown = f"unknown for {len(work.unpriced):,} of {len(work.costs):,}" if work.unpriced else ""
    known = f"about {work.usd:.2f} USD" if len(work.unpriced) < len(work.costs) else ""
    return ", and ".join(filter(None, (known, unknown)))


def _priced(cost: Cost) -> str:
    """What it costs, and how that is known."""
    if cost.usd is not None:
        how = "by the suite's prices" if cost.basis == "prices" else f"by {many(cost.seen, 'cell')} of earlier runs"
        return f"{cost.usd:.4f} USD, {how}"
    if cost.basis == "tokens":
        return "unknown: priced by tokens, and no earlier run here tells how many"
    return "unknown: no price; state it under 'prices:'"


def plan_json(plan: Plan, runs: Path) -> str:
    """The whole plan as a line of JSON: images by model run and case, the work, what it costs, what is missing."""
    work = estimate(plan, lambda: read_past_costs(runs))
    told = {
        "suite": plan.suite.name,
        "cases": [case.id for case in plan.suite.cases],
        "model_runs": [
            {
                "label": run.label,
                "provider": run.provider,
                "outputs": {case.id: found for case in plan.suite.cases if (found := plan.count(case, run)[1])},
            }
            for run in plan.runs
        ],
        "generation_calls": work.calls,
        "cells": work.cells,
        "grader_calls": work.grader_calls,
        "costs": [asdict(cost) for cost in work.costs],
        "budget_warnings": work.budget_warnings,
        "missing_keys": sorted(name for name in needed_keys(plan) if not os.environ.get(name)),
        "missing_pictures": work.missing_files,
    }
    return json.dumps(told)


def missing_keys(plan: Plan) -> Iterator[str]:
    """One line for each environment variable that a run would lack."""
    for name, users in needed_keys(plan).items():
        if not os.environ.get(name):
            yield f"set {name} for {clean(', '.join(users))}"
