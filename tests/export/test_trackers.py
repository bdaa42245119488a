"""What trackers get of a run, without any tracker."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from record_factory import record
from tracked_runs import HOSTILE, LABELS, MANY, tracked_demo
from typer.testing import CliRunner

from visioneval import Run, RunInfo, TrackerError, UsageError, load_run, track
from visioneval.analysis.summary.gates import GateFinding
from visioneval.api.options import run_options
from visioneval.api.runs import track_finished
from visioneval.cli import app
from visioneval.export import mlflow
from visioneval.export import tracked as tracking
from visioneval.export.mlflow import mlflow_metrics, mlflow_params
from visioneval.export.tracked import (
    TrackedRun,
    description,
    gate_text,
    reasons_of,
    safe_names,
    tracked_cells,
    tracked_run,
)
from visioneval.suite.runs import Selection, Shard
from visioneval.suite.tracking import MlflowTracking


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run ``demo``."""
    root = tmp_path_factory.mktemp("tracked")
    tracked_demo(root)
    return root


@pytest.fixture(scope="module")
def demo(root: Path) -> Run:
    return load_run("demo", runs=root)


def tracked(run: Run, info: RunInfo | None = None, experiment: str | None = None) -> TrackedRun:
    return tracked_run(run.folder, info or run.info, run.summary, experiment=experiment, rows=500)


@pytest.fixture(scope="module")
def content(demo: Run) -> TrackedRun:
    return tracked(demo)


def test_the_whole_run_has_counts_gates_and_cost(content: TrackedRun) -> None:
    overall = content.entries[0]
    assert content.experiment == "trees"
    assert overall.metrics["pass_rate"] == 0.5
    assert 0 <= overall.metrics["pass_rate_low"] < 0.5 < overall.metrics["pass_rate_high"] <= 1
    assert [overall.metrics[f"cells/{name}"] for name in ("all", "passed", "failed", "errors")] == [4, 1, 1, 2]
    assert (overall.metrics["gates/failed"], overall.metrics["gates/passed"]) == (1, 2)
    assert (overall.metrics["cost/usd"], overall.metrics["failure_tags/wrong_color"]) == (0.5, 1)
    assert overall.tags["gate.1"] == "failed: pass_rate >= 0.9 (0.5 over 2 cells)"
    assert (overall.tags["visioneval.run_id"], overall.tags["visioneval.result"]) == ("demo", "gate failed")
    assert "\x00" not in overall.tags["visioneval.note"]
    assert "visioneval.incomplete" not in overall.tags
    assert overall.params["cases"] == "2"


def test_each_model_run_has_its_parameters_and_means(content: TrackedRun) -> None:
    _, steady, odd = content.entries
    assert (steady.label, odd.label) == LABELS
    assert steady.params["provider"] == "own:Generate"
    assert steady.params["options.quality"] == "high"
    assert steady.params["options.nested.size"] == "[64,48]"
    assert len(steady.params) == len(MANY) + 4
    assert (steady.metrics["pass_rate"], odd.metrics["pass_rate"]) == (1, 0)
    assert (steady.metrics["look"], steady.metrics["look:[sharp]/edge"]) == (1, 4.5)
    assert 0 < steady.metrics["look:[sharp]/edge_low"] < 4.5 < steady.metrics["look:[sharp]/edge_high"] < 5
    assert odd.metrics["failure_tags/cut off"] == 1


def test_the_name_of_a_key_is_not_sent(demo: Run) -> None:
    entry = {"provider": "openai", "label": LABELS[0], "api_key_env": "TEAM_KEY", "params": {"model": "gpt-image-2"}}
    models = demo.info.suite.model_validate(
        {"name": "x", "cases": [{"id": "a", "prompt": "p"}], "models": [entry]}
    ).models
    suite = demo.info.suite.model_copy(update={"models": models})
    steady = tracked(demo, demo.info.model_copy(update={"suite": suite})).entries[1]
    assert (steady.params["provider"], steady.params["model"]) == ("openai", "gpt-image-2")
    assert "TEAM_KEY" not in str(steady.params)


def test_what_was_not_measured_is_no_number(tmp_path: Path) -> None:
    folder = tracked_demo(tmp_path)
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(line for line in lines if '"boat"' in line))
    run = load_run("demo", runs=tmp_path, warn=lambda _: None)
    content = tracked(run)
    for entry in content.entries:
        assert not {"pass_rate", "pass_rate_low", "look", "cost/usd"} & entry.metrics.keys()
        assert entry.tags["visioneval.incomplete"] == "true"


def test_a_selected_run_says_so(tmp_path: Path) -> None:
    tracked_demo(tmp_path, selection=Selection(cases=("tree", "boat"), limit=2))
    run = load_run("demo", runs=tmp_path)
    assert tracked(run).entries[0].tags["visioneval.selection"] == ('{"cases":["tree","boat"],"limit":2}')


def test_an_experiment_can_be_named(demo: Run) -> None:
    assert tracked(demo, experiment="other").experiment == "other"
    info = demo.info.model_copy(update={"experiment": None})
    assert tracked(demo, info).experiment == "demo"


def test_the_description_lists_the_gates(content: TrackedRun) -> None:
    text = description(content)
    assert "**gate failed**: 1 PASS, 1 FAIL, 2 ERROR of 4 cells" in text
    assert "- `failed: pass_rate >= 0.9 (0.5 over 2 cells)`" in text


def test_a_gate_is_one_line() -> None:
    gate = GateFinding(rule="pass_rate == 1", scope="tags: a\nb", value=None, n=0, errors=0, state="unmeasured")
    assert gate_text(gate) == "unmeasured: pass_rate == 1 (not measured; tags: a b)"


def test_the_table_begins_with_what_did_not_pass(root: Path, demo: Run) -> None:
    table = tracked_cells(root / "demo", demo.info, 500)
    assert [row["verdict"] for row in table.rows] == ["FAIL", "ERROR", "ERROR", "PASS"]
    assert table.columns[:5] == ["case", "model run", "verdict", "reasons", "failed rules"]
    assert "gaps" not in table.columns
    failed = next(row for row in table.rows if row["verdict"] == "FAIL")
    assert failed["reasons"].startswith("look: =1+1")
    assert failed["reasons"].endswith("other: nothing to add")
    assert "\x00" not in failed["reasons"]
    assert (table.image(table.cells[0]) or b"").startswith(b"RIFF")
    assert table.left_out is None
    columns, rows = table.with_images(LABELS[0], bool, without="model run")
    assert columns[:3] == ["case", "image", "verdict"]
    assert [row[:3] for row in rows] == [["boat", False, "ERROR"], ["tree", True, "PASS"]]


@pytest.mark.parametrize("name", ["file", "file.size", "file.size.width"])
def test_reasons_of_failed_rules_come_first(name: str) -> None:
    cell = record(verdict="FAIL", failed_rules=["file.size"], reasons={"copy": "all there", name: "too small"})
    assert reasons_of(cell) == [f"{name}: too small", "copy: all there"]


def test_the_table_is_bounded(tmp_path: Path) -> None:
    folder = tracked_demo(tmp_path, extra=40)
    table = tracked_cells(folder, load_run("demo", runs=tmp_path).info, 5)
    assert [row["verdict"] for row in table.rows].count("PASS") == 2
    assert table.left_out == "the table has 5 of 44 cells, those that did not pass first (option rows)"


def test_names_that_become_the_same_stay_apart() -> None:
    values = {"a:b": 1, "a/b": 2, "abcdefg": 3, "abcdexx": 4, "": 5, "::": 6}
    assert safe_names(values, r"[^a-z]", 5) == {
        "a_b": 1, "a_b-2": 2, "abcde": 3, "abc-2": 4, "_": 5, "__": 6,
    }  # fmt: skip


def test_mlflow_accepts_all_names_and_values(content: TrackedRun) -> None:
    steady = content.entries[1]
    assert {"look__sharp_/edge", "look__sharp_/edge-2"} <= mlflow_metrics(steady.metrics).keys()
    assert set(mlflow_metrics({"/a": 1, "../b": 2, "a//c": 3, "./d": 4, "e/": 5})) == {"_a", "_b", "a__c", "__d", "e_"}
    assert len(mlflow_params(steady.params)["options.text"]) == 6_000


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_without_its_client_the_extra_is_named(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visioneval.suite.tracking.is_installed", lambda module: False)
    result = CliRunner().invoke(app, ["export", "demo", "--runs", str(root), "--to", name])
    message = f"{name} needs an extra: run pip install -e '.[{name}]' in a checkout of visioneval\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", message)


def test_a_folder_of_files_is_no_client(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TrackerError, match="wandb needs an extra"):
        track("demo", to="wandb", runs=root)


def test_a_tracker_gets_whole_runs(root: Path) -> None:
    with pytest.raises(UsageError, match="whole runs: leave out @steady"):
        track("demo@steady", to="mlflow", runs=root)


def test_any_error_of_a_client_is_one_line(demo: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise RuntimeError("first\nsecond\x1b[2J")

    monkeypatch.setattr("visioneval.suite.tracking.is_installed", lambda module: True)
    monkeypatch.setattr(mlflow, "connect", connect)
    with pytest.raises(TrackerError, match=r"^mlflow: first second\ufffd\[2J$"):
        tracking.send_to_tracker(MlflowTracking(to="mlflow"), demo.folder, demo.info, demo.summary, lambda _: None)


def test_no_address_or_error_has_a_password(demo: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "https://anna:pass-of-anna@tracker.example/runs/1"

    class Fake:
        send = staticmethod(lambda *_: None)
        finish = staticmethod(lambda: address)

    def connect(target: MlflowTracking, _: TrackedRun) -> nullcontext[Fake]:
        if target.experiment is None:
            return nullcontext(Fake())
        raise RuntimeError(f"cannot reach {address} with secret-token-of-me")

    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret-token-of-me")
    monkeypatch.setattr("visioneval.suite.tracking.is_installed", lambda module: True)
    monkeypatch.setattr(mlflow, "connect", connect)
    assert track(demo.folder, to="mlflow") == "https://tracker.example/runs/1"
    with pytest.raises(TrackerError, match=r"^mlflow: cannot reach https://tracker.example/runs/1 with \*\*\*$"):
        track(demo.folder, to="mlflow", experiment="e")


TRACKED = MlflowTracking(to="mlflow", uri="http://tracker.example:5000")
AFTER_RUN = [
    ({}, {"trust_suite": True}, ["tracking: sent"]),
    ({}, {}, ["tracking: uri: results would be sent to 'tracker.example': pass --trust-suite, or add it to "]),
    ({}, {"trust_suite": True, "offline": True}, ["tracking: --offline sends no results; to send them: "]),
    ({"state": "interrupted"}, {"trust_suite": True}, []),
    ({"state": "interrupted", "stopped_by": "budget"}, {"trust_suite": True}, ["tracking: sent"]),
    ({"selection": Selection(shard=Shard(number=1, count=2))}, {"trust_suite": True}, []),
]


@pytest.mark.parametrize(("changes", "flags", "messages"), AFTER_RUN)
def test_what_a_finished_run_sends(
    demo: Run, changes: dict[str, object], flags: dict[str, Any], messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    monkeypatch.setattr(tracking, "send_to_tracker", lambda *_: "sent")
    suite = demo.info.suite.model_copy(update={"tracking": TRACKED})
    info = demo.info.model_copy(update={"suite": suite, **changes})
    track_finished(replace(demo, info=info), run_options(**flags), printed.append)
    assert len(printed) == len(messages)
    assert all(line.startswith(start) for line, start in zip(printed, messages, strict=True)), printed


def test_a_tracker_that_is_down_is_one_line_without_keys(demo: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(*_: object) -> str:
        raise TrackerError("mlflow: refused the token secret-token-of-me")

    printed: list[str] = []
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret-token-of-me")
    monkeypatch.setattr(tracking, "send_to_tracker", send)
    suite = demo.info.suite.model_copy(update={"tracking": TRACKED})
    info = demo.info.model_copy(update={"suite": suite})
    track_finished(replace(demo, info=info), run_options(trust_suite=True), printed.append)
    assert printed == [
        "tracking: the results were not sent: mlflow: refused the token ***;"
        f" to send them: visioneval export {demo.folder} --to mlflow --option uri=http://tracker.example:5000"
    ]


def test_the_note_of_a_hostile_run_has_no_controls(content: TrackedRun) -> None:
    assert HOSTILE not in description(content)
    assert "\x1b" not in description(content)
