"""Merges the rows of one case: rows with the same ``group_by``, or samples with the same id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from visioneval.errors import TemplateError
from visioneval.media.urls import public_address
from visioneval.suite.cases.outputs import output_of_cell
from visioneval.suite.loading.datasets.cases import LISTS, FlatCase, RowReader, nested
from visioneval.suite.loading.datasets.entry import QUESTION_KEYS, Table
from visioneval.suite.loading.datasets.rows import Row
from visioneval.suite.loading.datasets.tables import file_stem

Report = Callable[[int, str], None]
"""Reports a problem with the row in a line."""


@dataclass(slots=True)
class RowGroup:
    """The merged values of the rows of one case, its first row, and its existing outputs by label."""

    case_id: str
    first: Row
    values: FlatCase
    outputs: dict[str, list[Any]] = field(default_factory=dict)
    lines: dict[tuple[str, str], int] = field(default_factory=dict)
    """The line of each question with an id, by key and id."""
    seen: set[tuple[str, str]] = field(default_factory=set)
    """The items of lists by key and text, as a search in a long list for each row would take too long."""

    def is_new(self, key: str, item: Any) -> bool:
        """Whether a list does not have an item yet, which is then remembered."""
        entry = (key, repr(item))
        if entry in self.seen:
            return False
        self.seen.add(entry)
        return True


def grouped_rows(table: Table, reader: RowReader, report: Report) -> list[RowGroup]:
    """One group per case, in the order of their first rows."""
    groups: dict[tuple[str, ...], RowGroup] = {}
    for row in table.rows:
        try:
            identity = reader.identity(row)
            if not identity:
                report(row.line, _no_identity(reader))
                continue
            values = reader.flat(row)
            group = groups.get(identity)
            if group is None:
                is_open = bool(reader.group_by)
                groups[identity] = group = RowGroup(reader.id_of(row, identity), row, {} if is_open else values)
                if is_open:
                    _gather(group, row, values, report)
            elif reader.group_by:
                row_id = reader.id_of(row, ()) if "id" in reader.fields else ""
                if row_id not in ("", group.case_id):
                    first = f"{group.case_id!r} in line {group.first.line} of its group"
                    report(row.line, f"the row's ID is {row_id!r}, but {first}")
                _gather(group, row, values, report)
            elif different := _different(group.values, values):
                message = f"the id {group.case_id!r} is also on line {group.first.line}, with another {different}"
                report(row.line, f"{message}: each case needs its own id, and rows of the same case must match")
            _add_output(groups[identity], row, reader, table)
        except TemplateError:
            continue  # one of the reader's faults
        except ValueError as error:
            report(row.line, str(error))
    return _with_own_ids(groups.values(), report)


def _no_identity(reader: RowReader) -> str:
    if reader.group_by:
        return f"the row has no value in {' or '.join(map(repr, reader.group_by))}, which group_by needs"
    if isinstance(reader.fields.get("id"), list | tuple):
        return f"the row has no value in one of the columns of its ID: {', '.join(reader.fields['id'])}"
    return "the row has no id and no prompt: fill in one of them"


def _different(first: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    keys = (key for key in first.keys() | values.keys() if first.get(key) != values.get(key))
    return ", ".join(sorted({key.split(".")[0] for key in keys}))


def _with_own_ids(groups: Iterable[RowGroup], report: Report) -> list[RowGroup]:
    """The groups without those whose id another one has, such as ``a_b_c`` from ``a_b, c`` and from ``a, b_c``."""
    first: dict[str, RowGroup] = {}
    for group in groups:
        line = first.setdefault(group.case_id, group).first.line
        if line != group.first.line:
            report(group.first.line, f"the ID {group.case_id!r} is repeated: another case has it in line {line}")
    return list(first.values())


def _gather(group: RowGroup, row: Row, values: FlatCase, report: Report) -> None:
    """Adds a row to its group: lists grow, other values must be equal or empty."""
    for key, value in values.items():
        if key in QUESTION_KEYS and isinstance(value, list):
            _add_questions(group, row, key, value, report)
        elif key == "turns" and isinstance(value, list):
            group.values.setdefault(key, []).extend(value)  # a prompt may be repeated
        elif key in LISTS and isinstance(value, list):
            group.values.setdefault(key, []).extend(item for item in value if group.is_new(key, item))
        elif key not in group.values:
            group.values[key] = value
        elif value != group.values[key]:
            message = f"{key} of {group.case_id!r} differs from line {group.first.line}"
            report(row.line, f"{message}: rows of the same group must match")


def _add_questions(group: RowGroup, row: Row, key: str, questions: Iterable[Any], report: Report) -> None:
    """Adds the questions of a row that the group does not have yet."""
    gathered = group.values.setdefault(key, [])
    for question in questions:
        if not group.is_new(key, question):
            continue
        name = str(question["id"]) if isinstance(question, Mapping) and "id" in question else ""
        line = group.lines.setdefault((key, name), row.line) if name else row.line
        if line != row.line:
            report(row.line, f"question {name!r} of {group.case_id!r} differs from line {line}")
        gathered.append(question)


def _add_output(group: RowGroup, row: Row, reader: RowReader, table: Table) -> None:
    """Adds the row's existing output, which is a sample of the model that generated it."""
    if "output" not in reader.fields:
        return
    label = reader.text_of("model", row) if "model" in reader.fields else file_stem(table.path)
    if not label:
        return
    samples = group.outputs.setdefault(label, [])
    output = output_of_cell(reader.value_of("output", row), f"{public_address(table.path)}:{row.line}")
    if not reader.group_by or group.is_new("output", (label, output.get("path"))):
        samples.append(output)


def raw_case(group: RowGroup) -> dict[str, Any]:
    """The raw case of a group of rows."""
    case = {**nested(group.values), "id": group.case_id}
    return {**case, "outputs": group.outputs} if group.outputs else case
