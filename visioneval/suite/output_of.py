"""Cases that use another case's images instead of generating (``output_of``), mostly counter-examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from visioneval.suite.cases.case import TestCase
from visioneval.suite.turns import previous_turn
from visioneval.types import TaskType


def with_inherited_tasks(cases: Sequence[Any]) -> list[Any]:
    """Raw cases, where a case with ``output_of`` and no task gets the task of its source case."""
    by_id = {case["id"]: case for case in cases if isinstance(case, dict) and isinstance(case.get("id"), str)}
    return [_with_task(case, by_id) if isinstance(case, dict) else case for case in cases]


def _with_task(case: dict[str, Any], by_id: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    source = by_id.get(case["output_of"]) if isinstance(case.get("output_of"), str) else None
    if source is None or "task" in case:
        return case
    task = source.get("task") or (TaskType.IMAGE_EDITING if source.get("images") else TaskType.IMAGE_GENERATION)
    return {**case, "task": task}


def dependents_by_case(cases: Sequence[TestCase]) -> dict[str, list[TestCase]]:
    """The cases that use another case's images, by that case's id."""
    dependents: dict[str, list[TestCase]] = {}
    for case in cases:
        if case.output_of is not None:
            dependents.setdefault(case.output_of, []).append(case)
    return dependents


def with_output_sources(chosen: Sequence[TestCase], cases: Sequence[TestCase]) -> tuple[TestCase, ...]:
    """The chosen cases and those whose images they use or edit, with all earlier turns, in the order of ``cases``."""
    ids: set[str] = set()
    for case in chosen:
        name: str | None = case.output_of or case.previous_turn
        while name is not None and name not in ids:
            ids.add(name)
            name = previous_turn(name)
        ids.add(case.id)
    return tuple(case for case in cases if case.id in ids)
