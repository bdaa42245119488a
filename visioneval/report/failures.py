"""The cells of a run that did not pass: why, with examples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlencode

from visioneval.analysis.summary.gates import FailingCell
from visioneval.analysis.summary.summary import Summary
from visioneval.errors import count_of
from visioneval.report.sections import Cell, Column, Section, Share, Value, dim, quoted
from visioneval.report.text import cut_middle, one_line
from visioneval.types import Verdict

_MAX_REASONS = 20
_MIN_TEXT, _MAX_TEXT = 60, 200


def model_run(summary: Summary, label: str) -> Value:
    """The name of a model run, or the number that it has in a terminal."""
    numbers = {model.label: number for number, model in enumerate(summary.models, 1)}
    return Value(label, quoted=True, short=str(numbers[label]) if label in numbers else "")


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
    columns = (
        Column("cells", is_number=True),
        Column("reason", min_width=8),
        Column("model run", short="#"),
        Column("case [sample]" if has_samples else "case", min_width=20),
        Column("example", min_width=24),
    )
    more = len(summary.failure_reasons) - _MAX_REASONS
    notes = [dim(f"... and {count_of(more, 'more reason')}")] if more > 0 else []
    yield Section(
        "Why cells did not pass, with examples by model run", columns, rows, notes, is_cut=True, name="failures"
    )


def cell_link(cell: FailingCell) -> str:
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
    texts: Counter[str] = Counter()
    models: Counter[str] = Counter()
    ranks = []
    for cell, text in examples:
        ranks.append((not cell.failed_gates, texts[text] > 0, models[cell.model_label]))
        texts[text] += 1
        models[cell.model_label] += 1
    order = sorted(range(len(examples)), key=ranks.__getitem__)
    return [examples[at] for at in order[:count]]


def failing_cells(summary: Summary) -> Section:
    """Each cell that did not pass, the worst first: failed cells before errors, which say nothing about an image; of
    each, those in failed gates first, and then those with more failed rules."""

    def rank(cell: FailingCell) -> tuple[bool, bool, int]:
        return cell.verdict is Verdict.ERROR, not cell.failed_gates, -len(cell.explanations)

    rows: list[list[Cell]] = []
    has_samples = any(cell.sample_index for cell in summary.failing)
    for cell in sorted(summary.failing, key=rank):
        texts = cell.explanations
        reasons = [text if cell.shown(rule) else f"{rule}: {text}" if text else rule for rule, text in texts.items()]
        why = "; ".join(cut_middle(reason, max(_MIN_TEXT, _MAX_TEXT // len(reasons))) for reason in reasons)
        case = f"{cell.test_id} [{cell.sample_index}]" if has_samples else cell.test_id
        rows.append([cell.verdict, quoted(case), quoted(cell.model_label), quoted(why)])
    counts = summary.counts
    title = f"{counts.failed:,} FAIL and {counts.errors:,} ERROR of {count_of(counts.cells, 'cell')}"
    if not rows:
        return Section("", about=[title])
    columns = [Column("verdict"), Column("case [sample]", min_width=10), Column("model run", min_width=10)]
    more = counts.not_passed - len(rows)
    notes = [f"... and {more:,} more, which come later in the suite"] if more > 0 else []
    return Section(f"{title}, the worst first", [*columns, Column("why", min_width=24)], rows, notes)


def failure_tag_table(
    totals: Mapping[str, int], counts: Sequence[Mapping[str, int]], names: Sequence[Column]
) -> tuple[list[Column], list[list[Cell]]]:
    """The number of cells with each tag: in all, and for each entry of ``counts``, unless it is the only one."""
    columns = [Column("tag", min_width=12), Column("cells", is_number=True), *(names if len(names) > 1 else ())]
    rows: list[list[Cell]] = []
    for (tag, count), plot in zip(totals.items(), shares(totals.values()), strict=True):
        row: list[Cell] = [quoted(one_line(tag), link=gallery(failure=tag)), Value(f"{count:,}", plot=plot)]
        row += [str(counts_by_tag.get(tag, 0) or "-") for counts_by_tag in counts]
        rows.append(row[: len(columns)])
    return columns, rows


def shares(numbers: Iterable[int]) -> list[Share]:
    """Bars beside numbers, the longest for the largest."""
    listed = list(numbers)
    return [Share(number / (max(listed) or 1)) for number in listed]


def gallery(**state: str) -> str:
    """The link to the gallery with these filters."""
    return f"#gallery?{urlencode(state)}"
