"""Questions pooled by type over all images of a model run, to show which kinds of claims it misses. Pure.

An image with twenty questions counts twenty times here, but once in the mean of a metric. With a panel of judges, each
judge's answer to a question counts. Counter-examples ask what the image does not show: their answers do not count here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import fsum
from typing import Any

from visioneval.analysis.scores import CaseNumbers, Estimate, Scores
from visioneval.records.model import Record, RunInfo
from visioneval.suite.counter_examples import LeftOut
from visioneval.types import Frozen


class ModelQuestions(Frozen):
    """The share of questions about the images of one model run that scored 1, in total and by type."""

    all: Estimate
    types: dict[str, Estimate]


class QuestionFindings(Frozen):
    """The findings of a gecko grader, by model run.

    ``prompts`` counts question sets; a judge wrote ``generated`` of them. For those, ``coverage`` is the mean share of
    a prompt's items that have a question, and ``dropped`` counts discarded questions.
    """

    models: dict[str, ModelQuestions]
    prompts: int
    generated: int
    coverage: float | None
    dropped: int


class Questions:
    """Counts the questions of every grader that asks some, by its key."""

    def __init__(self, info: RunInfo, numbers: CaseNumbers, left_out: LeftOut) -> None:
        """Starts without cells."""
        self._numbers, self._left_out = numbers, left_out
        keys = (grader.key for grader in info.suite.graders if grader.asks_questions)
        self._tallies = {key: _GraderQuestions() for key in keys}

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        case, left_out = self._numbers[cell.test_id], self._left_out.metrics_of(cell.test_id)
        for grader in cell.graders:
            for details in grader.all_details if grader.key in self._tallies else ():
                if questions := _questions_of(details):
                    tally = self._tallies[grader.key]
                    tally.add_set(details, questions)
                    if grader.key not in left_out:
                        tally.add_scores(cell.model_label, questions, case)

    def result(self, labels: Iterable[str]) -> dict[str, QuestionFindings]:
        """Returns the findings by grader key, with model runs in the order of ``labels``."""
        order = tuple(labels)
        return {key: tally.result(order) for key, tally in self._tallies.items() if tally.by_label}


@dataclass(slots=True)
class _GraderQuestions:
    """The questions of one grader: scores by model run and type, and source, coverage and drops of each set."""

    by_label: dict[str, tuple[Scores, dict[str, Scores]]] = field(default_factory=dict)
    sets: dict[bytes, tuple[bool, float | None, int]] = field(default_factory=dict)

    def add_scores(self, label: str, questions: Sequence[Mapping[str, Any]], case: int) -> None:
        overall, by_type = self.by_label.setdefault(label, (Scores(), {}))
        for question in questions:
            overall.add(question.get("score"), case)
            by_type.setdefault(str(question.get("type")), Scores()).add(question.get("score"), case)

    def add_set(self, details: Mapping[str, Any], questions: Sequence[Mapping[str, Any]]) -> None:
        share, dropped = details.get("coverage"), details.get("dropped")
        self.sets[_set_key(details, questions)] = (
            details.get("source") == "generated",
            float(share) if isinstance(share, (int, float)) else None,
            dropped if isinstance(dropped, int) else 0,
        )

    def result(self, labels: Sequence[str]) -> QuestionFindings:
        generated = [(share, dropped) for is_generated, share, dropped in self.sets.values() if is_generated]
        shares = [share for share, _ in generated if share is not None]
        return QuestionFindings(
            models={label: _model_questions(*self.by_label[label]) for label in labels if label in self.by_label},
            prompts=len(self.sets),
            generated=len(generated),
            coverage=fsum(shares) / len(shares) if shares else None,
            dropped=sum(dropped for _, dropped in generated),
        )


def _model_questions(overall: Scores, by_type: Mapping[str, Scores]) -> ModelQuestions:
    return ModelQuestions(
        all=overall.estimate(),
        types={kind: scores.estimate() for kind, scores in sorted(by_type.items())},
    )


def _questions_of(details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    questions = details.get("questions")
    return [question for question in questions if isinstance(question, dict)] if isinstance(questions, list) else []


def _set_key(details: Mapping[str, Any], questions: Iterable[Mapping[str, Any]]) -> bytes:
    """Identifies a question set by its prompt and its questions, as pinned sets may have no prompt."""
    parts = [str(details.get("prompt_sha256")), *(str(question.get("question")) for question in questions)]
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
