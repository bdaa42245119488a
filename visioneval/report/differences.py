"""The differences of a comparison: tables of the pass rate and the metrics, and the words for each number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal
from urllib.parse import urlencode

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import FEWEST_CASES, Difference
from visioneval.errors import count_of
from visioneval.report.numbers import show_share
from visioneval.report.sections import Cell, Column, Interval, Section, Tone, Value, quoted
from visioneval.rules import is_equal, show_beside

_WHOLE_NAME, _SHORTEST_NAME = 30, 10
"""Characters of a name that are not broken, where that fits with two lines for each metric, and where it does not."""
_Kind = Literal["tested", "verdicts", "scores"]
"""Differences that are adjusted and decide, of which broken and fixed cells are counted, and others."""


def difference_sections(comparison: Comparison) -> Iterator[Section]:
    """The tables, folded where there are too few cases: then they only distract from what broke."""
    tested = (comparison.pass_rate, *comparison.metrics)
    has_few_cases = all(item.n_cases < FEWEST_CASES for item in tested)
    fold = f"Statistics of fewer than {FEWEST_CASES} cases" if has_few_cases else ""
    power = [Value(line, "dim", quoted=True) for line in power_lines(tested)]
    tables: tuple[tuple[str, str, Sequence[Difference], _Kind], ...] = (
        ("Pass rate and metrics (paired)", "metric", tested, "tested"),
        ("Pass rate by model run (p not adjusted)", "model run", comparison.by_run, "verdicts"),
        ("Pass rate by tag (p not adjusted)", "tag", comparison.by_tag, "verdicts"),
        ("By question type (p not adjusted)", "type", comparison.by_type, "scores"),
        ("Shares of words (p not adjusted)", "word", comparison.by_word, "scores"),
        ("Cells by failure tag (p not adjusted)", "tag", comparison.by_failure_tag, "scores"),
    )
    for title, heading, differences, kind in tables:
        if differences:
            section = Section(title, notes=power if kind == "tested" else (), fold=fold, name="differences")
            yield _with_table(section, heading, differences, kind)


def _with_table(section: Section, heading: str, differences: Sequence[Difference], kind: _Kind) -> Section:
    columns = [
        Column(heading, min_width=_WHOLE_NAME),
        *(Column(name, is_number=True) for name in "AB"),
        Column("B - A [95%]", is_number=True, axis=("worse", "0", "better")),
        Column("p", is_number=True),
        *([Column("p Holm", is_number=True)] if kind == "tested" else []),
        Column("n (cases)", is_number=True),
        *([Column("broken / fixed")] if kind == "verdicts" else []),
        Column("result"),
    ]
    has_links = heading == "tag" and kind == "verdicts"
    rows: list[list[Cell]] = [
        [
            quoted(item.name, link=f"#pairs?{urlencode({'tag': item.name})}" if has_links else ""),
            show_value(item, item.a),
            show_value(item, item.b),
            Value(show_difference(item), plot=_plot(item)),
            show_p(item.p),
            *([show_p(item.p_holm)] if kind == "tested" else []),
            show_n(item),
            *([f"{item.lower:,} / {item.higher:,}"] if kind == "verdicts" else []),
            _result(item),
        ]
        for item in differences
    ]
    narrow_columns = [replace(column, name=re.sub(r" (?=[\[(/])", "\n", column.name)) for column in columns]
    narrow_columns[-1] = Column("result", min_width=8)
    narrow_rows = [list(row) for row in rows]
    for row, item in zip(narrow_rows, differences, strict=True):
        row[3] = show_difference(item).replace(" [", "\n[")
    if kind == "tested":
        narrow_columns[4:6] = [Column("p\nHolm", is_number=True)]
        for row in narrow_rows:
            row[4:6] = [f"{row[4]}\n{row[5]}"]
    short_names = [replace(narrow_columns[0], min_width=_SHORTEST_NAME), *narrow_columns[1:]]
    narrowest = replace(section, columns=short_names, rows=narrow_rows)
    narrow = replace(narrowest, columns=narrow_columns, narrow=narrowest)
    return replace(section, columns=columns, rows=rows, narrow=narrow)


def _plot(difference: Difference) -> Interval | None:
    """Each metric on its own scale, better to the right: only the side of zero is comparable between metrics."""
    if difference.worse_by is None:
        return None
    sign = -1 if difference.metric.better == "lower" else 1
    interval = difference.interval
    low, high = (None, None) if interval is None else sorted((sign * interval.low, sign * interval.high))
    better_by = -difference.worse_by
    reach = max(abs(end or 0.0) for end in (low, better_by, high)) or 1.0
    return Interval(low, better_by, high, ends=(-reach, reach), marks=(0.0,))


def _result(difference: Difference) -> Value:
    word = assessment(difference)
    if not difference.significant:
        return Value(word, "plain" if difference.is_evident else "dim")
    tones: dict[str, Tone] = {"worse": "fail", "better": "pass"}
    return Value(f"significantly {word}", tones.get(word, "strong"), short=f"{word}!")


def assessment(difference: Difference) -> str:
    """Whether B is better or worse. Without evidence of it: ``no clear change``, or why there can be none."""
    if difference.difference is None:
        return ""
    if not difference.is_evident:
        if not difference.changed_cases:
            return "no change"
        return "no clear change" if difference.is_testable else "cannot tell: too few cases"
    if difference.worse_by is None:
        return "higher" if difference.difference > 0 else "lower"
    return "worse" if difference.worse_by > 0 else "better"


def show_value(difference: Difference, value: float | None) -> str:
    """A rate as a percentage, a mean as a number."""
    if value is None:
        return "-"
    return show_share(value) if difference.metric.type == "bool" else f"{value:.4g}"


def show_difference(difference: Difference) -> str:
    """``-8.3 [-20.1, +3.2]``, in points for a rate; the interval is omitted if there is none.

    Each number has the digits that show its side of 0. An end of 0 is in the interval, ``<0`` and ``>0`` are not.
    """
    if difference.difference is None:
        return "-"
    is_rate, interval = difference.metric.type == "bool", difference.interval
    text = _signed(difference.difference, is_rate=is_rate) or "0"
    if interval is None:
        return text
    low, high = (
        _signed(end, is_rate=is_rate) or ("0" if not end else "<0" if end < 0 else ">0")
        for end in (interval.low, interval.high)
    )
    return f"{text} [{low}, {high}]"


def _signed(value: float, *, is_rate: bool) -> str:
    """A number with its sign; empty if it is 0, or no further from it than rounding."""
    if is_equal(value, 0):
        return ""
    text = show_beside(100 * value, 0, 1, "f").removesuffix(".0") if is_rate else show_beside(value, 0, 3)
    return f"+{text}" if value > 0 else text


def show_p(p: float | None) -> str:
    """A p-value, rounded to its meaningful digits."""
    if p is None:
        return "-"
    return "<0.0001" if p < 0.0001 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def show_n(difference: Difference) -> str:
    """Number of pairs, in parentheses the number of cases if that is smaller; ``!2`` counts unmeasured pairs."""
    cases = f" ({difference.n_cases})" if difference.n_cases != difference.n_pairs else ""
    return f"{difference.n_pairs}{cases}" + (f" !{difference.unmeasured}" if difference.unmeasured else "")


def power_lines(differences: Sequence[Difference]) -> Iterator[str]:
    """What the comparison can miss, by number of cases; metrics with the same size share an entry.

    A change that was found is no example of one that is always missed.
    """
    names_by_cases: dict[int, dict[str | None, list[str]]] = {}
    for item in differences:
        if item.n_cases and not (item.is_evident and item.detectable is None):
            names_by_cases.setdefault(item.n_cases, {}).setdefault(_detectable(item), []).append(item.name)
    for number, names in names_by_cases.items():
        names.pop("", None)
        hidden = names.pop(None, [])
        cases = count_of(number, "case")
        if sizes := [f"{size} ({', '.join(metrics)})" for size, metrics in names.items()]:
            yield f"With {cases}, a change below {'; '.join(sizes)} can be missed (more than one time in five)"
        if hidden:
            yield f"With {cases}, any change can be missed ({', '.join(hidden)})"
    if any(item.unmeasured for item in differences):
        yield "!n: not measured on at least one side in n more pairs"


def _detectable(difference: Difference) -> str | None:
    """The smallest change that is found; ``None`` if none is, and empty for a number that does not vary."""
    if difference.metric.type != "bool":
        return "" if difference.detectable is None else f"{difference.detectable:.2g}"
    if difference.detectable is None:
        return None
    points = difference.detectable * 100
    return f"{points:.0f} points" if points >= 10 else f"{points:.2g} points"
