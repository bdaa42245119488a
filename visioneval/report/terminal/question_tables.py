"""Questions pooled by type, in a terminal: which kind of claim each model run misses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from visioneval.analysis.findings import Summary
from visioneval.analysis.questions import ModelQuestions, QuestionFindings, TypeFinding
from visioneval.report.terminal.table import Cell, Column, fitted, table, titled
from visioneval.report.text import clean, plain

ALL = "all questions"


def pooled_metrics(summary: Summary) -> set[str]:
    """The metrics by question type: they are shown pooled over questions, not as means over images."""
    starts = tuple(f"{key}." for key in summary.questions)
    return {name for name in summary.metrics if name.startswith(starts)} if starts else set()


def question_tables(summary: Summary, width: int) -> Iterator[RenderableType]:
    """One table for each gecko grader, as many model runs side by side as fit."""
    labels = [model.label for model in summary.models]
    for key, found in summary.questions.items():
        title = f"Questions by type ({key}): how many are right, of all answered"
        types = list(dict.fromkeys(kind for own in found.models.values() for kind in own.types))
        start = 0
        while start < len(labels):
            end = start + 1
            while end < len(labels) and fitted(*_side_by_side(labels, found, types, start, end + 1), width):
                end += 1
            body = table(*_side_by_side(labels, found, types, start, end), width)
            yield titled(title, body) if start == 0 else body
            start = end
        yield Text(clean(_made(found)), style="dim")


def _side_by_side(
    labels: Sequence[str], found: QuestionFindings, types: Sequence[str], start: int, end: int
) -> tuple[list[Column], list[list[Cell]]]:
    columns = [Column("type", least=12), *(Column(f"#{at + 1}", right=True) for at in range(start, end))]
    models = [found.models.get(label) for label in labels[start:end]]
    rows: list[list[Cell]] = [[plain(kind), *(show_type(_of(model, kind)) for model in models)] for kind in types]
    rows.append([ALL, *(show_type(model.all if model else None) for model in models)])
    return columns, rows


def _of(model: ModelQuestions | None, kind: str) -> TypeFinding | None:
    return model.types.get(kind) if model else None


def show_type(found: TypeFinding | None) -> str:
    """``3/4``, with ``!2`` where two more questions have no score."""
    if found is None:
        return "-"
    right = "none" if found.value is None else f"{round(found.value * found.n)}/{found.n}"
    return f"{right} !{found.unmeasured}" if found.unmeasured else right


def _made(found: QuestionFindings) -> str:
    """Where the questions came from, and what was left out."""
    pinned = found.prompts - found.generated
    parts = [f"{pinned} pinned"] if pinned else []
    if found.generated:
        parts.append(f"{found.generated} made by the judge")
    line = f"questions of {found.prompts} prompt{'s' * (found.prompts != 1)}: {', '.join(parts)}"
    if found.coverage is not None:
        line += f"; {found.coverage:.0%} of the items covered, {found.dropped} questions dropped"
    missing = any(own.all.unmeasured for own in found.models.values())
    return f"{line}; !n: n more without a score" if missing else line
