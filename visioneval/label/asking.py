"""The questions about an item, and validation of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from visioneval.errors import UsageError
from visioneval.label.sampling import Item
from visioneval.records.labels import PAIR_ANSWERS, Answer
from visioneval.records.model import Record
from visioneval.suite.label_presets import resolve_labels
from visioneval.suite.labels import VERDICT, WHY, LabelPair, LabelQuestion
from visioneval.suite.model import Suite

_OTHER_SIDE = {"a": "b", "b": "a"}


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """One question as the page shows it. ``type`` is that of a suite's question, or ``pair``."""

    question: LabelQuestion
    type: str

    @property
    def key(self) -> str:
        """The key of its answers."""
        return self.question.key

    @property
    def required(self) -> bool:
        """Whether it must be answered before the next item."""
        return self.type not in ("tags", "text")

    def page_data(self) -> dict[str, Any]:
        """The question as data for the page."""
        question = self.question
        choices = ("a", "b", "tie") if self.type == "pair" else question.choices or question.steps
        return {
            "key": question.key,
            "ask": question.ask,
            "type": self.type,
            "choices": list(choices),
            "step": question.step,
            "required": self.required,
        }

    def answer(self, value: Any) -> Answer:
        """Converts a value from the page to an answer. Raises ``UsageError`` if it is invalid."""
        if self.type == "tags":
            value = _sort_tags(value, self.question.choices)
        if self.type == "text" and isinstance(value, str):
            value = value.strip() or None
        if value is None and self.required:
            raise UsageError(f"{self.key}: not answered")
        problem = self.question.answer_problem(value)
        if problem:
            raise UsageError(f"{self.key}: {problem}")
        answer: Answer = value  # answer_problem() accepts nothing else
        return answer


def _sort_tags(value: Any, choices: Sequence[str]) -> Any:
    """Tags in the order of the suite; no tags are a valid answer. Leaves other values for ``misfit`` to reject."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(tag, str) and tag in choices for tag in value):
        return value
    return tuple(sorted(value, key=choices.index))


def questions_for(suite: Suite, *, of_pairs: bool) -> tuple[LabelQuestion, ...] | tuple[LabelPair, ...]:
    """The questions of a suite about cells, or about pairs, which have a default. Raises ``UsageError``."""
    if of_pairs:
        return suite.resolved_labels.pairs or resolve_labels(None, suite.graders, ()).pairs
    if not suite.resolved_labels.questions:
        raise UsageError("the suite has only questions about pairs; add --pairs OTHER_RUN")
    return suite.resolved_labels.questions


def applicable_questions(questions: Iterable[LabelQuestion | LabelPair], item: Item) -> list[PageQuestion]:
    """The questions about one item.

    Omits questions for other tasks and questions about a metric that the cell does not have.
    """
    record = item.subject.record
    result: list[PageQuestion] = []
    for question in questions:
        if isinstance(question, LabelPair):
            pair = LabelQuestion(key=question.key, ask=question.ask, type="one_of", choices=PAIR_ANSWERS)
            why = LabelQuestion(key=f"{question.key}{WHY}", ask="Why?", type="text")
            result += [PageQuestion(pair, "pair"), PageQuestion(why, "text")]
        elif applies(question, record):
            result.append(PageQuestion(question, question.type))
    return result


def applies(question: LabelQuestion, record: Record) -> bool:
    """Whether a question is about a cell's task, and about a metric that the cell has."""
    if question.tasks and record.task_type not in question.tasks:
        return False
    return not question.metrics or any(name == VERDICT or name in record.scores for name in question.metrics)


def swap_sides(item: Item, answers: Mapping[str, Answer], pairs: Iterable[str]) -> dict[str, Answer]:
    """Converts answers between images and the sides they were shown on."""
    swapped_keys = set(pairs) if item.swapped else set()
    return {key: _OTHER_SIDE.get(str(value), value) if key in swapped_keys else value for key, value in answers.items()}
