"""What is asked about an item, and what is an answer to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from visioneval.errors import UsageError
from visioneval.label.sampling import Item
from visioneval.records.labels import PAIR_ANSWERS, Answer
from visioneval.suite.label_presets import asked_of
from visioneval.suite.labels import VERDICT, WHY, LabelPair, LabelQuestion
from visioneval.suite.model import Suite

_SIDES = {"a": "b", "b": "a"}


@dataclass(frozen=True, slots=True)
class Ask:
    """One question as the page shows it. ``type`` is that of a suite's question, or ``pair``."""

    question: LabelQuestion
    type: str

    @property
    def key(self) -> str:
        """What its answer is kept under."""
        return self.question.key

    @property
    def required(self) -> bool:
        """Whether the next item waits for it."""
        return self.type not in ("tags", "text")

    def shown(self) -> dict[str, Any]:
        """For the page."""
        asked = self.question
        choices = ("a", "b", "tie") if self.type == "pair" else asked.choices or asked.steps
        return {
            "key": asked.key,
            "ask": asked.ask,
            "type": self.type,
            "choices": list(choices),
            "step": asked.step,
            "required": self.required,
        }

    def answer(self, value: Any) -> Answer:
        """A page's value as an answer. Raises ``UsageError`` where it is none."""
        if self.type == "tags":
            value = _in_order(value, self.question.choices)
        if self.type == "text" and isinstance(value, str):
            value = value.strip() or None
        if value is None and self.required:
            raise UsageError(f"{self.key}: not answered yet")
        misfit = self.question.misfit(value)
        if misfit:
            raise UsageError(f"{self.key}: {misfit}")
        answer: Answer = value  # misfit lets nothing else through
        return answer


def _in_order(value: Any, choices: Sequence[str]) -> Any:
    """Tags in the suite's order; no tags are an answer too. What is no list is left for the check to refuse."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(tag, str) and tag in choices for tag in value):
        return value
    return tuple(sorted(value, key=choices.index))


def questions(suite: Suite, *, of_pairs: bool) -> tuple[LabelQuestion, ...] | tuple[LabelPair, ...]:
    """What a suite asks of cells, or of pairs, for which there is a default. Raises ``UsageError``."""
    if of_pairs:
        return suite.asked.pairs or asked_of(None, suite.graders, ()).pairs
    if not suite.asked.questions:
        raise UsageError("the suite's labels ask about pairs only: give --pairs OTHER_RUN")
    return suite.asked.questions


def asks(asked: Iterable[LabelQuestion | LabelPair], item: Item) -> list[Ask]:
    """The questions about one item.

    One for other tasks, or over a metric that no grader wrote for its cell, does not apply.
    """
    record = item.subject.record
    found: list[Ask] = []
    for each in asked:
        if isinstance(each, LabelPair):
            pair = LabelQuestion(key=each.key, ask=each.ask, type="one_of", choices=PAIR_ANSWERS)
            why = LabelQuestion(key=f"{each.key}{WHY}", ask="Why?", type="text")
            found += [Ask(pair, "pair"), Ask(why, "text")]
        elif each.tasks and record.task_type not in each.tasks:
            continue
        elif each.metric in (None, VERDICT) or each.metric in record.scores:
            found.append(Ask(each, each.type))
    return found


def swap_sides(item: Item, answers: Mapping[str, Answer], pairs: Iterable[str]) -> dict[str, Answer]:
    """Answers about the images as answers about the sides that they stood on, or the other way round."""
    turned = set(pairs) if item.swapped else set()
    return {key: _SIDES.get(str(value), value) if key in turned else value for key, value in answers.items()}
