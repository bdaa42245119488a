"""Mean costs of generations and judgements in earlier runs, used to estimate the next run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from visioneval.errors import RunFormatError
from visioneval.records.model import RunInfo, read_info
from visioneval.records.reader import read_lines
from visioneval.records.stores.lookup import list_runs, refresh_runs
from visioneval.suite.case import without_prompt

MAX_RUNS = 20
"""How many of the newest runs are read."""
MAX_RECORDS = 5000
"""How many records of each run are read."""


@dataclass(frozen=True, slots=True)
class RecordedJudgeCost:
    """The cost of one judge of a panel in a record."""

    judge: str
    cost_usd: float | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class RecordedGraderCost:
    """The cost of one grader in a record, and of each judge of its panel."""

    key: str
    cost_usd: float | None = None
    cached: bool = False
    judges: tuple[RecordedJudgeCost, ...] = ()

    def by_judge(self, names: tuple[str, ...]) -> tuple[RecordedJudgeCost, ...]:
        """The cost of each judge. A single one has the whole cost; without an answer of a panel there is none."""
        if len(names) != 1:
            return self.judges
        return (RecordedJudgeCost(names[0], self.cost_usd, self.cached),)


@dataclass(frozen=True, slots=True)
class RecordedCost:
    """The cost fields of a record."""

    provider: str
    model_label: str
    cost_usd: float | None = None
    attempts: int = 0
    cached: bool = False
    graders: tuple[RecordedGraderCost, ...] = ()


class Mean(NamedTuple):
    """The mean of ``times`` payments in USD."""

    usd: float
    times: int


@dataclass(frozen=True, slots=True)
class PastCosts:
    """Mean costs in earlier runs, without cached and unpriced results.

    ``generations`` maps provider and model run label, without its prompt, to the cost per image; ``judgements`` maps
    grader key and ``provider:model`` of the judge to the cost per cell.
    """

    generations: Mapping[tuple[str, str], Mean] = field(default_factory=dict)
    judgements: Mapping[tuple[str, str], Mean] = field(default_factory=dict)


def read_past_costs(root: Path) -> PastCosts:
    """Computes the means over the newest runs of a folder. Skips runs that cannot be read."""
    return past_costs(_runs(root))


def _runs(root: Path) -> Iterable[tuple[RunInfo, list[RecordedCost]]]:
    folders = [folder for folder, _ in list_runs(root)[-MAX_RUNS:]]
    unreadable = refresh_runs(folders)
    for folder in (folder for folder in folders if folder not in unreadable):
        try:
            yield read_info(folder), list(islice(read_lines(folder / "results.jsonl", RecordedCost), MAX_RECORDS))
        except RunFormatError:
            continue


def past_costs(runs: Iterable[tuple[RunInfo, Iterable[RecordedCost]]]) -> PastCosts:
    """Computes the means over the given runs."""
    generations: dict[tuple[str, str], list[float]] = {}
    judgements: dict[tuple[str, str], list[float]] = {}
    for info, records in runs:
        suite = info.suite
        judge_names = {entry.key: entry.judge_names for entry in suite.graders}
        for record in records:
            if record.attempts and not record.cached and record.cost_usd is not None:
                label = without_prompt(record.model_label)
                generations.setdefault((record.provider, label), []).append(record.cost_usd)
            for grader in record.graders:
                for part in grader.by_judge(judge_names.get(grader.key, ())):
                    if part.judge in suite.judges and not part.cached and part.cost_usd is not None:
                        title = suite.judges[part.judge].title
                        judgements.setdefault((grader.key, title), []).append(part.cost_usd)
    means = ({key: Mean(fmean(paid), len(paid)) for key, paid in costs.items()} for costs in (generations, judgements))
    return PastCosts(*means)
