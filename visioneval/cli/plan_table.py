"""Prints a plan: cases by model runs, the number of calls, the cost, and missing keys and files."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from visioneval.api.runs import SuitePlan
from visioneval.cli.gate_table import print_gate
from visioneval.cli.sample_size_table import print_sizes, sizes_data
from visioneval.counted import count_of
from visioneval.report.terminal.table import Cell, Column, fit_columns, key_values, table, with_title
from visioneval.report.text import clean, one_line
from visioneval.rules import show_beside
from visioneval.running.calls.estimate import CostEstimate, total_text
from visioneval.running.plan import Plan, unset_keys
from visioneval.running.sizes import MustDetect
from visioneval.suite.cases.case import TestCase

MAX_CASES = 30
MAX_MODEL_RUNS = 40
MAX_FILES = 5
MAX_COSTS = 12


def print_plan(suite_plan: SuitePlan, console: Console) -> None:
    """Prints what a run of the plan would do and cost."""
    plan = suite_plan.plan
    columns = (Column("#", right=True), Column("model run", min_width=16), Column("provider"))
    rows: list[list[Cell]] = [
        [str(number), run.label, run.provider] for number, run in enumerate(plan.runs[:MAX_MODEL_RUNS], 1)
    ]
    console.print(with_title(f"{plan.suite.name}: model runs", table(columns, rows, console.width)))
    if len(plan.runs) > MAX_MODEL_RUNS:
        console.print(f"... and {len(plan.runs) - MAX_MODEL_RUNS:,} more; 'visioneval plan --json' lists all")
    console.print()
    _print_cases(plan, console)
    console.print(key_values([*_work(plan, suite_plan.estimate), *_must_detect(suite_plan.must_detect)]))
    if suite_plan.sizes is not None:
        print_sizes(suite_plan.sizes, console)
    if suite_plan.gate is not None:
        print_gate(suite_plan.gate, console)


def _must_detect(required: MustDetect | None) -> Iterator[tuple[str, Cell]]:
    """Whether two runs would meet the ``must_detect`` of the suite, and by what."""
    if required is None:
        return
    points = f"{required.points:g} point{'s' * (required.points != 1)}"
    if required.rate is None:
        yield "must_detect", f"{points}: not met. A suite without verdict rules has no pass rate to compare"
        return
    size = "no drop"
    if required.detectable is not None:
        size = f"drops of {show_beside(required.detectable, required.points, 3)} points or more"
    state = "met" if required.is_met else "not met ('compare' exits 3)"
    verb = "detects" if required.cases == 1 else "detect"
    rate = f"{'an assumed' if required.is_assumed else 'a'} pass rate of {required.rate:.3g}"
    yield "must_detect", f"{points}: {state}. {_run_size(required)} {verb} {size}, at {rate}"


def _run_size(required: MustDetect) -> str:
    """``3 cases x 1 sample x 2 model runs``, or the number of cells if that is no product of these."""
    cases = count_of(required.cases, "case")
    if required.cells != required.cases * required.samples * required.model_runs:
        return f"{cases} with {count_of(required.cells, 'cell')}"
    runs = f" x {count_of(required.model_runs, 'model run')}" if required.model_runs > 1 else ""
    return f"{cases} x {count_of(required.samples, 'sample')}{runs}"


def _print_cases(plan: Plan, console: Console) -> None:
    cases, runs = plan.suite.cases[:MAX_CASES], plan.runs[:MAX_MODEL_RUNS]
    counts = [[str(plan.count(case, run)[1] or "-") for run in runs] for case in cases]
    start, title = 0, "Images by case and model run (#)"
    while start < len(runs):
        end = start + 1
        while end < len(runs) and fit_columns(*_columns(cases, counts, start, end + 1), console.width):
            end += 1
        body = table(*_columns(cases, counts, start, end), console.width)
        console.print(with_title(title, body) if start == 0 else body)
        console.print()
        start = end
    if len(plan.suite.cases) > MAX_CASES:
        console.print(f"... and {len(plan.suite.cases) - MAX_CASES:,} more cases\n")


def _columns(
    cases: Sequence[TestCase], counts: Sequence[Sequence[str]], start: int, end: int
) -> tuple[list[Column], list[list[Cell]]]:
    numbers = [Column(f"#{number}", right=True) for number in range(start + 1, end + 1)]
    rows: list[list[Cell]] = [
        [case.id, case.task_type, *row[start:end]] for case, row in zip(cases, counts, strict=True)
    ]
    return [Column("case", min_width=16), Column("task"), *numbers], rows


def _work(plan: Plan, work: CostEstimate) -> Iterator[tuple[str, Cell]]:
    counts = [count_of(work.calls, "generation call"), count_of(work.cells, "image"), *_gradings(work)]
    yield "work", ", ".join(counts)
    yield "cost", total_text(work.costs)
    yield from (("", Text(one_line(str(cost)))) for cost in work.costs[:MAX_COSTS])
    if len(work.costs) > MAX_COSTS:
        yield "", f"... and {len(work.costs) - MAX_COSTS:,} more"
    yield from (("budget", Text(one_line(line))) for line in work.budget_warnings)
    missing = list(missing_key_lines(unset_keys(plan)))
    yield from (("missing key", line) for line in missing)
    for path in work.missing_files[:MAX_FILES]:
        yield "missing image", Text(one_line(path))
    if len(work.missing_files) > MAX_FILES:
        yield "", f"... and {len(work.missing_files) - MAX_FILES:,} more"


def _gradings(work: CostEstimate) -> Iterator[str]:
    """What grades the images: paid calls of judges, measures on this machine, and the rest, each counted apart."""
    unknown = sum(cost.calls is None for cost in work.costs)
    if work.judge_calls or unknown:
        yield ("at least " if unknown else "") + count_of(work.judge_calls, "judge call")
    if work.local_measurements:
        yield count_of(work.local_measurements, "local measurement")
    if work.other_gradings:
        yield count_of(work.other_gradings, "other grading")


def plan_json(suite_plan: SuitePlan) -> str:
    """The whole plan as one line of JSON: images by model run and case, calls, costs, missing keys and files."""
    plan, work = suite_plan.plan, suite_plan.estimate
    data = {
        "suite": plan.suite.name,
        "cases": [case.id for case in plan.suite.cases],
        "model_runs": [
            {
                "label": run.label,
                "provider": run.provider,
                "outputs": {case.id: cells for case in plan.suite.cases if (cells := plan.count(case, run)[1])},
            }
            for run in plan.runs
        ],
        "generation_calls": work.calls,
        "cells": work.cells,
        "must_detect": None
        if (required := suite_plan.must_detect) is None
        else {**asdict(required), "is_met": required.is_met},
        "grader_calls": work.grader_calls,
        "judge_calls": work.judge_calls,
        "local_measurements": work.local_measurements,
        "costs": [asdict(cost) for cost in work.costs],
        "budget_warnings": work.budget_warnings,
        "missing_keys": sorted(unset_keys(plan)),
        "missing_files": work.missing_files,
        "detect": None if suite_plan.sizes is None else sizes_data(suite_plan.sizes),
        "gate": None if suite_plan.gate is None else asdict(suite_plan.gate),
    }
    return json.dumps(data)


def missing_key_lines(keys: Mapping[str, Collection[str]]) -> Iterator[str]:
    """One line for each environment variable that is not set and its users."""
    for name, users in keys.items():
        yield f"set {name} for {clean(', '.join(users))}"
