"""Reads a run with the labels of people, for their agreement with its graders."""

from __future__ import annotations

from pathlib import Path

from visioneval.analysis.agreement.answers import LabeledRun
from visioneval.analysis.run_lookup import Warn, labels_of, read_run
from visioneval.analysis.summary.judge_card import pair_cards
from visioneval.records.labels import LABELS, read_anchors, read_draws, read_labels
from visioneval.records.preferences import read_preferences


def read_labeled(name: str, runs: Path, warn: Warn) -> LabeledRun:
    """A run, or its model runs whose label matches, with labels, draws and preferences. Raises ``UsageError``."""
    folder, info, records = read_run(name, runs, warn)
    labels = labels_of(name, records, read_labels(folder / LABELS))
    draws = read_draws(folder)
    anchors, preferences = read_anchors(folder, info), read_preferences(folder)
    return LabeledRun(info, records, labels, anchors, draws, name, preferences, pair_cards(preferences))
