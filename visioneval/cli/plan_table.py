"""A plan in a terminal: cases by model runs, the work, and what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rich.console import Console

from visioneval.plan import Plan, estimate
from visioneval.report.console import table
from visioneval.report.text import clean, plain

SHOWN_CASES = 30
SHOWN_FILES = 5


def print_plan(plan: Plan, console: Console) -> None:
    """Prints what a run of the plan would do. A number in the table counts the pictures of a cell's samples."""
    runs = table(f"{plan.suite.name}: model runs", "#", "model run", "provider", right=(0,), fold=(1,))
    for number, run in enumerate(plan.runs, 1):
        runs.add_row(str(number), plain(run.label), plain(run.provider))
    console.print(runs)
    _print_cases(plan, console)
    work = estimate(plan, lambda name: bool(os.environ.get(name)))
    console.print(f"{work.calls} drawing calls, {work.cells} pictures, {work.grader_calls} grader calls")
    console.print(f"cost: {_cost(work.unpriced, len(plan.runs))}")
    for line in missing_keys(plan):
        console.print(line)
    for path in work.missing_files[:SHOWN_FILES]:
        console.print(f"missing picture: {clean(path)}")
    if len(work.missing_files) > SHOWN_FILES:
        console.print(f"... and {len(work.missing_files) - SHOWN_FILES} more missing pictures")


def _print_cases(plan: Plan, console: Console) -> None:
    per_table = max(1, (console.width - 40) // 5)
    numbered = list(enumerate(plan.runs, 1))
    for start in range(0, len(numbered), per_table):
        part = numbered[start : start + per_table]
        made = table("pictures by case", "case", "task", *(f"#{n}" for n, _ in part), right=range(2, len(part) + 2))
        for case in plan.suite.cases[:SHOWN_CASES]:
            counts = (plan.count(case, run)[1] for _, run in part)
            made.add_row(plain(case.id), case.task_type, *(str(n) if n else "-" for n in counts))
        console.print(made)
    if len(plan.suite.cases) > SHOWN_CASES:
        console.print(f"... and {len(plan.suite.cases) - SHOWN_CASES:,} more cases")


def _cost(unpriced: tuple[str, ...], runs: int) -> str:
    if not unpriced:
        return "nothing: all of it runs on this machine"
    shown = ", ".join(clean(label) for label in unpriced[:3]) + (", ..." if len(unpriced) > 3 else "")
    return f"unknown for {len(unpriced)} of {runs} model runs ({shown}); nothing for the rest"


def missing_keys(plan: Plan) -> Iterator[str]:
    """One line for each environment variable that a run would lack."""
    needed: dict[str, list[str]] = {}
    for run in plan.runs:
        name = run.config.needs_key
        if name and not os.environ.get(name):
            needed.setdefault(name, []).append(run.label)
    for name, labels in needed.items():
        yield f"missing key: set {name} for {clean(', '.join(labels))}"
