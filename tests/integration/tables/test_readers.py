"""Exported tables in polars, pandas and DuckDB, each with its defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest
from table_runs import HOSTILE, PLAIN_CELLS, table_run
from typer.testing import CliRunner

from visioneval.cli import app

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cells.jsonl and cells.parquet."""
    root = tmp_path_factory.mktemp("tables")
    table_run(root / "runs")
    for name in ("cells.jsonl", "cells.parquet"):
        result = CliRunner().invoke(app, ["export", "r", "-o", str(root / name), "--runs", str(root / "runs")])
        assert result.exit_code == 0, result.output
    return root


def duckdb_rows(path: Path) -> Rows:
    table = duckdb.sql(f"select * from '{path}'")
    return [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]


READERS: dict[str, Callable[[Path], Rows]] = {
    "polars": lambda path: pl.read_ndjson(path).to_dicts(),
    "polars lazily": lambda path: pl.scan_ndjson(path).collect().to_dicts(),
    "pandas": lambda path: pd.read_json(path, lines=True).to_dict("records"),
    "duckdb": duckdb_rows,
}
PARQUET_READERS: dict[str, Callable[[Path], Rows]] = {
    "polars": lambda path: pl.read_parquet(path).to_dicts(),
    "polars lazily": lambda path: pl.scan_parquet(path).collect().to_dicts(),
    "pandas": lambda path: pd.read_parquet(path).to_dict("records"),
    "duckdb": duckdb_rows,
}


def full_cell(rows: Rows) -> dict[str, Any]:
    assert len(rows) == PLAIN_CELLS + 3
    (cell,) = (row for row in rows if row["test_id"] == f"case{PLAIN_CELLS}")
    return cell


@pytest.mark.parametrize("reader", READERS)
def test_jsonl_loses_nothing(folder: Path, reader: str) -> None:
    cell = full_cell(READERS[reader](folder / "cells.jsonl"))
    assert (cell["sent_prompt"], cell["cost_usd"], cell["prompt"]) == ("a red tree", 0.25, HOSTILE)
    assert dict(cell["scores"]) == {"look": False, "look.score": 2.5, "seconds": 1.25}
    assert list(cell["failure_tags"]) == ["wrong color"]
    (grader,) = cell["graders"]
    assert grader["judges"][0]["reasons"]["look"] == HOSTILE
    assert '"gaps":["no red"]' in grader["details"]


@pytest.mark.parametrize("reader", PARQUET_READERS)
def test_parquet_loses_nothing(folder: Path, reader: str) -> None:
    cell = full_cell(PARQUET_READERS[reader](folder / "cells.parquet"))
    assert (cell["sent_prompt"], cell["cost_usd"], cell["prompt"]) == ("a red tree", 0.25, HOSTILE)
    assert (cell["look"], cell["look.score"], cell["seconds score"]) == (False, 2.5, 1.25)
    (grader,) = cell["graders"]
    assert list(grader["details"]["gaps"]) == ["no red"]
    assert grader["details"]["questions"][0]["choices"][0] == "yes"


def test_duckdb_queries_scores_and_details(folder: Path) -> None:
    path = folder / "cells.parquet"
    assert duckdb.sql(f"select scores['look.score'] from '{path}' where verdict = 'FAIL'").fetchall() == [(2.5,)]
    query = f"select unnest(graders[1].details.questions, recursive := true) from '{path}'"
    assert dict(zip((table := duckdb.sql(query)).columns, table.fetchall()[0], strict=True))["question"] == "Red?"
    rate = f"select avg(look::int) from '{path}' where look is not null"
    assert duckdb.sql(rate).fetchall() == [(PLAIN_CELLS / (PLAIN_CELLS + 1),)]


def test_polars_reads_each_metric_in_its_type(folder: Path) -> None:
    frame = pl.read_parquet(folder / "cells.parquet")
    assert (frame.schema["look"], frame.schema["look.score"]) == (pl.Boolean, pl.Float64)
    assert frame["look.score"].drop_nulls().to_list() == [2.5]
    assert frame.schema["error"] == pl.Struct({"stage": pl.String, "kind": pl.String, "message": pl.String})


def test_polars_cannot_read_the_log_of_a_run(folder: Path) -> None:
    """Why ``export`` exists: ``results.jsonl`` is written as cells finish, and keeps free-form details."""
    with pytest.raises(pl.exceptions.ComputeError):
        pl.read_ndjson(folder / "runs" / "r" / "results.jsonl")
