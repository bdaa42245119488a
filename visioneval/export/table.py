"""The cells of a run as a table, for files, data frames and trackers. Its types do not depend on the records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

from visioneval.analysis.alignments import alignment_keys, gaps_in
from visioneval.analysis.sides import writers_of
from visioneval.errors import UsageError
from visioneval.records.model import Record, RunInfo
from visioneval.types import Frozen, Score


@dataclass(frozen=True, slots=True)
class ListOf:
    """The type of a list, whose items have one type."""

    item: Kind


@dataclass(frozen=True, slots=True)
class MapOf:
    """The type of a map from texts to values of one type."""

    value: Kind


Kind: TypeAlias = str | ListOf | MapOf | dict[str, "Kind"]
"""The type of a value: ``text``, ``integer`` (64 bits), ``number``, ``flag``, a list, a map, or named fields."""
TEXTS, TEXT_MAP, NUMBER_MAP, INTEGER_MAP = ListOf("text"), MapOf("text"), MapOf("number"), MapOf("integer")
_MAX_INTEGER = 2**63 - 1


def _fields(kind: Kind, *names: str) -> dict[str, Kind]:
    return dict.fromkeys(names, kind)


_CELL: dict[str, Kind] = {
    **_fields("text", "run_id", "test_id", "model_label"),
    "sample_index": "integer",
    **_fields("text", "task_type", "status", "verdict", "artifact_path", "artifact_sha256", "base_path"),
    **_fields("integer", "width", "height"),
    **_fields("number", "cost_usd", "seconds", "waited_seconds"),
    **_fields("text", "prompt", "sent_prompt"),
    **_fields(TEXTS, "failed_rules", "warned_rules", "failure_tags", "tags"),
}
_QUESTION: dict[str, Kind] = {
    **_fields("text", "id", "question", "type", "source", "expected", "answer", "choice", "reason"),
    **_fields(TEXTS, "choices", "depends_on"),
    "right": "flag",
    "score": "number",
}
_SPENT: dict[str, Kind] = {
    "details": {
        "gaps": TEXTS,
        "questions": ListOf(_QUESTION),
        "votes": MapOf(ListOf("number")),
        "json": "text",
    },
    "usage": INTEGER_MAP,
    "cost_usd": "number",
    "cached": "flag",
    "refused": "integer",
}
_JUDGE: dict[str, Kind] = {
    **_fields("text", "judge", "model", "error"),
    "never_asked": "flag",
    "scores": NUMBER_MAP,
    "reasons": TEXT_MAP,
    "failure_tags": TEXTS,
    **_SPENT,
}
_GRADER: dict[str, Kind] = {
    **_fields("text", "key", "type", "error"),
    **_fields("flag", "is_unmeasured", "is_optional", "never_asked"),
    **_fields("number", "seconds", "waited_seconds"),
    **_SPENT,
    "fingerprint": {
        **_fields("text", "judge_model", "template_sha256", "schema_sha256", "config_sha256"),
        "tool_versions": TEXT_MAP,
        "version": "text",
    },
    "judges": ListOf(_JUDGE),
}
_RECORD: dict[str, Kind] = {
    **_CELL,
    "attempts": "integer",
    **_fields("flag", "flaky", "cached"),
    **_fields(TEXTS, "skipped_rules", "unmeasured_metrics"),
    **_fields(TEXT_MAP, "metadata", "run_params", "reasons"),
    "scores": NUMBER_MAP,
    "usage": INTEGER_MAP,
    "error": _fields("text", "stage", "kind", "message"),
    "graders": ListOf(_GRADER),
}
"""The fields of records that are no texts."""
_SHOWN = {"artifact_path": "shown_output", "run_params": "shown_params"}
"""What a table has of a field that may contain a secret."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, the type of its values, and the value of a cell, which may have another type."""

    name: str
    kind: Kind
    value: Callable[[Record], Any]


@dataclass(frozen=True)
class Table:
    """Cells in columns. The records are read when the rows are."""

    columns: Sequence[Column]
    records: Iterable[Record]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def rows(self) -> Iterator[list[Any]]:
        """The values of each cell as they are in its record."""
        return ([column.value(record) for column in self.columns] for record in self.records)

    def typed_rows(self) -> Iterator[dict[str, Any]]:
        """The values of each cell by column, in the types of the columns."""
        for record in self.records:
            yield {column.name: typed(column.value(record), column.kind) for column in self.columns}


def cell_table(records: Iterable[Record], info: RunInfo) -> Table:
    """What people read of each cell, and its scores."""
    columns = [Column(name, kind, attrgetter(_SHOWN.get(name, name))) for name, kind in _CELL.items()]
    return Table([*columns, Column("error", "text", error_text), *score_columns(info)], records)


def record_table(records: Iterable[Record], info: RunInfo) -> Table:
    """All fields of each record, and its scores."""
    names = [name for name in Record.model_fields if name != "schema_version"]
    columns = [Column(name, _RECORD.get(name, "text"), attrgetter(_SHOWN.get(name, name))) for name in names]
    return Table([*columns, *score_columns(info)], records)


def score_columns(info: RunInfo) -> list[Column]:
    """A column for each metric of a run, and after it one for each judge if a panel measures it.

    The columns with the gaps of alignment graders come last; they have those of cells that passed, too.
    """
    writers = writers_of(info)
    panels = {grader.key: grader.judge_names for grader in info.suite.graders if grader.has_panel}
    columns = []
    for metric in info.metrics:
        kind = kind_of(metric, info)
        name = f"{metric} score" if metric in Record.model_fields else metric
        columns.append(Column(name, kind, partial(score_of, metric)))
        judges = panels.get(writers.get(metric, ""), ())
        columns += [Column(f"{name} by {judge}", kind, partial(_score_by, judge, metric)) for judge in judges]
    gaps = [Column(f"{key} gaps", TEXTS, partial(gaps_in, key=key)) for key in alignment_keys(info)]
    return [*columns, *gaps]


def kind_of(metric: str, info: RunInfo) -> str:
    """The type of the scores of a metric."""
    return "flag" if info.metrics[metric].type == "bool" else "number"


def score_of(metric: str, record: Record) -> Score:
    """The score in a record; ``None`` if it was not measured or does not apply."""
    return record.scores.get(metric)


def _score_by(judge: str, metric: str, record: Record) -> Score:
    answers = (answer for grader in record.graders for answer in grader.judges if answer.judge == judge)
    return next((answer.scores[metric] for answer in answers if metric in answer.scores), None)


def error_text(record: Record) -> str | None:
    """The error of a cell on one line, with its stage and kind."""
    error = record.error
    return f"{error.stage}/{error.kind}: {error.message}" if error else None


def typed(value: Any, kind: Kind) -> Any:
    """A value in the type of a column. What does not fit is ``None``, or an item that is left out."""
    if isinstance(kind, ListOf):
        items = value if isinstance(value, (list, tuple)) else () if value is None else (value,)
        is_flat = not isinstance(kind.item, dict)
        return [typed(item, kind.item) for item in items if is_flat or isinstance(item, (dict, Frozen))]
    if isinstance(kind, MapOf):
        return None if value is None else [(key, typed(item, kind.value)) for key, item in value.items()]
    if isinstance(kind, dict):
        return None if value is None else {name: typed(_field(value, name), part) for name, part in kind.items()}
    if kind == "text":
        return value if value is None or isinstance(value, str) else json_text(value)
    if not isinstance(value, (bool, int, float)):
        return None
    if kind == "flag":
        return bool(value) if value in (0, 1) else None
    return float(value) if kind == "number" else min(value, _MAX_INTEGER)


def _field(value: Any, name: str) -> Any:
    """A field of a record, or of the JSON in one. Details have all that they contain as JSON, too."""
    if isinstance(value, Mapping):
        return value.get(name)
    field = getattr(value, name)
    if name != "details":
        return field
    votes = field.get("votes")
    return {**field, "votes": votes if isinstance(votes, dict) else {}, "json": json_text(field)}


def json_text(value: Any) -> str:
    """Plain data as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def format_of(requested: str | None, output: Path | None, formats: tuple[str, ...]) -> str:
    """The requested format, else the one of the file's extension, else the first. Raises ``UsageError``."""
    form = requested or (output.suffix.removeprefix(".").lower() if output else formats[0])
    if form in formats:
        return form
    problem = f"--format {requested}: not" if requested else f"{output}: give --format,"
    raise UsageError(f"{problem} one of {', '.join(formats)}")
