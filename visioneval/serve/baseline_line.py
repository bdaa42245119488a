"""What the trends show of a baseline: its pass rate behind the line, and the runs in which a drift is declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from visioneval.analysis.compare.drift import find_drift
from visioneval.analysis.run_lookup import BASELINE, read_series
from visioneval.analysis.scores import verdict_rate
from visioneval.analysis.sides import side_of_baseline
from visioneval.analysis.stats.drift import NIGHTS
from visioneval.errors import RunFormatError, VisionEvalError
from visioneval.records.baselines import DEFAULT, FOLDER, Baseline, read_baseline
from visioneval.serve.index import Reference, RunRow, Stamp, series, stamp


def references(rows: Sequence[RunRow], root: Path) -> Mapping[tuple[str, str], Reference]:
    """The baseline of each suite of an experiment; of several, ``main`` or else the first by name.

    Runs with a drift are those that ``compare: drift`` of the suite finds among the last ``NIGHTS``. A baseline or a
    series that cannot be read has none.
    """
    by_series: dict[tuple[str, str], Reference] = {}
    paths = sorted(FOLDER.glob("*.jsonl"), key=lambda path: (path.stem != DEFAULT, path.stem))
    by_suite: dict[str, Path] = {}
    for path in paths:
        if stored := _stored(path, stamp(path)):
            by_suite.setdefault(stored[0].header.suite, path)
    for key, members in series(rows).items():
        baseline = by_suite.get(key[1])
        if baseline is not None:
            stamps = tuple((row.run_id, *row.stamps) for row in members)
            by_series[key] = _reference(key, root, baseline, stamp(baseline), stamps)
    return by_series


@lru_cache(maxsize=32)
def _stored(path: Path, _: Stamp) -> tuple[Baseline, ...]:
    """The runs of a baseline; none if it cannot be read."""
    try:
        return read_baseline(path)
    except RunFormatError:
        return ()


@lru_cache(maxsize=32)
def _reference(key: tuple[str, str], root: Path, path: Path, changed: Stamp, _: tuple[object, ...]) -> Reference:
    stored = _stored(path, changed)
    rate = verdict_rate((line.test_id, line.verdict) for run in stored for line in run.lines)
    name = f"{BASELINE}:{path.stem}"
    try:
        drift = find_drift(side_of_baseline(name, stored), read_series(*key, None, root, shown=NIGHTS))
    except VisionEvalError:  # such as a suite that does not say how many runs are tested together
        return Reference(name, rate)
    return Reference(name, rate, frozenset(night.run_id for night in drift.nights if drift.is_beyond(night)))
