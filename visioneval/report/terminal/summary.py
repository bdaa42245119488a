"""The summary of a run in a terminal or a pipe: 80 columns are enough, and nothing is said by colour alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.text import Text

from visioneval.analysis.findings import (
    CostFinding,
    Counts,
    FailingCell,
    GateFinding,
    MetricFinding,
    ModelFindings,
    Rate,
    Summary,
)
from visioneval.report.terminal.question_tables import pooled_metrics, question_tables
from visioneval.report.terminal.separation import separation_table
from visioneval.report.terminal.table import GAP, Cell, Column, fitted, table, titled
from visioneval.report.text import clean, one_line, plain
from visioneval.types import Metric, Verdict

SHOWN_FAILING = 20
RATE = "pass rate [95%]"
_LEAST_NAME = 24
COLOURS = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.ERROR: "yellow"}
_MARKS = {"holds": "holds", "unmet": "NOT MET", "unmeasured": "NOT MEASURED", "skipped": "skipped"}
_MARK_COLOURS = {"holds": "green", "unmet": "red", "unmeasured": "yellow", "skipped": "dim"}


def print_summary(summary: Summary, console: Console, *, shown_failing: int = SHOWN_FAILING) -> None:
    """Prints the whole summary but for its last line."""
    for part in _parts(summary, console.width, shown_failing):
        console.print(part)
        console.print()


def _parts(summary: Summary, width: int, shown_failing: int) -> Iterator[RenderableType]:
    yield _headline(summary, width)
    if any(model.stand_in for model in summary.models):
        yield Text(
            "Drawn by 'sketch', a stand-in that is no model: this shows how the graders work, not how a model does.",
            style="dim",
        )
    yield from _model_tables(summary.models, width)
    yield from _metric_tables(summary, width)
    if summary.separations:
        yield separation_table(summary, width)
    yield from question_tables(summary, width)
    if summary.failing:
        yield _failing_table(summary, width, shown_failing)
    if summary.tags:
        yield titled("By tag", _tag_table(summary.tags, width))
    for title, what, found in (
        ("Failure tags", "tag", summary.failure_tags),
        ("Warnings", "warned rule", summary.warned_rules),
    ):
        if found:
            columns = (Column(what, least=12), Column("cells", right=True))
            yield titled(title, table(columns, [(name, str(number)) for name, number in found.items()], width))
    if any(cost.paid or cost.unknown or cost.cached for cost in summary.costs):
        yield titled("Cost", _cost_table(summary.costs, width))
    for key, beside in summary.judge_disagreements.items():
        if beside.judged:
            cells = f"{beside.judged} cell{'s' * (beside.judged != 1)}"
            yield Text(f"judge and rules disagree in {beside.disagreed} of {cells} ({clean(key)})")
    yield titled(
        "Gates" if summary.state == "complete" else "Gates, by the cells so far", _gate_table(summary.gates, width)
    )


def _headline(summary: Summary, width: int) -> Text:
    counts = summary.counts
    parts = [
        Text(clean(summary.suite), style="bold"),
        Text(f"{counts.cells} of {summary.planned_cells} cells"),
        Text(f"{counts.passed} PASS", style="green"),
        Text(f"{counts.failed} FAIL", style="red" if counts.failed else ""),
        Text(f"{counts.errors} ERROR", style="yellow" if counts.errors else ""),
    ]
    if summary.state != "complete":
        parts.append(Text(summary.state, style="bold yellow"))
    if summary.reused_pictures:
        parts.append(Text(reused(summary), style="yellow"))
    return _filled(parts, width)


def _filled(parts: Sequence[Text], width: int) -> Text:
    """Parts side by side, two spaces between them; a first one that is too long for that is cut, the rest folded."""
    name, *rest = parts
    room = width - sum(GAP + part.cell_len for part in rest)
    name.truncate(max(room, min(width, _LEAST_NAME)), overflow="ellipsis")
    lines = [name]
    for part in rest:
        part.truncate(width, overflow="ellipsis")
        if lines[-1].cell_len + GAP + part.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], " " * GAP, part)
        else:
            lines.append(part)
    return Text("\n").join(lines)


def reused(summary: Summary) -> str:
    """How many pictures were not drawn now, and how old the oldest is."""
    many = f"{summary.reused_pictures:,} picture{'s' * (summary.reused_pictures != 1)}"
    since = f", the oldest of {summary.reused_since[:16].replace('T', ' ')} UTC" if summary.reused_since else ""
    return f"{many} from the cache{since}"


def _cost_table(costs: Sequence[CostFinding], width: int) -> RenderableType:
    columns = (
        Column("what"),
        Column("of", least=12),
        *(Column(name, right=True) for name in ("USD", "cells paid", "from cache", "unknown")),
    )
    rows: list[list[Cell]] = [
        [
            cost.what,
            cost.name,
            show_usd(cost.usd, cost.unknown),
            f"{cost.paid:,}",
            f"{cost.cached:,}",
            _count(cost.unknown, "yellow"),
        ]
        for cost in costs
    ]
    total = show_usd(sum(cost.usd for cost in costs), sum(cost.unknown for cost in costs))
    rows.append(["all", "", total, "", "", ""])
    return table(columns, rows, width)


def show_usd(known: float | None, unknown: int) -> str:
    """``0.0120``; ``>= 0.0120`` where so many more costs are unknown; ``unknown`` without it; ``-`` where none is."""
    if not known and unknown:
        return "unknown"
    if known is None:
        return "-"
    digits = f"{known:,.2f}" if known >= 10 else f"{known:.4f}"
    return f">= {digits}" if unknown else digits


def show_rate(rate: Rate) -> str:
    """``83.3% [55.2, 95.3] n=12``; ``- n=0`` where nothing was counted."""
    if rate.value is None or rate.low is None or rate.high is None:
        return "- n=0"
    return f"{rate.value:.1%} [{rate.low * 100:.1f}, {rate.high * 100:.1f}] n={rate.n}"


def _model_tables(models: Sequence[ModelFindings], width: int) -> Iterator[RenderableType]:
    """One table with the labels in it, or, where long labels leave the numbers no room, two."""
    label = Column("model run", least=max((len(model.label) for model in models), default=0))
    numbers = _model_columns(models)
    rows = [_model_row(number, model, numbers) for number, model in enumerate(models, 1)]
    columns = [Column("#", right=True), label, *numbers]
    if fitted(columns, rows, width) is not None:
        yield titled("Model runs", table(columns, rows, width))
        return
    yield titled("Model runs", table((columns[0], Column("model run", least=12)), [row[:2] for row in rows], width))
    yield table((columns[0], *numbers), [(row[0], *row[2:]) for row in rows], width)


def _model_columns(models: Sequence[ModelFindings]) -> list[Column]:
    """What is nowhere known, or nowhere anything but nothing, needs no column."""
    shown = {
        "refused": any(model.counts.refused for model in models),
        "s/draw": any(model.seconds >= 0.005 for model in models),
        "USD": any(model.cost_usd is not None for model in models),
    }
    optional = [Column(name, right=True) for name, wanted in shown.items() if wanted]
    return [Column(RATE), Column("fail", right=True), Column("error", right=True), *optional]


def _model_row(number: int, model: ModelFindings, columns: Sequence[Column]) -> list[Cell]:
    counts = model.counts
    cells: dict[str, Cell] = {
        RATE: show_rate(counts.pass_rate),
        "fail": _count(counts.failed, "red"),
        "error": _count(counts.errors, "yellow"),
        "refused": _count(counts.refused, "yellow"),
        "s/draw": f"{model.seconds:.2f}",
        "USD": show_usd(model.cost_usd, model.unpriced),
    }
    return [str(number), model.label, *(cells[column.name] for column in columns)]


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
    """As many model runs side by side as fit."""
    pooled = pooled_metrics(summary)
    shown = {name: metric for name, metric in summary.metrics.items() if name not in pooled}
    names = [plain(f"{name}{_direction(metric)}") for name, metric in shown.items()]
    found = [
        [show_finding(model.metrics.get(name), metric) for name, metric in shown.items()] for model in summary.models
    ]
    if not names:
        return
    first = Column("metric", least=min(24, max(len(name) for name in shown)))
    start, title = 0, "Metrics by model run: how many cells say yes, or the mean (of how many cells)"
    while start < len(found):
        end = start + 1
        while end < len(found) and fitted(*_metrics_side_by_side(first, names, found, start, end + 1), width):
            end += 1
        body = table(*_metrics_side_by_side(first, names, found, start, end), width)
        yield titled(title, body) if start == 0 else body
        start = end
    if any(finding.unmeasured for model in summary.models for finding in model.metrics.values()):
        yield Text("!n: in n more cells the metric could not be measured", style="dim")


def _metrics_side_by_side(
    first: Column, names: Sequence[Text], found: Sequence[Sequence[str]], start: int, end: int
) -> tuple[list[Column], list[list[Cell]]]:
    columns = [first, *(Column(f"#{number}", right=True) for number in range(start + 1, end + 1))]
    rows: list[list[Cell]] = [[name, *(own[at] for own in found[start:end])] for at, name in enumerate(names)]
    return columns, rows


def _direction(metric: Metric) -> str:
    return " (lower is better)" if metric.better == "lower" else ""


def _failing_table(summary: Summary, width: int, limit: int) -> RenderableType:
    numbers = {model.label: number for number, model in enumerate(summary.models, 1)}
    cells = sorted(summary.failing, key=lambda cell: numbers[cell.model_label])
    samples = any(cell.sample_index for cell in cells)
    columns = [Column("#", right=True), Column("case", least=12), Column("verdict"), Column("why", least=24)]
    rows: list[list[Cell]] = [
        [
            str(numbers[cell.model_label]),
            f"{cell.test_id} [{cell.sample_index}]" if samples else cell.test_id,
            Text(cell.verdict, style=COLOURS[cell.verdict]),
            plain("\n".join(why(cell))),
        ]
        for cell in cells[:limit]
    ]
    note = "case [sample]" if samples else "case"
    title = f"Cells that did not pass, by model run (#) and {note}"
    more = len(cells) - limit
    if more <= 0:
        return titled(title, table(columns, rows, width))
    hint = f"... and {more} more: 'visioneval export {summary.run_id} --csv' lists all"
    return titled(title, Group(table(columns, rows, width), Text(hint, style="dim")))


def why(cell: FailingCell) -> list[str]:
    """Each failed rule with the reason that its grader gave, or the refusal; then the error."""
    rules = cell.failed_rules or tuple(cell.reasons)
    lines = [f"{rule}: {one_line(cell.reasons[rule])}" if cell.reasons.get(rule) else rule for rule in rules]
    if cell.error is not None:
        lines.append(f"{cell.error.stage}, {cell.error.kind}: {one_line(cell.error.message)}")
    return lines


def _tag_table(found: Mapping[str, Counts], width: int) -> RenderableType:
    columns = (Column("tag", least=12), Column(RATE), Column("fail", right=True), Column("error", right=True))
    rows = [
        (name, show_rate(counts.pass_rate), _count(counts.failed, "red"), _count(counts.errors, "yellow"))
        for name, counts in found.items()
    ]
    return table(columns, rows, width)


def _gate_table(gates: Sequence[GateFinding], width: int) -> RenderableType:
    columns = (Column(""), Column("gate", least=16), Column("for", least=14), Column("found"))
    return table(columns, [_gate_row(gate) for gate in gates], width)


def _gate_row(gate: GateFinding) -> tuple[Cell, ...]:
    found = "nothing" if gate.value is None else f"{gate.value:.4g} n={gate.n}"
    beside = f", {gate.errors} error{'s' * (gate.errors != 1)}" if gate.errors else ""
    mark = Text(_MARKS[gate.state], style=_MARK_COLOURS[gate.state])
    return mark, gate.rule, gate.scope or "all cells", found + beside


def last_line(folder: Path, summary: Summary, default: Path) -> str:
    """Names the run and the next useful command, ready to be pasted: by id where ``default`` holds the run."""
    name = folder.name if folder.parent == default else str(folder)
    first = next(iter(summary.failing), None)
    words = (
        ["visioneval", "show", name]
        if first is None
        else ["visioneval", "show", f"{name}@{first.model_label}", first.test_id]
    )
    return f"run: {clean(str(folder))}   next: {clean(shlex.join(words))}"
