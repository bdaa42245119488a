"""Raw cases from rows: the value of each key, by column, path or template, and the rows of one case merged.

Rows are of one case by the same ``group_by``, or as samples with the same id.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from visioneval.errors import TemplateError
from visioneval.media.urls import public_address
from visioneval.suite.files import output_of_cell
from visioneval.suite.loading.cells import cell_data, cell_items, is_python
from visioneval.suite.loading.datasets import OUTPUT_KEYS, QUESTION_KEYS, Table, TemplateFaults, Variables, is_template
from visioneval.suite.loading.document import parse_scalar
from visioneval.suite.loading.rows import KEY, Row, column_of
from visioneval.suite.loading.tables import file_stem
from visioneval.suite.questions import listed_questions, parallel_questions

TEMPLATE_KEYS = ("prompt", "criteria")
"""The keys of a case that are templates."""
LISTS = {
    *("images", "tags", "turns", "verdict", "questions", "add_questions"),
    *("expect.text.required", "expect.text.forbidden", "expect.text.allowed"),
    *("expect.palette", "expect.layout"),
}
CODES = "expect.codes"
"""A list in which an item may be repeated, or ``none``."""
_MAPPINGS = {"masks", "outputs", "expect", "expect.text", "expect.regions", "metadata"}
_STRUCTURED = QUESTION_KEYS | {"images", "turns", "verdict", "expect.layout"}
_DATA = LISTS | _MAPPINGS | {CODES}
_YES_OR_NO = {"expect.aligned", "expect.alpha", "expect.refusal", "flaky"}
FlatCase = dict[str, Any]
"""The values of a case by dotted key, such as ``expect.text.required``."""


def prompt_id(prompt: str) -> str:
    """The id of a row without an id: a slug of its prompt and 8 hex digits of the prompt's hash."""
    ascii_only = unicodedata.normalize("NFKD", prompt).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "_", ascii_only.lower()).strip("_")[:40].strip("_")
    return f"{slug or 'prompt'}_{sha256(prompt.encode()).hexdigest()[:8]}"


def literal(text: str) -> str:
    """Escapes text of a dataset so that it renders to itself: data is never a template."""
    if not any(sign in text for sign in ("{{", "{%", "{#")):
        return text
    return "{{ " + json.dumps(text, ensure_ascii=False) + " }}"


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads the values of rows. Its methods raise ``ValueError`` for a value that is invalid, and ``TemplateError``,
    which is in ``faults`` by then, for a template that fails.
    """

    fields: Mapping[str, Any]
    group_by: tuple[str, ...]
    variables: Variables
    python_lines: dict[str, int] = field(default_factory=dict)
    """For each column with data in Python's notation that was read as a list or an object: the first line."""
    faults: TemplateFaults = field(default_factory=TemplateFaults)

    def text_of(self, key: str, row: Row) -> str:
        """The value of a key as text; empty if the row has none."""
        return _as_text(self.value_of(key, row))

    def value_of(self, key: str, row: Row) -> Any:
        """The value of a key; ``None`` if the row has none."""
        source = self.fields.get(key)
        return None if source is None else self._value_of(key, source, row)

    def identity(self, row: Row) -> tuple[str, ...]:
        """What identifies a row's case: its group, its id, or its prompt. Empty if it has none of them."""
        source = self.fields.get("id")
        if self.group_by:
            parts = tuple(_as_text(row.get(column)) for column in self.group_by)
        elif isinstance(source, list | tuple):
            parts = tuple(_as_text(row.get(column)) for column in source)
        elif source is not None and (text := self.text_of("id", row)):
            parts = (text,)
        elif source is None and row.cells.get(KEY) not in (None, ""):
            parts = (str(row.cells[KEY]),)
        else:
            prompt = self.text_of("prompt", row)
            parts = (prompt_id(prompt),) if prompt else ()
        return parts if all(parts) else ()

    def id_of(self, row: Row, identity: tuple[str, ...]) -> str:
        """The case's id. A group can have a column for it; the parts of others are joined."""
        source = self.fields.get("id")
        if self.group_by and source is not None:
            if isinstance(source, list | tuple):
                return "_".join(_as_text(row.get(column)) for column in source)
            return self.text_of("id", row)
        return "_".join(identity)

    def flat(self, row: Row) -> FlatCase:
        """The values of a row by key, without id, output and model."""
        case: FlatCase = {}
        failed: TemplateError | None = None
        for key, source in self.fields.items():
            if key in OUTPUT_KEYS or key == "id":
                continue
            try:
                value = self._converted(key, source, row)
            except TemplateError as error:
                failed = error  # the templates of other keys may fail too
                continue
            if value is None or value == []:
                continue
            self._note_python(key, source, row)
            case[key] = _as_data(key, value)
        if failed is not None:
            raise failed
        return case

    def _converted(self, key: str, source: Any, row: Row) -> Any:
        if key == "tags" and isinstance(source, list | tuple):
            cells = (cell for column in source if (cell := row.get(column)) is not None)
            value: Any = [tag for cell in cells for tag in converted(key, cell, row)]
        elif isinstance(source, Mapping):
            value = row_questions(row, source) if key in QUESTION_KEYS else self._turns(row, source)
        else:
            value = self._value_of(key, source, row)
        return None if value is None else converted(key, value, row)

    def _note_python(self, key: str, source: Any, row: Row) -> None:
        """Remembers the columns of a source whose data in Python's notation was read."""
        if key not in _DATA and isinstance(source, str) and source in row.cells:
            return  # its text is not read as data
        paths = source.values() if isinstance(source, Mapping) else [source] if isinstance(source, str) else source
        for path in paths:
            column = column_of(path, row.cells)
            if column not in self.python_lines and is_python(row.cells.get(column)):
                self.python_lines[column] = row.line

    def _turns(self, row: Row, columns: Mapping[str, str]) -> list[dict[str, Any]]:
        """The turn of a row whose rows are turns; none if the row has no prompt."""
        values = {key: self._value_of("turns", column, row) for key, column in columns.items()}
        if values.get("prompt") is None:
            return []
        return [nested({key: converted(key, value, row) for key, value in values.items() if value is not None})]

    def _value_of(self, key: str, source: Any, row: Row) -> Any:
        """The value at a source; ``None`` for a missing or empty one."""
        if isinstance(source, list | tuple):
            return "_".join(_as_text(row.get(column)) for column in source) or None
        try:
            value = self.variables.text(source, row) if is_template(source) else row.get(source)
        except TemplateError as error:
            self.faults.add(("fields", key), row.line, error)
            raise
        return None if value == "" else value

    def defaults(self, defaults: Mapping[str, Any], row: Row) -> dict[str, Any]:
        """The defaults of a case for its first row. What is rendered is data, never a template."""
        filled: dict[str, Any] = {}
        failed: TemplateError | None = None
        for key, value in defaults.items():
            try:
                filled[key] = _filled(key, value, self.variables.filled(value, row), row)
            except TemplateError as error:
                self.faults.add(("defaults", key), row.line, error)
                failed = error
        if failed is not None:
            raise failed
        return filled


def _as_data(key: str, value: Any) -> Any:
    """The value of a key without templates, also in the turns of a case."""
    if key in TEMPLATE_KEYS and isinstance(value, str):
        return literal(value)
    if key == "turns":
        return [_as_data("prompt" if isinstance(turn, str) else "turn", turn) for turn in value]
    if key == "turn" and isinstance(value, Mapping):
        return {name: _as_data(name, item) for name, item in value.items()}
    return value


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A raw case from its values by dotted key."""
    case: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        inner = case
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return case


def with_defaults(case: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A raw case with the defaults of keys that it lacks, at any depth."""
    merged = dict(defaults)
    for key, value in case.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = with_defaults(value, below)
        else:
            merged[key] = value
    return merged


def _filled(key: str, written: Any, rendered: Any, row: Row) -> Any:
    """The default of a key for one row, as data. Raises ``ValueError`` and ``TemplateError``."""
    if key in TEMPLATE_KEYS and isinstance(rendered, str) and rendered != written:
        rendered = literal(rendered)
    value = _as_wanted(key, rendered, written, row)
    if key == "turns" and isinstance(written, list):
        return [_filled_turn(*pair) for pair in zip(written, value, strict=True)]
    return value


def _as_wanted(key: str, value: Any, written: Any, row: Row) -> Any:
    """A default for one row: a list where one is wanted and a text was rendered. ``key`` may be ``expect.text``."""
    if key in LISTS and isinstance(value, str):
        return converted(key, value, row)
    if key in LISTS and isinstance(value, list):
        for item, template in zip(value, written, strict=True):
            if item != template and isinstance(item, str) and _items(item, row) is not None:
                raise TemplateError(f"{template} is a list: write it without a list around it")
        return [item for item in value if item != ""] if key == "tags" else value
    if key in _MAPPINGS and isinstance(value, Mapping) and isinstance(written, Mapping):
        return {name: _as_wanted(f"{key}.{name}", below, written[name], row) for name, below in value.items()}
    return value


def _filled_turn(turn: Any, filled: Any) -> Any:
    """A turn of defaults for one row: what is rendered is data."""
    if not isinstance(turn, Mapping):
        return filled if filled == turn else _as_data("prompt", filled)
    return {key: value if value == turn[key] else _as_data(key, value) for key, value in filled.items()}


def converted(key: str, value: Any, row: Row) -> Any:
    """Converts a value of a row to the type of a case's key, since all cells of a table are text.

    Raises ``ValueError``.
    """
    if key in _YES_OR_NO and isinstance(value, str):
        return parse_scalar(value)
    if key == CODES and isinstance(value, str) and value != "none":
        data = _listed(key, value, row)
        return data if isinstance(data, list) else [data]
    if key in LISTS and isinstance(value, str):
        value = _listed(key, value, row)
    elif key in _MAPPINGS and isinstance(value, str) and value[:1] in ("[", "{"):
        with suppress(ValueError):  # the model reports the text
            value = cell_data(value)
    if key in QUESTION_KEYS:
        value = listed_questions(value)
    if key in LISTS and not isinstance(value, list):
        value = [value]
    return (
        [_tag(item) for item in value if not (isinstance(item, str) and not item.strip())] if key == "tags" else value
    )


def _tag(item: Any) -> Any:
    """A tag from a value of a row, which may be a number; what is no tag stays as it is, and is reported."""
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, float) and item.is_integer():
        return str(int(item))  # what a data frame makes of a whole number where one is missing
    return str(item).strip() if isinstance(item, str | int | float) else item


def _listed(key: str, text: str, row: Row) -> Any:
    """The list in a cell, or its text. Where items have keys, brackets always begin a list or an object."""
    try:
        if key in _STRUCTURED and text.lstrip()[:1] in ("[", "{"):
            return cell_data(text)
        data = _items(text, row)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    return text if data is None else data


def _items(text: str, row: Row) -> Any:
    """The list or the object in a text; ``None`` if it is one item. Raises ``ValueError`` if a table cannot tell.

    JSON and Parquet can: they have lists and null, so that what is not well-formed as a list is a text.
    """
    try:
        return cell_items(text)
    except ValueError:
        if row.has_text_only:
            raise
        return None


def row_questions(row: Row, columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """The raw questions of a row. Raises ``ValueError`` if its lists have different lengths."""
    values = {key: row.get(column) for key, column in columns.items()}
    for key, value in values.items():
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            values[key] = cell_data(value)  # a list or an object, since all cells of a table are text
    if values.get("question") in (None, "") and values.get("id") in (None, ""):
        return []
    return parallel_questions(values)


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


def _no_identity(reader: RowReader) -> str:
    if reader.group_by:
        return f"the row has no value in {' or '.join(map(repr, reader.group_by))}, which group_by needs"
    if isinstance(reader.fields.get("id"), list | tuple):
        return f"the row has no value in one of the columns of its ID: {', '.join(reader.fields['id'])}"
    return "the row has no id and no prompt: fill in one of them"


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
