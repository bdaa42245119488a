"""Agreement in a terminal or a pipe: human labels and graders, between raters, and within each rater."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from visioneval.analysis.agreement.agreement import FLAGS, Agreement, MinimumResult
from visioneval.analysis.agreement.graders import Confusion, GraderAgreement
from visioneval.analysis.agreement.raters import MatchCount, RaterAgreement, RaterFinding
from visioneval.analysis.stats.basic import Statistic
from visioneval.errors import count_of
from visioneval.report.terminal.agreement.agreement_pairs import pair_tables
from visioneval.report.terminal.agreement.correction import correction_parts
from visioneval.report.terminal.agreement.judge_card import agreement_cards
from visioneval.report.terminal.measures import measure_cells
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import clean, one_line, plain
from visioneval.rules import show_beside

MAX_DISPUTED, MAX_RATERS, MAX_PAIRS = 5, 20, 10
_NAMES = {
    "kappa": "kappa",
    "quadratic_kappa": "kappa, quadratic weights",
    "accuracy": "accuracy",
    "fail_precision": "precision of FAIL",
    "fail_recall": "recall of FAIL",
    "spearman": "Spearman",
    "kendall": "Kendall tau-b",
    "pearson": "Pearson",
    "pairwise_accuracy": "pairwise accuracy",
}
_MARKS = {"passed": ("passed", "green"), "failed": ("FAILED", "red"), "unmeasured": ("NOT MEASURED", "yellow")}


def print_agreement(agreement: Agreement, console: Console) -> None:
    """Prints all results."""
    for part in _parts(agreement, console.width):
        console.print(part)
        console.print()


def _parts(agreement: Agreement, width: int) -> Iterator[RenderableType]:
    yield Text(
        f"{clean(', '.join(agreement.runs))}  labels: {agreement.labels:,}  raters: {len(agreement.raters):,}",
        style="bold",
    )
    if agreement.notes:
        yield Text("\n".join(map(clean, agreement.notes)), style="yellow")
    if conclusions := [_conclusion(grader, agreement) for grader in agreement.graders if grader.cells]:
        yield Text("\n".join(conclusions))
    if agreement.minimums:
        yield with_title("Minimums", Group(*map(_minimum_line, agreement.minimums)))
    for grader in agreement.graders:
        if grader.cells or grader.unmeasured:
            yield from _grader(grader, width)
    if any(question.shared for question in agreement.people):
        yield with_title("Agreement among raters", _question_table(agreement.people, width))
        yield from _pairs(agreement.people, width)
    yield from pair_tables(agreement, width)
    if agreement.raters:
        yield with_title("Raters", _raters(agreement.raters, width))
    if agreement.correction is not None:
        yield from correction_parts(agreement.correction, width)
    yield from agreement_cards(agreement.judges, width)


def _conclusion(grader: GraderAgreement, agreement: Agreement) -> str:
    """The headline in one sentence: how far grader and raters agree, on how many cells, and the raters themselves."""
    measure = grader.measures[grader.headline]
    cells = count_of(grader.cells, "cell") if measure.n == grader.cells else f"{measure.n:,} of {grader.cells:,} cells"
    parts = [
        f"{_NAMES[grader.headline]} {_show_interval(measure, '')} on {cells}",
        f"raters evenly split on {grader.split:,}" * bool(grader.split),
        grader.left_out.sentence("labeled cell", agreement.allowed_unmeasured),
        "" if grader.ceiling.value is None else f"a rater and the others agree {_show_interval(grader.ceiling, '')}",
    ]
    about = grader.metric if grader.metric == grader.question else f"{grader.metric} and human label {grader.question}"
    return clean(f"{about}: {'; '.join(filter(None, parts))}")


def _grader(grader: GraderAgreement, width: int) -> Iterator[RenderableType]:
    title = f"{grader.metric} and human label {grader.question}, cells: {grader.cells:,}"
    remarks = [
        f"{grader.split:,} evenly split among raters, left out of kappa, accuracy and FAIL" * bool(grader.split),
        f"{grader.unmeasured:,} more not measured" * bool(grader.unmeasured),
        f"FAIL means a violation of {grader.rule}" * bool(grader.rule),
    ]
    rows: list[tuple[Cell, ...]] = [
        (Text(_NAMES[name], style="bold" if name == grader.headline else ""), *measure_cells(measure))
        for name, measure in grader.measures.items()
    ]
    rows.append((f"a rater against the others ({_NAMES[grader.headline]})", *measure_cells(grader.ceiling)))
    rows.append(("the grader in a rater's place (same references)", *measure_cells(grader.grader_as_rater)))
    columns = (Column("measure", min_width=18), Column("value", right=True), Column("95%"), Column("n", right=True))
    notes = [part for part in remarks if part]
    yield Group(
        plain(title, "bold"),
        *([Text(clean("; ".join(notes)), style="dim")] if notes else []),
        table((*columns, Column("", min_width=20)), rows, width),
    )
    if grader.confusion is not None:
        yield with_title("Human labels (rows) by grader (columns)", _confusion(grader.confusion, width))
    if grader.disputed:
        yield with_title("Largest disagreements", _disputed(grader, width))


def _confusion(confusion: Confusion, width: int) -> RenderableType:
    columns = [Column(""), *(Column(name, right=True) for name in confusion.grader)]
    rows = [(name, *map(str, row)) for name, row in zip(confusion.people, confusion.counts, strict=True)]
    return table(columns, rows, width)


def _disputed(grader: GraderAgreement, width: int) -> RenderableType:
    shown = grader.disputed[:MAX_DISPUTED]
    has_reasons = any(cell.reason for cell in shown)
    columns = (
        Column("case", min_width=12),
        Column("model run", min_width=12),
        Column("human", right=True),
        Column("grader", right=True),
        *([Column("why", min_width=20)] if has_reasons else []),
    )
    rows = [
        (
            f"{cell.test_id} [{cell.sample_index}]" if cell.sample_index else cell.test_id,
            cell.model_label,
            f"{cell.people:.2g} ({cell.raters})",
            f"{cell.grader:.3g}",
            *([one_line(cell.reason, 120)] if has_reasons else []),
        )
        for cell in shown
    ]
    return table(columns, rows, width)


def _question_table(questions: Sequence[RaterAgreement], width: int) -> RenderableType:
    columns = (
        Column("question", min_width=12),
        Column("raters", right=True),
        Column("items", right=True),
        Column("shared", right=True),
        Column("Krippendorff's alpha [95%]", min_width=26),
        Column("Fleiss"),
        Column("Cohen", right=True),
    )
    return table(columns, [_question_row(question) for question in questions], width)


def _question_row(question: RaterAgreement) -> tuple[Cell, ...]:
    levels = question.alpha.items()
    alpha = "\n".join(_show_interval(measure, f" {level}" if len(levels) > 1 else "") for level, measure in levels)
    fleiss_note = f" (of {question.fleiss_raters})" if question.fleiss.value is not None else ""
    name = question.question if question.tag is None else f"{question.question}: {question.tag}"
    numbers = (f"{question.raters:,}", f"{question.items:,}", f"{question.shared:,}")
    return name, *numbers, alpha, f"{_value(question.fleiss)}{fleiss_note}", _value(question.cohen_mean)


def _show_interval(measure: Statistic, more: str) -> str:
    if measure.value is None:
        return measure.note or "-"
    interval = f" [{measure.low:.2f}, {measure.high:.2f}]" if measure.low is not None else ""
    return f"{measure.value:.3f}{interval}{more}" + (f" ({measure.note})" if measure.note else "")


def _value(measure: Statistic) -> str:
    return "-" if measure.value is None else f"{measure.value:.3f}"


def _pairs(questions: Sequence[RaterAgreement], width: int) -> Iterator[RenderableType]:
    """A table of rater pairs for questions with few pairs."""
    rows = [
        (question.question if question.tag is None else f"{question.question}: {question.tag}",
         *pair.raters, str(pair.n), "-" if pair.kappa is None else f"{pair.kappa:.3f}")
        for question in questions
        if len(question.cohen) <= MAX_PAIRS
        for pair in question.cohen
    ]  # fmt: skip
    if rows:
        columns = (Column("question", min_width=12), Column("rater A", min_width=8), Column("rater B", min_width=8))
        yield with_title(
            "Pairs of raters (Cohen's kappa, quadratic weights for scales)",
            table((*columns, Column("items", right=True), Column("kappa", right=True)), rows, width),
        )


def _raters(raters: Sequence[RaterFinding], width: int) -> RenderableType:
    columns = (
        Column("rater", min_width=12),
        Column("answers", right=True),
        Column("same answer on repeats"),
        Column("matching anchors"),
        Column("by day", min_width=16),
    )
    rows = [
        (rater.rater, f"{rater.answers:,}", _show_repeats(rater.repeats), _show_repeats(rater.anchors),
         ", ".join(f"{day.day} {day.same}/{day.n}" for day in rater.days))
        for rater in raters[:MAX_RATERS]
    ]  # fmt: skip
    hidden = len(raters) - MAX_RATERS
    body = table(columns, rows, width)
    return body if hidden <= 0 else Group(body, Text(f"... and {hidden} more raters", style="dim"))


def _show_repeats(repeats: MatchCount) -> str:
    if not repeats.n:
        return "-"
    distance = f", {repeats.distance:.2g} steps apart" if repeats.distance else ""
    return f"{repeats.same}/{repeats.n}{distance}"


def _minimum_line(minimum: MinimumResult) -> Text:
    mark, color = _MARKS[minimum.state]
    name = "" if minimum.measure is None else f" {_NAMES[minimum.measure]}"
    line = f"{FLAGS[minimum.bound]} {minimum.metric}:{minimum.required:g}{':' * bool(name)}{name}"
    if minimum.value is not None:
        line += f" {_beside(minimum.value, minimum.required)}"
    if minimum.low is not None:
        line += f", lower bound {_beside(minimum.low, minimum.required)}"
    return Text.assemble((mark, color), f"  {clean(line)}{f' ({clean(minimum.note)})' if minimum.note else ''}")


def _beside(value: float, required: float) -> str:
    return show_beside(value, required, 3, "f")
