"""Rows of Parquet files, which need the extra ``parquet``. A row's line is its number in the file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib.util import find_spec
from typing import Any

from visioneval.errors import Problem, UsageError
from visioneval.extras import install_command
from visioneval.suite.loading.datasets.rows import Row

MAX_BYTES = 1024 * 1024 * 1024
"""Limits the decompressed rows, since a small file may contain large ones."""
_BATCH = 256


def require_parquet() -> None:
    """Raises ``UsageError`` without pyarrow."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"Parquet needs an extra: {install_command('parquet')}")


def parquet_rows(data: bytes, name: str) -> Iterator[Row | Problem]:
    """Yields the rows, without columns of binary data, which only have a name. Needs pyarrow."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pa.BufferReader(data))
        names = list(file.schema_arrow.names)
        if duplicates := [column for column in names if names.count(column) > 1]:
            yield Problem(name, 1, 1, f"the file has two columns named {duplicates[0]!r}")
            return
        readable = [field.name for field in file.schema_arrow if not _is_binary(field.type)]
        binary = frozenset(names) - frozenset(readable)
        number = size = 0
        for batch in file.iter_batches(batch_size=_BATCH, columns=readable):
            size += batch.nbytes
            if size > MAX_BYTES:
                yield Problem(name, number + 1, 1, f"over the limit of {MAX_BYTES:,} bytes when decompressed")
                return
            for cells in batch.select(readable).to_pylist(maps_as_pydicts="strict"):
                number += 1
                try:
                    values = {column: _plain(value, column) for column, value in cells.items()}
                    yield Row(number, values, number, binary=binary)
                except ValueError as error:
                    yield Problem(name, number, 1, str(error))
    except (pa.ArrowException, OSError) as error:
        text = " ".join(str(error).split())[:200]
        yield Problem(name, 1, 1, f"not a Parquet file that can be read: {text}")


def _is_binary(kind: Any) -> bool:
    """Whether a column's values contain bytes, as images inside a file do."""
    from pyarrow import types

    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return is_bytes or any(_is_binary(kind.field(index).type) for index in range(kind.num_fields))


def _plain(value: Any, column: str) -> Any:
    """A value as JSON would have it; NaN is how data frames write a missing number. Raises ``ValueError``."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float | Decimal):
        if math.isnan(value):
            return None
        if math.isinf(value):
            raise ValueError(f"{column}: {value} is not a valid value: write null or text")
        return value if isinstance(value, float) else str(value)
    if isinstance(value, list | tuple):
        return [_plain(item, column) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item, column) for key, item in value.items()}
    return value.isoformat() if isinstance(value, date | datetime | time) else _text(value)


def _text(value: object) -> str:
    return f"{value.total_seconds():g}" if isinstance(value, timedelta) else str(value)
