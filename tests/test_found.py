"""How the sides of a comparison are named and found."""

from __future__ import annotations

from pathlib import Path

import pytest
from made import record, run_of
from toys import Toy

from visioneval.analysis.run_lookup import read_side
from visioneval.errors import RunFormatError, UsageError
from visioneval.records.model import Record
from visioneval.records.writer import RunWriter

RUNS = Path("runs")
METRICS = {"fine": {"type": "bool"}, "level": {"type": "number", "better": "lower"}}


@pytest.fixture
def runs(toy: Toy) -> list[Record]:
    """``runs/20250101-demo`` with two model runs, of which a cell was written twice."""
    info = run_of({"one": {}}, ["old", "new"], [], METRICS, run_id="20250101-demo", started_at="2025-01-01T00:00:00")
    records = [
        record(run_id=info.run_id, model_label=label, verdict=verdict, scores={"fine": True, "level": 0.5})
        for label, verdict in (("old", "PASS"), ("new", "FAIL"), ("old", "ERROR"))
    ]
    writer = RunWriter.create(RUNS, info)
    for each in records:
        writer.append(each)
    writer.finish("complete", "2025-01-01T00:01:00")
    return records


@pytest.mark.parametrize(
    "name",
    ["20250101-demo", "2025", "latest", "runs/20250101-demo", "runs/20250101-demo/results.jsonl"],
)
def test_a_run_has_many_names(runs: list[Record], name: str) -> None:
    side = read_side(name, RUNS)
    assert side.name == name
    assert [(cell.model_label, cell.verdict) for cell in side.cells] == [("old", "ERROR"), ("new", "FAIL")]
    assert (side.suite, side.state, side.planned_cells, side.folder) == ("demo", "complete", 2, RUNS / "20250101-demo")
    assert side.writers == {"fine": "look", "level": "look"}
    assert side.metrics["level"].better == "lower"


def test_one_model_run_of_it(runs: list[Record]) -> None:
    assert read_side("latest@new", RUNS).labels == ("new",)
    with pytest.raises(UsageError, match=r"no model run 'nex' in latest \(did you mean 'new'\?\)"):
        read_side("latest@nex", RUNS)


def test_a_file_of_records_says_nothing_of_directions(runs: list[Record]) -> None:
    path = Path("plain.jsonl")
    path.write_bytes((RUNS / "20250101-demo" / "results.jsonl").read_bytes())
    side = read_side("plain.jsonl@old", RUNS)
    assert (side.suite, side.state, side.folder, side.labels) == (None, None, None, ("old",))
    assert {name: (one.type, one.better) for name, one in side.metrics.items()} == {
        "fine": ("bool", "none"),
        "level": ("number", "none"),
    }


def test_files_that_are_no_records(toy: Toy) -> None:
    Path("bad.jsonl").write_text('{"schema_version":2,"test_id":"x"}\n')
    with pytest.raises(RunFormatError, match=r"bad\.jsonl:1: model_label: Field required"):
        read_side("bad.jsonl", RUNS)
    Path("new.jsonl").write_text('{"schema_version":99}\n')
    with pytest.raises(RunFormatError, match=r"new\.jsonl:1: schema_version 99 is newer"):
        read_side("new.jsonl", RUNS)
    for name in ("nope", "nope.jsonl", "nope@x"):
        with pytest.raises(UsageError, match="no such run in runs"):
            read_side(name, RUNS)


def test_baselines_that_are_not_there(toy: Toy) -> None:
    with pytest.raises(
        UsageError, match=r"baselines/main\.jsonl: there is no such baseline \('visioneval baseline set"
    ):
        read_side("baseline", RUNS)
    with pytest.raises(UsageError, match=r"'\.\./x' is no name for a baseline"):
        read_side("baseline:../x", RUNS)


def test_cells_share_what_is_alike(runs: list[Record]) -> None:
    one, two = read_side("latest", RUNS).cells
    assert one.prompt is two.prompt
    assert one.test_id is two.test_id
