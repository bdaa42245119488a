"""What ``plan`` prints: the work and its cost, sample sizes, and how often a gate fails."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console

from visioneval.analysis.planning import MAX_CASES, Detect, GateRates
from visioneval.api.suites import SuitePlan
from visioneval.errors import count_of
from visioneval.report.sections import Cell, Column, Section
from visioneval.report.terminal import key_values, section_part
from visioneval.report.text import clean, one_line, plain, show_share_of_runs
from visioneval.rules import show_beside
from visioneval.running.estimate import CostEstimate, MustDetect, SampleSize, SampleSizes, total_text
from visioneval.running.plan import Plan, unset_keys
from visioneval.running.until_cost import UntilEstimate
from visioneval.suite.filters import show_size

SHOWN_CASES = 30
MAX_MODEL_RUNS = 40
MAX_FILES = 5
MAX_COSTS = 12


def print_plan(suite_plan: SuitePlan, console: Console) -> None:
    """Prints what a run of the plan would do and cost."""
    plan = suite_plan.plan
    columns = (Column("#", is_number=True), Column("model run", min_width=16), Column("provider"))
    rows: list[list[Cell]] = [
        [str(number), run.label, run.provider] for number, run in enumerate(plan.runs[:MAX_MODEL_RUNS], 1)
    ]
    console.print(section_part(Section(f"{plan.suite.name}: model runs", columns, rows), console.width))
    if len(plan.runs) > MAX_MODEL_RUNS:
        console.print(f"... and {len(plan.runs) - MAX_MODEL_RUNS:,} more; 'visioneval plan --json' lists all")
    console.print()
    _print_cases(plan, console)
    figures = [*_work(plan, suite_plan.estimate), *_until(suite_plan.until), *_must_detect(suite_plan.must_detect)]
    console.print(key_values(figures))
    if suite_plan.sizes is not None:
        print_sizes(suite_plan.sizes, console)
    if suite_plan.gate is not None:
        print_gate(suite_plan.gate, console)


def _until(until: UntilEstimate | None) -> Iterator[tuple[str, Cell]]:
    """What a run until its gates are decided may cost: ``work`` and ``cost`` are those of its first look."""
    if until is None:
        return
    most, average = (f" ({usd:.2f} USD)" if until.is_priced else "" for usd in (until.most_usd, until.average_usd))
    images = count_of(until.most_cells, "image")
    yield "until decided", f"at most {images}{most}, on average about {until.average_cells:,}{average}"
    yield (
        "",
        "average: each gate's true value is halfway from its limit to the best, samples of a case correlate by 0.5",
    )


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
    fewest, most = required.turns
    if fewest != most or required.cells != required.cases * most * required.samples * required.model_runs:
        return f"{count_of(required.cases, 'case')} with {count_of(required.cells, 'cell')}"
    runs = f" x {count_of(required.model_runs, 'model run')}" if required.model_runs > 1 else ""
    return f"{show_size(required.cases, required.turns, required.samples)}{runs}"


def _print_cases(plan: Plan, console: Console) -> None:
    runs = plan.runs[:MAX_MODEL_RUNS]
    columns = [Column("case", min_width=16), Column("task")]
    columns += [Column(f"#{number}", is_number=True) for number in range(1, len(runs) + 1)]
    rows: list[list[Cell]] = [
        [case.id, case.task_type, *(str(plan.count(case, run)[1] or "-") for run in runs)]
        for case in plan.suite.cases[:SHOWN_CASES]
    ]
    more = len(plan.suite.cases) - SHOWN_CASES
    notes = [f"... and {more:,} more cases"] if more > 0 else []
    section = Section("Images by case and model run (#)", columns, rows, notes, splits=True)
    console.print(section_part(section, console.width))
    console.print()


def _work(plan: Plan, work: CostEstimate) -> Iterator[tuple[str, Cell]]:
    counts = [count_of(work.calls, "generation call"), count_of(work.cells, "image"), *_gradings(work)]
    yield "work", ", ".join(counts)
    yield "cost", total_text(work.costs)
    yield from (("", one_line(str(cost))) for cost in work.costs[:MAX_COSTS])
    if len(work.costs) > MAX_COSTS:
        yield "", f"... and {len(work.costs) - MAX_COSTS:,} more"
    yield from (("budget", one_line(line)) for line in work.budget_warnings)
    missing = list(missing_key_lines(unset_keys(plan)))
    yield from (("missing key", line) for line in missing)
    for path in work.missing_files[:MAX_FILES]:
        yield "missing image", one_line(path)
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
        **({} if suite_plan.until is None else {"until_decided": asdict(suite_plan.until)}),
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


def print_sizes(sizes: SampleSizes, console: Console) -> None:
    """Prints a row for each number of samples, what the suite itself detects, and what the numbers refer to."""
    columns = [Column(name, is_number=True) for name in ("samples", "cases needed", "cells", "cost")]
    rows: list[list[Cell]] = [
        [
            str(row.samples),
            f"over {MAX_CASES:,}" if row.cases is None else f"{row.cases:,}",
            "-" if row.cells is None else f"{row.cells:,}",
            _cost(row, has_costs=sizes.has_costs),
        ]
        for row in sizes.rows
    ]
    title = f"To detect {_size(sizes.detect, sizes.detect.difference)} with {sizes.power:.0%} power"
    console.print()
    console.print(section_part(Section(title, columns, rows), console.width))
    console.print(plain(suite_line(sizes), "bold"))
    for line in _meaning(sizes):
        console.print(plain(line))


def suite_line(sizes: SampleSizes) -> str:
    """``your 40 cases x 3 samples detect 9.8 points``."""
    cases = f"your {show_size(sizes.cases, sizes.turns, sizes.samples)}"
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
        "turns": sizes.turns,
        "flaky_cases": sizes.flaky,
        "detectable": sizes.detectable,
        "sizes": [asdict(row) for row in sizes.rows],
    }


def print_gate(gate: GateRates, console: Console) -> None:
    """Prints a row for each true rate, the threshold that seldom fails a good one, and what the numbers refer to."""
    names = ["fails"] if len(gate.correlations) == 1 else [f"fails, correlation {rho:g}" for rho in gate.correlations]
    columns = [Column("true rate", is_number=True), *(Column(name, is_number=True) for name in names)]
    rows: list[list[Cell]] = [
        [f"{row.rate:g}", *(show_share_of_runs(share) for share in row.fails)] for row in gate.rows
    ]
    title = f"How often {gate.gate} fails over {count_of(gate.cells, 'cell')}"
    console.print()
    console.print(section_part(Section(title, columns, rows), console.width))
    share = show_share_of_runs(gate.suggested_fails)
    console.print(
        plain(
            f"the strictest limit that fails a true {gate.good_rate:g} in 1 of 20 runs or fewer: {gate.suggested}"
            f" ({share})",
            "bold",
        )
    )
    for note in ("The true rate is that of these cases in the long run.", *gate.notes):
        console.print(plain(note))
