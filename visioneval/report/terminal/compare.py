"""A comparison in a terminal or a pipe: what broke, what was fixed, then the numbers. Nothing by colour alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.gates import GateResult, State
from visioneval.analysis.compare.pairing import CellPair, Change
from visioneval.report.sentences import (
    TITLES,
    change_in_words,
    headline,
    left_out,
    money_and_time,
    next_command,
    notes,
    power_lines,
    show_difference,
    show_n,
    show_p,
    show_value,
    unlike_lines,
)
from visioneval.report.terminal.table import Cell, Column, fitted, table, titled
from visioneval.report.text import clean, plain

SHOWN = 20
TOLD: tuple[Change, ...] = ("broken", "error_after", "fixed", "error_before", "still_failing", "still_error")
_COLOURS = {"broken": "red", "error_after": "yellow", "fixed": "green", "error_before": "green"}
_MARKS: dict[State, str] = {"passed": "passed", "failed": "FAILED", "unmeasured": "NOT MEASURED"}
_MARK_COLOURS: dict[State, str] = {"passed": "green", "failed": "red", "unmeasured": "yellow"}


def print_comparison(found: Comparison, held: Sequence[GateResult], console: Console, *, shown: int = SHOWN) -> None:
    """Prints a whole comparison, gates last."""
    for part in _parts(found, held, console.width, shown):
        console.print(part)
        console.print()
    following = next_command(found)
    if following is not None:  # no fold of ours: a command that the terminal wraps can still be copied
        console.print(plain(f"next: {following}"), soft_wrap=True)


def _parts(found: Comparison, held: Sequence[GateResult], width: int, shown: int) -> Iterator[RenderableType]:
    yield _headline(found)
    lines = [*unlike_lines(found)]
    if lines:
        yield titled("NOT GRADED ALIKE: differences below may be the graders'", plain("\n".join(lines), "yellow"))
    for change in TOLD:
        pairs = found.changed(change)
        if pairs:
            yield _flips(change, pairs[:shown], len(pairs), found, width)
    yield from _numbers(found, width)
    out = left_out(found)
    if out:
        yield titled("Not compared: in one run only", plain("\n".join(out)))
    yield titled("Gates (--fail-on)", _gates(held, width))


def _headline(found: Comparison) -> RenderableType:
    first, *rest = headline(found)
    return Group(plain(first, "bold"), *(plain(line) for line in (*rest, *notes(found))))


def _flips(change: Change, pairs: Sequence[CellPair], total: int, found: Comparison, width: int) -> RenderableType:
    samples = any(pair.b.sample_index for pair in found.pairs)
    columns = [Column("case [sample]" if samples else "case", least=12), Column("rules and reasons", least=24)]
    rows: list[list[Cell]] = [
        [
            Text(_name(pair, samples=samples), style=_COLOURS.get(change, "")),
            plain("\n".join(change_in_words(pair, found.b.writers))),
        ]
        for pair in pairs
    ]
    if len(found.labels) > 1:
        numbers = {new: str(number) for number, (_, new) in enumerate(found.labels, 1)}
        columns.insert(0, Column("#", right=True))
        for row, pair in zip(rows, pairs, strict=True):
            row.insert(0, numbers[pair.b.model_label])
    body = table(columns, rows, width)
    title = f"{TITLES[change]}: {total:,}"
    if len(pairs) == total:
        return titled(title, body)
    return titled(title, Group(body, Text(f"... and {total - len(pairs):,} more: --json lists all", style="dim")))


def _name(pair: CellPair, *, samples: bool) -> str:
    notes = [word for word, told in (("must_pass", pair.must_pass), ("flaky", pair.flaky)) if told]
    notes += ["same image"] if pair.same_output else []
    name = f"{pair.b.test_id} [{pair.b.sample_index}]" if samples else pair.b.test_id
    return clean(f"{name}\n({', '.join(notes)})" if notes else name)


def _numbers(found: Comparison, width: int) -> Iterator[RenderableType]:
    tested = [found.pass_rate, *found.metrics]
    yield titled("Pass rate and metrics, pair by pair", _differences("metric", tested, width, adjusted=True))
    power = list(power_lines(tested))
    if power:
        yield plain("\n".join(power), "dim")
    for title, what, own in (
        ("Pass rate by model run", "model run", found.by_run),
        ("Pass rate by tag", "tag", found.by_tag),
        ("By type of question", "type", found.by_type),
    ):
        if own:
            yield titled(f"{title} (p not adjusted)", _differences(what, own, width, adjusted=False))
    rows = list(money_and_time(found))
    if rows:
        columns = (Column("", least=8), Column("A", right=True), Column("B", right=True), Column("over"))
        yield titled("Cost and time", table(columns, rows, width))


def _differences(what: str, found: Sequence[Difference], width: int, *, adjusted: bool) -> RenderableType:
    """Where it is too narrow, with the interval on a line of its own."""
    columns = [
        Column(what, least=10),
        Column("A", right=True),
        Column("B", right=True),
        Column("B - A [95%]", right=True),
        Column("p Holm" if adjusted else "p", right=True),
        Column("n (cases)", right=True),
        Column(""),
    ]
    rows = [_row(one, adjusted=adjusted) for one in found]
    if fitted(columns, rows, width) is None:
        for row in rows:
            row[3] = plain(str(row[3]).replace(" [", "\n["))
    return table(columns, rows, width)


def _row(one: Difference, *, adjusted: bool) -> list[Cell]:
    return [
        one.name,
        show_value(one, one.a),
        show_value(one, one.b),
        show_difference(one),
        show_p(one.p_holm if adjusted else one.p),
        show_n(one),
        _judged(one),
    ]


def _judged(one: Difference) -> Text:
    worse = one.worse_by
    if not worse:
        return Text("")
    word, colour = ("worse", "red") if worse > 0 else ("better", "green")
    return Text(f"{word}!", style=f"bold {colour}") if one.significant else Text(word, style="dim")


def _gates(held: Sequence[GateResult], width: int) -> RenderableType:
    columns = (Column(""), Column("gate", least=12), Column("found", least=20))
    rows = [
        (Text(_MARKS[one.state], style=_MARK_COLOURS[one.state]), one.fail_on.text, plain(one.message)) for one in held
    ]
    return table(columns, rows, width)
