"""Human labels, pooled over runs and coded as numbers, the input of all agreement measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from visioneval.analysis.left_out import DueMetrics
from visioneval.analysis.run_lookup import Warn, labels_of, read_run
from visioneval.errors import UsageError
from visioneval.records.between_cells import Preference, read_preferences
from visioneval.records.labels import (
    LABELS,
    PAIR_ANSWERS,
    Images,
    Label,
    RecordedDraw,
    drop_outdated,
    newest,
    read_anchors,
    read_draws,
    read_labels,
)
from visioneval.records.model import CellKey, Record, RunInfo
from visioneval.suite.labels import WHY, LabelQuestion
from visioneval.types import Score

Unit = tuple[str, str, str, int, str | None]
"""The subject of an answer: run, case, model run, sample, and for a pair the other side."""
YES_NO = ("no", "yes")


@dataclass(frozen=True, slots=True)
class LabeledRun:
    """A run with its labels, as the user named it. ``anchors`` are agreed answers, ``preferences`` those of judges."""

    info: RunInfo
    records: Sequence[Record]
    labels: Sequence[Label]
    anchors: Sequence[Label] = ()
    draws: Sequence[RecordedDraw] = ()
    name: str = ""
    preferences: Sequence[Preference] = ()
    ranked: frozenset[str] = frozenset()
    """The labels of the model runs to rank, all if empty."""

    @property
    def title(self) -> str:
        """The run as the user named it."""
        return self.name or self.info.run_id


@dataclass(frozen=True, slots=True)
class Facet:
    """A question, a pair, or one ``tag`` of a question for tags.

    ``names`` are the answer texts by code, empty for a scale, whose values are the codes.
    """

    key: str
    type: Literal["yes_no", "one_of", "scale", "pair"]
    names: tuple[str, ...] = ()
    question: LabelQuestion | None = None
    tag: str | None = None
    answers: dict[Unit, dict[str, float]] = field(default_factory=dict)
    """The current answer codes by unit and rater."""
    unknown_cells: set[tuple[str, CellKey]] = field(default_factory=set)
    """The labeled cells that are not in their run."""

    @property
    def name(self) -> str:
        """The question key, with the tag if there is one."""
        return self.key if self.tag is None else f"{self.key}: {self.tag}"

    @property
    def is_ordered(self) -> bool:
        """Whether the answers are values of a scale."""
        return self.type == "scale"

    def code(self, label: Label) -> float | None:
        """Codes a label's answer as a number, or returns ``None`` if it does not answer this question."""
        answer = label.answer
        if self.type == "pair":
            return float(PAIR_ANSWERS.index(str(answer))) if label.other and answer in PAIR_ANSWERS else None
        assert self.question is not None
        answer = self.question.in_order(answer)
        if answer is None or self.question.answer_problem(answer) is not None:
            return None
        if self.tag is not None:
            return float(isinstance(answer, tuple) and self.tag in answer)
        if isinstance(answer, str):
            return float(self.names.index(answer))
        return float(answer) if isinstance(answer, (bool, int, float)) else None

    def coded(self, score: Score) -> float | None:
        """The score of a grader in the codes of the answers; ``None`` without one, and for an unknown word."""
        if isinstance(score, str):
            return float(self.names.index(score)) if score in self.names else None
        return None if score is None or self.type == "one_of" else float(score)

    def text_of(self, code: float) -> str:
        """The text of an answer."""
        return self.names[int(code)] if self.names else f"{code:g}"


@dataclass(slots=True)
class Answers:
    """All questions and answers, and the numbers of ignored answers."""

    facets: dict[str, tuple[Facet, ...]]
    """Facets by question key. A free-text question has none."""
    records: dict[tuple[str, CellKey], Record] = field(default_factory=dict)
    due: dict[str, DueMetrics] = field(default_factory=dict)
    """By run: which metrics its cells should have."""
    raters: dict[str, int] = field(default_factory=dict)
    """The number of counted answers by rater."""
    unknown_cells: int = 0
    """Ignored answers about cells that are not in the run."""
    outdated: int = 0
    """Ignored answers about images that were generated again since."""
    unmatched: int = 0
    """Ignored answers that are invalid for their question, or whose question is not in the suite."""

    @property
    def all_facets(self) -> list[Facet]:
        """All facets in suite order."""
        return [facet for facets in self.facets.values() for facet in facets]


def drop_outdated_labels(runs: Sequence[LabeledRun]) -> tuple[list[LabeledRun], int]:
    """Removes labels of images that were generated again since. Returns the runs and the number of removed labels."""
    generated = {(run.info.run_id, record.cell): record.artifact_sha256 for run in runs for record in run.records}
    current, outdated = [], 0

    def hashes(run_id: str, label: Label) -> Images:
        """The hashes of the current images of a label's cells, if known."""
        other, _, model = (label.other or "").partition("@")
        return generated.get((run_id, label.cell)), generated.get((other, (label.test_id, model, label.sample_index)))

    for run in runs:
        images = partial(hashes, run.info.run_id)
        labels, dropped = drop_outdated(run.labels, images)
        current.append(replace(run, labels=labels, anchors=drop_outdated(run.anchors, images)[0]))
        outdated += dropped
    return current, outdated


def pool(runs: Sequence[LabeledRun]) -> Answers:
    """Pools the answers of runs by question. Pairs that were shown in both directions become one item.

    Raises ``UsageError`` if runs define a question differently, or if a cell occurs twice.
    """
    answers = Answers(_facets(runs))
    directions: dict[frozenset[str], str] = {}  # by two model runs: the side that the first label calls a
    for run in runs:
        cells = {record.cell: record for record in run.records}
        if duplicate := next((cell for cell in cells if (run.info.run_id, cell) in answers.records), None):
            raise UsageError(f"{run.info.run_id} is given twice: {duplicate[0]} on {duplicate[1]} would count twice")
        answers.due[run.info.run_id] = DueMetrics(run.info)
        answers.records.update({(run.info.run_id, cell): record for cell, record in cells.items()})
        for label in newest(run.labels):
            if label.cell not in cells:
                answers.unknown_cells += 1
                for facet in answers.facets.get(label.question, ()):
                    if label.other is None and facet.code(label) is not None:
                        facet.unknown_cells.add((run.info.run_id, label.cell))
                continue
            unit, turned = _in_one_direction(unit_of(run, label), label, directions)
            facets = answers.facets.get(label.question)
            codes = [(facet, facet.code(turned)) for facet in facets or ()]
            for facet, code in codes:
                if code is not None:
                    facet.answers.setdefault(unit, {})[label.rater] = code
            if facets is not None and all(code is not None for _, code in codes):
                answers.raters[label.rater] = answers.raters.get(label.rater, 0) + 1
            else:
                answers.unmatched += 1
    return answers


def unit_of(run: LabeledRun, label: Label) -> Unit:
    """The subject of a label."""
    return (run.info.run_id, *label.cell, label.other)


def _in_one_direction(unit: Unit, label: Label, directions: dict[frozenset[str], str]) -> tuple[Unit, Label]:
    """Swaps the sides of a label about a pair if an earlier one is about the same model runs the other way round."""
    run, test_id, model, sample, other = unit
    if other is None or "@" not in other:
        return unit, label
    side = f"{run}@{model}"
    if directions.setdefault(frozenset((side, other)), side) == side:
        return unit, label
    other_run, _, other_model = other.partition("@")
    swapped = {"a": "b", "b": "a"}.get(str(label.answer), label.answer)
    return (other_run, test_id, other_model, sample, side), label.model_copy(update={"answer": swapped})


def _facets(runs: Sequence[LabeledRun]) -> dict[str, tuple[Facet, ...]]:
    definitions: dict[str, tuple[str, LabelQuestion | None]] = {}
    for run in runs:
        labels = run.info.selected_suite.resolved_labels
        questions: dict[str, LabelQuestion | None] = {entry.key: entry for entry in labels.questions}
        questions |= dict.fromkeys(entry.key for entry in labels.pairs)
        for key, question in questions.items():
            first_run, first_question = definitions.setdefault(key, (run.info.run_id, question))
            if _meaning(first_question) != _meaning(question):
                raise UsageError(
                    f"{first_run} and {run.info.run_id} define question {key!r} differently: analyze them separately"
                )
    facets: dict[str, tuple[Facet, ...]] = {}
    for key, (_, question) in definitions.items():
        if question is None:
            facets |= {f"{key}{WHY}": (), key: (Facet(key, "pair", PAIR_ANSWERS),)}
        elif question.type == "tags":
            facets[key] = tuple(Facet(key, "yes_no", YES_NO, question, tag) for tag in question.choices)
        elif question.type == "text":
            facets[key] = ()
        else:
            names = {"yes_no": YES_NO, "one_of": question.choices, "scale": ()}
            facets[key] = (Facet(key, question.type, names[question.type], question),)
    return facets


def _meaning(question: LabelQuestion | None) -> object:
    """The parts of a question that must be equal in all runs: everything but its text."""
    return question and (question.type, question.choices, question.scale, question.step, question.metric)


def read_labeled(name: str, runs: Path, warn: Warn) -> LabeledRun:
    """A run, or its model runs whose label matches, with labels, draws and preferences. Raises ``UsageError``."""
    folder, info, records = read_run(name, runs, warn)
    labels = labels_of(name, records, read_labels(folder / LABELS))
    draws = read_draws(folder)
    anchors, preferences = read_anchors(folder, info), read_preferences(folder)
    return LabeledRun(info, records, labels, anchors, draws, name, preferences)
