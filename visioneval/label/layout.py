"""The meaning of columns in a file of labels."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from visioneval.errors import UsageError
from visioneval.suite.labels import Labels
from visioneval.suite.loading.datasets.rows import other_spelling
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
_SHORT_NAMES = {"case": "test_id", "model": "model_label", "sample": "sample_index"}
_SHORT_NAME_OF = {field: name for name, field in _SHORT_NAMES.items()}
_MAX_COLUMNS = 12


@dataclass(frozen=True, slots=True)
class Layout:
    """The column or fixed value of each label field, and the columns of questions."""

    columns: Mapping[str, str]
    fixed: Mapping[str, str]
    wide: Mapping[str, str]

    def value(self, field: str, cells: Mapping[str, object]) -> object:
        """The value of a field in a row, or ``None`` if it is empty."""
        if field in self.fixed:
            return self.fixed[field]
        value = cells.get(self.columns.get(field, ""))
        return None if isinstance(value, str) and not value.strip() else value


def find_layout(
    available: Collection[str], mapped: Mapping[str, str], fixed: Mapping[str, str], labels: Labels
) -> Layout:
    """Determines the layout of a file with the columns ``available``.

    ``mapped`` gives the column of a field or question, ``fixed`` the value of a field for all rows. Columns named
    like a field are recognized; without an answer column, so are columns named like a question. Raises ``UsageError``.
    """
    keys = [question.key for question in labels.questions]
    columns: dict[str, str] = {}
    wide: dict[str, str] = {}
    for name, column in mapped.items():
        if column not in available:
            if (other := other_spelling(column, available)) is not None:
                raise UsageError(f"--map {name}={column}: the file spells the column {other!r}")
            raise UsageError(f"--map {name}={column}: no such column{did_you_mean(column, available)}")
        field = _SHORT_NAMES.get(name, name)
        if field in FIELDS:
            columns[field] = column
        elif name in keys:
            wide[name] = column
        else:
            raise UsageError(f"--map {name}: not a label field or a question{_suggestion(name, keys)}")
    values = _fixed(fixed, columns)
    for name in (*FIELDS, *_SHORT_NAMES):
        if name in available and _SHORT_NAMES.get(name, name) not in values:
            columns.setdefault(_SHORT_NAMES.get(name, name), name)
    if not wide and "answer" not in columns and "answer" not in values:
        wide = {key: key for key in keys if key in available}
    _check(columns.keys() | values.keys(), wide, keys, available)
    return Layout(columns, values, wide)


def _fixed(fixed: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in fixed.items():
        field = _SHORT_NAMES.get(name, name)
        if field not in FIELDS:
            raise UsageError(f"--set {name}: not a label field{_suggestion(name, ())}")
        if field in columns:
            raise UsageError(f"--set {name}: also given as --map")
        values[field] = value
    return values


def _suggestion(name: str, keys: Collection[str]) -> str:
    return did_you_mean(name, {*FIELDS, *_SHORT_NAMES, *keys})


def _check(fields: Collection[str], wide: Mapping[str, str], keys: Collection[str], available: Collection[str]) -> None:
    missing = [field for field in ("test_id", "rater") if field not in fields]
    if not wide:
        missing += [field for field in ("question", "answer") if field not in fields]
    if not missing:
        return
    field = _SHORT_NAME_OF.get(missing[0], missing[0])
    for name in (field, missing[0]):
        if (other := other_spelling(name, available)) is not None:
            raise UsageError(f"the file spells the column {other!r}: --map {field}={shlex.quote(other)} reads it")
    hint = f"--map {field}=COLUMN or --set {field}=VALUE sets it"
    if field in ("question", "answer") and keys:
        hint += f"; map the answers to a question with --map KEY=COLUMN (questions: {', '.join(sorted(keys))})"
    raise UsageError(f"no column {field!r}: {hint}. The file's columns: {_columns(available)}")


def _columns(available: Collection[str]) -> str:
    names = ", ".join(repr(name)[:60] for name in sorted(available)[:_MAX_COLUMNS])
    return names if len(available) <= _MAX_COLUMNS else f"{names} and {len(available) - _MAX_COLUMNS} more"
