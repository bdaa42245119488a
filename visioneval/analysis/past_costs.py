"""Mean costs of generations and judgements in earlier runs, for the estimate of the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from pydantic import TypeAdapter

from visioneval.errors import RunFormatError
from visioneval.records.model import RunInfo, each_line, list_runs, read_info

MAX_RUNS = 20
"""Runs that are looked at, the newest ones."""
MAX_RECORDS = 5000
"""Records of each that are read."""


@dataclass(frozen=True, slots=True)
class RecordedGraderCost:
    """What a record says of the cost of one grader."""

    key: str
    cost_usd: float | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class RecordedCost:
    """What a record says of costs."""

    provider: str
    model_label: str
    cost_usd: float | None = None
    attempts: int = 0
    cached: bool = False
    graders: tuple[RecordedGraderCost, ...] = ()


@dataclass(slots=True)
class Mean:
    """The mean of what was paid so often, in US dollars."""

    usd: float = 0.0
    times: int = 0

    def add(self, usd: float) -> None:
        """Takes one more."""
        self.usd += (usd - self.usd) / (self.times + 1)
        self.times += 1


@dataclass(frozen=True, slots=True)
class PastCosts:
    """Means over what was called for in earlier runs; what came from the cache, and what has no price, is left out.

    ``generations`` is by provider and label of the model run, per image; ``judgements`` by the grader's key and the
    judge's ``provider:model``, for each cell.
    """

    generations: Mapping[tuple[str, str], Mean] = field(default_factory=dict)
    judgements: Mapping[tuple[str, str], Mean] = field(default_factory=dict)


_PAID: TypeAdapter[RecordedCost] = TypeAdapter(RecordedCost)


def read_past_costs(root: Path) -> PastCosts:
    """The means over the newest runs of a folder. A run that cannot be read is passed over."""
    return past_costs(_runs(root))


def _runs(root: Path) -> Iterable[tuple[RunInfo, list[RecordedCost]]]:
    for folder, _ in list_runs(root)[-MAX_RUNS:]:
        try:
            yield read_info(folder), list(islice(each_line(folder / "results.jsonl", _PAID), MAX_RECORDS))
        except RunFormatError:
            continue


def past_costs(runs: Iterable[tuple[RunInfo, Iterable[RecordedCost]]]) -> PastCosts:
    """The means over some runs."""
    generations: dict[tuple[str, str], Mean] = {}
    judgements: dict[tuple[str, str], Mean] = {}
    for info, records in runs:
        suite = info.suite
        judges = {
            entry.key: suite.judges[entry.judge_name] for entry in suite.graders if entry.judge_name in suite.judges
        }
        for record in records:
            if record.attempts and not record.cached and record.cost_usd is not None:
                generations.setdefault((record.provider, record.model_label), Mean()).add(record.cost_usd)
            for grader in record.graders:
                if grader.key in judges and not grader.cached and grader.cost_usd is not None:
                    judgements.setdefault((grader.key, judges[grader.key].title), Mean()).add(grader.cost_usd)
    return PastCosts(generations, judgements)
