"""Runs and comparisons as Markdown, for a job summary or a comment on a pull request.

Whatever a suite or a model wrote stands in code spans, in which nothing is a link, a mention or markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.gates import GateResult, outcome
from visioneval.analysis.compare.pairing import CellPair, Change
from visioneval.analysis.findings import GateFinding, Summary
from visioneval.report.sentences import (
    TITLES,
    change_in_words,
    headline,
    left_out,
    money_and_time,
    notes,
    power_lines,
    show_difference,
    show_n,
    show_p,
    show_value,
    unlike_lines,
)
from visioneval.report.terminal.summary import pairs_left, show_finding, show_rate, why
from visioneval.report.text import one_line

SHOWN = 20
OPEN: tuple[Change, ...] = ("broken", "error_after", "fixed", "error_before")
FOLDED: tuple[Change, ...] = ("still_failing", "still_error")
_STATES = {"holds": "holds", "unmet": "**NOT MET**", "unmeasured": "**NOT MEASURED**", "skipped": "skipped"}

_OUTCOMES = {
    "hold": "gates hold",
    "unmet": "gates not met",
    "unmeasured": "gates not measured",
    "incomplete": "B is not complete",
}


def code(text: str) -> str:
    """Any text as one line in a code span."""
    flat = one_line(text)
    if not flat:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    pad = " " if "`" in (flat[0], flat[-1]) else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def comparison_markdown(found: Comparison, held: Sequence[GateResult]) -> str:
    """A comparison: gates in the title, then what broke, what was fixed, and the numbers."""
    return "\n\n".join(_comparison(found, held)) + "\n"


def _comparison(found: Comparison, held: Sequence[GateResult]) -> Iterator[str]:
    first, *rest = headline(found)
    yield f"## visioneval compare: {_OUTCOMES[outcome(found, held)]}"
    yield f"**{first}**"
    yield "\n".join(f"- {code(line)}" for line in (*rest, *notes(found)))
    unlike = list(unlike_lines(found))
    if unlike:
        yield "> **Not graded alike: differences below may be the graders'.**\n" + "\n".join(
            f"> - {code(line)}" for line in unlike
        )
    for change in OPEN:
        pairs = found.changed(change)
        if pairs:
            yield f"### {TITLES[change]}: {len(pairs)}\n\n{_flips(pairs, found)}"
    for change in FOLDED:
        pairs = found.changed(change)
        if pairs:
            yield f"<details><summary>{TITLES[change]}: {len(pairs)}</summary>\n\n{_flips(pairs, found)}\n\n</details>"
    yield from _numbers(found)
    out = left_out(found)
    if out:
        yield "### Not compared: in one run only\n\n" + "\n".join(f"- {code(line)}" for line in out)
    yield "### Gates (`--fail-on`)\n\n" + _table(
        ("", "gate", "found"), [(_STATES[one.state], code(one.fail_on.text), code(one.found)) for one in held]
    )


def _flips(pairs: Sequence[CellPair], found: Comparison) -> str:
    rows = [
        (
            code(pair.b.test_id),
            code(pair.b.model_label),
            str(pair.b.sample_index),
            "<br>".join(map(code, change_in_words(pair, found.b.writers))),
            ", ".join(_marks(pair)),
        )
        for pair in pairs[:SHOWN]
    ]
    shown = _table(("case", "model run", "sample", "rules and reasons", ""), rows)
    return shown if len(pairs) <= SHOWN else f"{shown}\n\n... and {len(pairs) - SHOWN:,} more"


def _marks(pair: CellPair) -> Iterator[str]:
    yield from ("must_pass",) if pair.must_pass else ()
    yield from ("flaky",) if pair.flaky else ()
    yield from ("same image",) if pair.same_output else ()


def _numbers(found: Comparison) -> Iterator[str]:
    tested = (found.pass_rate, *found.metrics)
    yield "### Pass rate and metrics\n\n" + _differences("metric", tested, adjusted=True)
    power = list(power_lines(tested))
    if power:
        yield "\n".join(f"- {code(line)}" for line in power)
    for title, what, own in (
        ("Pass rate by model run", "model run", found.by_run),
        ("Pass rate by tag", "tag", found.by_tag),
        ("By type of question", "type", found.by_type),
    ):
        if own:
            yield f"### {title}\n\n{_differences(what, own, adjusted=False)}"
    rows = list(money_and_time(found))
    if rows:
        yield "### Cost and time\n\n" + _table(("", "A", "B", "over"), rows)


def _differences(what: str, found: Iterable[Difference], *, adjusted: bool) -> str:
    head = (what, "A", "B", "B - A [95%]", "p (Holm)" if adjusted else "p (not adjusted)", "n (cases)", "")
    rows = [
        (
            code(one.name),
            show_value(one, one.a),
            show_value(one, one.b),
            show_difference(one),
            show_p(one.p_holm if adjusted else one.p),
            show_n(one),
            _judged(one),
        )
        for one in found
    ]
    return _table(head, rows)


def _judged(one: Difference) -> str:
    if not one.worse_by:
        return ""
    word = "worse" if one.worse_by > 0 else "better"
    return f"**significantly {word}**" if one.significant else word


def summary_markdown(summary: Summary) -> str:
    """A run: its gates, its model runs, and the cells that did not pass."""
    return "\n\n".join(_summary(summary)) + "\n"


def _summary(summary: Summary) -> Iterator[str]:
    counts = summary.counts
    yield f"## visioneval: {code(summary.suite)}"
    state = "" if summary.state == "complete" else f", **{summary.state}**"
    told = f"{counts.passed} PASS, {counts.failed} FAIL, {counts.errors} ERROR"
    yield f"{counts.cells} of {summary.planned_cells} cells{state}: {told}; run {code(summary.run_id)}"
    if summary.unjudged_pairs:
        yield f"**Incomplete: {pairs_left(summary.unjudged_pairs)}**"
    yield "### Gates\n\n" + _table(("", "gate", "for", "found"), [_gate(gate) for gate in summary.gates])
    names = list(summary.metrics)
    rows = [
        (
            code(model.label),
            show_rate(model.counts.pass_rate),
            str(model.counts.errors),
            *(show_finding(model.metrics.get(name), summary.metrics[name]) for name in names),
        )
        for model in summary.models
    ]
    yield "### Model runs\n\n" + _table(("model run", "pass rate [95%]", "error", *map(code, names)), rows)
    if summary.failing:
        failing = [
            (code(cell.test_id), code(cell.model_label), str(cell.sample_index), cell.verdict,
             "<br>".join(map(code, why(cell))))
            for cell in summary.failing[:SHOWN]
        ]  # fmt: skip
        yield "### Cells that did not pass\n\n" + _table(("case", "model run", "sample", "verdict", "why"), failing)
        if len(summary.failing) > SHOWN:
            yield f"... and {len(summary.failing) - SHOWN:,} more"


def _gate(gate: GateFinding) -> tuple[str, ...]:
    found = "nothing" if gate.value is None else f"{gate.value:.4g}, n={gate.n}"
    return _STATES[gate.state], code(gate.rule), code(gate.scope or "all cells"), f"{found}, {gate.errors} errors"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A bar is escaped here alone: in a table it ends a cell even within a code span, elsewhere it is only itself."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_barred(cell) for cell in line)} |" for line in lines)


def _barred(cell: str) -> str:
    return cell.replace("|", "\\|")
