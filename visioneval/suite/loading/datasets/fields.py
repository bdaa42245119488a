"""Checks of a dataset's ``fields`` and ``defaults``: every key is one of a case, and has a source of the right kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.questions import GeckoQuestion
from visioneval.suite.loading.messages import Loc, did_you_mean, known_keys

OUTPUT_KEYS = frozenset({"output", "model"})
QUESTION_KEYS = frozenset({"questions", "add_questions"})
PIN_KEYS = frozenset({"case", "prompt", "questions"})
"""The keys of ``fields`` of a file of pinned questions."""

Misfit = tuple[Loc, str]
"""The path of a key below the dataset, and what is wrong with it."""


@cache
def _case_schema() -> Mapping[str, Any]:
    return TestCase.model_json_schema()


def case_field_problems(fields: Mapping[str, Any]) -> Iterator[Misfit]:
    """Each key of ``fields`` that is not a key of a case, or has a source that does not fit it."""
    for key, source in fields.items():
        above = next((parent for parent in _parents(key) if parent in fields), None)
        if above:
            yield ("fields", key), f"{key!r} cannot have a column because {above!r} has one: remove one of them"
        elif message := _unknown_key(key):
            yield ("fields", key), message
        else:
            yield from _source_problems(key, source)


def pin_field_problems(fields: Mapping[str, Any]) -> Iterator[Misfit]:
    """Each key of ``fields`` that no file of pinned questions has, and missing ones."""
    for key, source in fields.items():
        if key not in PIN_KEYS:
            yield ("fields", key), f"a question file has no key {key!r}{did_you_mean(key, PIN_KEYS)}"
        else:
            yield from _source_problems(key, source)
    if "questions" not in fields or ("case" in fields) == ("prompt" in fields):
        yield ("fields",), "fields: map 'questions', and either 'case' or 'prompt'"


def _source_problems(key: str, source: Any) -> Iterator[Misfit]:
    if isinstance(source, list | tuple) and key not in ("id", "case", "tags"):
        yield ("fields", key), f"{key}: only an ID and tags can have a list of columns"
    elif isinstance(source, Mapping):
        yield from _mapping_problems(key, source)


def _mapping_problems(key: str, columns: Mapping[str, str]) -> Iterator[Misfit]:
    """What is wrong with a mapping of the keys of questions, or of a turn, to columns."""
    needed = "prompt" if key == "turns" else "question"
    if key != "turns" and key not in QUESTION_KEYS:
        yield ("fields", key), f"{key}: only questions and turns can have a mapping of keys to columns"
        return
    for name in columns:
        known = GeckoQuestion.model_fields
        if key == "turns" and (message := _unknown_key(name, ("turns", 0), "a turn")):
            yield ("fields", key, name), message
        elif key != "turns" and name not in known:
            yield ("fields", key, name), f"a question has no key {name!r}{did_you_mean(name, known)}"
    if needed not in columns:
        yield ("fields", key), f"{key}: map {needed!r}"


def default_problems(defaults: Mapping[str, Any]) -> Iterator[Misfit]:
    """Each key of ``defaults`` that is not a key of a case, or cannot be equal in all cases."""
    if "id" in defaults:
        yield ("defaults", "id"), "defaults: cases cannot share an ID: put a column or a template in fields"
    yield from _unknown_defaults(defaults, ())


def _unknown_defaults(values: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[Misfit]:
    known = known_keys(_case_schema(), above)
    for key, value in values.items():
        if key not in known:
            dotted = ".".join((*above, key))
            names = (".".join((*above, name)) for name in known)
            yield ("defaults", *above, key), f"a case has no key {dotted!r}{did_you_mean(dotted, names)}"
        elif isinstance(value, Mapping) and known_keys(_case_schema(), (*above, key)):
            yield from _unknown_defaults(value, (*above, key))


def _parents(key: str) -> list[str]:
    steps = key.split(".")
    return [".".join(steps[:end]) for end in range(1, len(steps))]


def _unknown_key(key: str, above: Loc = (), owner: str = "a case") -> str | None:
    steps = key.split(".")
    if (steps[0] == "metadata" and all(steps)) or (not above and key in TestCase.model_fields):
        return None  # without the schema, which takes longer than a small dataset
    for depth, step in enumerate(steps):
        known = known_keys(_case_schema(), (*above, *steps[:depth]))
        known |= OUTPUT_KEYS if len(steps) == 1 and not above else set()
        if step not in known:
            dotted = (".".join([*steps[:depth], name]) for name in known)
            return f"{owner} has no key {key!r}{did_you_mean(key, dotted)}"
    return None
