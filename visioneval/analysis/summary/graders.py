"""What special graders show: separation from counter-examples, questions by type, and the alignment score and the gaps
of each cell, whether it passes or not. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from math import fsum

from visioneval.analysis.compare.differences import widest_difference
from visioneval.analysis.scores import Estimate, Scores, case_of, number_of
from visioneval.analysis.sides import ALIGNMENT
from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.intervals import (
    Groups,
    auroc,
    auroc_interval,
    rate_separation_interval,
    separation_interval,
)
from visioneval.records.model import Record, RunInfo, suite_order
from visioneval.rules import parse_gate
from visioneval.suite.entries.graders import QUESTIONS, of_kind
from visioneval.suite.metrics import LeftOutScores, counter_examples, image_cases, left_out
from visioneval.types import Frozen, Metric

Sides = tuple[Scores, Scores]
"""The scores of aligned cells and of counter-examples."""


class Separation(Frozen):
    """A metric over aligned cells and counter-examples: both means, their difference and the AUROC.

    ``auroc`` is how often an aligned cell scores higher than a counter-example. A tie counts half. Both have a 95 %
    interval over cases, ``null`` for a single case on a side; that of the difference also if no score differs. Cases
    that share their images (``output_of``) are one case, so that a counter-example and the case whose images it uses
    are a pair. ``left_out`` is whether the means and rates of the metric over all cells leave out counter-examples.
    """

    aligned: float
    aligned_n: int
    counter: float
    counter_n: int
    difference: float
    difference_low: float | None
    difference_high: float | None
    auroc: float
    auroc_low: float | None
    auroc_high: float | None
    left_out: bool = False


class Separations:
    """Separation by metric and model run, for the main metrics of graders and for gated metrics.

    Empty if the suite has no counter-examples. Leaves out metrics without measured cells on both sides.
    """

    def __init__(self, info: RunInfo) -> None:
        """Starts without cells."""
        self._metrics = info.metrics
        self._counter = counter_examples(info.selected_suite)
        self._images = image_cases(info.selected_suite)
        self._left_out = left_out(info.selected_suite, info.metrics).metrics
        gated = {gate.metric for entry in info.suite.gates if (gate := parse_gate(entry.rule)).fn == "separation"}
        prefixes = tuple(f"{grader.key}." for grader in info.suite.graders)
        numbers = (name for name, metric in info.metrics.items() if metric.type != "one_of")
        names = (name for name in numbers if name in gated or not name.startswith(prefixes))
        self._scores: dict[str, dict[str, Sides]] = {name: {} for name in names} if self._counter else {}

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        case = case_of(self._images.get(cell.test_id, cell.test_id))
        for metric, by_label in self._scores.items():
            score = cell.scores.get(metric)
            if score is not None:
                sides = by_label.setdefault(cell.model_label, (Scores(), Scores()))
                sides[cell.test_id in self._counter].add(score, case)

    def result(self, labels: Collection[str]) -> dict[str, dict[str, Separation]]:
        """Returns separations by metric and label, with model runs in the order of ``labels``."""
        separations: dict[str, dict[str, Separation]] = {}
        for metric, by_label in self._scores.items():
            for label in labels:
                aligned, counter = by_label.get(label, (Scores(), Scores()))
                if aligned.n and counter.n:
                    separations.setdefault(metric, {})[label] = self._separation(metric, aligned, counter)
        return separations

    def _separation(self, metric: str, aligned: Scores, counter: Scores) -> Separation:
        high, low = aligned.mean, counter.mean
        above, below = aligned.by_case(), counter.by_case()
        difference, area = difference_interval(above, below, self._metrics[metric]), auroc_interval(above, below)
        return Separation(
            aligned=high,
            aligned_n=aligned.n,
            counter=low,
            counter_n=counter.n,
            difference=high - low,
            difference_low=difference and difference.low,
            difference_high=difference and difference.high,
            auroc=auroc(aligned.values, counter.values),
            auroc_low=area and area.low,
            auroc_high=area and area.high,
            left_out=metric in self._left_out,
        )


def difference_interval(above: Groups, below: Groups, metric: Metric | None) -> Interval | None:
    """The 95 % interval of the mean of aligned cells minus that of counter-examples, from the values of each image."""
    if metric is None or metric.type == "bool":
        return rate_separation_interval(above, below)
    widest = widest_difference(metric)
    return separation_interval(above, below, (None, None) if widest is None else (-widest, widest))


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

    def __init__(self, info: RunInfo, left_out: LeftOutScores) -> None:
        """Starts without cells."""
        self._left_out = left_out
        keys = [grader.key for grader in of_kind(info.suite.graders, QUESTIONS)]
        self._scores: dict[str, dict[str, defaultdict[str | None, Scores]]] = {key: {} for key in keys}
        """By grader, model run and type; those of all types have no type."""
        self._sets: dict[str, dict[bytes, tuple[bool, float | None, int]]] = {key: {} for key in keys}
        """Of each question set whether it was generated, its coverage, and the number of dropped questions."""

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        case, left_out = case_of(cell.test_id), self._left_out.metrics_of(cell.test_id)
        for grader in cell.graders:
            for details in grader.all_details if grader.key in self._sets else ():
                listed = details.get("questions")
                questions = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
                if not questions:
                    continue
                share, dropped = details.get("coverage"), details.get("dropped")
                # a set is known by its prompt and its questions, as pinned sets may have no prompt
                texts = (str(details.get("prompt_sha256")), *(str(question.get("question")) for question in questions))
                known_by = blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
                self._sets[grader.key][known_by] = (
                    details.get("source") == "generated",
                    float(share) if isinstance(share, (int, float)) else None,
                    dropped if isinstance(dropped, int) else 0,
                )
                if grader.key in left_out:
                    continue
                by_type = self._scores[grader.key].setdefault(cell.model_label, defaultdict(Scores))
                for question in questions:
                    by_type[None].add(question.get("score"), case)
                    by_type[str(question.get("type"))].add(question.get("score"), case)

    def result(self, labels: Iterable[str]) -> dict[str, QuestionFindings]:
        """Returns the findings by grader key, with model runs in the order of ``labels``."""
        order = tuple(labels)
        return {key: self._finding(key, order) for key, by_label in self._scores.items() if by_label}

    def _finding(self, key: str, labels: Iterable[str]) -> QuestionFindings:
        generated = [(share, dropped) for is_generated, share, dropped in self._sets[key].values() if is_generated]
        shares = [share for share, _ in generated if share is not None]
        models = {}
        for label in labels:
            if (by_type := self._scores[key].get(label)) is not None:
                types = sorted((kind, scores) for kind, scores in by_type.items() if kind is not None)
                models[label] = ModelQuestions(
                    all=by_type[None].estimate(), types={kind: scores.estimate() for kind, scores in types}
                )
        return QuestionFindings(
            models=models,
            prompts=len(self._sets[key]),
            generated=len(generated),
            coverage=fsum(shares) / len(shares) if shares else None,
            dropped=sum(dropped for _, dropped in generated),
        )


MAX_LISTED = 5_000
"""How many cells a summary lists, so that it stays small for a run of any length."""


class AlignedCell(Frozen):
    """The score of a cell, 0 to 100, by an alignment grader, and its gaps: a sentence for each unmet requirement.

    The score is ``None`` if it was not measured. For a panel, the gaps are those of each judge.
    """

    test_id: str
    model_label: str
    sample_index: int
    grader: str
    score: float | None
    gaps: tuple[str, ...]


class Alignments:
    """Collects the alignment of the cells of a run, or of those with the lowest scores if there are many."""

    def __init__(self, info: RunInfo) -> None:
        """Finds the alignment graders."""
        self._keys = alignment_keys(info)
        self._order = suite_order(info)
        self._cells: list[AlignedCell] = []
        self._count = 0

    def add(self, cell: Record) -> None:
        """Adds the scores of a cell."""
        for key in self._keys:
            if key in cell.scores:
                score = cell.scores[key]
                self._count += 1
                self._cells.append(
                    AlignedCell(
                        test_id=cell.test_id,
                        model_label=cell.model_label,
                        sample_index=cell.sample_index,
                        grader=key,
                        score=number_of(score),
                        gaps=gaps_in(cell, key),
                    )
                )
        if len(self._cells) >= 2 * MAX_LISTED:
            self._cells = list(self.result())

    def result(self) -> tuple[AlignedCell, ...]:
        """The cells in suite order; if there are too many, the lowest scores first."""
        cells = sorted(self._cells, key=lambda cell: self._order(cell.test_id, cell.model_label, cell.sample_index))
        return tuple(cells if self._count <= MAX_LISTED else lowest_first(cells)[:MAX_LISTED])

    @property
    def left_out(self) -> int:
        """The number of cells that are not listed."""
        return max(0, self._count - MAX_LISTED)


def lowest_first(cells: Iterable[AlignedCell]) -> list[AlignedCell]:
    """Sorts cells by score. Those that were not measured come last."""
    return sorted(cells, key=lambda cell: (cell.score is None, cell.score or 0.0))


def alignment_keys(info: RunInfo) -> tuple[str, ...]:
    """The keys of the alignment graders of a run."""
    return tuple(grader.key for grader in info.suite.graders if grader.type_name == ALIGNMENT)


def gaps_in(cell: Record, key: str) -> tuple[str, ...]:
    """The gaps that a grader found in a cell; with a panel, of each of its judges."""
    for grader in cell.graders:
        if grader.key == key:
            own = _gaps(grader.details)
            return own or tuple(f"{answer.judge}: {gap}" for answer in grader.judges for gap in _gaps(answer.details))
    return ()


def _gaps(details: Mapping[str, object]) -> tuple[str, ...]:
    listed = details.get("gaps")
    return tuple(str(gap) for gap in listed) if isinstance(listed, list) else ()
