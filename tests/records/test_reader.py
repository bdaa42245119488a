"""The reader of records: which lines count, in which order, and what any part of a record may be."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import pytest
from hostile_changes import VALUES, _Raw, paths_in
from hypothesis import given
from hypothesis import strategies as st
from record_factory import info, record
from typer.testing import CliRunner

from visioneval.analysis.sides import Cell
from visioneval.cli import app
from visioneval.errors import RunFormatError
from visioneval.records.model import Fingerprint, GraderRecord, JudgeAnswer, Record
from visioneval.records.reader import LONGEST_LINE, CellColumns, count_cells, open_records, read_records, records_of
from visioneval.records.writer import RunWriter
from visioneval.suite.filters import Scope
from visioneval.types import TaskType

NAMES = st.tuples(st.sampled_from("ab"), st.sampled_from("mn"), st.integers(0, 3) | st.just(1_000_000))
FINGERPRINT = Fingerprint(
    judge_model="judge-1", template_sha256="t" * 64, config_sha256="c" * 64, tool_versions={"ocr": "1"}
)
RECORD = record(
    sent_prompt="a tall tree",
    tags=("must_pass", "tree"),
    verdict="FAIL",
    failed_rules=("look >= 3",),
    failure_tags=("too_dark",),
    scores={"look": 2, "copy": True, "copy.cer": 0.25, "place": None},
    unmeasured_metrics=("place",),
    reasons={"look": "the tree is too dark \u00e9 \U0001f333"},
    graders=(
        GraderRecord(key="copy", type="text", fingerprint=Fingerprint(config_sha256="d" * 64), is_unmeasured=True),
        GraderRecord(
            key="look", type="rubric", cost_usd=0.01, fingerprint=FINGERPRINT, judges=(JudgeAnswer(judge="a", model="judge-1"),)
        ),
    ),
    artifact_path="artifacts/one/m/0.png",
    artifact_sha256="a" * 64,
    cost_usd=0.04,
    seconds=2.5,
    attempts=1,
).model_dump(mode="json")  # fmt: skip
ODD = (1.0, -0.0, "1", "true", "PASS", 2**63, -(2**63), 1_000_001, [1], [["x"]], "a..b", "artifacts/../x", "x" * 5000)
CELL_FIELDS = {"schema_version", *Cell.__dataclass_fields__}


def _line(**changes: Any) -> bytes:
    return record(**changes).model_dump_json().encode() + b"\n"


def _json(data: Any) -> bytes:
    """A line as runs write it, with raw tokens as they are."""
    tokens: list[str] = []

    def mark(value: Any) -> str:
        assert isinstance(value, _Raw)
        tokens.append(value.token)
        return f"@token{len(tokens) - 1}@"

    text = json.dumps(data, separators=(",", ":"), default=mark)
    for at, token in enumerate(tokens):
        text = text.replace(f'"@token{at}@"', token)
    return text.encode() + b"\n"


def _run(root: Path, lines: list[bytes]) -> Path:
    writer = RunWriter.create(root, info())
    writer.finish("complete", "2025-01-01T00:00:01+00:00")
    (writer.folder / "results.jsonl").write_bytes(b"".join(lines))
    return writer.folder


@given(names=st.lists(NAMES, max_size=30))
def test_the_last_line_of_each_cell_counts(tmp_path_factory: pytest.TempPathFactory, names: list[Any]) -> None:
    lines = [
        _line(test_id=case, model_label=label, sample_index=sample, prompt=f"line {at}")
        for at, (case, label, sample) in enumerate(names)
    ]
    folder = _run(tmp_path_factory.mktemp("runs"), lines)
    last = sorted({name: at for at, name in enumerate(names)}.values())
    assert [item.prompt for item in read_records(folder)] == [f"line {at}" for at in last]
    assert [*records_of(folder).names()] == [names[at] for at in last]


@given(st.lists(NAMES, unique=True, max_size=20))
def test_suite_order_is_by_case_then_model_run_then_sample_with_unknown_names_last(names: list[Any]) -> None:
    columns = CellColumns.of(names)
    places = {"b": 0, "a": 1, "n": 0}
    cases, labels = ([places.get(name, 1) for name in known] for known in (columns.cases, columns.labels))
    expected = sorted(range(len(names)), key=lambda at: (places[names[at][0]], names[at][1] != "n", names[at][2]))
    assert columns.order(cases, labels) == expected


def test_records_come_in_the_order_of_the_file_and_of_the_suite_and_by_scope(tmp_path: Path) -> None:
    lines = [
        _line(test_id="lost", sample_index=1, tags=("t",)),
        _line(sample_index=1, prompt="outdated"),
        b"\n",
        _line(sample_index=0),
        _line(model_label="other", sample_index=0, tags=("t",)),
        _line(sample_index=1),
    ]
    records = records_of(_run(tmp_path, lines))
    in_order = records.in_order(info(suite=info().suite.model_copy(update={"models": ()})))
    assert [item.cell for item in records] == [
        ("lost", "m", 1), ("one", "m", 0), ("one", "other", 0), ("one", "m", 1),
    ]  # fmt: skip
    assert [item.cell for item in in_order] == [*in_order.names()] == [
        ("one", "m", 0), ("one", "other", 0), ("one", "m", 1), ("lost", "m", 1),
    ]  # fmt: skip
    scopes = {("one", "other", 0): Scope(models=("o*",)), ("lost", "m", 1): Scope(cases=("l*",))}
    for name, scope in scopes.items():
        assert [item.cell for item in records.within(scope)] == [item.cell for item in in_order.within(scope)] == [name]
    assert [item.test_id for item in records.within(Scope(tags=("t",)))] == ["lost", "one"]
    assert len(records.within(Scope(tags=("t",), models=("m",)))) == 1
    assert len(records.within(Scope(tasks=(TaskType.IMAGE_EDITING,)))) == 0
    assert len(records.within(Scope())) == 4


@pytest.mark.parametrize("key", ["test_id", "test\\u005fid"])
def test_the_last_of_two_equal_keys_names_the_cell(tmp_path: Path, key: str) -> None:
    forged = _line().replace(b'"cached":', f'"{key}":"two","cached":'.encode())
    folder = _run(tmp_path, [_line(test_id="two", prompt="first"), forged, _line()])
    assert [(item.test_id, item.prompt) for item in read_records(folder)] == [("two", "a tree"), ("one", "a tree")]


def test_files_of_other_tools_are_read(tmp_path: Path) -> None:
    """A byte order mark, CRLF, blank lines, other spaces and orders of keys, and no newline at the end."""
    spaced = json.dumps(dict(reversed(json.loads(_line(sample_index=1)).items())), indent=None).encode()
    data = codecs.BOM_UTF8 + _line().replace(b"\n", b"\r\n") + b"\r\n \t\n" + spaced
    folder = _run(tmp_path, [data])
    assert [item.sample_index for item in read_records(folder)] == [0, 1]
    assert [item.sample_index for item in open_records(folder / "results.jsonl", Cell)] == [0, 1]


@pytest.mark.parametrize("select", [Record, Cell])
def test_an_invalid_record_is_named_by_its_line_in_any_order(tmp_path: Path, select: Any) -> None:
    broken = json.loads(_line(sample_index=1)) | {"verdict": "MAYBE"}
    folder = _run(tmp_path, [b"\n", _line(), _json(broken)])
    records = open_records(folder / "results.jsonl", select)
    for part in (records, records.in_order(info()), records[1:]):
        with pytest.raises(RunFormatError, match=r"results.jsonl:3: verdict: "):
            list(part)


@pytest.mark.parametrize("select", [Record, Cell])
def test_a_record_that_a_later_line_replaced_is_checked_too(tmp_path: Path, select: Any) -> None:
    folder = _run(tmp_path, [_json(json.loads(_line()) | {"verdict": "MAYBE"}), _line()])
    with pytest.raises(RunFormatError, match=r"results.jsonl:1: verdict: "):
        open_records(folder / "results.jsonl", select)


LINES: dict[str, tuple[bytes, str]] = {
    "deep": (b'{"schema_version":2,"metadata":' + b"[" * 100_000 + b"\n", "damaged or truncated"),
    "deep and closed": (_line().replace(b'"metadata":{}', b'"metadata":{"a":' + b"[" * 9999 + b"]" * 9999 + b"}"), "damaged or truncated"),
    "NaN": (_line().replace(b'"metadata":{}', b'"metadata":{"a":NaN}'), "NaN is not a finite number"),
    "1e999": (_line().replace(b'"metadata":{}', b'"metadata":{"a":[1e999]}'), "1e999 is not a finite number"),
    "huge": (_line().replace(b'"sample_index":0', b'"sample_index":' + b"9" * 400), "is too large"),
    "longest": (_line().replace(b'"sample_index":0', b'"sample_index":1000001'), "sample_index: "),
    "negative": (_line().replace(b'"sample_index":0', b'"sample_index":-1'), "sample_index: "),
    "no name": (b'{"schema_version":2,"run_id":"r"}\n', "test_id: Field required"),
    "list": (b"[]\n", "not a JSON object"),
    "UTF-16": (_line().decode().encode("utf-16"), "damaged or truncated"),
    "newer": (_line().replace(b'"schema_version":2', b'"schema_version":3'), "schema_version 3 is newer than the supported version 2: upgrade visioneval"),
    "older": (_line().replace(b'"schema_version":2', b'"schema_version":1'), "schema_version 1 is older than the supported version 2: create it again with this version"),
    "true": (_line().replace(b'"schema_version":2', b'"schema_version":true'), "no schema_version: not written by visioneval"),
    "none": (b"{}\n", "no schema_version: not written by visioneval"),
}  # fmt: skip


@pytest.mark.parametrize("select", [Record, Cell])
@pytest.mark.parametrize("name", LINES)
def test_a_hostile_line_is_refused_in_one_short_line(tmp_path: Path, name: str, select: Any) -> None:
    line, message = LINES[name]
    folder = _run(tmp_path, [_line(test_id="before"), line, _line(test_id="after")])
    with pytest.raises(RunFormatError) as caught:
        list(open_records(folder / "results.jsonl", select))
    text = str(caught.value)
    assert "results.jsonl:2: " in text
    assert message in text
    assert (len(text.splitlines()), len(text) < 600) == (1, True)


def test_a_line_of_64_mib_is_not_read_whole(tmp_path: Path) -> None:
    folder = _run(tmp_path, [_line()])
    with (folder / "results.jsonl").open("r+b") as results:
        results.seek(0, 2)
        results.truncate(results.tell() + LONGEST_LINE)  # a hole, which takes no space on the disk
    with pytest.raises(RunFormatError, match=r"results.jsonl:2: the line is longer than 64 MiB: not a record"):
        records_of(folder)


def test_a_run_without_records_has_none(tmp_path: Path) -> None:
    folder = _run(tmp_path, [])
    assert list(read_records(folder)) == list(records_of(folder).in_order(info())) == []
    assert (len(records_of(folder)), len(records_of(folder).within(Scope(tags=("t",))))) == (0, 0)
    (folder / "results.jsonl").write_bytes(b'{"schema_version":2,"run')
    assert list(read_records(folder)) == []
    (folder / "results.jsonl").unlink()
    with pytest.raises(RunFormatError, match="the records of this run are missing: restore this file"):
        list(read_records(folder))


def test_lines_that_come_while_a_run_is_read_are_left_for_later(tmp_path: Path) -> None:
    folder = _run(tmp_path, [_line()])
    records = records_of(folder)
    with (folder / "results.jsonl").open("ab") as results:
        results.write(_line(sample_index=1))
    assert [item.sample_index for item in records] == [0]
    assert [type(item) for item in records.in_order(info())] == [Record]


def test_a_record_that_took_the_place_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    folder = _run(tmp_path, [_line(sample_index=1), _line(sample_index=2)])
    records = records_of(folder)
    (folder / "results.jsonl").write_bytes(_line(sample_index=2) + _line(sample_index=1))
    with pytest.raises(RunFormatError, match="changed while it was read: run this command again"):
        list(records)


def test_cells_are_counted_by_their_names_alone(tmp_path: Path) -> None:
    name = '"test_id": "one", "model_label": "m", "sample_index": '
    lines = [f'{{"schema_version": 2, {name}{sample}}}\n' for sample in (0, 1, 0)]
    (tmp_path / "results.jsonl").write_text("".join(lines) + '{"schema_version": 2, "test_id": "tw')
    assert count_cells(tmp_path) == 2
    with (tmp_path / "results.jsonl").open("a") as results:
        results.write("\n")
    with pytest.raises(RunFormatError, match=r"results\.jsonl:4"):
        count_cells(tmp_path)


def test_an_export_that_fails_leaves_the_older_file_as_it_was(tmp_path: Path) -> None:
    broken = json.loads(_line(sample_index=1)) | {"verdict": "MAYBE"}
    folder = _run(tmp_path, [_line(), _json(broken)])
    target = tmp_path / "cells.csv"
    target.write_text("older", encoding="utf-8")
    result = CliRunner().invoke(app, ["export", str(folder), "-o", str(target)])
    assert (result.exit_code, target.read_text(encoding="utf-8")) == (2, "older")
    assert {path.name for path in tmp_path.iterdir()} == {"r", "cells.csv"}
    (folder / "results.jsonl").write_bytes(_line())
    assert CliRunner().invoke(app, ["export", str(folder), "-o", str(target)]).exit_code == 0
    assert len(target.read_text(encoding="utf-8").splitlines()) == 2


def _outcome(path: Path, data: Any, select: Any) -> Any:
    path.write_bytes(_json(data))
    try:
        (item,) = open_records(path, select)
    except RunFormatError as error:
        return str(error)
    return item


@pytest.mark.slow
def test_a_cell_of_a_comparison_accepts_and_refuses_what_a_record_does(tmp_path: Path) -> None:
    """Every field of a cell, removed and with each hostile value: what a comparison reads, any other command can read."""
    outcomes = {"read": 0, "refused": 0}
    for path in paths_in(RECORD):
        if path[0] not in CELL_FIELDS or (
            path[0] == "graders" and len(path) > 2 and path[2] not in ("key", "fingerprint")
        ):
            continue
        for value in (..., *VALUES, *ODD):
            data: Any = json.loads(json.dumps(RECORD))
            target = data
            for key in path[:-1]:
                target = target[key]
            if value is ...:
                del target[path[-1]]
            else:
                target[path[-1]] = value
            whole, cell = (_outcome(tmp_path / "cells.jsonl", data, select) for select in (Record, Cell))
            outcomes["refused" if isinstance(cell, str) else "read"] += 1
            if isinstance(cell, str):
                assert whole == cell or isinstance(whole, str), (path, value)
            elif isinstance(whole, Record):
                shared = [
                    name
                    for name in Cell.__dataclass_fields__
                    if name not in ("error", "graders", "seconds", "attempts")
                ]
                assert {name: getattr(cell, name) for name in shared} == {
                    name: getattr(whole, name) for name in shared
                }, (path, value)
                assert [item.fingerprint for item in cell.graders] == [item.fingerprint for item in whole.graders]
    assert min(outcomes.values()) > 300
