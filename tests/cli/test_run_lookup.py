"""How ``compare`` finds its sides by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from record_factory import record, run_of
from toys import Toy

from visioneval import Record, RunFormatError, UsageError
from visioneval.analysis.run_lookup import read_side
from visioneval.records.untrusted import choose_run
from visioneval.records.writer import RunWriter

RUNS = Path("runs")
METRICS = {"fine": {"type": "bool"}, "level": {"type": "number", "better": "lower"}}


@pytest.fixture
def runs(toy: Toy) -> list[Record]:
    """``runs/20250101-demo`` with two model runs, with one cell written twice."""
    info = run_of({"one": {}}, ["old", "new"], [], METRICS, run_id="20250101-demo", started_at="2025-01-01T00:00:00")
    records = [
        record(run_id=info.run_id, model_label=label, verdict=verdict, scores={"fine": True, "level": 0.5})
        for label, verdict in (("old", "PASS"), ("new", "FAIL"), ("old", "ERROR"))
    ]
    writer = RunWriter.create(RUNS, info)
    for entry in records:
        writer.append(entry)
    writer.finish("complete", "2025-01-01T00:01:00")
    return records


@pytest.mark.parametrize(
    "name", ["20250101-demo", "2025", "latest", "runs/20250101-demo", "runs/20250101-demo/results.jsonl"]
)
def test_run_is_found_by_all_its_names(runs: list[Record], name: str) -> None:
    side = read_side(name, RUNS)
    assert side.name == name
    assert [(cell.model_label, cell.verdict) for cell in side.cells] == [("old", "ERROR"), ("new", "FAIL")]
    assert (side.suite, side.state, side.planned_cells, side.folder) == ("demo", "complete", 2, RUNS / "20250101-demo")
    assert side.writers == {"fine": "look", "level": "look"}
    assert side.metrics["level"].better == "lower"


def test_an_exact_id_is_not_a_prefix_and_an_ambiguous_prefix_names_no_run() -> None:
    run_ids = ["nightly", "nightly-2", "nightly-20"]
    for name, run_id in (("nightly", "nightly"), ("nightly-2", "nightly-2"), ("nightly-20", "nightly-20")):
        assert choose_run(name, run_ids, "runs") == run_id
    with pytest.raises(UsageError, match=r"^'night' is ambiguous: it matches 3 runs: nightly, nightly-2, nightly-20$"):
        choose_run("night", run_ids, "runs")
    assert choose_run("night", ["nightly", "daily"], "runs") == "nightly"


def test_model_run_is_selected_by_label(runs: list[Record]) -> None:
    assert read_side("latest@new", RUNS).labels == ("new",)
    with pytest.raises(UsageError, match=r"no model run 'nex' in latest \(did you mean 'new'\?\)"):
        read_side("latest@nex", RUNS)


def test_file_of_records_has_no_metric_directions(runs: list[Record]) -> None:
    path = Path("plain.jsonl")
    path.write_bytes((RUNS / "20250101-demo" / "results.jsonl").read_bytes())
    side = read_side("plain.jsonl@old", RUNS)
    assert (side.suite, side.state, side.folder, side.labels) == (None, None, None, ("old",))
    assert {name: (first.type, first.better) for name, first in side.metrics.items()} == {
        "fine": ("bool", "none"),
        "level": ("number", "none"),
    }


def test_invalid_files_are_rejected(toy: Toy) -> None:
    Path("bad.jsonl").write_text('{"schema_version":2,"test_id":"x"}\n')
    with pytest.raises(RunFormatError, match=r"bad\.jsonl:1: model_label: Field required"):
        read_side("bad.jsonl", RUNS)
    Path("new.jsonl").write_text('{"schema_version":99}\n')
    with pytest.raises(RunFormatError, match=r"new\.jsonl:1: schema_version 99 is newer"):
        read_side("new.jsonl", RUNS)
    for name in ("nope", "nope.jsonl", "nope@x"):
        with pytest.raises(UsageError, match="no such run in runs"):
            read_side(name, RUNS)


def test_missing_baselines_are_reported(toy: Toy) -> None:
    with pytest.raises(
        UsageError, match=r"baselines/main\.jsonl: no such baseline: create one with 'visioneval baseline set"
    ):
        read_side("baseline", RUNS)
    with pytest.raises(UsageError, match=r"'\.\./x' is not a valid baseline name"):
        read_side("baseline:../x", RUNS)


def test_cells_share_equal_values(runs: list[Record]) -> None:
    first, second = read_side("latest", RUNS).cells
    assert first.test_id is second.test_id
