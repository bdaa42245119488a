"""Preferences of pairwise judges."""

from __future__ import annotations

from typing import Any

from visioneval.records.between_cells import Preference


def preference(case: str, first: str, answer: Any, sample: int = 0, **more: Any) -> Preference:
    defaults = {"a": "r@x", "b": "r@y", "judge": "j", "reason": None, "error": None if answer else "down", **more}
    return Preference(test_id=case, sample_index=sample, first=first, answer=answer, **defaults)


def pair(case: str, first_answer: Any, second_answer: Any, sample: int = 0, **more: Any) -> list[Preference]:
    return [preference(case, "a", first_answer, sample, **more), preference(case, "b", second_answer, sample, **more)]
