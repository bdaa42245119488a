"""Answers of a rater beside those of a grader."""

from __future__ import annotations

from typing import Any

from labeled_runs import label

GOOD = dict(zip("abcdefgh", (False, False, False, False, True, True, True, True), strict=True))


HUMAN = {**GOOD, "d": True, "e": False}


CELLS = {case: {"good": good} for case, good in GOOD.items()}


def answered_by(answers: dict[str, Any], question: str = "usable", rater: str = "ann") -> list[Any]:
    return [label(case, rater, question, answer) for case, answer in answers.items()]
