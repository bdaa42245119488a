"""Agreement in a terminal or a pipe: people against graders, among themselves, and each with himself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from visioneval.analysis.agreement.agreement import Agreement, MinimumResult
from visioneval.analysis.agreement.among_raters import RaterAgreement
from visioneval.analysis.agreement.graders import Confusion, GraderAgreement
from visioneval.analysis.agreement.raters import MatchCount, RaterFinding
from visioneval.analysis.stats.interval import Measure
from visioneval.report.terminal.table import Cell, Column, table, titled
from visioneval.report.text import clean, one_line, plain

SHOWN_DISPUTED, SHOWN_RATERS, SHOWN_PAIRS = 5, 20, 10
_NAMES = {
    "kappa": "kappa",
    "quadratic_kappa": "kappa, quadratic weights",
    "accuracy": "accuracy",
    "fail_precision": "precision of FAIL",
    "fail_recall": "recall of FAIL",
    "spearman": "Spearman",
    "kendall": "Kendall tau-b",
}
_MARKS = {"passed": ("passed", "green"), "failed": ("FAILED", "red"), "unmeasured": ("NOT MEASURED", "yellow")}


def print_agreement(found: Agreement, console: Console) -> None:
    """Prints everything that was found."""
    for part in _parts(found, console.width):
        console.print(part)
        console.print()


def _parts(found: Agreement, width: int) -> Iterator[RenderableType]:
    yield Text(f"{clean(', '.join(found.runs))}  labels: {found.labels:,}  raters: {len(found.raters):,}", style="bold")
    if found.notes:
        yield Text("\n".join(map(clean, found.notes)), style="yellow")
    for grader in found.graders:
        if grader.cells or grader.unmeasured:
            yield from _grader(grader, width)
    if any(one.shared for one in found.people):
        yield titled("People among themselves", _people(found.people, width))
        yield from _pairs(found.people, width)
    if found.raters:
        yield titled("Each rater", _raters(found.raters, width))
    if found.minimums:
        yield titled("Asked for", _minimums(found.minimums, width))


def _grader(found: GraderAgreement, width: int) -> Iterator[RenderableType]:
    title = f"{found.metric} against people's {found.question}, cells: {found.cells:,}"
    beside = [
        f"{found.split:,} left out of kappa and FAIL, where people split evenly" * bool(found.split),
        f"{found.unmeasured:,} more could not be measured" * bool(found.unmeasured),
        f"a fail breaks {found.rule}" * bool(found.rule),
    ]
    rows: list[tuple[Cell, ...]] = [
        (Text(_NAMES[name], style="bold" if name == found.headline else ""), *_measured(measure))
        for name, measure in found.measures.items()
    ]
    rows.append((f"as much between people ({_NAMES[found.headline]})", *_measured(found.ceiling)))
    columns = (Column("measure", least=18), Column("value", right=True), Column("95%"), Column("n", right=True))
    notes = [part for part in beside if part]
    yield Group(
        plain(title, "bold"),
        *([Text(clean("; ".join(notes)), style="dim")] if notes else []),
        table((*columns, Column("", least=20)), rows, width),
    )
    if found.confusion is not None:
        yield titled("people (rows) by grader (columns)", _confusion(found.confusion, width))
    if found.disputed:
        yield titled("Most disputed", _disputed(found, width))


def _measured(measure: Measure) -> tuple[Cell, Cell, Cell, Cell]:
    value = "-" if measure.value is None else f"{measure.value:.3f}"
    known = measure.low is not None and measure.high is not None
    interval = f"[{measure.low:.3f}, {measure.high:.3f}]" if known else ""
    return value, interval, f"{measure.n:,}", measure.note or ""


def _confusion(found: Confusion, width: int) -> RenderableType:
    columns = [Column(""), *(Column(name, right=True) for name in found.grader)]
    rows = [(name, *map(str, row)) for name, row in zip(found.people, found.counts, strict=True)]
    return table(columns, rows, width)


def _disputed(found: GraderAgreement, width: int) -> RenderableType:
    columns = (
        Column("case", least=12),
        Column("model run", least=12),
        Column("people", right=True),
        Column("grader", right=True),
        Column("why", least=20),
    )
    rows = [
        (
            f"{one.test_id} [{one.sample_index}]" if one.sample_index else one.test_id,
            one.model_label,
            f"{one.people:.2g} ({one.raters})",
            f"{one.grader:.3g}",
            one_line(one.reason, 120),
        )
        for one in found.disputed[:SHOWN_DISPUTED]
    ]
    return table(columns, rows, width)


def _people(people: Sequence[RaterAgreement], width: int) -> RenderableType:
    columns = (
        Column("question", least=12),
        Column("raters", right=True),
        Column("items", right=True),
        Column("shared", right=True),
        Column("Krippendorff's alpha [95%]"),
        Column("Fleiss"),
        Column("Cohen", right=True),
    )
    return table(columns, [_asked(one) for one in people], width)


def _asked(one: RaterAgreement) -> tuple[Cell, ...]:
    levels = one.alpha.items()
    alpha = "\n".join(_short(found, f" {level}" if len(levels) > 1 else "") for level, found in levels)
    of = f" (of {one.fleiss_raters})" if one.fleiss.value is not None else ""
    name = one.question if one.tag is None else f"{one.question}: {one.tag}"
    numbers = (f"{one.raters:,}", f"{one.items:,}", f"{one.shared:,}")
    return name, *numbers, alpha, f"{_value(one.fleiss)}{of}", _value(one.cohen_mean)


def _short(measure: Measure, more: str) -> str:
    if measure.value is None:
        return measure.note or "-"
    interval = f" [{measure.low:.2f}, {measure.high:.2f}]" if measure.low is not None else ""
    return f"{measure.value:.3f}{interval}{more}"


def _value(measure: Measure) -> str:
    return "-" if measure.value is None else f"{measure.value:.3f}"


def _pairs(people: Sequence[RaterAgreement], width: int) -> Iterator[RenderableType]:
    """Pair by pair where the pairs are few enough to be looked at."""
    rows = [
        (one.question if one.tag is None else f"{one.question}: {one.tag}", *pair.raters, str(pair.n),
         "-" if pair.kappa is None else f"{pair.kappa:.3f}")
        for one in people
        if len(one.cohen) <= SHOWN_PAIRS
        for pair in one.cohen
    ]  # fmt: skip
    if rows:
        columns = (Column("question", least=12), Column("rater", least=8), Column("and", least=8))
        yield titled(
            "Rater by rater (Cohen's kappa; of a scale with quadratic weights)",
            table((*columns, Column("items", right=True), Column("kappa", right=True)), rows, width),
        )


def _raters(raters: Sequence[RaterFinding], width: int) -> RenderableType:
    columns = (
        Column("rater", least=12),
        Column("answers", right=True),
        Column("the same when asked again"),
        Column("as agreed (anchors)"),
        Column("by day", least=16),
    )
    rows = [
        (one.rater, f"{one.answers:,}", _same(one.himself), _same(one.anchors),
         ", ".join(f"{day.day} {day.same}/{day.n}" for day in one.days))
        for one in raters[:SHOWN_RATERS]
    ]  # fmt: skip
    more = len(raters) - SHOWN_RATERS
    shown = table(columns, rows, width)
    return shown if more <= 0 else Group(shown, Text(f"... and {more} more raters", style="dim"))


def _same(found: MatchCount) -> str:
    if not found.n:
        return "-"
    apart = f", {found.distance:.2g} steps apart" if found.distance else ""
    return f"{found.same}/{found.n}{apart}"


def _minimums(minimums: Sequence[MinimumResult], width: int) -> RenderableType:
    columns = (Column(""), Column("metric", least=12), Column("at least", right=True), Column("found"))
    rows = []
    for one in minimums:
        mark, colour = _MARKS[one.state]
        found = "nothing to tell it by" if one.value is None else f"{one.value:.3f} ({_NAMES[str(one.measure)]})"
        rows.append((Text(mark, style=colour), one.metric, f"{one.wanted:g}", found))
    return table(columns, rows, width)
