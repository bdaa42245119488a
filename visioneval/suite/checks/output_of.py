"""Checks of cases that look at another case's pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from visioneval.suite.case import TestCase
from visioneval.suite.loading.messages import Loc, did_you_mean

OWN_PICTURES = ("images", "masks", "pictures")


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
