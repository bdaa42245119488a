"""How a comparison ended, what it compares, and what restricts its numbers, in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.gates import GateResult, OverallState, check_coverage, exit_code, overall_state
from visioneval.analysis.compare.pairing import Change, Pairs
from visioneval.analysis.sides import Side
from visioneval.errors import count_of
from visioneval.report.sections import Outcome, Tone
from visioneval.report.text import rerouting_lines

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
_ASPECTS = {"config": "options of the grader", "schema": "form of the judge's reply", "template": "judge template"}


def comparison_outcome(comparison: Comparison, gates: Sequence[GateResult], *, interrupted: bool = False) -> Outcome:
    """The outcome: its tone is ``pass`` only where all gates passed, nothing broke, and nothing is incomplete."""
    code, state = exit_code(comparison, gates, interrupted=interrupted), overall_state(comparison, gates)
    tone, sentence = _OUTCOMES[state]
    if interrupted:
        return Outcome("error", "Interrupted", code)
    if state in _ALSO and any(gate.state == "failed" for gate in gates):
        return Outcome(tone, f"{_OUTCOMES['failed'][1]}, and {_ALSO[state]}", code)
    if state == "passed" and (but := ", ".join(_caveats(comparison))):
        return Outcome("plain", f"{sentence}, but {but}", code)
    return Outcome(tone, sentence, code)


def _caveats(comparison: Comparison) -> Iterator[str]:
    """Why passed gates are not good news: what broke, and what is missing."""
    if broken := comparison.counts["broken"]:
        yield f"{count_of(broken, 'cell')} broke"
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        if side.is_partial or side.state not in (None, "complete"):
            yield f"{name} is incomplete"
    if any(result.state != "passed" for result in check_coverage(comparison, {})):
        yield "B does not measure all that A measures"


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
    if all(old == new for old, new in comparison.labels):
        yield from _with_itself(a, b)
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
    yield from _moved_by_rules(comparison.moved_by_rules)
    if b.unused_confirmations:
        yield "B has new samples from an earlier --confirm: not used here"
    if comparison.has_other_source:
        is_graded_alike = not comparison.grading_differences
        what = (
            "no pair was graded differently" if is_graded_alike else "what changed in the grading is listed by metric"
        )
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


def _with_itself(a: Side, b: Side) -> Iterator[str]:
    """Whether B is A, or one of the runs of the baseline A."""
    known = {key for key, _ in a.run_ids if key}
    shared = [run for key, run in b.run_ids if key in known]
    if shared and a.runs == 1:
        yield "A and B are the same run: this compares it with itself"
    elif shared:
        one = f"B is {shared[0]}, one of the {a.runs} runs of A"
        yield f"{one}: it is compared with itself too, which hides a part of what got worse"


def _moved_by_rules(moved: Pairs) -> Iterator[str]:
    """The verdicts that changed although output and scores are identical, with the first cases."""
    if moved:
        cells = [
            f"{pair.b.test_id} [{pair.b.sample_index}] {pair.a.verdict} -> {pair.b.verdict}"
            for pair in moved[:MAX_LISTED]
        ]
        what = f"{count_of(len(moved), 'verdict')} moved by changed rules only (same output, same scores)"
        yield f"{what}: {listed(cells, len(moved))}"


def _unknown_without_suite(comparison: Comparison) -> Iterator[str]:
    """What a file of records does not say."""
    unknown = ["it is unknown which rules could fail a cell, and what the metrics mean beyond their values"]
    if any(difference.metric.better == "none" and difference.n_pairs for difference in comparison.metrics):
        unknown.insert(0, "it is unknown for some metrics whether higher or lower is better: gates skip these metrics")
    yield from (f"without run.json, {text}" for text in unknown)


def grading_lines(comparison: Comparison) -> Iterator[str]:
    """One line for each difference in grading, with the metrics it affects. Values that are hashes are left out."""
    metrics_by_difference: dict[tuple[str, str, str, int], list[str]] = {}
    for item in comparison.grading_differences:
        metrics_by_difference.setdefault((item.what, item.a, item.b, item.pairs), []).append(item.metric)
    for (aspect, a, b, pairs), metrics in metrics_by_difference.items():
        change = "changed" if _HASH.fullmatch(a) or _HASH.fullmatch(b) else f"{a} -> {b}"
        what = f"{', '.join(metrics)}: {_ASPECTS.get(aspect, aspect)}"
        yield f"{what}: {change} ({pairs:,} of {len(comparison.pairs):,} pairs)"


def listed(names: Sequence[str], number: int) -> str:
    """The first of a ``number`` of names, and how many more there are."""
    more = number - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")
