"""The words of a comparison, for the terminal and for Markdown. Whoever prints them escapes them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from visioneval.analysis.cells import Cell, Side
from visioneval.analysis.compare.compare import Amount, Comparison
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.pairing import CellPair, Change
from visioneval.analysis.stats.resampling import MIN_CLUSTERS
from visioneval.report.text import one_line
from visioneval.rules import parse_rule

TITLES: dict[Change, str] = {
    "broken": "Broken (passed in A, fails in B)",
    "error_after": "Measured in A, an ERROR in B",
    "fixed": "Fixed (failed in A, passes in B)",
    "error_before": "An ERROR in A, measured in B",
    "still_failing": "Still failing",
    "still_error": "An ERROR in both",
    "still_passing": "Still passing",
}
_SHORT = {
    "broken": "broken",
    "error_after": "errors new in B",
    "fixed": "fixed",
    "error_before": "errors gone in B",
    "still_failing": "still failing",
    "still_error": "errors in both",
    "still_passing": "still passing",
}
SHOWN_OUT = 5
_REASON = 200


def headline(found: Comparison) -> Iterator[str]:
    """What is compared, and the counts of every change that there is."""
    counts = [f"{number:,} {_SHORT[change]}" for change, number in found.counts.items() if number]
    broken = [] if found.counts["broken"] else ["0 broken"]
    yield ", ".join(broken + counts)
    yield f"A: {_side(found.a)}"
    yield f"B: {_side(found.b)}"
    for number, (old, new) in enumerate(found.labels, 1):
        name = new if old == new else f"{old} -> {new}"
        yield f"#{number}: {name}" if len(found.labels) > 1 else f"model run: {name}"


def _side(side: Side) -> str:
    cells = f"{len(side.cells):,} cell{'s' * (len(side.cells) != 1)}"
    run = side.folder.name if side.folder is not None else ""
    name = side.name if not run or run in side.name else f"{side.name} ({run})"
    if side.state not in (None, "complete"):
        planned = "" if side.planned_cells is None else f" of {side.planned_cells:,}"
        return f"{name}: {cells}{planned}, {side.state}: NOT COMPLETE"
    return f"{name}: {cells}" + (f" of {side.suite}" if side.suite else "")


def notes(found: Comparison) -> Iterator[str]:
    """What must be known before the numbers are read."""
    flaky = len(found.pairs) - len(found.stable_pairs)
    if flaky:
        yield f"flaky: {flaky} pair{'s' * (flaky != 1)} told below, in no number and no gate"
    if found.has_other_source:
        yield "the suites' texts differ; what that changed in the grading is told by metric"
    if any(one.metric.better == "none" and one.n_pairs for one in found.metrics) and None in (
        found.a.suite,
        found.b.suite,
    ):
        yield "no run.json tells which way some metrics are better: no gate judges those"


def unlike_lines(found: Comparison) -> Iterator[str]:
    """A line for each thing that was not alike in the grading, with the metrics that it bears on."""
    told: dict[tuple[str, str, str, int], list[str]] = {}
    for one in found.grading_differences:
        told.setdefault((one.what, one.a, one.b, one.pairs), []).append(one.metric)
    for (what, a, b, pairs), metrics in told.items():
        yield f"{', '.join(metrics)}: {what}: {a} -> {b} ({pairs:,} of {len(found.pairs):,} pairs)"


def change_in_words(pair: CellPair, writers: Mapping[str, str]) -> list[str]:
    """The failed rules that changed, those of B with the reason of the metric or of its writer; then errors."""
    lines = [_with_reason(rule, pair.b, writers) for rule in pair.rules_broken]
    lines += [f"mended: {', '.join(pair.rules_fixed)}"] if pair.rules_fixed else []
    still = [rule for rule in pair.b.failed_rules if rule in pair.a.failed_rules]
    lines += [f"still: {', '.join(still)}"] if still else []
    lines += [f"A: {_error(pair.a)}"] if pair.a.error and pair.change != "still_failing" else []
    lines += [f"B: {_error(pair.b)}"] if pair.b.error else []
    refused = pair.b.reasons.get("refused")
    lines += [f"refused: {one_line(refused, _REASON)}"] if refused and "refused" in pair.b.failure_tags else []
    return lines


def _error(cell: Cell) -> str:
    error = cell.error
    return "" if error is None else f"{error.stage}, {error.kind}: {one_line(error.message, _REASON)}"


def _with_reason(rule: str, cell: Cell, writers: Mapping[str, str]) -> str:
    metric = _metric_of(rule)
    reason = cell.reasons.get(metric) or cell.reasons.get(writers.get(metric, ""), "")
    return f"{rule}: {one_line(reason, _REASON)}" if reason else rule


def _metric_of(rule: str) -> str:
    try:
        return parse_rule(rule).metric
    except ValueError:
        return rule


def show_value(one: Difference, value: float | None) -> str:
    """A rate in per cent, a mean as a number."""
    if value is None:
        return "-"
    return f"{value:.1%}" if one.metric.type == "bool" else f"{value:.4g}"


def show_difference(one: Difference) -> str:
    """``-8.3 [-20.1, +3.2]``, in points for a rate; without an interval where there is none."""
    if one.difference is None:
        return "-"
    scale, form = (100, "+.1f") if one.metric.type == "bool" else (1, "+.3g")
    shown = _signed(one.difference * scale, form)
    if one.interval is None:
        return shown
    return f"{shown} [{_signed(one.interval.low * scale, form)}, {_signed(one.interval.high * scale, form)}]"


def _signed(value: float, form: str) -> str:
    shown = format(value, form)
    return "0" if not float(shown) else shown


def show_p(p: float | None) -> str:
    """A p-value: no more digits than it can bear."""
    if p is None:
        return "-"
    return "<0.0001" if p < 0.0001 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def show_n(one: Difference) -> str:
    """Pairs, and the cases that they are of where these are fewer; pairs left out follow as ``!2``."""
    cases = f" ({one.n_cases})" if one.n_cases != one.n_pairs else ""
    return f"{one.n_pairs}{cases}" + (f" !{one.unmeasured}" if one.unmeasured else "")


def power_lines(found: Sequence[Difference]) -> Iterator[str]:
    """How large a difference could have been seen where cases are few; metrics of which the same is true together."""
    told: dict[str, list[str]] = {}
    for one in found:
        if one.few and not one.significant:
            told.setdefault(_power(one), []).append(one.name)
    yield from (f"{text} ({', '.join(names)})" for text, names in told.items() if text)
    if any(one.unmeasured for one in found):
        yield "!n: n more pairs of which a side could not be measured"


def _power(one: Difference) -> str:
    cases = f"{one.n_cases} case{'s' * (one.n_cases != 1)}"
    if one.n_cases < MIN_CLUSTERS:
        return f"with {cases} no difference can be significant: {MIN_CLUSTERS} or more are needed"
    if one.detectable is None:
        return ""
    size = f"{one.detectable * 100:.0f} points" if one.metric.type == "bool" else f"{one.detectable:.2g}"
    return f"{cases} would show a difference of {size} four times in five, a smaller one less often"


def left_out(found: Comparison) -> list[str]:
    """The cells that only one run has, in few words: which cases, how many cells."""
    return [
        f"only in {name}: {len(cells):,} cell{'s' * (len(cells) != 1)}: {_few(cells)}"
        for name, cells in (("A", found.only_a), ("B", found.only_b))
        if cells
    ]


def _few(cells: tuple[Cell, ...]) -> str:
    by_label: dict[str, list[str]] = {}
    for cell in cells:
        by_label.setdefault(cell.model_label, []).append(f"{cell.test_id} [{cell.sample_index}]")
    told = []
    for label, names in list(by_label.items())[:SHOWN_OUT]:
        more = f" and {len(names) - SHOWN_OUT:,} more" if len(names) > SHOWN_OUT else ""
        told.append(f"{label}: {', '.join(names[:SHOWN_OUT])}{more}")
    more_runs = len(by_label) - SHOWN_OUT
    return "; ".join(told) + (f"; and {more_runs} more model runs" if more_runs > 0 else "")


def next_command(found: Comparison) -> str | None:
    """How to look at the first cell that broke, where B is a run."""
    broken = found.changed("broken")
    if not broken or found.b.folder is None:
        return None
    cell = broken[0].b
    return shlex.join(["visioneval", "show", f"{found.b.folder}@{cell.model_label}", cell.test_id])


def money_and_time(found: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """Name, A, B and over how many pairs; what no pair knows on both sides is not told."""
    cost, seconds = found.cost_usd, found.seconds
    if cost.pairs:
        yield "USD, generation and grading", *_shown(cost, ".4f")
    if seconds.pairs and max(seconds.a or 0, seconds.b or 0) >= 0.005:
        yield "seconds a generation", *_shown(seconds, ".2f")


def _shown(amount: Amount, form: str) -> tuple[str, str, str]:
    a, b = (format(value or 0, form) for value in (amount.a, amount.b))
    return a, b, f"{amount.pairs:,} pair{'s' * (amount.pairs != 1)}"
