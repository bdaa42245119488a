"""Checks of graders that compare model runs with each other."""

from __future__ import annotations

from collections.abc import Sequence

from visioneval.graders.pairwise.config import PairwiseGrader
from visioneval.suite.checks.rules import Problems, SuiteContext
from visioneval.suite.filters import any_glob
from visioneval.suite.loading.messages import did_you_mean


def run_problems(view: SuiteContext, graders: Sequence[tuple[int, PairwiseGrader]]) -> Problems:
    """Nothing to compare, a judge that sees no pairs, and two graders whose answers nobody could tell apart."""
    labels = [label for label, _ in view.labels]
    asked: dict[str, str] = {}
    for index, grader in graders:
        for at, pattern in enumerate(grader.models):
            if not any(any_glob([pattern], label) for label in labels):
                hint = did_you_mean(pattern, labels)
                yield ("graders", index, "models", at), f"no model run is labeled {pattern!r}{hint}"
        chosen = grader.compared(labels)
        if len(chosen) < 2:
            yield (
                ("graders", index, "models" if grader.models else "type"),
                f"comparing takes two model runs or more, and here is {len(chosen)}",
            )
        judge = view.suite.judges.get(grader.judge)
        if judge is None:
            continue
        if judge.is_recorded:
            yield ("graders", index, "judge"), "recorded answers are about single images: a pair needs another judge"
        if judge.title in asked:
            message = f"{asked[judge.title]!r} asks the same model for preferences: one pairwise grader a model"
            yield ("graders", index, "judge"), message
        asked.setdefault(judge.title, grader.key)
