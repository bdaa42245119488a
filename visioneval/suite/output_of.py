"""Cases that draw nothing and look at another case's pictures (``picture_of``): counter-examples, most of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from visioneval.suite.case import TestCase
from visioneval.suite.loading.messages import Loc, did_you_mean
from visioneval.types import TaskType

OWN_PICTURES = ("images", "masks", "pictures")


def shared_tasks(cases: Sequence[Any]) -> list[Any]:
    """Raw cases, those that look at another case's pictures with that case's task where they state none."""
    by_id = {case["id"]: case for case in cases if isinstance(case, dict) and isinstance(case.get("id"), str)}
    return [_with_task(case, by_id) if isinstance(case, dict) else case for case in cases]


def _with_task(case: dict[str, Any], by_id: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    source = by_id.get(case["picture_of"]) if isinstance(case.get("picture_of"), str) else None
    if source is None or "task" in case:
        return case
    task = source.get("task") or (TaskType.IMAGE_EDITING if source.get("images") else TaskType.IMAGE_GENERATION)
    return {**case, "task": task}


def looker_problems(cases: Sequence[TestCase]) -> Iterator[tuple[Loc, str]]:
    """Everything that can be wrong with ``picture_of``."""
    by_id = {case.id: case for case in cases}
    for index, case in enumerate(cases):
        if case.picture_of is not None:
            for key, message in _problems(case, by_id):
                yield ("cases", index, key), message


def _problems(case: TestCase, by_id: Mapping[str, TestCase]) -> Iterator[tuple[str, str]]:
    name = str(case.picture_of)
    source = by_id.get(name)
    if source is None:
        yield "picture_of", f"there is no case {name!r}{did_you_mean(name, by_id)}"
    elif source is case:
        yield "picture_of", f"{name!r} is this case itself"
    elif source.picture_of is not None:
        yield "picture_of", f"{name!r} draws nothing itself: name the case that draws the picture"
    elif source.task_type != case.task_type:
        yield "task", f"the picture is that of {name!r}, whose task is {source.task_type}"
    for key in OWN_PICTURES:
        if getattr(case, key):
            yield key, f"this case looks at the picture of {name!r} and has no {key} of its own"
    if case.expect.refusal:
        yield "expect", f"this case draws nothing, so nothing can be refused: state it at {name!r}"


def lookers_by_case(cases: Sequence[TestCase]) -> dict[str, list[TestCase]]:
    """The cases that look at another case's pictures, by that case's id."""
    found: dict[str, list[TestCase]] = {}
    for case in cases:
        if case.picture_of is not None:
            found.setdefault(case.picture_of, []).append(case)
    return found


def with_their_pictures(chosen: Sequence[TestCase], cases: Sequence[TestCase]) -> tuple[TestCase, ...]:
    """The chosen cases and those whose pictures they look at, in the order of ``cases``."""
    wanted = {case.id for case in chosen} | {case.picture_of for case in chosen}
    return tuple(case for case in cases if case.id in wanted)
