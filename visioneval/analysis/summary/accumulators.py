"""Counters that take one cell at a time, so that a run of any length fits in memory. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from visioneval.analysis.scores import CaseNumbers, Estimate, ExactSum, Scores
from visioneval.analysis.summary.findings import CostFinding, CostKind, Counts, ModelFindings
from visioneval.records.model import Record, RunInfo
from visioneval.records.preferences import read_all_answers
from visioneval.suite.counter_examples import LeftOut
from visioneval.types import Status, Verdict


class Accumulator(Protocol):
    """A counter that takes one cell at a time."""

    def add(self, cell: Record) -> None:
        """Counts a cell."""


@dataclass(slots=True)
class Verdicts:
    """Cells by verdict."""

    numbers: CaseNumbers
    counts: Counter[Verdict] = field(default_factory=Counter)
    passes: Scores = field(default_factory=Scores)
    refused: int = 0
    unmeasured: int = 0

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        self.counts[cell.verdict] += 1
        self.passes.add(cell.verdict.passed, self.numbers[cell.test_id])
        self.refused += cell.status is Status.REFUSED
        self.unmeasured += cell.is_unmeasured

    def result(self) -> Counts:
        """Returns the counts and their pass rate."""
        return Counts(
            cells=self.counts.total(),
            passed=self.counts[Verdict.PASS],
            failed=self.counts[Verdict.FAIL],
            errors=self.counts[Verdict.ERROR],
            without_verdict=self.counts[Verdict.NONE],
            refused=self.refused,
            unmeasured=self.unmeasured,
            pass_rate=self.passes.estimate(),
        )


def pass_rate(verdicts: Iterable[tuple[str, Verdict]]) -> Estimate:
    """The pass rate of cells, each given by its case and verdict."""
    numbers, passes = CaseNumbers(), Scores()
    for case, verdict in verdicts:
        passes.add(verdict.passed, numbers[case])
    return passes.estimate()


def count(cells: Iterable[Record]) -> Counts:
    """Counts cells by verdict, with their pass rate."""
    verdicts = Verdicts(CaseNumbers())
    for cell in cells:
        verdicts.add(cell)
    return verdicts.result()


@dataclass(slots=True)
class Money:
    """Costs in USD. Some of them may be unknown."""

    sum: ExactSum = field(default_factory=ExactSum)
    unknown: int = 0
    paid: int = 0
    cached: int = 0

    def add(self, usd: float | None, *, cached: bool = False) -> None:
        """Counts one cost."""
        self.cached += cached
        if usd is None:
            self.unknown += 1
            return
        self.sum.add(usd)
        self.paid += not cached

    @property
    def usd(self) -> float | None:
        """The sum of the known costs, or ``None`` if there are none."""
        return self.sum.value if self.sum.count else None


def add_costs(money: Money, cell: Record) -> None:
    """Adds the costs of generating and grading a cell."""
    money.add(cell.cost_usd)
    for grader in cell.graders:
        money.add(grader.cost_usd)


@dataclass(slots=True)
class Model:
    """Verdicts, scores, costs and times of one model run."""

    numbers: CaseNumbers
    left_out: LeftOut
    verdicts: Verdicts = field(init=False)
    scores: dict[str, Scores] = field(default_factory=dict)
    money: Money = field(default_factory=Money)
    seconds: ExactSum = field(default_factory=ExactSum)
    failure_tags: Counter[str] = field(default_factory=Counter)
    tags: dict[str, Verdicts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Starts without cells."""
        self.verdicts = Verdicts(self.numbers)

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        self.verdicts.add(cell)
        self.seconds.add(cell.seconds)
        self.failure_tags.update(cell.failure_tags)
        for tag in cell.tags:
            self.tags.setdefault(tag, Verdicts(self.numbers)).add(cell)
        add_costs(self.money, cell)
        left_out = self.left_out.metrics_of(cell.test_id)
        for name, score in cell.scores.items():
            if name in left_out:
                continue
            if name not in self.scores:
                self.scores[name] = Scores()
            self.scores[name].add(score, self.numbers[cell.test_id])

    def result(self, label: str, info: RunInfo, unpriced: int) -> ModelFindings:
        """Returns the findings of the model run, with metrics in the order of the run."""
        return ModelFindings(
            label=label,
            stand_in=any(entry.stand_in for entry in info.suite.models if entry.label == label),
            counts=self.verdicts.result(),
            metrics={
                name: self.scores[name].estimate(metric) for name, metric in info.metrics.items() if name in self.scores
            },
            cost_usd=self.money.usd,
            unpriced=unpriced,
            seconds=self.seconds.value / self.seconds.count if self.seconds.count else 0.0,
            failure_tags=most_common(self.failure_tags),
            tags={tag: verdicts.result() for tag, verdicts in sorted(self.tags.items())},
        )


def _is_uncalled(cell: Record) -> bool:
    """Whether no provider was called, so that there is no cost: an offline run missed the cache."""
    return cell.error is not None and (cell.error.stage, cell.error.kind) == ("generate", "offline")


class Costs:
    """The cost of every model run, and of every grader that asks a judge, for a panel by judge. Without free ones."""

    def __init__(self, info: RunInfo) -> None:
        """Finds the model runs and graders of the suite that can cost money."""
        self._free = {str(entry.label) for entry in info.suite.models if entry.is_free}
        self._judges = {grader.key: grader.judge_names for grader in info.suite.graders if grader.judge_names}
        self._free_judges = {name for name, judge in info.suite.judges.items() if judge.is_free}
        self._order = [str(entry.label) for entry in info.suite.models]
        for key, names in self._judges.items():
            self._order += [key, *(cost_name(key, name) for name in names)]
        self._totals: dict[tuple[CostKind, str], Money] = {}
        self.unknown: Counter[str] = Counter()
        """Generations and judgements without a known cost, by model run."""

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        if cell.model_label not in self._free and not _is_uncalled(cell):
            self._of("generation", cell.model_label).add(cell.cost_usd, cached=cell.cached)
            self.unknown[cell.model_label] += cell.cost_usd is None
        for grader in cell.graders:
            if grader.judges:
                for answer in grader.judges:
                    if answer.judge in self._free_judges:
                        continue
                    name = cost_name(grader.key, answer.judge)
                    self._of("judging", name).add(answer.cost_usd, cached=answer.cached)
                    self.unknown[cell.model_label] += answer.cost_usd is None
            elif len(names := self._judges.get(grader.key, ())) == 1 and names[0] not in self._free_judges:
                self._of("judging", grader.key).add(grader.cost_usd, cached=grader.cached)
                self.unknown[cell.model_label] += grader.cost_usd is None

    def _of(self, what: CostKind, name: str) -> Money:
        return self._totals.setdefault((what, name), Money())

    def result(self) -> tuple[CostFinding, ...]:
        """Returns generation costs by model run, then judging costs by grader and judge, both in suite order."""
        position = {name: index for index, name in enumerate(self._order)}
        return tuple(
            _cost_finding(what, name, money)
            for (what, name), money in sorted(
                self._totals.items(),
                key=lambda entry: (entry[0][0], position.get(entry[0][1], len(position)), entry[0][1]),
            )
        )


def read_pair_costs(folder: Path) -> tuple[CostFinding, ...]:
    """The cost of each judge of pairs whose answers a run holds, over all its answers, replaced ones included.

    Raises ``RunFormatError``.
    """
    totals: dict[str, Money] = {}
    for line in read_all_answers(folder):
        totals.setdefault(line.judge, Money()).add(line.cost_usd, cached=line.cached)
    return tuple(_cost_finding("pairwise", name, money) for name, money in sorted(totals.items()))


def _cost_finding(what: CostKind, name: str, money: Money) -> CostFinding:
    return CostFinding(
        what=what, name=name, usd=money.usd or 0.0, paid=money.paid, cached=money.cached, unknown=money.unknown
    )


def cost_name(grader: str, judge: str) -> str:
    """The name of the cost of one judge of a grader's panel."""
    return f"{grader} by {judge}"


def most_common(counter: Mapping[str, int]) -> dict[str, int]:
    """Sorts by count, then by name, so that the result does not depend on the order of the cells."""
    return dict(sorted(counter.items(), key=lambda entry: (-entry[1], entry[0])))
