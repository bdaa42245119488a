"""Runs and comparisons as Markdown, for a job summary or a comment on a pull request.

Text from a suite or a model is put in code spans, which render no links, mentions or markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import FEWEST_CASES, Difference
from visioneval.analysis.compare.gates import GateResult
from visioneval.analysis.compare.pairing import CellPair, Change
from visioneval.analysis.ranking.findings import Ranking, Rankings
from visioneval.analysis.summary.gates import GateFinding
from visioneval.analysis.summary.summary import Summary
from visioneval.errors import count_of
from visioneval.report.numbers import REPEAT_FAILS, bound_note, gate_repeat, gate_value
from visioneval.report.outcome import diversity_text, never_asked_text, outcome, unjudged_pairs_text
from visioneval.report.ranking_texts import ABOUT, by_group, ranking_title, show_chance, show_rank, show_strength
from visioneval.report.sentences import (
    TITLES,
    assessment,
    compare_outcome,
    cost_and_time_rows,
    describe_change,
    has_few_cases,
    headline,
    mismatch_lines,
    notes,
    power_lines,
    show_difference,
    show_n,
    show_p,
    show_value,
    unpaired_lines,
)
from visioneval.report.terminal.run.diversity import HEADINGS, TITLE, diversity_rows
from visioneval.report.terminal.run.separation import auroc_text, difference_text, left_out_text
from visioneval.report.terminal.run.summary import (
    show_estimate,
    show_rate,
    unmeasured_text,
    why,
    without_verdict_text,
)
from visioneval.report.text import one_line, panel_lines, rerouting_text

MAX_ROWS = 20
EXPANDED: tuple[Change, ...] = ("broken", "error_after", "fixed", "error_before")
COLLAPSED: tuple[Change, ...] = ("still_failing", "still_error")
_STATE_LABELS = {
    "passed": "passed",
    "failed": "**FAILED**",
    "unmeasured": "**NOT MEASURED**",
    "cannot_tell": "**CANNOT TELL**",
    "not_applicable": "not applicable",
    "skipped": "skipped",
    "deferred": "after merging",
}

MAX_ALIGNED = 50
"""Rows of the alignment of a comparison."""


def code(text: str) -> str:
    """Text on one line, in a code span."""
    flat = one_line(text)
    if not flat:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    pad = " " if "`" in (flat[0], flat[-1]) else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def comparison_markdown(comparison: Comparison, gates: Sequence[GateResult]) -> str:
    """A comparison: the gates in the title, then broken and fixed cells, then metrics."""
    return "\n\n".join(_comparison(comparison, gates)) + "\n"


def _comparison(comparison: Comparison, gates: Sequence[GateResult]) -> Iterator[str]:
    first, *rest = headline(comparison)
    yield f"## visioneval compare: {compare_outcome(comparison, gates)[1]}"
    yield f"**{first}**"
    yield "\n".join(f"- {code(line)}" for line in (*rest, *notes(comparison)))
    unlike = list(mismatch_lines(comparison))
    if unlike:
        yield "> **Graded differently: the differences below may come from that, not from the outputs.**\n" + "\n".join(
            f"> - {code(line)}" for line in unlike
        )
    for change in EXPANDED:
        pairs = comparison.changed(change)
        if pairs:
            yield f"### {TITLES[change]}: {len(pairs)}\n\n{_changed_table(pairs, comparison)}"
    for change in COLLAPSED:
        pairs = comparison.changed(change)
        if pairs:
            title, body = f"{TITLES[change]}: {len(pairs)}", _changed_table(pairs, comparison)
            yield f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
    if comparison.alignments:
        yield f"### Alignment side by side, largest loss first\n\n{_alignment_table(comparison)}"
    if has_few_cases(comparison):
        title, body = f"Statistics of fewer than {FEWEST_CASES} cases", "\n\n".join(_statistics(comparison))
        yield f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
    else:
        yield from _statistics(comparison)
    rows = list(cost_and_time_rows(comparison))
    if rows:
        yield "### Cost and time\n\n" + _table(("", "A", "B", "pairs"), rows)
    unpaired = unpaired_lines(comparison)
    if unpaired:
        yield "### Not compared: only in one run\n\n" + "\n".join(f"- {code(line)}" for line in unpaired)
    yield "### Gates (`--fail-on`)\n\n" + _table(
        ("", "gate", "result"),
        [(_STATE_LABELS[gate.state], code(gate.fail_on.text), code(gate.message)) for gate in gates],
    )


def _changed_table(pairs: Sequence[CellPair], comparison: Comparison) -> str:
    rows = [
        (
            code(pair.b.test_id),
            code(pair.b.model_label),
            str(pair.b.sample_index),
            "<br>".join(map(code, describe_change(pair, comparison.b.writers))),
            ", ".join(_pair_notes(pair)),
        )
        for pair in pairs[:MAX_ROWS]
    ]
    table = _table(("case", "model run", "sample", "rules and reasons", ""), rows)
    return table if len(pairs) <= MAX_ROWS else f"{table}\n\n... and {len(pairs) - MAX_ROWS:,} more"


def _pair_notes(pair: CellPair) -> Iterator[str]:
    yield from ("must_pass",) if pair.must_pass else ()
    yield from ("flaky",) if pair.flaky else ()
    yield from ("same output",) if pair.same_output else ()
    yield from ("changed rules only",) if pair.is_moved_by_rules else ()


def _alignment_table(comparison: Comparison) -> str:
    rows = [
        (
            code(f"{item.pair.b.test_id} [{item.pair.b.sample_index}]"),
            code(item.pair.b.model_label),
            *("" if score is None else f"{score:.1f}" for score in (item.a, item.b)),
            *(code(gaps) for gaps in (item.a_gaps, item.b_gaps)),
        )
        for item in comparison.alignments[:MAX_ALIGNED]
    ]
    return _table(("case", "model run", "A", "B", "gaps in A", "gaps in B"), rows)


def _statistics(comparison: Comparison) -> Iterator[str]:
    tested = (comparison.pass_rate, *comparison.metrics)
    yield "### Pass rate and metrics\n\n" + _differences("metric", tested, adjusted=True)
    power = list(power_lines(tested))
    if power:
        yield "\n".join(f"- {code(line)}" for line in power)
    for title, heading, differences, of_verdicts in (
        ("Pass rate by model run", "model run", comparison.by_run, True),
        ("Pass rate by tag", "tag", comparison.by_tag, True),
        ("By question type", "type", comparison.by_type, False),
        ("Cells by failure tag", "tag", comparison.by_failure_tag, False),
    ):
        if differences:
            yield f"### {title}\n\n{_differences(heading, differences, adjusted=False, of_verdicts=of_verdicts)}"


def _differences(heading: str, differences: Iterable[Difference], *, adjusted: bool, of_verdicts: bool = False) -> str:
    p_columns = ("p", "p Holm") if adjusted else ("p (not adjusted)",)
    verdict_columns = ("broken", "fixed") if of_verdicts else ()
    head = (heading, "A", "B", "B - A [95%]", *p_columns, "n (cases)", *verdict_columns, "")
    rows = [
        (
            code(difference.name),
            show_value(difference, difference.a),
            show_value(difference, difference.b),
            show_difference(difference),
            show_p(difference.p),
            *((show_p(difference.p_holm),) if adjusted else ()),
            show_n(difference),
            *((f"{difference.lower:,}", f"{difference.higher:,}") if of_verdicts else ()),
            f"**significantly {assessment(difference)}**" if difference.significant else assessment(difference),
        )
        for difference in differences
    ]
    return _table(head, rows)


def summary_markdown(summary: Summary) -> str:
    """A run: its gates, its model runs, and the cells that did not pass."""
    return "\n\n".join(_summary(summary)) + "\n"


def _summary(summary: Summary) -> Iterator[str]:
    counts = summary.counts
    yield f"## visioneval: {code(summary.suite)}: {outcome(summary)[1]}"
    state = "" if summary.state == "complete" else f", **{summary.state}**"
    verdicts = f"{counts.passed} PASS, {counts.failed} FAIL, {counts.errors} ERROR"
    if counts.without_verdict:
        verdicts += f", {without_verdict_text(counts.without_verdict)}"
    shard = "" if summary.shard is None else f"shard {summary.shard}: "
    yield f"{shard}{counts.cells} of {summary.planned_cells} cells{state}: {verdicts}; run {code(summary.run_id)}"
    yield from _incomplete(summary)
    for key, panel in summary.panels.items():
        yield from map(code, panel_lines(key, panel))
    for rerouting in summary.reroutings:
        yield f"**Warning:** {code(rerouting_text(rerouting))}"
    for key, cells in summary.optional_unmeasured.items():
        yield f"The optional grader {code(key)} failed on {cells:,} cells."
    yield "### Gates\n\n" + _table(
        ("", "gate", "scope", "value [95%]", REPEAT_FAILS), [_gate(gate) for gate in summary.gates]
    )
    names = list(summary.metrics)
    rows = [
        (
            code(model.label),
            show_rate(model.counts.pass_rate),
            str(model.counts.errors),
            *(show_estimate(model.metrics.get(name), summary.metrics[name]) for name in names),
        )
        for model in summary.models
    ]
    yield "### Model runs\n\n" + _table(("model run", "pass rate [95%]", "error", *map(code, names)), rows)
    yield from _diversity(summary)
    if summary.separations:
        separations = [
            (code(metric), code(label), f"{separation.aligned:.3g} (n={separation.aligned_n})",
             f"{separation.counter:.3g} (n={separation.counter_n})",
             difference_text(separation), auroc_text(separation))
            for metric, by_label in summary.separations.items()
            for label, separation in by_label.items()
        ]  # fmt: skip
        header = ("metric", "model run", "aligned", "counterexamples", "difference [95%]", "AUROC [95%]")
        yield "### Counterexamples\n\n" + _table(header, separations)
        if note := left_out_text(summary):
            yield code(note)
    if summary.failing:
        failing = [
            (code(cell.test_id), code(cell.model_label), str(cell.sample_index), cell.verdict,
             "<br>".join(map(code, why(cell))))
            for cell in summary.failing[:MAX_ROWS]
        ]  # fmt: skip
        yield "### Cells that did not pass\n\n" + _table(("case", "model run", "sample", "verdict", "why"), failing)
        if counts.not_passed > MAX_ROWS:
            yield f"... and {counts.not_passed - MAX_ROWS:,} more"


def _incomplete(summary: Summary) -> Iterator[str]:
    if summary.unjudged_pairs:
        yield f"**Incomplete: {unjudged_pairs_text(summary.unjudged_pairs)}**"
    if text := diversity_text(summary):
        yield f"**Incomplete: {text}**"
    if text := never_asked_text(summary.never_asked):
        yield f"**Incomplete:** {code(text)}"
    if summary.counts.unmeasured:
        yield f"**Incomplete: {unmeasured_text(summary.counts.unmeasured)}**"


def _diversity(summary: Summary) -> Iterator[str]:
    if summary.diversity:
        rows = [(code(grader), code(label), *rest) for grader, label, *rest in diversity_rows(summary)]
        yield f"### {TITLE}\n\n" + _table(HEADINGS, rows)


def _gate(gate: GateFinding) -> tuple[str, ...]:
    notes = filter(None, (gate.note or count_of(gate.errors, "error"), bound_note(gate)))
    value = f"{gate_value(gate)}, n={gate.n}, {'; '.join(notes)}"
    return _STATE_LABELS[gate.state], code(gate.rule), code(gate.scope or "all cells"), value, gate_repeat(gate)


def rankings_markdown(rankings: Rankings) -> str:
    """Rankings: what could not be ranked, then one table for each ranking and group."""
    return "\n\n".join(_rankings(rankings)) + "\n"


def _rankings(rankings: Rankings) -> Iterator[str]:
    yield f"## visioneval rank{': incomplete' if rankings.exit_code else ''}"
    yield from (f"**{code(line)}**" for line in rankings.gaps)
    yield from map(code, rankings.notes)
    for ranking in rankings.rankings:
        yield f"### {code(ranking_title(ranking))}"
        yield from (f"**{code(line)}**" for line in ranking.gaps)
        yield from _ranking_tables(ranking)
        yield from map(code, ranking.notes)
    if rankings.rankings:
        yield ABOUT


def _ranking_tables(ranking: Ranking) -> Iterator[str]:
    head = ("rank [95%]", "model run", "strength [95%]", "chance [95%]", "wins", "losses", "ties", "pairs")
    for heading, entries in by_group(ranking):
        rows = [
            (show_rank(entry), code(entry.name), show_strength(entry), show_chance(entry),
             *(f"{count:,}" for count in (entry.wins, entry.losses, entry.ties, entry.pairs)))
            for entry in entries
        ]  # fmt: skip
        yield f"{heading}\n\n{_table(head, rows)}" if heading else _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Escapes ``|`` only here: inside a table it ends a cell, even within a code span."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_escape_bar(cell) for cell in line)} |" for line in lines)


def _escape_bar(cell: str) -> str:
    return cell.replace("|", "\\|")
