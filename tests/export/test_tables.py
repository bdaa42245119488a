"""Tables of a run: columns and types do not depend on its records."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from record_factory import record
from table_runs import HOSTILE, PLAIN_CELLS, table_info, table_records, table_run
from typer.testing import CliRunner

from visioneval import Record, load_run
from visioneval.analysis.sides import Cell
from visioneval.cli import app
from visioneval.export import table
from visioneval.export.table import (
    READ_ROWS,
    cell_table,
    record_table,
    write_csv,
    write_drawn_cells,
    write_jsonl,
    write_parquet,
)
from visioneval.records.reader import open_records


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run ``r``."""
    root = tmp_path_factory.mktemp("tables")
    table_run(root)
    return root


def exported(root: Path, name: str, run: str = "r") -> Path:
    path = root / name
    result = CliRunner().invoke(app, ["export", run, "-o", str(path), "--runs", str(root)])
    assert result.exit_code == 0, result.output
    return path


def test_a_parquet_table_has_typed_nested_columns(root: Path) -> None:
    rows = parquet.read_table(exported(root, "cells.parquet")).to_pylist(maps_as_pydicts="strict")
    assert len(rows) == PLAIN_CELLS + 3
    full, failed, turn = (row for row in rows if row["test_id"] in (f"case{PLAIN_CELLS}", f"case{PLAIN_CELLS + 1}"))
    assert full["prompt"] == HOSTILE
    assert full["scores"] == {"look": 0.0, "look.score": 2.5, "seconds": 1.25}
    assert full["metadata"] == {"n": "1", "nested": '{"a":[1]}', "text": HOSTILE}
    (grader,) = full["graders"]
    assert grader["details"]["gaps"] == ["no red"]
    assert grader["details"]["votes"] == {"look.score": [3.0, None]}
    (question,) = grader["details"]["questions"]
    assert (question["question"], question["choices"], question["right"]) == ("Red?", ["yes", "no"], False)
    assert (question["score"], question["answer"], question["depends_on"]) == (0.0, None, [])
    assert json.loads(grader["details"]["json"])["deep"] == {"list": [1, "a", {}]}
    assert grader["usage"] == {"input": 2**63 - 1}
    assert grader["judges"][0]["scores"] == {"look": None}
    assert (full["look"], full["look.score"], full["seconds"], full["seconds score"]) == (False, 2.5, 1.25, 1.25)
    assert (failed["error"]["kind"], failed["look"], failed["scores"], failed["cost_usd"]) == (
        "timeout",
        None,
        {},
        None,
    )
    assert (turn["base_path"], turn["cost_usd"], turn["error"]) == ("artifacts/one/m/0.png", 2.0, None)
    assert rows[0]["scores"] == {"look": 1.0, "look.score": None}


def test_all_runs_have_the_same_columns_of_records(tmp_path: Path) -> None:
    def schema(records: list[Record], path: Path) -> Any:
        write_parquet(record_table(records, table_info()), path)
        return parquet.read_schema(path)

    records = list(table_records())
    schemas = [schema(part, tmp_path / "a.parquet") for part in ([], records[:1], records[-1:], records)]
    assert all(other == schemas[0] for other in schemas)
    fields = [name for name in Record.model_fields if name != "schema_version"]
    assert schemas[0].names == [*fields, "look", "look.score", "seconds score"]


BY_ADDRESS = {
    "bucket": ("gs://eval/a.mp4", "gs://eval/a.mp4"),
    "signature": ("https://cdn.example/a.png?X-Amz-Signature=s3cr3t&x=1", "https://cdn.example/a.png"),
    "fragment": ("https://cdn.example/a.png#s3cr3t", "https://cdn.example/a.png"),
    "user": ("https://ann:s3cr3t@cdn.example:8443/d/a.png?x", "https://***@cdn.example:8443/d/a.png"),
    "query alone": ("https://cdn.example?s3cr3t", "https://cdn.example"),
    "sign in the path": ("gs://eval/ann@example.org/a b.png?s3cr3t", "gs://eval/ann@example.org/a b.png"),
}


@pytest.mark.parametrize("name", BY_ADDRESS)
def test_an_output_by_address_has_it_without_what_may_be_secret(tmp_path: Path, name: str) -> None:
    """In every table. What was downloaded has its path in the run, and an output that was not read has none."""
    address, shown = BY_ADDRESS[name]
    params = {"path": address, "mime": "image/png"}
    cells = [
        record(artifact_path=None, run_params={**params, "by_address": True}),
        record(sample_index=1, artifact_path="artifacts/one/m/1.png", run_params=params),
        record(sample_index=2, artifact_path=None, run_params=params),
    ]
    out = io.StringIO()
    write_csv(cell_table(cells, table_info()), out)
    rows = [row["artifact_path"] for row in csv.DictReader(io.StringIO(out.getvalue()))]
    assert rows == [shown, "artifacts/one/m/1.png", ""]
    lines = io.StringIO()
    write_jsonl(lambda: cells, lines)
    read = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [json.loads(row["run_params"])["path"] for row in read] == [shown] * 3
    assert read[0]["artifact_path"] is None  # it names a file of the run, for commands that read the lines
    write_parquet(record_table(cells, table_info()), tmp_path / "a.parquet")
    (one, two, three) = parquet.read_table(tmp_path / "a.parquet").to_pylist(maps_as_pydicts="strict")
    assert [row["artifact_path"] for row in (one, two, three)] == [shown, "artifacts/one/m/1.png", None]
    assert {row["run_params"]["path"] for row in (one, two, three)} == {shown}
    drawn = io.StringIO()
    write_drawn_cells(cells, ["ok"], drawn)
    assert [row["output"] for row in csv.DictReader(io.StringIO(drawn.getvalue()))] == rows
    assert "s3cr3t" not in out.getvalue() + lines.getvalue() + drawn.getvalue()


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ROWS", 40)
    write_parquet(record_table(table_records(), table_info()), tmp_path / "a.parquet")
    file = parquet.ParquetFile(tmp_path / "a.parquet")
    assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == [40, 40, 40, 33]


def test_a_score_of_another_type_than_its_metric_is_missing_in_its_column(tmp_path: Path) -> None:
    odd = record(scores={"look": 3, "look.score": True})
    write_parquet(record_table([odd], table_info()), tmp_path / "a.parquet")
    (row,) = parquet.read_table(tmp_path / "a.parquet").to_pylist(maps_as_pydicts="strict")
    assert (row["look"], row["look.score"], row["scores"]) == (None, 1.0, {"look": 3.0, "look.score": 1.0})


def test_the_first_lines_of_jsonl_have_all_fields(root: Path) -> None:
    path = exported(root, "cells.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == PLAIN_CELLS + 3
    first = [line["test_id"] for line in lines[:4]]
    assert first == ["case0", f"case{PLAIN_CELLS}", f"case{PLAIN_CELLS + 1}", f"case{PLAIN_CELLS + 1}"]
    assert [line["test_id"] for line in lines[4:]] == [f"case{at}" for at in range(1, PLAIN_CELLS)]
    assert json.loads(lines[1]["metadata"])["nested"] == {"a": [1]}
    assert json.loads(lines[1]["graders"][0]["details"])["gaps"] == ["no red"]
    assert json.loads(lines[1]["graders"][0]["judges"][0]["details"]) == {"gaps": [HOSTILE]}


def test_compare_reads_the_cells_of_exported_jsonl(root: Path) -> None:
    def by_name(path: Path) -> dict[tuple[str, int], object]:
        return {(cell.test_id, cell.sample_index): cell for cell in open_records(path, Cell)}

    assert by_name(exported(root, "again.jsonl")) == by_name(root / "r" / "results.jsonl")


@pytest.mark.parametrize(("metrics", "is_complete"), [(READ_ROWS - 1, True), (READ_ROWS, False)])
def test_fields_beyond_the_first_hundred_lines_are_reported(metrics: int, is_complete: bool) -> None:
    cells = [record(), *(record(test_id=f"c{at}", scores={f"m{at}": 1.0}) for at in range(metrics))]
    out = io.StringIO()
    assert write_jsonl(lambda: cells, out) is is_complete
    assert len(out.getvalue().splitlines()) == len(cells)


def test_a_metric_with_the_name_of_a_field_has_a_column_of_its_own_in_csv() -> None:
    out = io.StringIO()
    write_csv(cell_table(table_records(), table_info()), out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert {None} & set(rows[0]) == set()
    full = rows[PLAIN_CELLS]
    assert (full["seconds"], full["seconds score"], full["look.score"]) == ("1.25", "1.25", "2.5")


def test_a_table_for_spreadsheets_has_no_formula_and_no_zero_for_a_missing_score() -> None:
    out = io.StringIO()
    cells = [record(prompt='=HYPERLINK("x")', tags=["-1", "b"], scores={"=look": None, "level": 0.0})]
    metric = table_info().metrics["look.score"]
    info = table_info().model_copy(update={"metrics": dict.fromkeys(("=look", "level", "gone"), metric)})
    write_csv(cell_table(cells, info), out)
    (row,) = csv.DictReader(io.StringIO(out.getvalue()))
    assert (row["prompt"], row["tags"]) == ('\'=HYPERLINK("x")', "'-1; b")
    assert (row["'=look"], row["level"], row["gone"]) == ("", "0.0", "")


def test_a_data_frame_has_nullable_types(root: Path) -> None:
    frame = load_run("r", runs=root).to_pandas()
    types = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert (types["look"], types["look.score"], types["cost_usd"], types["width"]) == (
        "boolean",
        "Float64",
        "Float64",
        "Int64",
    )
    assert types["error"] == types["sent_prompt"] == "string"
    assert frame["look"].isna().sum() == 2
    assert frame["look"].sum() == PLAIN_CELLS
    assert (frame["verdict"] == "PASS").sum() == PLAIN_CELLS + 1
    assert frame.iloc[PLAIN_CELLS]["failure_tags"] == ["wrong color"]
    empty = load_run("r@other", runs=root).to_pandas().iloc[:0]
    assert {name: str(kind) for name, kind in empty.dtypes.items()} == types


def test_a_table_that_cannot_be_written_is_one_line(root: Path) -> None:
    result = CliRunner().invoke(app, ["export", "r", "--runs", str(root), "-o", "missing/cells.parquet"])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert result.stderr.startswith("missing/cells.parquet: cannot write")


def test_without_pyarrow_the_extra_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visioneval.suite.loading.tables.find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["export", "r", "--runs", str(root), "-o", str(root / "no.parquet")])
    assert (result.exit_code, "pip install -e '.[parquet]'" in result.stderr) == (2, True)
    assert not (root / "no.parquet").exists()
