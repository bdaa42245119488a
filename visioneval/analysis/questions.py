"""Questions pooled by type over all pictures of a model run: which kind of claim it misses. Pure.

A picture with twenty questions counts twenty times here, and once in the mean of a metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Any

from visioneval.records import GraderRecord, Record, RunInfo
from visioneval.suite.graders import GeckoGrader
from visioneval.types import Frozen


class TypeFinding(Frozen):
    """The share of ``n`` questions that scored 1; ``unmeasured`` more have no score."""

    value: float | None
    n: int
    unmeasured: int


class ModelQuestions(Frozen):
    """The questions about one model run's pictures: all of them, and by type."""

    all: TypeFinding
    types: dict[str, TypeFinding]


class QuestionFindings(Frozen):
    """What a gecko grader found, by model run.

    ``prompts`` counts sets of questions, ``generated`` those of them that a judge made. Of these, ``coverage`` is the
    mean share of a prompt's items that have a question, and ``dropped`` counts the questions that were left out.
    """

    models: dict[str, ModelQuestions]
    prompts: int
    generated: int
    coverage: float | None
    dropped: int


def question_findings(info: RunInfo, cells: Iterable[Record]) -> dict[str, QuestionFindings]:
    """The findings of every gecko grader that asked anything, by its key."""
    by_key: dict[str, list[tuple[str, GraderRecord]]] = {
        grader.key: [] for grader in info.suite.graders if isinstance(grader, GeckoGrader)
    }
    for cell in cells:
        for grader in cell.graders:
            if grader.key in by_key and _asked(grader):
                by_key[grader.key].append((cell.model_label, grader))
    return {key: _findings(own) for key, own in by_key.items() if own}


def _asked(grader: GraderRecord) -> list[Mapping[str, Any]]:
    listed = grader.details.get("questions")
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _findings(told: Sequence[tuple[str, GraderRecord]]) -> QuestionFindings:
    by_label: dict[str, list[Mapping[str, Any]]] = {}
    for label, grader in told:
        by_label.setdefault(label, []).extend(_asked(grader))
    sets = {_set(grader): grader.details for _, grader in told}
    made = [details for details in sets.values() if details.get("source") == "generated"]
    covered = [float(share) for details in made if isinstance(share := details.get("coverage"), (int, float))]
    return QuestionFindings(
        models={label: _of_model(asked) for label, asked in by_label.items()},
        prompts=len(sets),
        generated=len(made),
        coverage=fsum(covered) / len(covered) if covered else None,
        dropped=sum(dropped for details in made if isinstance(dropped := details.get("dropped"), int)),
    )


def _set(grader: GraderRecord) -> tuple[str, ...]:
    """What tells sets of questions apart: the prompt, and, for pinned ones of cases without a prompt, the questions."""
    return str(grader.details.get("prompt_sha256")), *(str(question.get("question")) for question in _asked(grader))


def _of_model(asked: Sequence[Mapping[str, Any]]) -> ModelQuestions:
    by_type: dict[str, list[Any]] = {}
    for question in asked:
        by_type.setdefault(str(question.get("type")), []).append(question.get("score"))
    return ModelQuestions(
        all=_finding([score for own in by_type.values() for score in own]),
        types={kind: _finding(own) for kind, own in by_type.items()},
    )


def _finding(scores: Sequence[Any]) -> TypeFinding:
    counted = [score for score in scores if isinstance(score, (int, float))]
    value = sum(counted) / len(counted) if counted else None
    return TypeFinding(value=value, n=len(counted), unmeasured=len(scores) - len(counted))
