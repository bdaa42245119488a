"""Tables of lists that the code has: a page has `<!-- table: NAME -->` and `<!-- end of table -->` around one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from visioneval import expressions, rules
from visioneval.plugins import GRADERS, config_of
from visioneval.providers.questions import CROWD, JUDGES, ImageLimits
from visioneval.suite import metrics
from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import BaseGrader, CustomGrader
from visioneval.suite.entries.judges import SHOWN_PARTS
from visioneval.suite.labels import BY_TASK, READY, LabelPair, LabelQuestion
from visioneval.suite.loading.rows import SOURCES
from visioneval.suite.loading.tables import FORMATS
from visioneval.suite.plugins import MEMBERS
from visioneval.types import TaskType


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *map(list, rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("| --- ", "|---").replace("--- |", "---|")


def _meanings(title: str, meanings: Mapping[str, str]) -> str:
    return table((title, "meaning"), ((f"`{form}`", text) for form, text in meanings.items()))


def graders() -> str:
    """Every type of grader, with what it needs."""
    rows = [(f"[{name}]({name}.md)", *_grader(config_of(GRADERS, name))) for name in GRADERS]
    return table(("type", "measures", "needs"), [*rows, ("[module:Class](custom.md)", *_grader(CustomGrader))])


def _grader(options: type[BaseGrader]) -> tuple[str, str]:
    fields = options.model_fields
    needs = [options.needs[""]] if "" in options.needs else []
    asked = "a judge" if "judge" in fields and fields["judge"].default else ""
    extra = next((extra for task in TaskType if (extra := _extra(options, task))), None)
    needs.append(" or ".join(filter(None, (f"the extra `{extra}`" if extra else "", asked))))
    if options.runs_code:
        needs.append("`--trust-suite`, or its package")
    text = " ".join((options.__doc__ or "").split()).replace("``", "`")
    return text, ", ".join(filter(None, needs))


def _extra(options: type[BaseGrader], task: TaskType) -> str | None:
    entry: dict[str, Any] = {"id": "one", "prompt": "x", "task": task, "expect": {"text": {"required": ["x"]}}}
    return options.model_construct(extract="ocr").extra_for(TestCase.model_validate(entry))


def gates() -> str:
    """The functions of a gate."""
    return _meanings("function", {**rules.RATES, **rules.OF_METRIC})


def shown_parts() -> str:
    """What a judge gets of each part of its message."""
    return table(("part", "what the judge gets"), ((f"`{part}`", text) for part, text in SHOWN_PARTS.items()))


def image_limits() -> str:
    """The known limits of judges."""
    head = ("judge, by its model's name", "pixels on a side", "one image", "one request")
    return table(head, (_limits(limits) for _, limits in JUDGES))


def _limits(limits: ImageLimits) -> tuple[str, ...]:
    side = f"{limits.side:,}, or {limits.crowded_side:,} with more than {CROWD} images" if limits.side else ""
    return limits.judges, side, _size(limits.image_bytes), _size(limits.request_bytes)


def _size(number: int | None) -> str:
    if not number:
        return ""
    return f"{number >> 20} MiB" if number % (1 << 20) == 0 else f"{number // 1_000_000} MB"


def rater_questions() -> str:
    """The questions of each preset, and those of a suite without ``labels`` that depend on the task."""
    rows = [(name, question) for name, labels in READY.items() for question in (*labels.questions, *labels.pairs)]
    rows += [(task, question) for task in TaskType for question in BY_TASK if task in question.tasks]
    return table(("preset or task", "key", "answers", "question"), (_question(*row) for row in rows))


def _question(name: str, question: LabelQuestion | LabelPair) -> tuple[str, ...]:
    answers = question.answers_text if isinstance(question, LabelQuestion) else "one of two outputs, or a tie"
    compared = isinstance(question, LabelQuestion) and "verdict" in question.metrics
    return f"`{name}`", f"`{question.key}`", answers + " (compared with the verdict)" * compared, question.ask


TABLES: Mapping[str, Callable[[], str]] = {
    "graders": graders,
    "functions of an expression": lambda: _meanings("function", expressions.MEANINGS),
    "built-in metrics": lambda: _meanings("metric", metrics.MEANINGS),
    "functions of a gate": gates,
    "parts that a judge sees": shown_parts,
    "limits of judges": image_limits,
    "members of a class": lambda: _meanings("member", MEMBERS),
    "formats of datasets": lambda: _meanings("file", FORMATS),
    "sources of a key": lambda: _meanings("source", SOURCES),
    "questions for raters": rater_questions,
}
"""By the name that a page's block has."""
