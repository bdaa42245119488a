"""Checks of cases that use another case's images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from visioneval.suite.cases.case import TestCase
from visioneval.suite.loading.messages import Loc, did_you_mean
from visioneval.suite.turns import turn_id

OWN_IMAGES = ("images", "masks", "outputs")


def output_of_problems(cases: Sequence[TestCase]) -> Iterator[tuple[Loc, str]]:
    """Everything that can be wrong with ``output_of``."""
    by_id = {case.id: case for case in cases}
    for index, case in enumerate(cases):
        if case.output_of is not None:
            for key, message in _problems(case, by_id):
                yield ("cases", index, key), message


def _problems(case: TestCase, by_id: Mapping[str, TestCase]) -> Iterator[tuple[str, str]]:
    name = str(case.output_of)
    source = by_id.get(name)
    if source is None and turn_id(name, 1) in by_id:
        yield "output_of", f"{name!r} has turns: name one of them, such as {turn_id(name, 1)!r}"
    elif source is None:
        yield "output_of", f"there is no case {name!r}{did_you_mean(name, by_id)}"
    elif source is case:
        yield "output_of", f"{name!r} is this case: name another case"
    elif source.output_of is not None:
        yield (
            "output_of",
            f"{name!r} generates no image because it has 'output_of' too: name the case that generates the image",
        )
    elif source.task_type != case.task_type:
        yield (
            "task",
            f"the image comes from {name!r}, whose task is {source.task_type}: use the same task or remove 'task'",
        )
    for key in OWN_IMAGES:
        if getattr(case, key):
            yield key, f"this case uses the image of {name!r}: remove {key!r}"
    if case.expect.refusal:
        yield "expect", f"this case generates nothing, so no model can refuse it: move 'refusal' to {name!r}"
