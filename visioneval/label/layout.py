"""The meaning of columns in a file of labels."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from visioneval.errors import UsageError, did_you_mean
from visioneval.suite.labels import Labels
from visioneval.suite.loading.rows import other_spelling

_SHORT_NAMES = {"case": "test_id", "model": "model_label", "sample": "sample_index"}
_OTHERS = ("rater", "question", "answer", "other", "seconds", "at", "artifact_sha256", "other_sha256")
_NAMES = _SHORT_NAMES | {name: name for name in (*_SHORT_NAMES.values(), *_OTHERS)}
"""The fields of a label by the names that columns may have."""
_MAX_COLUMNS = 12


@dataclass(frozen=True, slots=True)
class Layout:
    """The column or fixed value of each label field, and the columns of questions."""

    columns: Mapping[str, str]
    fixed: Mapping[str, str]
    wide: Mapping[str, str]

    def has(self, field: str) -> bool:
        """Whether rows have values of a field."""
        return field in self.columns or field in self.fixed

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
    columns, wide = _mapped(mapped, keys, available)
    values: dict[str, str] = {}
    for name, value in fixed.items():
        if name not in _NAMES:
            raise UsageError(f"--set {name}: not a label field{did_you_mean(name, _NAMES)}")
        if _NAMES[name] in columns:
            raise UsageError(f"--set {name}: also given as --map")
        values[_NAMES[name]] = value
    for name in sorted(_NAMES, key=_SHORT_NAMES.__contains__):  # a whole name before a short one
        if name in available and _NAMES[name] not in values:
            columns.setdefault(_NAMES[name], name)
    if not wide and not {"answer"} & {*columns, *values}:
        wide = {key: key for key in keys if key in available}
    layout = Layout(columns, values, wide)
    for field in ("test_id", "rater") if wide else ("test_id", "rater", "question", "answer"):
        if not layout.has(field):
            raise UsageError(_missing(field, keys, available))
    return layout


def _mapped(
    mapped: Mapping[str, str], keys: Collection[str], available: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The given columns of fields and of questions."""
    columns: dict[str, str] = {}
    wide: dict[str, str] = {}
    for name, column in mapped.items():
        if column not in available:
            if (other := other_spelling(column, available)) is not None:
                raise UsageError(f"--map {name}={column}: the file spells the column {other!r}")
            raise UsageError(f"--map {name}={column}: no such column{did_you_mean(column, available)}")
        if name not in _NAMES and name not in keys:
            raise UsageError(f"--map {name}: not a label field or a question{did_you_mean(name, {*_NAMES, *keys})}")
        (columns if name in _NAMES else wide)[_NAMES.get(name, name)] = column
    return columns, wide


def _missing(field: str, keys: Collection[str], available: Collection[str]) -> str:
    """What to do about a field without a column."""
    name = next((short for short, whole in _SHORT_NAMES.items() if whole == field), field)
    for spelling in (name, field):
        if (other := other_spelling(spelling, available)) is not None:
            return f"the file spells the column {other!r}: --map {name}={shlex.quote(other)} reads it"
    hint = f"--map {name}=COLUMN or --set {name}=VALUE sets it"
    if field in ("question", "answer") and keys:
        hint += f"; map the answers to a question with --map KEY=COLUMN (questions: {', '.join(sorted(keys))})"
    shown = ", ".join(repr(column)[:60] for column in sorted(available)[:_MAX_COLUMNS])
    more = f" and {len(available) - _MAX_COLUMNS} more" if len(available) > _MAX_COLUMNS else ""
    return f"no column {name!r}: {hint}. The file's columns: {shown}{more}"
