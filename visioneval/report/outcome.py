"""How a run ended, in one sentence that is the same in every form, and which cells did not pass, with examples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal
from urllib.parse import urlencode

from visioneval.analysis.left_out import NeverAsked
from visioneval.analysis.summary.duplicates import DuplicateCell, not_compared_outputs
from visioneval.analysis.summary.gates import FailingCell
from visioneval.analysis.summary.same_question import ContradictedCell
from visioneval.analysis.summary.summary import Summary, unmeasured_groups
from visioneval.errors import count_of
from visioneval.report.sections import Cell, Column, Section, Share, Value, dim, numbers, quoted, texts
from visioneval.report.text import cut_middle, one_line
from visioneval.rules import parse_gate
from visioneval.suite.filters import chain_of
from visioneval.types import Verdict

Tone = Literal["pass", "fail", "error"]
_STOPPED = {
    "budget": "Stopped by its budget",
    "refused_key": "Stopped by a refused API key",
    "quota": "Stopped by a spent quota",
}
_UNFINISHED = {"running": "Still running", "stopped": "Stopped before completion", "interrupted": "Interrupted"}
_MAX_REASONS = 20
_MIN_TEXT, _MAX_TEXT = 60, 200


def outcome(summary: Summary) -> tuple[Tone, str]:
    """How good the outcome is, and what it is."""
    if summary.stopped_by is not None:
        return "error", _STOPPED[summary.stopped_by]
    if summary.state in _UNFINISHED:
        return "error", _UNFINISHED[summary.state]
    for text in not_compared(summary):
        return "error", f"Incomplete: {text}"
    if summary.never_asked:
        return "error", f"Incomplete: some judges or models were never asked{_failed_too(summary)}"
    if summary.shard is not None and summary.exit_code == 0:
        return "error", f"Shard {summary.shard}: gates are evaluated after merging"
    return _by_exit_code(summary)


def _by_exit_code(summary: Summary) -> tuple[Tone, str]:
    """The outcome of a complete run."""
    failed = sum(gate.state == "failed" for gate in summary.gates)
    undecided = sum(gate.state == "cannot_tell" for gate in summary.gates)
    match summary.exit_code:
        case 0:
            # why all gates passed although most cells failed
            is_mostly_red = summary.counts.failed > summary.counts.passed
            expected = f": {summary.counts.failed:,} failed, as the gates expect" if is_mostly_red else ""
            skipped = sum(gate.state == "skipped" for gate in summary.gates)
            without = ", ".join(summary.left_out_graders)
            # what flags have left out; without rules, there is no pass rate that could be
            left_out = f", {skipped} skipped" if skipped and not summary.counts.without_verdict else ""
            left_out += f", without the graders left out: {without}" if without else ""
            return "pass", f"All gates passed{left_out}{expected}"
        case 1:
            return "fail", f"{failed} of {count_of(len(summary.gates), 'gate')} failed"
        case 3 if summary.counts.errors or summary.counts.unmeasured:
            return "error", f"Incomplete: {_unmeasured_cells(summary)}{_failed_too(summary)}"
        case 3 if summary.counts.cells != summary.planned_cells:
            return "error", f"Incomplete: {summary.counts.cells:,} of {count_of(summary.planned_cells, 'cell')}"
        case 3 if undecided and all(gate.state != "unmeasured" for gate in summary.gates):
            return "error", f"{undecided} of {count_of(len(summary.gates), 'gate')} cannot tell{_failed_too(summary)}"
        case 3 if all(gate.state != "unmeasured" for gate in summary.gates) and not failed:
            return "error", "Incomplete: no gate of the suite applies to the selection"
        case 3:
            return "error", f"Incomplete: some values were not measured{_failed_too(summary)}"
        case code:
            return "error", f"Exit code {code}"


def _unmeasured_cells(summary: Summary) -> str:
    """How many cells are errors, and on how many outputs a grader failed; one number where these are the same cells."""
    errors, unmeasured = summary.counts.errors, summary.counts.unmeasured
    if errors == unmeasured:
        return f"{count_of(errors, 'cell')} could not be measured"
    parts = [f"{count_of(errors, 'cell')} ended in an error"] if errors else []
    parts += [f"a grader failed on {count_of(unmeasured, 'output')}"] if unmeasured else []
    return ", ".join(parts)


def _failed_too(summary: Summary) -> str:
    """How many gates failed, if one of them is about outputs and not about errors; else empty."""
    failed = [parse_gate(gate.rule) for gate in summary.gates if gate.state == "failed"]
    if all(gate.is_about_errors for gate in failed):
        return ""
    return f"; {len(failed)} of {count_of(len(summary.gates), 'gate')} failed"


def error_note(summary: Summary) -> str:
    """What ``error_rate`` and ``unmeasured_rate`` count, where cells are in one and not in the other; else empty."""
    if summary.counts.errors == summary.counts.unmeasured:
        return ""
    return (
        "error_rate counts cells without a verdict, such as those without an output;"
        " unmeasured_rate counts outputs that a grader failed on, whatever their verdict."
    )


def not_compared(summary: Summary) -> Iterator[str]:
    """How many pairs have no answer from a judge, and how many sets of samples or outputs no grader compared."""
    if summary.unjudged_pairs:
        yield f"{count_of(summary.unjudged_pairs, 'pair')} could not be judged"
    if failed := unmeasured_groups(summary.diversity):
        yield f"{count_of(failed, 'set')} of samples could not be compared"
    if failed := not_compared_outputs(summary.duplicates):
        yield f"{count_of(failed, 'output')} could not be compared with those of other cases"


def never_asked_text(never_asked: Sequence[NeverAsked]) -> str:
    """Which judges and models were not asked about how many cells, pairs or outputs; empty if all were."""
    counted = (
        f"{entry.name} {'of' if entry.what == 'output' else 'about'} {count_of(entry.number, entry.what)}"
        for entry in never_asked
    )
    return f"never asked: {', '.join(counted)}" if never_asked else ""


def model_run(summary: Summary, label: str) -> Value:
    """The name of a model run, or the number that it has in a terminal."""
    short = next((str(number) for number, model in enumerate(summary.models, 1) if model.label == label), "")
    return Value(label, quoted=True, short=short)


def failure_sections(summary: Summary, limit: int) -> Iterator[Section]:
    """Each reason with its number of cells, and examples that differ."""
    if not summary.failing:
        return
    examples = failure_examples(summary, limit)
    has_samples = any(cell.sample_index for cell in summary.failing)
    rows: list[list[Cell]] = []
    for reason, count in list(summary.failure_reasons.items())[:_MAX_REASONS]:
        first: list[Cell] = [Value(f"{count:,}", "fail"), quoted(reason)]
        for cell, text in examples[reason]:
            name = f"{cell.test_id} [{cell.sample_index}]" if has_samples else cell.test_id
            case = quoted(name, link=cell_link(cell))
            rows.append([*first, model_run(summary, cell.model_label), case, quoted(cut_middle(text, _MAX_TEXT))])
            first = ["", ""]
        if first != ["", ""]:
            rows.append([*first, "", "", ""])
    columns = [*numbers("cells"), Column("reason", min_width=8), Column("model run", short="#")]
    columns += [Column("case [sample]" if has_samples else "case", min_width=20), Column("example", min_width=24)]
    more = len(summary.failure_reasons) - _MAX_REASONS
    notes = [dim(f"... and {count_of(more, 'more reason')}")] if more > 0 else []
    title = "Why cells did not pass, with examples by model run"
    yield Section(title, columns, rows, notes, is_cut=True, name="failures")


def cell_link(cell: FailingCell | ContradictedCell | DuplicateCell) -> str:
    """The link to a cell in HTML."""
    return f"#cell?{urlencode({'case': cell.test_id, 'at': cell.model_label, 'sample': cell.sample_index})}"


def failure_examples(summary: Summary, total: int) -> dict[str, list[tuple[FailingCell, str]]]:
    """Cells that did not pass and their explanations, by reason, the most frequent first; at most ``total`` cells.

    Of each reason, cells that count in a failed gate come first.
    """
    examples: defaultdict[str, list[tuple[FailingCell, str]]] = defaultdict(list)
    for cell in summary.failing:
        for reason, text in cell.explanations.items():
            examples[reason].append((cell, text))
    shares = dict.fromkeys(summary.failure_reasons, 0)
    while total > 0 and (open_reasons := [reason for reason in shares if shares[reason] < len(examples[reason])]):
        for reason in open_reasons[:total]:
            shares[reason] += 1
        total -= len(open_reasons[:total])
    return {reason: _varied(examples[reason], share) for reason, share in shares.items()}


def _varied(examples: Sequence[tuple[FailingCell, str]], count: int) -> list[tuple[FailingCell, str]]:
    """The first examples: those in a failed gate, then those with another text, then those of other model runs."""
    seen: Counter[str] = Counter()
    models: Counter[str] = Counter()
    ranks = []
    for cell, text in examples:
        ranks.append((not cell.failed_gates, seen[text] > 0, models[cell.model_label]))
        seen[text] += 1
        models[cell.model_label] += 1
    chosen = sorted(range(len(examples)), key=ranks.__getitem__)[:count]
    order = _in_turn_order([examples[at][0] for at in chosen])
    return [examples[chosen[at]] for at in order]


def _in_turn_order(cells: Sequence[FailingCell]) -> list[int]:
    """The positions of cells in their order, except that the turns of a case change places to be in theirs."""
    turns = defaultdict[object, list[int]](list)
    for at, cell in enumerate(cells):
        turns[chain_of(cell.test_id), cell.model_label, cell.sample_index, cell.verdict].append(at)
    order = list(range(len(cells)))
    for places in turns.values():
        in_order = sorted(places, key=lambda at: int(cells[at].test_id.partition("/")[2] or 0))
        for place, at in zip(places, in_order, strict=True):
            order[place] = at
    return order


def worst_first(summary: Summary) -> list[FailingCell]:
    """The cells that did not pass: failed cells before errors, which say nothing about an image; of each, those in
    failed gates first, and then those with more failed rules. Turns of a case are in order."""

    def rank(cell: FailingCell) -> tuple[bool, bool, int]:
        return cell.verdict is Verdict.ERROR, not cell.failed_gates, -len(cell.explanations)

    cells = sorted(summary.failing, key=rank)
    return [cells[at] for at in _in_turn_order(cells)]


def explained(cell: FailingCell) -> str:
    """Why a cell did not pass."""
    texts = cell.explanations.items()
    reasons = [text if cell.shown(rule) else f"{rule}: {text}" if text else rule for rule, text in texts]
    return "; ".join(cut_middle(reason, max(_MIN_TEXT, _MAX_TEXT // len(reasons))) for reason in reasons)


def failing_cells(summary: Summary) -> Section:
    """Each cell that did not pass, the worst first."""
    rows: list[list[Cell]] = []
    has_samples = any(cell.sample_index for cell in summary.failing)
    for cell in worst_first(summary):
        case = f"{cell.test_id} [{cell.sample_index}]" if has_samples else cell.test_id
        rows.append([cell.verdict, quoted(case), quoted(cell.model_label), quoted(explained(cell))])
    counts = summary.counts
    title = f"{counts.failed:,} FAIL and {counts.errors:,} ERROR of {count_of(counts.cells, 'cell')}"
    if not rows:
        return Section("", about=[title])
    heading = "case [sample]" if has_samples else "case"
    columns = [Column("verdict"), *texts(heading, "model run"), Column("why", min_width=24)]
    more = counts.not_passed - len(rows)
    notes = [f"... and {more:,} more, which come later in the suite"] if more > 0 else []
    return Section(f"{title}, the worst first", columns, rows, notes)


def failure_tag_table(
    totals: Mapping[str, int], counts: Sequence[Mapping[str, int]], names: Sequence[Column]
) -> tuple[list[Column], list[list[Cell]]]:
    """The number of cells with each tag: in all, and for each entry of ``counts``, unless it is the only one."""
    columns = [Column("tag", min_width=12), *numbers("cells"), *(names if len(names) > 1 else ())]
    rows: list[list[Cell]] = []
    for (tag, count), plot in zip(totals.items(), shares(totals.values()), strict=True):
        row: list[Cell] = [quoted(one_line(tag), link=gallery(failure=tag)), Value(f"{count:,}", plot=plot)]
        row += [str(counts_by_tag.get(tag, 0) or "-") for counts_by_tag in counts]
        rows.append(row[: len(columns)])
    return columns, rows


def shares(counts: Iterable[int]) -> list[Share]:
    """Bars beside numbers of what went wrong, the longest for the largest."""
    listed = list(counts)
    return [Share(number / (max(listed) or 1)) for number in listed]


def gallery(**state: str) -> str:
    """The link to the gallery with these filters."""
    return f"#gallery?{urlencode(state)}"
