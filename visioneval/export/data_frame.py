"""A run as a pandas data frame. Needs pandas, which is no requirement of visioneval."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from visioneval.errors import UsageError
from visioneval.export.csv import LIST_FIELDS, GapColumn, cell_row, row_names, score_columns
from visioneval.export.details import as_flag, as_number
from visioneval.records.model import Record, RunInfo

if TYPE_CHECKING:
    import pandas as pd

_INTEGERS = ("sample_index", "width", "height")
_NUMBERS = ("cost_usd", "seconds", "waited_seconds")


def data_frame(records: Iterable[Record], info: RunInfo) -> pd.DataFrame:
    """One row per cell with the columns of the CSV, whose types do not depend on the records: a value can be missing.

    Lists stay Python lists. Raises ``UsageError`` if pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise UsageError("to_pandas needs pandas: run pip install pandas") from None
    columns = score_columns(info)
    scores = [column for column in columns if not isinstance(column, GapColumn)]
    rows = [cell_row(record, columns) for record in records]
    types = {name: "string" for name in row_names(()) if name not in LIST_FIELDS}
    types |= dict.fromkeys(_INTEGERS, "Int64") | dict.fromkeys(_NUMBERS, "Float64")
    for column in scores:
        is_flag = info.metrics[column.metric].type == "bool"
        types[column.header] = "boolean" if is_flag else "Float64"
        for row in rows:
            row[column.header] = (as_flag if is_flag else as_number)(row[column.header])
    return pd.DataFrame(rows, columns=row_names(columns)).astype(types)
