"""Which column of a file of labels holds what."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from visioneval.errors import UsageError
from visioneval.suite.labels import Labels
from visioneval.suite.loading.messages import did_you_mean

FIELDS = (
    "test_id",
    "model_label",
    "sample_index",
    "rater",
    "question",
    "answer",
    "other",
    "seconds",
    "at",
    "artifact_sha256",
    "other_sha256",
)
_SHORT = {"case": "test_id", "model": "model_label", "sample": "sample_index"}
_LONG = {field: name for name, field in _SHORT.items()}
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Layout:
    """For each field of a label its column or its fixed value; for each question that has a column of its own that."""

    columns: Mapping[str, str]
    fixed: Mapping[str, str]
    wide: Mapping[str, str]

    def value(self, field: str, cells: Mapping[str, object]) -> object:
        """What a row says of a field; ``None`` where it says nothing."""
        if field in self.fixed:
            return self.fixed[field]
        found = cells.get(self.columns.get(field, ""))
        return None if isinstance(found, str) and not found.strip() else found


def find_layout(have: Collection[str], mapped: Mapping[str, str], fixed: Mapping[str, str], asked: Labels) -> Layout:
    """Where everything stands in a file with the columns ``have``.

    ``mapped`` says the column of a field or of a question by its key, ``fixed`` the value of a field for all rows.
    Columns that are called as a field need no word; where no column is the answer, neither do those that are called as
    a question. Raises ``UsageError``.
    """
    keys = [question.key for question in asked.questions]
    columns: dict[str, str] = {}
    wide: dict[str, str] = {}
    for name, column in mapped.items():
        if column not in have:
            raise UsageError(f"--map {name}={column}: no such column{did_you_mean(column, have)}")
        field = _SHORT.get(name, name)
        if field in FIELDS:
            columns[field] = column
        elif name in keys:
            wide[name] = column
        else:
            raise UsageError(f"--map {name}: neither a field of a label nor a question{_known(name, keys)}")
    values = _fixed(fixed, columns)
    for name in (*FIELDS, *_SHORT):
        if name in have and _SHORT.get(name, name) not in values:
            columns.setdefault(_SHORT.get(name, name), name)
    if not wide and "answer" not in columns and "answer" not in values:
        wide = {key: key for key in keys if key in have}
    _check(columns.keys() | values.keys(), wide, keys, have)
    return Layout(columns, values, wide)


def _fixed(fixed: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in fixed.items():
        field = _SHORT.get(name, name)
        if field not in FIELDS:
            raise UsageError(f"--set {name}: not a field of a label{_known(name, ())}")
        if field in columns:
            raise UsageError(f"--set {name}: --map says a column for it too")
        values[field] = value
    return values


def _known(name: str, keys: Collection[str]) -> str:
    return did_you_mean(name, {*FIELDS, *_SHORT, *keys})


def _check(known: Collection[str], wide: Mapping[str, str], keys: Collection[str], have: Collection[str]) -> None:
    missing = [field for field in ("test_id", "rater") if field not in known]
    if not wide:
        missing += [field for field in ("question", "answer") if field not in known]
    if not missing:
        return
    field = _LONG.get(missing[0], missing[0])
    hint = f"--map {field}=COLUMN or --set {field}=VALUE says where it stands"
    if field in ("question", "answer") and keys:
        hint += f"; a column of answers to one question is --map KEY=COLUMN (questions: {', '.join(sorted(keys))})"
    raise UsageError(f"no column is called {field!r}: {hint}. The file's columns: {_columns(have)}")


def _columns(have: Collection[str]) -> str:
    shown = ", ".join(repr(name)[:60] for name in sorted(have)[:_SHOWN])
    return shown if len(have) <= _SHOWN else f"{shown} and {len(have) - _SHOWN} more"
