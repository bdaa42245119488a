"""What a comparison says: how it ended, what restricts its numbers, and tables of the differences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal
from urllib.parse import urlencode

from visioneval.analysis.compare.compare import Comparison, shortened
from visioneval.analysis.compare.differences import FEWEST_CASES, Difference
from visioneval.analysis.compare.drift import Drift, Night
from visioneval.analysis.compare.gates import GateResult, OverallState, check_coverage, exit_code, overall_state
from visioneval.analysis.compare.metrics import HASHED_PARTS
from visioneval.analysis.compare.pairing import Change
from visioneval.analysis.sides import Side
from visioneval.errors import count_of
from visioneval.report.sections import (
    Cell,
    Column,
    Interval,
    Outcome,
    Section,
    Tone,
    Value,
    dim,
    numbers,
    quoted,
    shown_columns,
)
from visioneval.report.text import rerouting_lines, show_share
from visioneval.rules import is_equal, show_beside

_WHOLE_NAME, _SHORTEST_NAME = 30, 10
"""Characters of a name that are not broken, where that fits with two lines for each metric, and where it does not."""
_Kind = Literal["tested", "verdicts", "scores"]
"""Differences that are adjusted and decide, of which broken and fixed cells are counted, and others."""
MAX_LISTED = 5
CHANGE_WORDS: dict[Change, tuple[str, str]] = {
    "broken": ("Broken (passed in A, fails in B)", "broken"),
    "error_after": ("New errors (measured in A, ERROR in B)", "new error{s}"),
    "fixed": ("Fixed (failed in A, passes in B)", "fixed"),
    "error_before": ("Resolved errors (ERROR in A, measured in B)", "resolved error{s}"),
    "still_failing": ("Still failing", "still failing"),
    "still_error": ("ERROR in both", "error{s} in both"),
    "still_passing": ("Still passing", "still passing"),
}
"""The title of the cells with a change, and what follows their number."""
_OUTCOMES: dict[OverallState, tuple[Tone, str]] = {
    "passed": ("pass", "All gates passed"),
    "failed": ("fail", "A gate failed"),
    "unmeasured": ("error", "A gate was not measured"),
    "cannot_tell": ("error", "A gate cannot tell"),
    "incomplete": ("error", "B is incomplete"),
}
_ALSO: dict[OverallState, str] = {"unmeasured": "another was not measured", "incomplete": "B is incomplete"}
"""What follows a failed gate where the exit code is not that of the gate."""
_HASH = re.compile("[0-9a-f]{12}")


COLUMNS = ("A", "B", "B - A [95%]", "p", "p Holm", "n (cases)", "broken / fixed", "result")
"""The numbers of a metric:

- ``A``: The rate or mean over the pairs measured on both sides; each case counts the same, whatever its samples.
- ``B``: The same of B.
- ``B - A [95%]``: The paired difference, in points for a rate, and its interval over cases. An end of `0` is in the
  interval; `<0` and `>0` exclude only 0.
- ``p``: Below 0.05 exactly where the interval excludes 0.
- ``p Holm``: What decides: the pass rate as it is, other metrics adjusted by Holm. Metrics that changed in too few
  cases to be significant do not count.
- ``n (cases)``: The pairs, and the cases if they differ. `!2`: two more pairs could not be measured.
- ``broken / fixed``: The pairs that passed in A only, and in B only.
- ``result``: `worse` or `better` if the p-value is below the level that decides, else `no clear change`. `cannot tell:
  too few cases` if no outcome could have been clear.
"""


def difference_sections(comparison: Comparison) -> Iterator[Section]:
    """The tables, folded where there are too few cases: then they only distract from what broke."""
    tested = (comparison.pass_rate, *comparison.metrics)
    has_few_cases = all(item.n_cases < FEWEST_CASES for item in tested)
    fold = f"Statistics of fewer than {FEWEST_CASES} cases" if has_few_cases else ""
    power = [Value(line, "dim", quoted=True) for line in power_lines(tested)]
    if any(item.n_cases != item.n_pairs for item in tested):
        power.insert(0, dim("A and B: each case counts the same, whatever the number of its cells"))
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
    columns = [Column(heading, min_width=_WHOLE_NAME), *numbers(*COLUMNS[:-2]), *map(Column, COLUMNS[-2:])]
    columns[3] = replace(columns[3], axis=("worse", "0", "better"))
    is_shown = {"p Holm": kind == "tested", "broken / fixed": kind == "verdicts"}
    has_links = heading == "tag" and kind == "verdicts"
    rows: list[list[Cell]] = [
        [
            quoted(item.name, link=f"#pairs?{urlencode({'tag': item.name})}" if has_links else ""),
            *(show_value(item, value) for value in (item.a, item.b)),
            Value(show_difference(item), plot=_plot(item)),
            *(show_p(item.p), show_p(item.p_holm), show_n(item), f"{item.lower:,} / {item.higher:,}", _result(item)),
        ]
        for item in differences
    ]
    columns, rows = shown_columns(columns, rows, is_shown)
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


def drift_section(drift: Drift, a: Side) -> Section:
    """The last runs of an experiment: each beside A, what the runs up to it say together, and what is not compared.

    The columns:

    - `B - A [95%]`: the difference of that run's pass rate
    - `together (runs)`: that of the run and those before it, up to `--last`, and their number
    - `p`: one-sided, that these runs are worse by chance; `DRIFT` below the limit under the table
    """
    columns = [
        Column("date"),
        Column("run", min_width=8),
        Column("B - A [95%]", is_number=True, axis=("worse", "0", "better")),
        *numbers("together (runs)", "p"),
        Column("result"),
    ]
    reach = max((_reach(night.difference) for night in drift.nights if night.difference), default=1.0)
    rows = [list(_night_cells(drift, night, reach)) for night in drift.nights]
    title = f"Drift: {drift.experiment} against {a.name}"
    return Section(title, columns, rows, list(_drift_notes(drift)), name="drift")


def _night_cells(drift: Drift, night: Night, reach: float) -> Iterator[Cell]:
    rate, evidence = night.difference, night.evidence
    yield from (night.date, quoted(night.run_id))
    if rate is None or evidence is None:
        yield from ("-", "-", "-", Value("left out", "error"))
        return
    yield Value(show_difference(rate), plot=_plot(rate, reach))
    yield from (f"{_signed(evidence.change, is_rate=True) or '0'} ({evidence.runs})", show_p(evidence.p))
    yield Value("DRIFT", "fail") if drift.is_beyond(night) else dim("no drift")


def _drift_notes(drift: Drift) -> Iterator[Value]:
    """How to read the table, and the holes of the series."""
    number = len(drift.nights)
    there_are = f", of which there are {number}" if number < drift.last else ""
    yield dim(
        f"Together: a run and those before it, up to {drift.last}{there_are}. DRIFT: one-sided p below {drift.limit:g}"
    )
    for night in drift.nights:
        if night.left_out:
            yield quoted(f"{night.run_id} is left out: {night.left_out}", "error")
    remarks: dict[str, list[str]] = {}
    for night in drift.nights:
        for remark in night.remarks:
            remarks.setdefault(remark, []).append(night.run_id)
    yield from (quoted(f"{shortened(runs)}: {remark}") for remark, runs in remarks.items())
    if drift.missing_days:
        yield Value(f"No run on {shortened(drift.missing_days)}", "error")
    if drift.other_suites:
        yield quoted(f"Runs of other suites, not in the series: {drift.other_suites}")


def _plot(difference: Difference, reach: float | None = None) -> Interval | None:
    """Each metric on its own scale, better to the right: only the side of zero is comparable between metrics.

    Differences of one metric share the scale that goes as far as ``reach``.
    """
    if difference.worse_by is None:
        return None
    sign = -1 if difference.metric.better == "lower" else 1
    interval = difference.interval
    low, high = (None, None) if interval is None else sorted((sign * interval.low, sign * interval.high))
    better_by = -difference.worse_by
    reach = _reach(difference) if reach is None else reach
    return Interval(low, better_by, high, ends=(-reach, reach), marks=(0.0,))


def _reach(difference: Difference) -> float:
    """How far a difference and its interval are from 0; 1 for a difference of 0 without an interval."""
    interval = difference.interval
    ends = () if interval is None else (interval.low, interval.high)
    return max(abs(end) for end in (difference.difference or 0.0, *ends)) or 1.0


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
            yield f"With {cases}, a change below {'; '.join(sizes)} can be missed (power below 80 %)"
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


def comparison_outcome(comparison: Comparison, gates: Sequence[GateResult], *, interrupted: bool = False) -> Outcome:
    """The outcome: its tone is ``pass`` only where all gates passed, nothing broke, and nothing is incomplete."""
    code, state = exit_code(comparison, gates, interrupted=interrupted), overall_state(comparison, gates)
    tone, sentence = _OUTCOMES[state]
    if interrupted:
        tone, sentence = "error", "Interrupted"
    elif state in _ALSO and any(gate.state == "failed" for gate in gates):
        sentence = f"{_OUTCOMES['failed'][1]}, and {_ALSO[state]}"
    elif state == "passed" and (but := ", ".join(_caveats(comparison))):
        tone, sentence = "plain", f"{sentence}, but {but}"
    return Outcome(tone, sentence, code)


def _caveats(comparison: Comparison) -> Iterator[str]:
    """Why passed gates are not good news: what broke, and what is missing."""
    if broken := comparison.counts["broken"]:
        yield f"{count_of(broken, 'cell')} broke"
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        if side.is_partial or side.state not in (None, "complete"):
            yield f"{name} is incomplete"
    if any(result.state != "passed" for result in check_coverage(comparison, {})):
        yield "B lacks measurements that A has"


def counts_text(comparison: Comparison) -> str:
    """The number of cells for each kind of change that there is, and of those that broke."""
    return ", ".join(
        f"{number:,} {CHANGE_WORDS[change][1].format(s='s' * (number != 1))}"
        for change, number in comparison.counts.items()
        if number or change == "broken"
    )


def compared_lines(comparison: Comparison) -> Iterator[str]:
    """What is compared: both sides, and the model runs."""
    yield f"A: {_side(comparison.a)}"
    yield f"B: {_side(comparison.b)}"
    labels = [new if old == new else f"{old} -> {new}" for old, new in comparison.labels]
    if labels:
        yield f"model run{'s' * (len(labels) > 1)}: {'; '.join(labels)}"


def _side(side: Side) -> str:
    run = side.folder.name if side.folder is not None else ""
    name = side.name if not run or run in side.name else f"{side.name} ({run})"
    name += f" of {side.runs} runs" if side.runs > 1 else ""
    cells = count_of(len(side.cells), "cell")
    if side.state not in (None, "complete"):
        planned = "" if side.planned_cells is None else f" of {side.planned_cells:,}"
        return f"{name}: {cells}{planned}, {side.state}: INCOMPLETE"
    return f"{name}: {cells}" + (f" of {side.suite}" if side.suite else "")


def notes(comparison: Comparison) -> Iterator[str]:
    """Caveats that apply to the numbers below."""
    a, b = comparison.a, comparison.b
    yield from _with_itself(comparison)
    if flaky := len(comparison.pairs) - len(comparison.stable_pairs):
        yield f"flaky: {count_of(flaky, 'pair')} listed below, excluded from all numbers and gates"
    is_suite_known = None not in (a.suite, b.suite)
    if is_suite_known and a.suite != b.suite:
        yield f"A is of the suite {a.suite}, B of the suite {b.suite}"
    for side in (a, b):
        if side.is_partial:
            yield f"{side.name} is partial: it was set with --partial, from a run without all cells of its suite"
    for name, side in (("A", a), ("B", b)):
        yield from (f"{name}: {line}" for line in rerouting_lines(side.reroutings))
    yield from _provider_versions(comparison)
    if moved := comparison.moved_by_rules:  # the verdicts, with the first cases
        cells = [
            f"{pair.b.test_id} [{pair.b.sample_index}] {pair.a.verdict} -> {pair.b.verdict}"
            for pair in moved[:MAX_LISTED]
        ]
        what = f"{count_of(len(moved), 'verdict')} moved by changed rules only (same output, same scores)"
        yield f"{what}: {listed(cells, len(moved))}"
    if b.unused_confirmations:
        yield "B has new samples from an earlier --confirm: not used here"
    if comparison.has_other_source:
        what = "what changed in the grading is listed by metric"
        what = what if comparison.grading_differences else "no pair was graded differently"
        yield f"the suite files differ; {what}"
    if not is_suite_known:
        yield from _unknown_without_suite(comparison)


def _provider_versions(comparison: Comparison) -> Iterator[str]:
    """The model runs that custom providers of other versions generated."""
    entries = [
        {entry.base_label: entry for entry in side.info.suite.models} if side.info is not None else {}
        for side in (comparison.a, comparison.b)
    ]
    for old, new in comparison.labels:
        a, b = entries[0].get(old), entries[1].get(new)
        if a is not None and b is not None and a.provider_name == b.provider_name and a.version != b.version:
            yield f"{new}: version of {b.provider_name}: {a.version or 'none'} -> {b.version or 'none'}"


def _with_itself(comparison: Comparison) -> Iterator[str]:
    """Whether B is A, or one of the runs of the baseline A, with the same model runs."""
    a, is_same = comparison.a, all(old == new for old, new in comparison.labels)
    known = {key for key, _ in a.run_ids if key and is_same}
    shared = [run for key, run in comparison.b.run_ids if key in known]
    if shared and a.runs == 1:
        yield "A and B are the same run: this compares it with itself"
    elif shared:
        one = f"B is {shared[0]}, one of the {a.runs} runs of A"
        yield f"{one}: a part of the comparison is of this run with itself, which hides regressions"


def _unknown_without_suite(comparison: Comparison) -> Iterator[str]:
    """What a file of records does not say."""
    if any(difference.metric.better == "none" and difference.n_pairs for difference in comparison.metrics):
        skipped = "whether higher or lower is better: gates skip these metrics"
        yield f"without run.json, it is unknown for some metrics {skipped}"
    unknown = "which rules could fail a cell, and what the metrics mean beyond their values"
    yield f"without run.json, it is unknown {unknown}"


def grading_lines(comparison: Comparison) -> Iterator[str]:
    """One line for each difference in grading, with the metrics it affects. Values that are hashes are left out."""
    metrics_by_difference: dict[tuple[str, str, str, int], list[str]] = {}
    for item in comparison.grading_differences:
        metrics_by_difference.setdefault((item.what, item.a, item.b, item.pairs), []).append(item.metric)
    for (aspect, a, b, pairs), metrics in metrics_by_difference.items():
        change = "changed" if _HASH.fullmatch(a) or _HASH.fullmatch(b) else f"{a} -> {b}"
        what = f"{', '.join(metrics)}: {HASHED_PARTS.get(aspect, aspect)}"
        yield f"{what}: {change} ({pairs:,} of {count_of(len(comparison.pairs), 'pair')})"


def listed(names: Sequence[str], number: int) -> str:
    """The first of a ``number`` of names, and how many more there are."""
    more = number - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")
