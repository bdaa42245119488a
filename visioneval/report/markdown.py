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
from visioneval.report.text import one_line

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


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Escapes ``|`` only here: inside a table it ends a cell, even within a code span."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_escape_bar(cell) for cell in line)} |" for line in lines)


def _escape_bar(cell: str) -> str:
    return cell.replace("|", "\\|")
