"""The cells that did not pass, by reason, with examples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from visioneval.analysis.summary.cells import FailingCell
from visioneval.analysis.summary.summary import Summary
from visioneval.errors import count_of
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import one_line, plain
from visioneval.types import Verdict

MAX_REASONS = 20
_MAX_EXPLANATION = 200
_Example = tuple[FailingCell, str]


def failures_table(summary: Summary, width: int, max_examples: int) -> RenderableType:
    """Each reason with its number of cells, and examples that differ: at most ``max_examples`` over all reasons."""
    numbers = {model.label: number for number, model in enumerate(summary.models, 1)}
    examples = failure_examples(summary, max_examples)
    has_samples = any(cell.sample_index for cell in summary.failing)
    rows: list[list[Cell]] = []
    for reason, count in list(summary.failure_reasons.items())[:MAX_REASONS]:
        first: list[Cell] = [Text(f"{count:,}", style="red"), reason]
        for cell, text in examples[reason]:
            case = f"{cell.test_id} [{cell.sample_index}]" if has_samples else cell.test_id
            rows.append([*first, str(numbers[cell.model_label]), case, plain(one_line(text, _MAX_EXPLANATION))])
            first = ["", ""]
        if first != ["", ""]:
            rows.append([*first, "", "", ""])
    columns = [
        Column("cells", right=True),
        Column("reason", min_width=8),
        Column("#", right=True),
        Column("case [sample]" if has_samples else "case", min_width=max(10, min(width // 4, width - 50))),
        Column("example", min_width=24),
    ]
    return with_title(
        "Why cells did not pass, with examples by model run (#)", Group(table(columns, rows, width), *_notes(summary))
    )


def print_failing(summary: Summary, console: Console) -> None:
    """Prints a row for each cell that did not pass, the worst first."""
    rows: list[list[Cell]] = []
    for cell in worst_first(summary.failing):
        reasons = (f"{rule}: {text}" if text else rule for rule, text in cell.explanations.items())
        case = f"{cell.test_id} [{cell.sample_index}]" if cell.sample_index else cell.test_id
        rows.append([cell.verdict, case, cell.model_label, plain(one_line("; ".join(reasons), _MAX_EXPLANATION))])
    counts = summary.counts
    title = f"{counts.failed:,} FAIL and {counts.errors:,} ERROR of {count_of(counts.cells, 'cell')}"
    if not rows:
        console.print(title)
        return
    columns = (Column("verdict"), Column("case [sample]", min_width=10), Column("model run", min_width=10))
    console.print(
        with_title(f"{title}, the worst first", table((*columns, Column("why", min_width=24)), rows, console.width))
    )
    if (more := counts.failed + counts.errors - len(rows)) > 0:
        console.print(f"... and {more:,} more, which come later in the suite")


def worst_first(cells: Iterable[FailingCell]) -> list[FailingCell]:
    """First failed cells, then errors, which say nothing about an image; of each, those in failed gates first, and then
    those with more failed rules."""

    def rank(cell: FailingCell) -> tuple[bool, bool, int]:
        return cell.verdict is Verdict.ERROR, not cell.failed_gates, -len(cell.explanations)

    return sorted(cells, key=rank)


def failure_examples(summary: Summary, total: int) -> dict[str, list[_Example]]:
    """Cells that did not pass and their explanations, by reason, the most frequent first; at most ``total`` cells.

    Of each reason, cells that count in a failed gate come first.
    """
    examples: defaultdict[str, list[_Example]] = defaultdict(list)
    for cell in summary.failing:
        for reason, text in cell.explanations.items():
            examples[reason].append((cell, text))
    shares = _shares({reason: len(examples[reason]) for reason in summary.failure_reasons}, total)
    return {reason: _varied(examples[reason], share) for reason, share in shares.items()}


def _notes(summary: Summary) -> Iterator[Text]:
    if (more := len(summary.failure_reasons) - MAX_REASONS) > 0:
        yield Text(f"... and {count_of(more, 'more reason')}", style="dim")


def _shares(sizes: dict[str, int], total: int) -> dict[str, int]:
    """How many examples each reason gets: one for each in turn, until ``total`` or all are shown."""
    shares = dict.fromkeys(sizes, 0)
    while total > 0 and (open_reasons := [reason for reason, size in sizes.items() if shares[reason] < size]):
        for reason in open_reasons[:total]:
            shares[reason] += 1
        total -= len(open_reasons[:total])
    return shares


def _varied(examples: list[_Example], count: int) -> list[_Example]:
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
