"""A table with types: a Parquet file, which needs the extra ``parquet``, or a data frame, which needs pandas."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from visioneval.errors import UsageError
from visioneval.export.table import Kind, ListOf, MapOf, Table
from visioneval.report.files import part_of
from visioneval.suite.loading.datasets.parquet import require_parquet

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ROWS = 1_000
"""Rows of a row group, which are in memory together."""
_PANDAS = {"text": "string", "integer": "Int64", "number": "Float64", "flag": "boolean"}


def write_parquet(table: Table, path: Path) -> None:
    """Writes one row per cell. An existing file is replaced at the end. Raises ``UsageError``, also without pyarrow."""
    require_parquet()
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(column.name, _arrow_type(column.kind)) for column in table.columns])
    rows = table.typed_rows()
    with part_of(path) as part, parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        while group := list(islice(rows, ROWS)):
            writer.write_batch(pa.RecordBatch.from_pylist(group, schema=schema))


def _arrow_type(kind: Kind) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, ListOf):
        return pa.list_(_arrow_type(kind.item))
    if isinstance(kind, MapOf):
        return pa.map_(pa.string(), _arrow_type(kind.value))
    if isinstance(kind, dict):
        return pa.struct([(name, _arrow_type(part)) for name, part in kind.items()])
    return {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "flag": pa.bool_()}[kind]


def data_frame(table: Table) -> pd.DataFrame:
    """One row per cell, in types that have missing values. Lists stay Python lists.

    Raises ``UsageError`` if pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise UsageError("to_pandas needs pandas: run pip install pandas") from None
    types = {column.name: _PANDAS[column.kind] for column in table.columns if isinstance(column.kind, str)}
    return pd.DataFrame(table.typed_rows(), columns=table.names).astype(types)
