"""The answers of people, pooled over runs and coded as numbers: what everything about agreement starts from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from visioneval.errors import UsageError
from visioneval.records.labels import PAIR_ANSWERS, Answer, Images, Label, newest, of_today
from visioneval.records.model import CellKey, Record, RunInfo
from visioneval.suite.labels import WHY, LabelQuestion

Unit = tuple[str, str, str, int, str | None]
"""What an answer is about: run, case, model run, sample, and in a pair the other side."""
YES_NO = ("no", "yes")


@dataclass(frozen=True, slots=True)
class LabeledRun:
    """A run and what people said of it, with the agreed answers for it."""

    info: RunInfo
    records: Sequence[Record]
    labels: Sequence[Label]
    anchors: Sequence[Label] = ()


@dataclass(frozen=True, slots=True)
class Facet:
    """One thing that was asked: a question, a pair, or, of a question for tags, whether one ``tag`` fits.

    ``names`` are the answers in words, by their code; of a scale there are none, its steps being its codes.
    """

    key: str
    type: Literal["yes_no", "one_of", "scale", "pair"]
    names: tuple[str, ...] = ()
    question: LabelQuestion | None = None
    tag: str | None = None
    answers: dict[Unit, dict[str, float]] = field(default_factory=dict)
    """By unit and rater: the answers that count."""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.key if self.tag is None else f"{self.key}: {self.tag}"

    @property
    def is_ordered(self) -> bool:
        """Whether its answers lie on a scale."""
        return self.type == "scale"

    def code(self, label: Label) -> float | None:
        """A label's answer as a number; ``None`` where it is no answer to this."""
        answer = label.answer
        if self.type == "pair":
            return float(PAIR_ANSWERS.index(str(answer))) if label.other and answer in PAIR_ANSWERS else None
        assert self.question is not None
        if answer is None or self.question.misfit(answer) is not None:
            return None
        if self.tag is not None:
            return float(isinstance(answer, tuple) and self.tag in answer)
        return float(self.names.index(answer)) if isinstance(answer, str) else _number(answer)

    def text_of(self, code: float) -> str:
        """An answer in words."""
        return self.names[int(code)] if self.names else f"{code:g}"


Facets = Mapping[str, Sequence[Facet]]
"""By question; a question for free text has none."""


@dataclass(slots=True)
class Answers:
    """Everything that was asked and answered, and how many answers say nothing of agreement."""

    facets: Facets
    records: dict[tuple[str, CellKey], Record] = field(default_factory=dict)
    raters: dict[str, int] = field(default_factory=dict)
    """How many answers of each rater count."""
    unknown_cells: int = 0
    """Answers about cells that a run does not have."""
    outdated: int = 0
    """Answers about images that were generated again since."""
    unmatched: int = 0
    """Answers that are none to their question, or to no question of the suite."""

    @property
    def all_facets(self) -> list[Facet]:
        """Every facet, in the suite's order."""
        return [facet for facets in self.facets.values() for facet in facets]


def drop_outdated_labels(runs: Sequence[LabeledRun]) -> tuple[list[LabeledRun], int]:
    """The runs without labels of images that were generated again since, and how many labels that left out."""
    generated = {(run.info.run_id, record.cell): record.artifact_sha256 for run in runs for record in run.records}
    current, outdated = [], 0
    for run in runs:
        images = partial(_images, generated, run.info.run_id)
        labels, dropped = of_today(run.labels, images)
        current.append(replace(run, labels=labels, anchors=of_today(run.anchors, images)[0]))
        outdated += dropped
    return current, outdated


def _images(generated: Mapping[tuple[str, CellKey], str | None], run_id: str, label: Label) -> Images:
    """The images that a label would be about today, by their hashes, where these are known."""
    other, _, model = (label.other or "").partition("@")
    return generated.get((run_id, label.cell)), generated.get((other, (label.test_id, model, label.sample_index)))


def pool(runs: Sequence[LabeledRun]) -> Answers:
    """The answers to every question of some runs.

    Raises ``UsageError`` where two runs ask differently by one key, or share cells.
    """
    answers = Answers(_facets(runs))
    for run in runs:
        cells = {record.cell: record for record in run.records}
        if duplicate := next((cell for cell in cells if (run.info.run_id, cell) in answers.records), None):
            raise UsageError(f"{run.info.run_id} is given twice: {duplicate[0]} on {duplicate[1]} would count double")
        answers.records.update({(run.info.run_id, cell): record for cell, record in cells.items()})
        for label in newest(run.labels):
            if label.cell not in cells:
                answers.unknown_cells += 1
            elif _add(answers.facets, unit_of(run, label), label):
                answers.raters[label.rater] = answers.raters.get(label.rater, 0) + 1
            else:
                answers.unmatched += 1
    return answers


def unit_of(run: LabeledRun, label: Label) -> Unit:
    """What a label is about."""
    return (run.info.run_id, *label.cell, label.other)


def _add(facets: Facets, unit: Unit, label: Label) -> bool:
    """Whether the label answers what was asked."""
    question_facets = facets.get(label.question)
    if question_facets is None:
        return False
    codes = [facet.code(label) for facet in question_facets]
    for facet, code in zip(question_facets, codes, strict=True):
        if code is not None:
            facet.answers.setdefault(unit, {})[label.rater] = code
    return None not in codes


def _number(answer: Answer) -> float | None:
    return float(answer) if isinstance(answer, (bool, int, float)) else None


def _facets(runs: Sequence[LabeledRun]) -> dict[str, tuple[Facet, ...]]:
    asked: dict[str, tuple[str, LabelQuestion | None]] = {}
    for run in runs:
        labels = run.info.suite.asked
        for key, question in [
            *((entry.key, entry) for entry in labels.questions),
            *((entry.key, None) for entry in labels.pairs),
        ]:
            first_run, first_question = asked.setdefault(key, (run.info.run_id, question))
            if _meaning(first_question) != _meaning(question):
                raise UsageError(f"{first_run} and {run.info.run_id} ask {key!r} differently: look at them one by one")
    facets = {key: tuple(_facets_of(key, question)) for key, (_, question) in asked.items()}
    reasons: dict[str, tuple[Facet, ...]] = {f"{key}{WHY}": () for key, (_, question) in asked.items() if not question}
    return {**reasons, **facets}


def _meaning(question: LabelQuestion | None) -> object:
    """What two questions must share to be one: all but their words."""
    return question and (question.type, question.choices, question.scale, question.step, question.metric)


def _facets_of(key: str, question: LabelQuestion | None) -> list[Facet]:
    if question is None:
        return [Facet(key, "pair", PAIR_ANSWERS)]
    if question.type == "tags":
        return [Facet(key, "yes_no", YES_NO, question, tag) for tag in question.choices]
    if question.type == "yes_no":
        return [Facet(key, "yes_no", YES_NO, question)]
    if question.type == "one_of":
        return [Facet(key, "one_of", question.choices, question)]
    return [Facet(key, "scale", (), question)] if question.type == "scale" else []
