"""The summary of a run in a terminal or a pipe: 80 columns are enough, and nothing is said by colour alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from visioneval.analysis.summary import Counts, FailingCell, GateFinding, MetricFinding, Rate, Summary
from visioneval.report.text import clean, one_line, plain
from visioneval.types import Metric, Verdict

SHOWN_FAILING = 20
COLOURS = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.ERROR: "yellow"}
_MARKS = {"holds": "holds", "unmet": "NOT MET", "unmeasured": "NOT MEASURED", "skipped": "skipped"}
_MARK_COLOURS = {"holds": "green", "unmet": "red", "unmeasured": "yellow", "skipped": "dim"}


def print_summary(summary: Summary, console: Console, *, shown_failing: int = SHOWN_FAILING) -> None:
    """Prints the whole summary but for its last line."""
    for part in _parts(summary, console.width, shown_failing):
        console.print(part)


def _parts(summary: Summary, width: int, shown_failing: int) -> Iterator[RenderableType]:
    yield _headline(summary)
    if any(model.stand_in for model in summary.models):
        yield Text(
            "Drawn by 'sketch', a stand-in that is no model: this shows how the graders work, not how a model does.",
            style="dim",
        )
    yield _model_table(summary)
    yield from _metric_tables(summary, width)
    if summary.failing:
        yield _failing_table(summary, shown_failing)
    yield from _tag_tables(summary)
    yield _gate_table(summary.gates)


def _headline(summary: Summary) -> Text:
    counts = summary.counts
    line = Text()
    line.append(clean(summary.suite), style="bold")
    line.append(f"  {counts.cells} of {summary.planned_cells} cells")
    line.append(f"  {counts.passed} PASS", style="green")
    line.append(f"  {counts.failed} FAIL", style="red" if counts.failed else "")
    line.append(f"  {counts.errors} ERROR", style="yellow" if counts.errors else "")
    if summary.state != "complete":
        line.append(f"  {summary.state}", style="bold yellow")
    return line


def table(title: str, *columns: str, right: Sequence[int] = (), fold: Sequence[int] = ()) -> Table:
    """A plain table that reads well in a pipe."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        made.add_column(
            name,
            justify="right" if index in right else "left",
            overflow="fold",
            no_wrap=index in right,
            ratio=1 if index in fold else None,
        )
    return made


def show_rate(rate: Rate) -> str:
    """``83.3% [55.2, 95.3] n=12``; ``-`` where nothing was counted."""
    if rate.value is None or rate.low is None or rate.high is None:
        return "- n=0"
    return f"{rate.value:.1%} [{rate.low * 100:.1f}, {rate.high * 100:.1f}] n={rate.n}"


def _model_table(summary: Summary) -> Table:
    costs = any(model.cost_usd is not None for model in summary.models)
    made = table(
        "Model runs",
        "#",
        "model run",
        "pass rate [95% interval]",
        "fail",
        "error",
        "refused",
        "s/draw",
        *(["USD"] if costs else []),
        right=(0, 3, 4, 5, 6, 7),
        fold=(1,),
    )
    for number, model in enumerate(summary.models, 1):
        counts = model.counts
        cost = "unknown" if model.cost_usd is None else f"{model.cost_usd:.4f}"
        made.add_row(
            str(number),
            plain(model.label),
            show_rate(counts.pass_rate),
            _count(counts.failed, "red"),
            _count(counts.errors, "yellow"),
            _count(counts.refused, "yellow"),
            f"{model.seconds:.2f}",
            *([cost] if costs else []),
        )
    return made


def _count(number: int, colour: str) -> Text:
    return Text(str(number), style=colour if number else "dim")


def show_finding(finding: MetricFinding | None, metric: Metric) -> str:
    """A rate as ``10/12``, a mean as ``0.95 (12)``; cells that were not measured follow as ``!2``."""
    if finding is None:
        return "-"
    missing = f" !{finding.unmeasured}" if finding.unmeasured else ""
    if finding.value is None:
        return f"none{missing}"
    if metric.type == "bool":
        return f"{round(finding.value * finding.n)}/{finding.n}{missing}"
    return f"{finding.value:.3g} ({finding.n}){missing}"


def _metric_tables(summary: Summary, width: int) -> Iterator[RenderableType]:
    name_width = max((len(name) for name in summary.metrics), default=0)
    per_table = max(1, (width - min(name_width, 30) - 2) // 12)
    numbered = list(enumerate(summary.models, 1))
    for start in range(0, len(numbered), per_table):
        part = numbered[start : start + per_table]
        title = "Metrics by model run" if start == 0 else ""
        made = table(title, "metric", *(f"#{n}" for n, _ in part), right=range(1, len(part) + 1))
        for name, metric in summary.metrics.items():
            row = [show_finding(model.metrics.get(name), metric) for _, model in part]
            made.add_row(plain(f"{name}{_arrow(metric)}"), *row)
        yield made
    if any(finding.unmeasured for model in summary.models for finding in model.metrics.values()):
        yield Text("  !n: in n more cells the metric could not be measured", style="dim")


def _arrow(metric: Metric) -> str:
    return " (lower is better)" if metric.better == "lower" else ""


def _failing_table(summary: Summary, limit: int) -> Group:
    numbers = {model.label: number for number, model in enumerate(summary.models, 1)}
    cells = sorted(summary.failing, key=lambda cell: (numbers[cell.model_label], cell.test_id, cell.sample_index))
    made = table("Cells that did not pass", "#", "case", "verdict", "why", right=(0,), fold=(3,))
    for cell in cells[:limit]:
        sample = f" [{cell.sample_index}]" if cell.sample_index else ""
        made.add_row(
            str(numbers[cell.model_label]),
            plain(f"{cell.test_id}{sample}"),
            Text(cell.verdict, style=COLOURS[cell.verdict]),
            Text("\n").join(plain(line) for line in why(cell)),
        )
    more = len(cells) - limit
    if more <= 0:
        return Group(made)
    return Group(made, Text(f"  ... and {more} more: 'visioneval export RUN --csv' lists all", style="dim"))


def why(cell: FailingCell) -> list[str]:
    """Each failed rule with the reason that its grader gave, then the error."""
    lines = [
        f"{rule}: {one_line(reason)}" if (reason := _reason(rule, cell.reasons)) else rule for rule in cell.failed_rules
    ]
    if not cell.failed_rules:
        lines += [f"{tag}: {one_line(cell.reasons.get(tag, ''))}".rstrip(": ") for tag in cell.failure_tags]
    if cell.error is not None:
        lines.append(f"{cell.error.stage}, {cell.error.kind}: {one_line(cell.error.message)}")
    return lines


def _reason(rule: str, reasons: Mapping[str, str]) -> str:
    """The reason of the metric in a rule, or of its grader, whose key the metric begins with."""
    words = rule.replace("'", " ").replace('"', " ").split()
    metric = words[1] if words[0] == "not" and len(words) == 2 else words[0]
    return reasons.get(metric) or reasons.get(metric.split(".")[0], "")


def _tag_tables(summary: Summary) -> Iterator[RenderableType]:
    if summary.tags:
        yield _counts_table("By tag", "tag", summary.tags)
    for title, found in (("Failure tags", summary.failure_tags), ("Warnings", summary.warned_rules)):
        if found:
            made = table(title, "warned rule" if title == "Warnings" else "tag", "cells", right=(1,))
            for name, number in found.items():
                made.add_row(plain(name), str(number))
            yield made


def _counts_table(title: str, what: str, found: Mapping[str, Counts]) -> Table:
    made = table(title, what, "pass rate [95% interval]", "fail", "error", right=(2, 3))
    for name, counts in found.items():
        made.add_row(
            plain(name),
            show_rate(counts.pass_rate),
            _count(counts.failed, "red"),
            _count(counts.errors, "yellow"),
        )
    return made


def _gate_table(gates: Sequence[GateFinding]) -> Table:
    made = table("Gates", "gate", "for", "found", "", fold=(0, 1))
    for gate in gates:
        found = "nothing" if gate.value is None else f"{gate.value:.4g} n={gate.n}"
        beside = f", {gate.errors} errors" if gate.errors else ""
        made.add_row(
            plain(gate.rule),
            plain(gate.scope or "all cells"),
            found + beside,
            Text(_MARKS[gate.state], style=_MARK_COLOURS[gate.state]),
        )
    return made


def last_line(folder: Path, summary: Summary) -> str:
    """Names the run and the next useful command."""
    first = next((cell.test_id for cell in summary.failing), None)
    hint = f"visioneval show {folder} {first}" if first else f"visioneval show {folder}"
    return f"run: {folder}   next: {hint}"
