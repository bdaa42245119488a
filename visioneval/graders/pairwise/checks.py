"""Checks of pairwise graders."""

from __future__ import annotations

from collections.abc import Sequence

from visioneval.errors import did_you_mean
from visioneval.graders.pairwise.config import PairwiseGrader
from visioneval.suite.checks.rules import Problems, SuiteContext
from visioneval.suite.filters import any_glob


def run_problems(view: SuiteContext, graders: Sequence[tuple[int, PairwiseGrader]]) -> Problems:
    """Yields unknown labels, too few model runs, recorded judges, and two graders with the same judge model."""
    labels = [label for label, _ in view.labels]
    graders_by_judge: dict[str, str] = {}
    for index, grader in graders:
        for position, pattern in enumerate(grader.models):
            if not any(any_glob([pattern], label) for label in labels):
                hint = did_you_mean(pattern, labels)
                yield ("graders", index, "models", position), f"no model run is labeled {pattern!r}{hint}"
        compared = grader.compared(labels)
        if len(compared) < 2:
            yield (
                ("graders", index, "models" if grader.models else "type"),
                f"a comparison needs at least two model runs, not {len(compared)}",
            )
        for judge in filter(None, map(view.suite.judges.get, grader.judge_names)):
            if judge.is_recorded:
                message = "recorded answers cover single images only: use another judge for pairs"
                yield ("graders", index, "judge"), message
            if judge.title in graders_by_judge:
                message = (
                    f"{graders_by_judge[judge.title]!r} already asks this judge model: use one pairwise grader"
                    f" per judge model"
                )
                yield ("graders", index, "judge"), message
            graders_by_judge.setdefault(judge.title, grader.key)
