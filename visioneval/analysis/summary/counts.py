"""Counts of cells by verdict, scores, costs and times, one cell at a time: a run of any length fits in memory. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal

from pydantic import Field

from visioneval.analysis.scores import Estimate, Scores, case_of, counted_metrics
from visioneval.records.between_cells import read_all_answers
from visioneval.records.model import GraderRecord, JudgeAnswer, Record, RunInfo
from visioneval.suite.metrics import LeftOutScores
from visioneval.types import Frozen, Status, Verdict

CostKind = Literal["generation", "judging", "pairwise"]


class VerdictCounts(Frozen):
    """Cells by verdict. ``refused`` cells also count in their verdict. ``pass_rate`` excludes errors.

    ``without_verdict`` counts the outputs in a suite without rules.
    ``unmeasured`` counts the cells with a failed grader that is not optional, whatever their verdict.
    """

    cells: int
    passed: int
    failed: int
    errors: int
    without_verdict: int = 0
    refused: int
    unmeasured: int
    pass_rate: Estimate

    @property
    def not_passed(self) -> int:
        """The number of cells that failed or are errors."""
        return self.failed + self.errors


class ModelFindings(Frozen):
    """The findings of one model run. ``seconds`` is the mean time of a generation.

    Of a metric of words, ``metrics`` has the share of each word, such as ``style: flat``.
    ``cost_usd`` is the sum of the known costs; ``unpriced`` counts generations and judgements without one.
    """

    label: str
    stand_in: bool
    counts: VerdictCounts
    metrics: dict[str, Estimate]
    cost_usd: float | None
    unpriced: int = 0
    seconds: float
    failure_tags: dict[str, int] = Field(default_factory=dict)
    """The number of its cells with each failure tag, most frequent first."""
    tags: dict[str, VerdictCounts] = Field(default_factory=dict)
    """Its cells by the tags of their cases, sorted."""


class CostFinding(Frozen):
    """The cost of a model run's generations, of a grader's judge, or of a judge of pairs.

    Its name is that of the model run, ``GRADER``, ``GRADER by JUDGE`` of a panel, or ``provider:model`` for pairs.
    ``unknown`` counts cells, or answers about pairs, without a known cost.
    """

    what: CostKind
    name: str
    usd: float
    paid: int
    cached: int
    unknown: int


@dataclass(slots=True)
class Verdicts:
    """Cells by verdict."""

    counts: Counter[Verdict] = field(default_factory=Counter)
    passes: Scores = field(default_factory=Scores)
    refused: int = 0
    unmeasured: int = 0

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        self.counts[cell.verdict] += 1
        self.passes.add(cell.verdict.passed, case_of(cell.test_id))
        self.refused += cell.status is Status.REFUSED
        self.unmeasured += cell.is_unmeasured

    def result(self) -> VerdictCounts:
        """Returns the counts and their pass rate."""
        return VerdictCounts(
            cells=self.counts.total(),
            passed=self.counts[Verdict.PASS],
            failed=self.counts[Verdict.FAIL],
            errors=self.counts[Verdict.ERROR],
            without_verdict=self.counts[Verdict.NONE],
            refused=self.refused,
            unmeasured=self.unmeasured,
            pass_rate=self.passes.estimate(),
        )


def count(cells: Iterable[Record]) -> VerdictCounts:
    """Counts cells by verdict, with their pass rate."""
    verdicts = Verdicts()
    for cell in cells:
        verdicts.add(cell)
    return verdicts.result()


@dataclass(slots=True)
class Money:
    """Costs in USD, of which some may be unknown. Their sum is exact, so that it does not depend on their order."""

    sum: Fraction = Fraction()
    known: int = 0
    unknown: int = 0
    paid: int = 0
    cached: int = 0

    def add(self, usd: float | None, *, cached: bool = False) -> None:
        """Counts one cost."""
        self.cached += cached
        if usd is None:
            self.unknown += 1
        else:
            self.sum += Fraction(usd)
            self.known += 1
            self.paid += not cached

    def add_cell(self, cell: Record) -> None:
        """Counts the costs of generating and grading a cell."""
        self.add(cell.cost_usd)
        for grader in cell.graders:
            self.add(grader.cost_usd)

    @property
    def usd(self) -> float | None:
        """The sum of the known costs, or ``None`` if there are none."""
        return float(self.sum) if self.known else None

    def finding(self, what: CostKind, name: str) -> CostFinding:
        """The costs as a finding."""
        usd = float(self.sum)
        return CostFinding(what=what, name=name, usd=usd, paid=self.paid, cached=self.cached, unknown=self.unknown)


@dataclass(slots=True)
class Model:
    """Verdicts, scores, costs and times of one model run."""

    left_out: LeftOutScores
    words: Mapping[str, Mapping[str, str]]
    """The names of the shares of each metric of words, by word."""
    verdicts: Verdicts = field(default_factory=Verdicts)
    scores: defaultdict[str, Scores] = field(default_factory=lambda: defaultdict(Scores))
    money: Money = field(default_factory=Money)
    seconds: Fraction = Fraction()
    failure_tags: Counter[str] = field(default_factory=Counter)
    tags: defaultdict[str, Verdicts] = field(default_factory=lambda: defaultdict(Verdicts))

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        self.verdicts.add(cell)
        self.seconds += Fraction(cell.seconds)
        self.failure_tags.update(cell.failure_tags)
        for tag in cell.tags:
            self.tags[tag].add(cell)
        self.money.add_cell(cell)
        left_out, case = self.left_out.metrics_of(cell.test_id), case_of(cell.test_id)
        for name, score in cell.scores.items():
            if name in left_out:
                continue
            if (shares := self.words.get(name)) is None:
                self.scores[name].add(score, case)
                continue
            for word, share in shares.items():
                self.scores[share].add(score == word if score in shares else None, case)

    def result(self, label: str, info: RunInfo, unpriced: int) -> ModelFindings:
        """Returns the findings of the model run, with metrics in the order of the run."""
        counts = self.verdicts.result()
        return ModelFindings(
            label=label,
            stand_in=any(entry.stand_in for entry in info.suite.models if entry.label == label),
            counts=counts,
            metrics={
                name: self.scores[name].estimate(metric)
                for name, metric in counted_metrics(info.metrics).items()
                if name in self.scores
            },
            cost_usd=self.money.usd,
            unpriced=unpriced,
            seconds=float(self.seconds) / counts.cells if counts.cells else 0.0,
            failure_tags=most_common(self.failure_tags),
            tags={tag: verdicts.result() for tag, verdicts in sorted(self.tags.items())},
        )


class Costs:
    """The cost of every model run, and of every grader that asks a judge, for a panel by judge. Without free ones.

    An output of another run or case was generated, and paid for, there.
    """

    def __init__(self, info: RunInfo) -> None:
        """Finds the model runs and graders of the suite that can cost money."""
        suite = info.suite
        self._free = {str(entry.label) for entry in suite.models if entry.is_free}
        self._is_regraded = info.graded_from is not None
        self._of_others = {case.id for case in suite.cases if case.output_of is not None}
        self._free_judges = {name for name, judge in suite.judges.items() if judge.is_free}
        self._judges = {grader.key: grader.judge_names for grader in suite.graders if grader.judge_names}
        self._order = [str(entry.label) for entry in suite.models]
        for key, names in self._judges.items():
            self._order += [key, *(cost_name(key, name) for name in names)]
        self._totals: dict[tuple[CostKind, str], Money] = {}
        self.unknown: Counter[str] = Counter()
        """Generations and judgements without a known cost, by model run."""

    def add(self, cell: Record) -> None:
        """Counts a cell. Offline, a run that missed the cache called no provider, so that there is no cost."""
        is_uncalled = cell.error is not None and (cell.error.stage, cell.error.kind) == ("generate", "offline")
        is_reused = self._is_regraded or cell.test_id in self._of_others
        if cell.model_label not in self._free and not is_uncalled and not is_reused:
            self._count("generation", cell.model_label, cell, cell)
        for grader in cell.graders:
            for judge, answer in answers_of(grader, self._judges.get(grader.key, ())):
                if judge not in self._free_judges:
                    name = cost_name(grader.key, judge) if grader.judges else grader.key
                    self._count("judging", name, cell, answer)

    def _count(self, what: CostKind, name: str, cell: Record, paid: Record | GraderRecord | JudgeAnswer) -> None:
        self._totals.setdefault((what, name), Money()).add(paid.cost_usd, cached=paid.cached)
        self.unknown[cell.model_label] += paid.cost_usd is None

    def result(self) -> tuple[CostFinding, ...]:
        """Returns generation costs by model run, then judging costs by grader and judge, both in suite order."""
        position = {name: index for index, name in enumerate(self._order)}
        names = sorted(self._totals, key=lambda key: (key[0], position.get(key[1], len(position)), key[1]))
        return tuple(self._totals[what, name].finding(what, name) for what, name in names)


def read_pair_costs(folder: Path) -> tuple[CostFinding, ...]:
    """The cost of each judge of pairs whose answers a run holds, over all its answers, replaced ones included.

    Raises ``RunFormatError``.
    """
    totals: defaultdict[str, Money] = defaultdict(Money)
    for line in read_all_answers(folder):
        totals[line.judge].add(line.cost_usd, cached=line.cached)
    return tuple(money.finding("pairwise", name) for name, money in sorted(totals.items()))


def answers_of(grader: GraderRecord, judges: Sequence[str]) -> Iterator[tuple[str, GraderRecord | JudgeAnswer]]:
    """The answers of a grader's judges by name: those of its panel, or its own as that of its only judge."""
    if grader.judges:
        yield from ((answer.judge, answer) for answer in grader.judges)
    elif len(judges) == 1:
        yield judges[0], grader


def cost_name(grader: str, judge: str) -> str:
    """The name of the cost of one judge of a grader's panel."""
    return f"{grader} by {judge}"


def most_common(counter: Mapping[str, int]) -> dict[str, int]:
    """Sorts by count, then by name, so that the result does not depend on the order of the cells."""
    return dict(sorted(counter.items(), key=lambda entry: (-entry[1], entry[0])))
