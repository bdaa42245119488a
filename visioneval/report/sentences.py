"""Sentences of a comparison for terminal, HTML and Markdown. The caller escapes them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from visioneval.analysis.cells import Cell, Cells
from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.coverage import check_coverage
from visioneval.analysis.compare.differences import FEWEST_CASES, Difference
from visioneval.analysis.compare.gates import GateResult, OverallState, overall_state
from visioneval.analysis.compare.metrics import Amount
from visioneval.analysis.compare.pairing import CellPair, Change, Pairs
from visioneval.analysis.sides import Side
from visioneval.errors import count_of
from visioneval.records.stores.locations import display_name
from visioneval.report.text import one_line, rerouting_text
from visioneval.rules import is_equal, parse_rule, show_beside

TITLES: dict[Change, str] = {
    "broken": "Broken (passed in A, fails in B)",
    "error_after": "New errors (measured in A, ERROR in B)",
    "fixed": "Fixed (failed in A, passes in B)",
    "error_before": "Resolved errors (ERROR in A, measured in B)",
    "still_failing": "Still failing",
    "still_error": "ERROR in both",
    "still_passing": "Still passing",
}
_COUNT_LABELS = {
    "broken": "broken",
    "error_after": "new error{s}",
    "fixed": "fixed",
    "error_before": "resolved error{s}",
    "still_failing": "still failing",
    "still_error": "error{s} in both",
    "still_passing": "still passing",
}
_OUTCOMES: dict[OverallState, tuple[str, str]] = {
    "passed": ("pass", "All gates passed"),
    "failed": ("fail", "A gate failed"),
    "unmeasured": ("error", "A gate was not measured"),
    "cannot_tell": ("error", "A gate cannot tell"),
    "incomplete": ("error", "B is incomplete"),
}
_ALSO: dict[OverallState, str] = {"unmeasured": "another was not measured", "incomplete": "B is incomplete"}
"""What follows a failed gate where the exit code is not that of the gate."""
_UNDETECTABLE = "nothing"
"""The size of a difference that so few cases cannot show, however large it is."""
_HASH = re.compile("[0-9a-f]{12}")
_ASPECTS = {"config": "options of the grader", "schema": "form of the judge's reply", "template": "judge template"}
MAX_LISTED = 5
_MAX_REASON = 200


def compare_outcome(comparison: Comparison, gates: Sequence[GateResult]) -> tuple[str, str]:
    """The tone and the sentence: ``pass`` only where all gates passed, nothing broke, and nothing is incomplete."""
    state = overall_state(comparison, gates)
    tone, sentence = _OUTCOMES[state]
    if state in _ALSO and any(gate.state == "failed" for gate in gates):
        return tone, f"{_OUTCOMES['failed'][1]}, and {_ALSO[state]}"
    but = caveat(comparison) if state == "passed" else ""
    return ("plain", f"{sentence}, but {but}") if but else (tone, sentence)


def headline(comparison: Comparison) -> Iterator[str]:
    """What is compared, and the number of cells for each kind of change."""
    counts = [
        f"{number:,} {_COUNT_LABELS[change].format(s='s' * (number != 1))}"
        for change, number in comparison.counts.items()
        if number
    ]
    broken = [] if comparison.counts["broken"] else ["0 broken"]
    yield ", ".join(broken + counts)
    yield f"A: {_side(comparison.a)}"
    yield f"B: {_side(comparison.b)}"
    for number, (old, new) in enumerate(comparison.labels, 1):
        name = new if old == new else f"{old} -> {new}"
        yield f"#{number}: {name}" if len(comparison.labels) > 1 else f"model run: {name}"


def _side(side: Side) -> str:
    cells = count_of(len(side.cells), "cell")
    run = side.folder.name if side.folder is not None else ""
    name = side.name if not run or run in side.name else f"{side.name} ({run})"
    if side.runs > 1:
        name += f" of {side.runs} runs"
    if side.state not in (None, "complete"):
        planned = "" if side.planned_cells is None else f" of {side.planned_cells:,}"
        return f"{name}: {cells}{planned}, {side.state}: INCOMPLETE"
    return f"{name}: {cells}" + (f" of {side.suite}" if side.suite else "")


def notes(comparison: Comparison) -> Iterator[str]:
    """Caveats that apply to the numbers below."""
    if all(old == new for old, new in comparison.labels):
        yield from _with_itself(comparison.a, comparison.b)
    flaky = len(comparison.pairs) - len(comparison.stable_pairs)
    if flaky:
        yield f"flaky: {flaky} pair{'s' * (flaky != 1)} listed below, excluded from all numbers and gates"
    suites = [side.suite for side in (comparison.a, comparison.b)]
    if None not in suites and suites[0] != suites[1]:
        yield f"A is of the suite {suites[0]}, B of the suite {suites[1]}"
    for side in (comparison.a, comparison.b):
        if side.is_partial:
            yield f"{side.name} is partial: it was set with --partial, from a run without all cells of its suite"
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        yield from (f"{name}: {rerouting_text(rerouting)}" for rerouting in side.reroutings)
    yield from _moved_by_rules(comparison.moved_by_rules)
    if comparison.b.unused_confirmations:
        yield "B has new samples from an earlier --confirm: not used here"
    if comparison.has_other_source:
        changes = (
            "what changed in the grading is listed by metric"
            if comparison.grading_differences
            else "no pair was graded differently"
        )
        yield f"the suite files differ; {changes}"
    if None in suites:
        yield from _unknown_without_suite(comparison)


def _with_itself(a: Side, b: Side) -> Iterator[str]:
    """Whether B is A, or one of the runs of the baseline A."""
    known = {key for key, _ in a.run_ids if key}
    shared = [run for key, run in b.run_ids if key in known]
    if shared and a.runs == 1:
        yield "A and B are the same run: this compares it with itself"
    elif shared:
        yield (
            f"B is {shared[0]}, one of the {a.runs} runs of A: it is compared with itself too, which hides a part of"
            " what got worse"
        )


def _unknown_without_suite(comparison: Comparison) -> Iterator[str]:
    """What a file of records does not say."""
    if any(difference.metric.better == "none" and difference.n_pairs for difference in comparison.metrics):
        yield (
            "without run.json, it is unknown for some metrics whether higher or lower is better: gates skip"
            " these metrics"
        )
    yield "without run.json, it is unknown which rules could fail a cell, and what the metrics mean beyond their values"


def _moved_by_rules(moved: Pairs) -> Iterator[str]:
    """The verdicts that changed although output and scores are identical, with the first cases."""
    if moved:
        first = moved[:MAX_LISTED]
        names = [f"{pair.b.test_id} [{pair.b.sample_index}] {pair.a.verdict} -> {pair.b.verdict}" for pair in first]
        more = f" and {len(moved) - MAX_LISTED:,} more" if len(moved) > MAX_LISTED else ""
        yield (
            f"{count_of(len(moved), 'verdict')} moved by changed rules only (same output, same scores):"
            f" {', '.join(names)}{more}"
        )


def caveat(comparison: Comparison) -> str:
    """Why passed gates are not good news: what broke, and what is missing. Empty if there is no such reason."""
    broken = comparison.counts["broken"]
    parts = [f"{count_of(broken, 'cell')} broke"] if broken else []
    parts += [
        f"{name} is incomplete" for name, side in (("A", comparison.a), ("B", comparison.b)) if _lacks_cells(side)
    ]
    if any(result.state != "passed" for result in check_coverage(comparison, {})):
        parts.append("B does not measure all that A measures")
    return ", ".join(parts)


def _lacks_cells(side: Side) -> bool:
    return side.is_partial or side.state not in (None, "complete")


def mismatch_lines(comparison: Comparison) -> Iterator[str]:
    """One line for each difference in grading, with the metrics it affects. Values that are hashes are left out."""
    metrics_by_mismatch: dict[tuple[str, str, str, int], list[str]] = {}
    for mismatch in comparison.grading_differences:
        metrics_by_mismatch.setdefault((mismatch.what, mismatch.a, mismatch.b, mismatch.pairs), []).append(
            mismatch.metric
        )
    for (aspect, a, b, pairs), metrics in metrics_by_mismatch.items():
        change = "changed" if _HASH.fullmatch(a) or _HASH.fullmatch(b) else f"{a} -> {b}"
        what = f"{', '.join(metrics)}: {_ASPECTS.get(aspect, aspect)}"
        yield f"{what}: {change} ({pairs:,} of {len(comparison.pairs):,} pairs)"


def describe_change(pair: CellPair, writers: Mapping[str, str]) -> list[str]:
    """Failed rules that changed, with reasons for those of B; then errors."""
    lines = [_with_reason(rule, pair.b, writers) for rule in pair.rules_broken]
    lines += [f"now passing: {', '.join(pair.rules_fixed)}"] if pair.rules_fixed else []
    still_failing = [rule for rule in pair.b.failed_rules if rule in pair.a.failed_rules]
    lines += [f"still failing: {', '.join(still_failing)}"] if still_failing else []
    lines += [f"A: {_error(pair.a)}"] if pair.a.error and pair.change != "still_failing" else []
    lines += [f"B: {_error(pair.b)}"] if pair.b.error else []
    refusal = pair.b.reasons.get("refused")
    lines += [f"refused: {one_line(refusal, _MAX_REASON)}"] if refusal and "refused" in pair.b.failure_tags else []
    return lines


def _error(cell: Cell) -> str:
    error = cell.error
    return "" if error is None else f"{error.stage}, {error.kind}: {one_line(error.message, _MAX_REASON)}"


def _with_reason(rule: str, cell: Cell, writers: Mapping[str, str]) -> str:
    metric = _metric_of(rule)
    reason = cell.reasons.get(metric) or cell.reasons.get(writers.get(metric, ""), "")
    return f"{rule}: {one_line(reason, _MAX_REASON)}" if reason else rule


def _metric_of(rule: str) -> str:
    try:
        return parse_rule(rule).metric
    except ValueError:
        return rule


def show_value(difference: Difference, value: float | None) -> str:
    """A rate as a percentage, a mean as a number."""
    if value is None:
        return "-"
    return f"{value:.1%}" if difference.metric.type == "bool" else f"{value:.4g}"


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
    text = show_beside(100 * value, 0, 1, "f") if is_rate else show_beside(value, 0, 3)
    return f"+{text}" if value > 0 else text


def show_p(p: float | None) -> str:
    """A p-value, rounded to its meaningful digits."""
    if p is None:
        return "-"
    return "<0.0001" if p < 0.0001 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


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


def show_n(difference: Difference) -> str:
    """Number of pairs, in parentheses the number of cases if that is smaller; ``!2`` counts unmeasured pairs."""
    cases = f" ({difference.n_cases})" if difference.n_cases != difference.n_pairs else ""
    return f"{difference.n_pairs}{cases}" + (f" !{difference.unmeasured}" if difference.unmeasured else "")


def has_few_cases(comparison: Comparison) -> bool:
    """Whether there are too few cases for statistics over cases, which then only distract from what broke."""
    return all(item.n_cases < FEWEST_CASES for item in (comparison.pass_rate, *comparison.metrics))


def power_lines(differences: Sequence[Difference]) -> Iterator[str]:
    """What the comparison can miss, by number of cases; metrics with the same size share an entry.

    A change that was found is no example of one that is always missed.
    """
    by_cases: dict[int, dict[str, list[str]]] = {}
    for difference in differences:
        if difference.n_cases and not (difference.is_evident and difference.detectable is None):
            by_cases.setdefault(difference.n_cases, {}).setdefault(_detectable(difference), []).append(difference.name)
    for number, names in by_cases.items():
        metrics_by_size = {size: metrics for size, metrics in names.items() if size}
        hidden = metrics_by_size.pop(_UNDETECTABLE, [])
        sizes = [f"{size} ({', '.join(metrics)})" for size, metrics in metrics_by_size.items()]
        cases = count_of(number, "case")
        if sizes:
            yield f"With {cases}, a change below {'; '.join(sizes)} can be missed (more than one time in five)"
        if hidden:
            yield f"With {cases}, any change can be missed ({', '.join(hidden)})"
    if any(difference.unmeasured for difference in differences):
        yield "!n: not measured on at least one side in n more pairs"


def _detectable(difference: Difference) -> str:
    """A size, or an empty string for a number that does not vary between the cases."""
    if difference.metric.type != "bool":
        return "" if difference.detectable is None else f"{difference.detectable:.2g}"
    if difference.detectable is None:
        return _UNDETECTABLE
    points = difference.detectable * 100
    return f"{points:.0f} points" if points >= 10 else f"{points:.2g} points"


def unpaired_lines(comparison: Comparison) -> list[str]:
    """Summarizes the cells that only one run has."""
    return [
        f"only in {name}: {count_of(len(cells), 'cell')}: {_list_cells(cells)}"
        for name, cells in (("A", comparison.only_a), ("B", comparison.only_b))
        if cells
    ]


def _list_cells(cells: Cells) -> str:
    first: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for test_id, label, sample in cells.names():
        counts[label] += 1
        if counts[label] <= MAX_LISTED:
            first.setdefault(label, []).append(f"{test_id} [{sample}]")
    parts = []
    for label, names in list(first.items())[:MAX_LISTED]:
        more = f" and {counts[label] - MAX_LISTED:,} more" if counts[label] > MAX_LISTED else ""
        parts.append(f"{label}: {', '.join(names)}{more}")
    more_runs = len(first) - MAX_LISTED
    return "; ".join(parts) + (f"; and {more_runs} more model runs" if more_runs > 0 else "")


def next_command(comparison: Comparison) -> str | None:
    """The command that shows the first broken cell, if B is a run."""
    broken = comparison.changed("broken")
    if not broken or comparison.b.folder is None:
        return None
    cell = broken[0].b
    return shlex.join(["visioneval", "show", f"{display_name(comparison.b.folder)}@{cell.model_label}", cell.test_id])


def cost_and_time_rows(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """Name, A, B and number of pairs, for amounts known on both sides of at least one pair."""
    cost, seconds = comparison.cost_usd, comparison.seconds
    if cost.pairs:
        yield "USD, generation and grading", *_show_amounts(cost, ".4f")
    if seconds.pairs and max(seconds.a or 0, seconds.b or 0) >= 0.005:
        yield "seconds per generation", *_show_amounts(seconds, ".2f")


def _show_amounts(amount: Amount, form: str) -> tuple[str, str, str]:
    a, b = (format(value or 0, form) for value in (amount.a, amount.b))
    return a, b, count_of(amount.pairs, "pair")
