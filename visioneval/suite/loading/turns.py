"""Replaces each case with ``turns`` by a chain of cases, one for each turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from visioneval.suite.cases.case import Turns
from visioneval.suite.loading.datasets.cases import with_defaults
from visioneval.suite.loading.document import Document, Origin
from visioneval.suite.model import suite_schema
from visioneval.suite.turns import CASE_ID, TURN, turn_id
from visioneval.types import TaskType

_TURNS: TypeAdapter[Any] = TypeAdapter(Turns)
_NOT_SHARED = {
    "prompt": "each turn has its own prompt: move this one to a turn",
    "outputs": "each turn has its own outputs: move these to the turns",
    "output_of": "a case with 'output_of' generates nothing, so it has no turns: remove one of the two",
}


def replace_turns(document: Document) -> None:
    """Replaces the cases with ``turns`` in ``document``. Cases whose turns are not valid are reported and left out."""
    cases: list[Any] = []
    origins: list[Origin] = []
    for index, (case, origin) in enumerate(zip(document.cases, document.origins, strict=True)):
        if not isinstance(case, dict) or ("turns" not in case and not _is_turn(case)):
            cases.append(case)
            origins.append(origin)
        elif _check(case, index, document):
            for number, turn in enumerate(_turn_cases(case), 1):
                cases.append(turn)
                origins.append(replace(origin, turn=number - 1))
    document.cases, document.origins = cases, origins


def _check(case: Mapping[str, Any], index: int, document: Document) -> bool:
    """Whether the turns of a raw case can replace it. Reports why not."""
    before = len(document.problems)
    case_id, turns = case.get("id"), case.get("turns")
    if _is_turn(case):
        message = "is the ID of a turn: write the turns of a case under 'turns'"
        document.report(("cases", index, "id"), f"id: {case_id!r:.60} {message}")
    if "turns" not in case:
        return False
    try:
        _TURNS.validate_python(turns)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        located = [{**entry, "loc": ("cases", index, "turns", *entry["loc"])} for entry in errors]
        document.report_errors(located, suite_schema())
    if not isinstance(case_id, str):
        document.report(("cases", index), "a case with turns needs an 'id', as text")
    for key, message in _NOT_SHARED.items():
        if key in case:
            document.report(("cases", index, key), f"turns: {message}", of_key=True)
    task = case.get("task")
    if task not in (None, TaskType.IMAGE_EDITING):
        document.report(("cases", index, "turns"), f"only an edit has turns, but the task of this case is {task}")
    elif task is None and not case.get("images"):
        document.report(("cases", index, "turns"), "turns edit an image: add 'images' to the case")
    return len(document.problems) == before


def _is_turn(case: Mapping[str, Any]) -> bool:
    """Whether a raw case has an id that only turns have."""
    return isinstance(case.get("id"), str) and re.fullmatch(f"{CASE_ID}{TURN}", case["id"]) is not None


def _turn_cases(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The raw cases of a case's turns. The first edits the images of the case, and each may have more of its own."""
    shared = _with_masks({key: value for key, value in case.items() if key not in ("id", "turns", "images")})
    shared["task"] = str(TaskType.IMAGE_EDITING)
    for number, turn in enumerate(case["turns"], 1):
        values = _with_masks({"prompt": turn} if isinstance(turn, str) else turn)
        images = values.get("images", [])
        if number == 1:
            first = case.get("images", [])
            images = [*first, *images] if isinstance(first, list) else first
        yield {**with_defaults(values, shared), "id": turn_id(case["id"], number), "images": images}


def _with_masks(case: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a case with ``masks`` in the place of ``mask``, so that a turn can replace the case's."""
    if "mask" not in case or "masks" in case:
        return dict(case)
    return {**{key: value for key, value in case.items() if key != "mask"}, "masks": {"editable": case["mask"]}}
