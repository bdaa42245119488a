"""A comparison in a terminal or a pipe: broken and fixed cells, then metrics. Color never carries meaning alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.text import Text

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import FEWEST_CASES, Difference
from visioneval.analysis.compare.gates import GateResult, State, exit_code
from visioneval.analysis.compare.pairing import CellPair, Change
from visioneval.report.sentences import (
    TITLES,
    assessment,
    compare_outcome,
    cost_and_time_rows,
    describe_change,
    has_few_cases,
    headline,
    mismatch_lines,
    next_command,
    notes,
    power_lines,
    show_difference,
    show_n,
    show_p,
    show_value,
    unpaired_lines,
)
from visioneval.report.terminal.table import Cell, Column, fit_columns, table, with_title
from visioneval.report.text import clean, one_line, plain

MAX_ROWS = 20
MAX_GAPS = 200
"""Characters of the gaps of one image."""
LISTED_CHANGES: tuple[Change, ...] = ("broken", "error_after", "fixed", "error_before", "still_failing", "still_error")
_WHOLE_NAME = 30
"""Characters of a name that are not broken where two lines for each metric prevent it."""
_SHORTEST_NAME = 10
_COLORS = {"broken": "red", "error_after": "yellow", "fixed": "green", "error_before": "green"}
_ASSESSMENT_COLORS = {"worse": "red", "better": "green"}
_TONES = {"pass": "green", "fail": "red", "error": "yellow", "plain": ""}
_MARKS: dict[State, tuple[str, str]] = {
    "passed": ("passed", "green"),
    "failed": ("FAILED", "red"),
    "unmeasured": ("NOT MEASURED", "yellow"),
    "cannot_tell": ("CANNOT TELL", "yellow"),
    "not_applicable": ("not applicable", "dim"),
}
"""What a gate's state is called, and its style."""


def print_comparison(
    comparison: Comparison,
    gates: Sequence[GateResult],
    console: Console,
    *,
    max_rows: int = MAX_ROWS,
    interrupted: bool = False,
) -> None:
    """Prints a comparison: the outcome first, and again with the gates, last."""
    outcome = _outcome_line(comparison, gates, interrupted=interrupted)
    console.print(outcome)
    for part in _parts(comparison, gates, console.width, max_rows):
        console.print(part)
        console.print()
    console.print(outcome)
    command = next_command(comparison)
    if command is not None:  # not wrapped by us, so that the command can be copied
        console.print(plain(f"next: {command}"), soft_wrap=True)


def _parts(comparison: Comparison, gates: Sequence[GateResult], width: int, max_rows: int) -> Iterator[RenderableType]:
    yield _headline(comparison)
    lines = [*mismatch_lines(comparison)]
    if lines:
        yield with_title(
            "Graded differently: the differences below may come from that, not from the outputs",
            plain("\n".join(lines), "yellow"),
        )
    for change in LISTED_CHANGES:
        pairs = comparison.changed(change)
        if pairs:
            yield _change_table(change, list(pairs[:max_rows]), len(pairs), comparison, width)
    if comparison.alignments:
        yield _alignment_table(comparison, width, max_rows)
    if has_few_cases(comparison):
        yield plain(f"Statistics of fewer than {FEWEST_CASES} cases are left out: --json has them", "dim")
    else:
        yield from _statistics(comparison, width)
    rows = list(cost_and_time_rows(comparison))
    if rows:
        columns = (Column("", min_width=8), Column("A", right=True), Column("B", right=True), Column("pairs"))
        yield with_title("Cost and time", table(columns, rows, width))
    unpaired = unpaired_lines(comparison)
    if unpaired:
        yield with_title("Not compared: only in one run", plain("\n".join(unpaired)))
    yield with_title("Gates (--fail-on)", _gates(gates, width))


def _outcome_line(comparison: Comparison, gates: Sequence[GateResult], *, interrupted: bool) -> Text:
    """The outcome and the exit code that follows from it."""
    tone, sentence = ("error", "Interrupted") if interrupted else compare_outcome(comparison, gates)
    code = exit_code(comparison, gates, interrupted=interrupted)
    return Text(f"{sentence} (exit code {code})", style=f"bold {_TONES[tone]}")


def _headline(comparison: Comparison) -> RenderableType:
    first, *rest = headline(comparison)
    return Group(plain(first, "bold"), *(plain(line) for line in (*rest, *notes(comparison))))


def _change_table(
    change: Change, pairs: Sequence[CellPair], total: int, comparison: Comparison, width: int
) -> RenderableType:
    samples = comparison.has_samples
    columns = [Column("case [sample]" if samples else "case", min_width=12), Column("rules and reasons", min_width=24)]
    rows: list[list[Cell]] = [
        [
            Text(_name(pair, samples=samples), style=_COLORS.get(change, "")),
            plain("\n".join(describe_change(pair, comparison.b.writers))),
        ]
        for pair in pairs
    ]
    if len(comparison.labels) > 1:
        numbers = {new: str(number) for number, (_, new) in enumerate(comparison.labels, 1)}
        columns.insert(0, Column("#", right=True))
        for row, pair in zip(rows, pairs, strict=True):
            row.insert(0, numbers[pair.b.model_label])
    body = table(columns, rows, width)
    title = f"{TITLES[change]}: {total:,}"
    if len(pairs) == total:
        return with_title(title, body)
    return with_title(title, Group(body, Text(f"... and {total - len(pairs):,} more: --json lists all", style="dim")))


def _alignment_table(comparison: Comparison, width: int, max_rows: int) -> RenderableType:
    """Both sides of each pair, with what each image misses; passing ones are included."""
    columns = [Column("case", min_width=12), Column("A", right=True), Column("B", right=True)]
    columns += [Column("gaps in A", min_width=16), Column("gaps in B", min_width=16)]
    samples, items = comparison.has_samples, comparison.alignments[:max_rows]
    rows: list[list[Cell]] = [
        [
            _name(item.pair, samples=samples),
            *("-" if score is None else f"{score:.1f}" for score in (item.a, item.b)),
            *(plain(one_line(gaps, MAX_GAPS)) for gaps in (item.a_gaps, item.b_gaps)),
        ]
        for item in items
    ]
    if len(comparison.labels) > 1:
        numbers = {new: str(number) for number, (_, new) in enumerate(comparison.labels, 1)}
        columns.insert(0, Column("#", right=True))
        for row, item in zip(rows, items, strict=True):
            row.insert(0, numbers[item.pair.b.model_label])
    body: RenderableType = table(columns, rows, width)
    if hidden := len(comparison.alignments) - len(rows):
        body = Group(body, Text(f"... and {hidden:,} more: --json lists all", style="dim"))
    return with_title("Alignment side by side, largest loss first", body)


def _name(pair: CellPair, *, samples: bool) -> str:
    notes = [note for note, applies in (("must_pass", pair.must_pass), ("flaky", pair.flaky)) if applies]
    notes += ["same output"] if pair.same_output else []
    notes += ["changed rules only"] if pair.is_moved_by_rules else []
    name = f"{pair.b.test_id} [{pair.b.sample_index}]" if samples else pair.b.test_id
    return clean(f"{name}\n({', '.join(notes)})" if notes else name)


def _statistics(comparison: Comparison, width: int) -> Iterator[RenderableType]:
    tested = [comparison.pass_rate, *comparison.metrics]
    yield with_title("Pass rate and metrics (paired)", _differences("metric", tested, width, adjusted=True))
    power = list(power_lines(tested))
    if power:
        yield plain("\n".join(power), "dim")
    for title, heading, differences, of_verdicts in (
        ("Pass rate by model run", "model run", comparison.by_run, True),
        ("Pass rate by tag", "tag", comparison.by_tag, True),
        ("By question type", "type", comparison.by_type, False),
        ("Cells by failure tag", "tag", comparison.by_failure_tag, False),
    ):
        if differences:
            body = _differences(heading, differences, width, adjusted=False, of_verdicts=of_verdicts)
            yield with_title(f"{title} (p not adjusted)", body)


def _differences(
    heading: str, differences: Sequence[Difference], width: int, *, adjusted: bool, of_verdicts: bool = False
) -> RenderableType:
    """A table with one line for each metric, or with two if names would break. ``of_verdicts`` counts broken cells."""
    name = min(_WHOLE_NAME, max(cell_len(clean(difference.name)) for difference in differences))
    for is_narrow, min_width in ((False, name), (True, name), (True, _SHORTEST_NAME)):
        columns = _columns(Column(heading, min_width=min_width), adjusted, of_verdicts, is_narrow)
        rows = [_row(difference, adjusted, of_verdicts, is_narrow) for difference in differences]
        if fit_columns(columns, rows, width) is not None:
            break
    return table(columns, rows, width)


def _columns(first: Column, adjusted: bool, of_verdicts: bool, is_narrow: bool) -> list[Column]:
    """The columns. Narrow ones have two lines: the interval is below the difference, and Holm's p below p."""
    p = [Column("p\nHolm", right=True)] if adjusted and is_narrow else [Column("p", right=True)]
    p += [Column("p Holm", right=True)] if adjusted and not is_narrow else []
    return [
        first,
        Column("A", right=True),
        Column("B", right=True),
        Column("B - A\n[95%]" if is_narrow else "B - A [95%]", right=True),
        *p,
        Column("n\n(cases)" if is_narrow else "n (cases)", right=True),
        *([Column("broken\n/ fixed" if is_narrow else "broken / fixed")] if of_verdicts else []),
        Column("result", min_width=8 if is_narrow else None),
    ]


def _row(difference: Difference, adjusted: bool, of_verdicts: bool, is_narrow: bool) -> list[Cell]:
    text = show_difference(difference)
    p, p_holm = show_p(difference.p), show_p(difference.p_holm)
    p_cells = [f"{p}\n{p_holm}"] if is_narrow else [p, p_holm]
    return [
        difference.name,
        show_value(difference, difference.a),
        show_value(difference, difference.b),
        plain(text.replace(" [", "\n[")) if is_narrow else text,
        *(map(plain, p_cells if adjusted else [p])),
        show_n(difference),
        *([f"{difference.lower:,} / {difference.higher:,}"] if of_verdicts else []),
        _assessment(difference),
    ]


def _assessment(difference: Difference) -> Text:
    word = assessment(difference)
    if not difference.is_evident:
        return Text(word, style="dim")
    color = _ASSESSMENT_COLORS.get(word, "")
    return Text(f"{word}!", style=f"bold {color}".strip()) if difference.significant else Text(word, style=color)


def _gates(gates: Sequence[GateResult], width: int) -> RenderableType:
    columns = (Column(""), Column("gate", min_width=12), Column("result", min_width=20))
    rows = [(Text(*_MARKS[gate.state]), gate.fail_on.text, plain(gate.message)) for gate in gates]
    return table(columns, rows, width)
