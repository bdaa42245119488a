"""Reads the answers that are stored in runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visioneval.analysis.agreement.answers import LabeledRun
from visioneval.analysis.ranking.findings import RankedBy
from visioneval.analysis.ranking.ranking import AnsweredRun
from visioneval.analysis.run_lookup import Warn, named_run, warn_missing
from visioneval.errors import UsageError
from visioneval.records.labels import LABELS, read_labels
from visioneval.records.model import RunInfo
from visioneval.records.preferences import read_preferences
from visioneval.records.reader import read_records
from visioneval.suite.filters import any_glob


def read_answered_runs(names: Sequence[str], by: RankedBy, runs: Path, warn: Warn) -> list[AnsweredRun]:
    """Reads runs with the answers of judges or of people. Each run is read once, also for several ``RUN@LABEL``.

    Raises ``UsageError`` for a run that is given twice, as its answers would count twice, and ``RunFormatError``.
    """
    named: dict[str, tuple[Path, RunInfo, list[frozenset[str] | None]]] = {}
    for name in names:
        folder, info, label = named_run(name, runs)
        chosen = None if label is None else _matching(label, info)
        first, _, earlier = named.setdefault(info.run_id, (folder, info, []))
        is_covered = any(labels is None or chosen is None or chosen & labels for labels in earlier)
        if is_covered or first.resolve() != folder.resolve():
            raise UsageError(f"{info.run_id} is given twice: its answers would count twice")
        earlier.append(chosen)
    return [
        _read(folder, info, frozenset[str]().union(*(labels or () for labels in chosen)) or None, by, warn)
        for folder, info, chosen in named.values()
    ]


def _matching(label: str, info: RunInfo) -> frozenset[str]:
    """The labels of a run that equal or match a label."""
    labels = (str(entry.label) for entry in info.selected_suite.models)
    return frozenset(known for known in labels if any_glob((label,), known))


def _read(folder: Path, info: RunInfo, labels: frozenset[str] | None, by: RankedBy, warn: Warn) -> AnsweredRun:
    if by == "judges":
        return AnsweredRun(LabeledRun(info, (), ()), read_preferences(folder), labels)
    records = list(read_records(folder))
    warn_missing(folder, info, len(records), warn)
    return AnsweredRun(LabeledRun(info, records, read_labels(folder / LABELS)), (), labels)
