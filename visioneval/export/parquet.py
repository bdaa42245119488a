"""A run as a Parquet table: a row per cell, with the nested fields of its record in fixed types.

The columns of the record's fields are the same for every run. A column for each metric, each judge of a panel and each
alignment grader of the run follows them. Needs the extra ``parquet``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visioneval.export.csv import Column, GapColumn
from visioneval.export.details import (
    as_flag,
    as_number,
    detail_columns,
    integer_items,
    score_items,
    text_items,
)
from visioneval.records.model import GraderRecord, JudgeAnswer, Record, RunInfo
from visioneval.report.files import part_of
from visioneval.suite.loading.datasets.parquet import require_parquet

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1_000
"""Rows of a row group, which are in memory together."""


def write_parquet(records: Iterable[Record], info: RunInfo, columns: Sequence[Column], path: Path) -> None:
    """Writes one row per cell. An existing file is replaced at the end. Raises ``UsageError``, also without pyarrow."""
    require_parquet()
    import pyarrow as pa
    from pyarrow import parquet

    schema = table_schema(info, columns)
    with part_of(path) as part, parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        for rows in _row_groups(records, info, columns):
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))


def table_schema(info: RunInfo, columns: Iterable[Column]) -> pa.Schema:
    """The types of all columns, which do not depend on the records."""
    import pyarrow as pa

    texts = pa.list_(pa.string())
    text_map, number_map = pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.float64())
    error = pa.struct([(name, pa.string()) for name in ("stage", "kind", "message")])
    types = {
        **dict.fromkeys(("sample_index", "width", "height", "attempts"), pa.int64()),
        **dict.fromkeys(("cost_usd", "seconds", "waited_seconds"), pa.float64()),
        **dict.fromkeys(("flaky", "cached"), pa.bool_()),
        **dict.fromkeys(("tags", "failed_rules", "warned_rules", "skipped_rules", "failure_tags"), texts),
        "unmeasured_metrics": texts,
        **dict.fromkeys(("metadata", "run_params", "reasons"), text_map),
        "scores": number_map,
        "usage": pa.map_(pa.string(), pa.int64()),
        "error": error,
        "graders": pa.list_(_grader_type()),
    }
    names = [name for name in Record.model_fields if name != "schema_version"]
    fields = [(name, types.get(name, pa.string())) for name in names]
    return pa.schema([*fields, *((column.header, _type_of(column, info)) for column in columns)])


def _grader_type() -> pa.DataType:
    import pyarrow as pa

    texts, number_map = pa.list_(pa.string()), pa.map_(pa.string(), pa.float64())
    text_map = pa.map_(pa.string(), pa.string())
    question = [
        *((name, pa.string()) for name in ("id", "question", "type", "source", "expected", "answer", "choice")),
        ("reason", pa.string()),
        ("choices", texts),
        ("depends_on", texts),
        ("right", pa.bool_()),
        ("score", pa.float64()),
    ]
    details = pa.struct(
        [
            ("gaps", texts),
            ("questions", pa.list_(pa.struct(question))),
            ("votes", pa.map_(pa.string(), pa.list_(pa.float64()))),
            ("json", pa.string()),
        ]
    )
    spent = [
        ("details", details),
        ("usage", pa.map_(pa.string(), pa.int64())),
        ("cost_usd", pa.float64()),
        ("cached", pa.bool_()),
        ("refused", pa.int64()),
    ]
    judge = [
        *((name, pa.string()) for name in ("judge", "model", "error")),
        ("never_asked", pa.bool_()),
        ("scores", number_map),
        ("reasons", text_map),
        ("failure_tags", texts),
        *spent,
    ]
    fingerprint = [
        *((name, pa.string()) for name in ("judge_model", "template_sha256", "schema_sha256", "config_sha256")),
        ("tool_versions", text_map),
        ("version", pa.string()),
    ]
    return pa.struct(
        [
            *((name, pa.string()) for name in ("key", "type", "error")),
            *((name, pa.bool_()) for name in ("is_unmeasured", "is_optional", "never_asked")),
            *((name, pa.float64()) for name in ("seconds", "waited_seconds")),
            *spent,
            ("fingerprint", pa.struct(fingerprint)),
            ("judges", pa.list_(pa.struct(judge))),
        ]
    )


def _type_of(column: Column, info: RunInfo) -> pa.DataType:
    import pyarrow as pa

    if isinstance(column, GapColumn):
        return pa.list_(pa.string())
    return pa.bool_() if info.metrics[column.metric].type == "bool" else pa.float64()


def _row_groups(records: Iterable[Record], info: RunInfo, columns: Sequence[Column]) -> Iterator[list[dict[str, Any]]]:
    rows = (_row(record, info, columns) for record in records)
    while group := list(islice(rows, ROWS)):
        yield group


def _row(record: Record, info: RunInfo, columns: Iterable[Column]) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(record, name) for name in Record.model_fields}
    row |= {
        "artifact_path": record.shown_output,
        "metadata": text_items(record.metadata),
        "run_params": text_items(record.shown_params),
        "scores": score_items(record.scores),
        "reasons": list(record.reasons.items()),
        "usage": integer_items(record.usage),
        "error": record.error and record.error.model_dump(),
        "graders": [_grader(grader) for grader in record.graders],
    }
    for column in columns:
        value = column.value(record)
        if not isinstance(column, GapColumn):
            value = as_flag(value) if info.metrics[column.metric].type == "bool" else as_number(value)
        row[column.header] = value
    return row


def _grader(grader: GraderRecord) -> dict[str, Any]:
    fingerprint = grader.fingerprint.model_dump()
    return {
        **{name: getattr(grader, name) for name in GraderRecord.model_fields},
        "details": detail_columns(grader.details),
        "usage": integer_items(grader.usage),
        "fingerprint": {**fingerprint, "tool_versions": list(fingerprint["tool_versions"].items())},
        "judges": [_judge(answer) for answer in grader.judges],
    }


def _judge(answer: JudgeAnswer) -> dict[str, Any]:
    return {
        **{name: getattr(answer, name) for name in JudgeAnswer.model_fields},
        "scores": score_items(answer.scores),
        "reasons": list(answer.reasons.items()),
        "details": detail_columns(answer.details),
        "usage": integer_items(answer.usage),
    }
