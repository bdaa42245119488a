"""Runs in stores: written on one machine, read by every command on another, resumed, graded and merged."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from fake_api import Fault
from stores import FaultyStore, Machines
from suite_runner import SuiteRunner

import visioneval as ve
from visioneval import RunFormatError, UsageError, read_records
from visioneval.export import mlflow
from visioneval.export.tracked import TrackedCells, TrackedEntry, TrackedRun
from visioneval.records.labels import Label
from visioneval.records.stores.lookup import find_named_run
from visioneval.records.stores.store import ObjectStore

pytestmark = pytest.mark.slow


def run(runner: SuiteRunner, runs: str, *words: str, run_id: str = "r") -> Any:
    return runner("run", runner.folder / "suite.yaml", "--runs", runs, "--run-id", run_id, *words)


def without_times(record: Any) -> dict[str, Any]:
    data = record.model_dump(exclude={"run_id", "seconds", "waited_seconds"})
    for grader in data["graders"]:
        del grader["seconds"], grader["waited_seconds"], grader["cached"], grader["cost_usd"], grader["usage"]
    return data


def test_a_run_in_a_store_is_the_run_in_a_local_folder(runner: SuiteRunner, any_runs: str, machines: Machines) -> None:
    runner.write()
    assert runner.run().exit_code == 0
    result = run(runner, any_runs)
    assert result.exit_code == 0, result.output
    assert result.output.endswith(f"run: {any_runs}/r\nnext: visioneval report {any_runs}/r --open\n")
    assert "machines" not in result.output
    machines.use("b")
    local, stored = ve.load_run("r", runs=runner.out), ve.load_run("r", runs=any_runs)
    assert sorted(map(without_times, stored.records), key=str) == sorted(map(without_times, local.records), key=str)
    assert (stored.exit_code, stored.info.state, stored.info.suite) == (0, "complete", local.info.suite)
    assert {item.key for item in ObjectStore(any_runs).walk("r/artifacts")} == {
        f"r/{path.relative_to(runner.out / 'r').as_posix()}" for path in (runner.out / "r/artifacts").rglob("*.*")
    }


@pytest.fixture
def stored(runner: SuiteRunner, runs: str, machines: Machines) -> str:
    """A complete run ``r`` in a store. The process is then another machine."""
    runner.write()
    assert run(runner, runs).exit_code == 0
    machines.use("b")
    return runs


def test_trackers_get_a_run_in_a_store_with_its_images(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[TrackedCells] = []

    class Fake:
        def send(self, entry: TrackedEntry, _: Path) -> None:
            pass

        def finish(self) -> str:
            return "sent"

    def connect(_: object, run: TrackedRun) -> nullcontext[Fake]:
        assert run.cells is not None
        tables.append(run.cells)
        return nullcontext(Fake())

    monkeypatch.setattr("visioneval.suite.tracking.is_installed", lambda module: True)
    monkeypatch.setattr(mlflow, "connect", connect)
    assert ve.track(f"{stored}/r", to="mlflow") == "sent"
    (table,) = tables
    assert [(cell.test_id, table.image(cell) is not None) for cell in table.cells] == [("tree", True), ("boat", True)]


def test_every_command_reads_a_run_in_a_store(
    runner: SuiteRunner, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = runner.folder
    (folder / "labels.csv").write_text("case,model,rater,nice\ntree,m,ann,yes\nboat,m,ann,no\n")
    commands: list[tuple[tuple[str, ...], int, str]] = [
        (("runs",), 0, "r    complete"),
        (("show", "latest"), 0, "2 PASS"),
        (("show", "r", "tree"), 0, f"{stored}/r/artifacts/tree/m/0.png"),
        (("export", "r", "-o", "cells.csv"), 0, "wrote cells.csv"),
        (("export", "r", "-o", "cells.parquet"), 0, "wrote cells.parquet"),
        (("report", "r", "-o", "pages"), 0, "wrote pages/index.html"),
        (("label", "import", "labels.csv", "r"), 0, "labels added: 2"),
        (("label", "draw", "r", "random:1"), 0, "drawn: 1 cell"),
        (("label", "export", "r"), 0, "ann,tree,m,0"),
        (("agreement", "r"), 0, "nice"),
        (("baseline", "set", "r"), 0, "wrote baselines/main.jsonl"),
        (("grade", "r", "--run-id", "graded"), 0, f"run: {stored}/graded"),
        (("compare", "r", "graded", "--html", "compare.html"), 0, "0 broken"),
        (("compare", "baseline", "graded"), 0, "0 broken"),
        (("pairwise", "r@m", "graded@m"), 0, "2 pairs with two identical images"),
        (("probe", "r", "--kinds", "pixels.blank", "--judges"), 0, "pixels.blank"),
    ]
    for words, code, text in commands:
        result = runner(*words, "--runs", stored)
        assert (result.exit_code, text in result.output) == (code, True), (words, result.output)
    assert (folder / "pages/images").is_dir() or (folder / "pages/thumbs").is_dir()
    assert "data:image" in (folder / "compare.html").read_text()
    assert not (folder / "runs").exists()
    assert not list(folder.glob("s3*"))


def test_labels_and_draws_of_one_machine_are_read_on_another(
    runner: SuiteRunner, stored: str, machines: Machines
) -> None:
    def add(rater: str) -> None:
        (runner.folder / "l.csv").write_text(f"case,model,rater,nice\ntree,m,{rater},yes\n")
        assert runner("label", "import", "l.csv", f"{stored}/r").exit_code == 0

    add("ann")
    machines.use("c")
    add("bob")
    machines.use("b")
    add("eve")
    result = runner("label", "export", f"{stored}/r")
    assert [line.split(",")[0] for line in result.stdout.splitlines()[1:]] == ["ann", "bob", "eve"]
    assert [item.key[:14] for item in ObjectStore(stored).entries("r/labels")] == ["r/labels/00000" for _ in range(3)]


def test_a_resumed_run_continues_on_another_machine(runner: SuiteRunner, runs: str, machines: Machines) -> None:
    runner.write("a", "b", "c", "d")
    stopped = run(runner, runs, "--budget", "0.11")
    assert stopped.exit_code == 3
    assert f"to resume: visioneval run --resume {runs}/r" in stopped.output
    paid = runner.called
    machines.use("b")
    before = {record.cell for record in ve.load_run(f"{runs}/r").records if record.verdict == "PASS"}
    assert before
    result = runner("run", "--resume", "r", "--runs", runs)
    assert result.exit_code == 0, result.output
    assert f"resuming {runs}/r: to generate: {4 - len(before)}" in result.output
    assert sum(runner.called) == sum(paid) + 2 * (4 - len(before)) or sum(runner.called) < 9
    machines.use("c")
    resumed = ve.load_run("r", runs=runs)
    assert (len(resumed.records), resumed.info.state, resumed.exit_code) == (4, "complete", 0)
    assert {record.cell for record in resumed.records} > before


def test_further_samples_of_a_stopped_run_continue_on_another_machine(
    runner: SuiteRunner, runs: str, machines: Machines
) -> None:
    runner.write(gates=["pass_rate >= 0.5"])
    assert run(runner, runs, "--until-decided", "--max-samples", "4", "--budget", "0.175").exit_code == 3
    machines.use("b")
    assert runner("run", "--resume", "r", "--runs", runs).exit_code == 0
    machines.use("c")
    resumed = ve.load_run("r", runs=runs)
    until = resumed.info.until_decided
    assert until is not None
    assert (len(resumed.records), until.gates[0].outcome, resumed.exit_code) == (4, "decided", 0)


def test_cells_that_left_the_suite_leave_the_run_on_every_machine(
    runner: SuiteRunner, stored: str, machines: Machines
) -> None:
    assert len(ve.load_run("r", runs=stored).records) == 2
    runner.write("tree", "house")
    result = runner("run", runner.folder / "suite.yaml", "--resume", "r", "--runs", stored)
    assert result.exit_code == 0, result.output
    assert "1 cells are no longer in the suite" in result.output
    for machine in ("b", "c"):  # one has a copy of the run before, one has not
        machines.use(machine)
        assert {record.test_id for record in ve.load_run("r", runs=stored).records} == {"tree", "house"}
    assert any(item.name.endswith(".whole.jsonl") for item in ObjectStore(stored).entries("r/results"))


def test_shards_are_merged_in_the_store(runner: SuiteRunner, any_runs: str, machines: Machines) -> None:
    runner.write("a", "b", "c", "d")
    for number in (1, 2):
        machines.use(f"shard{number}")
        result = run(runner, any_runs, "--shard", f"{number}/2", run_id=f"s{number}")
        assert result.exit_code == 0, result.output
    machines.use("last")
    result = runner("merge", "s1", f"{any_runs}/s2", "--run-id", "all", "--runs", any_runs)
    assert result.exit_code == 0, result.output
    assert f"run: {any_runs}/all" in result.output
    again = runner("merge", "s1", "s2", "--run-id", "all", "--runs", any_runs)
    assert (again.exit_code, again.stderr) == (2, f"{any_runs}/all: already exists: use another --run-id\n")
    machines.use("b")
    merged = ve.load_run("all", runs=any_runs)
    assert (len(merged.records), merged.exit_code) == (4, 0)
    keys = {item.key for item in ObjectStore(any_runs).walk("all/artifacts")}
    assert keys == {f"all/{record.artifact_path}" for record in merged.records}


def test_the_api_takes_the_same_urls(runner: SuiteRunner, runs: str, machines: Machines) -> None:
    result = ve.run(runner.write(), runs=runs, run_id="api", note="by code")
    assert result.exit_code == 0
    machines.use("b")
    loaded = ve.load_run(f"{runs}/api")
    assert (loaded.info.note, len(loaded.records)) == ("by code", 2)
    assert ve.compare(loaded, f"{runs}/api@m").exit_code == 0
    assert ve.grade("api", runs=runs, run_id="again").exit_code == 0
    assert ve.run(resume="api", runs=runs).exit_code == 0
    with pytest.raises(UsageError, match=rf"'nothing': no such run in {runs}"):
        ve.load_run("nothing", runs=runs)


def test_a_run_that_was_copied_into_a_store_is_read(runner: SuiteRunner, runs: str, machines: Machines) -> None:
    runner.write()
    assert runner.run().exit_code == 0
    store, folder = ObjectStore(runs), runner.out / "r"
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(f"copied/{path.relative_to(folder).as_posix()}", path.read_bytes())
    assert len(ve.load_run("copied", runs=runs).records) == 2
    (runner.folder / "l.csv").write_text("case,model,rater,nice\ntree,m,ann,yes\n")
    assert runner("label", "import", "l.csv", f"{runs}/copied").exit_code == 0
    runner.write("tree", "house")
    result = runner("run", runner.folder / "suite.yaml", "--resume", "copied", "--runs", runs)
    assert result.exit_code == 0, result.output
    machines.use("b")
    assert {record.test_id for record in ve.load_run("copied", runs=runs).records} == {"tree", "house"}
    assert "ann,tree" in runner("label", "export", f"{runs}/copied").stdout


def test_a_suite_cannot_choose_a_store(runner: SuiteRunner, stored: str) -> None:
    models = [{"provider": "files", "label": "old", "run": f"{stored}/r@m"}]
    result = runner("run", runner.write(models=models, prices={}), "--runs", runner.out)
    assert result.exit_code == 2
    assert "is a URL" in result.output
    runner.write(models=[{"provider": "files", "label": "old", "run": "r@m"}], prices={})
    result = run(runner, stored, run_id="files")
    assert result.exit_code == 0, result.output
    assert {record.artifact_path for record in ve.load_run("files", runs=stored).records} == {
        "artifacts/tree/old/0.png",
        "artifacts/boat/old/0.png",
    }


def test_a_lost_segment_is_reported(runner: SuiteRunner, stored: str) -> None:
    store = ObjectStore(stored)
    (segment,) = store.entries("r/results")
    store.put(segment.key.replace("000001.jsonl", "000003.jsonl"), b"{}\n")
    missing = segment.name.replace("000001.jsonl", "000002.jsonl")
    result = runner("show", "r", "--runs", stored)
    assert (result.exit_code, result.stderr) == (
        2,
        f"{stored}/r/results: the segment {missing} is missing: restore it, or run the suite again\n",
    )
    listed = runner("runs", "--runs", stored)
    assert (listed.exit_code, "r    complete" in listed.stdout, missing in listed.stderr) == (0, True, True)
    store.put("r/results/mine.jsonl", b"{}\n")
    with pytest.raises(RunFormatError, match=r"mine.jsonl: is not a segment of a run"):
        find_named_run(f"{stored}/r", Path("runs"))


def test_a_strangers_store_writes_nothing_outside_its_copy(
    runner: SuiteRunner, stored: str, machines: Machines
) -> None:
    store = ObjectStore(stored)
    store.put("r/artifacts/..\\evil.png", b"evil")
    with pytest.raises(RunFormatError, match="is not a valid path: move this object away"):
        ve.grade("r", runs=stored)
    store.put("-x/run.json", b"{}")
    assert runner("runs", "--runs", stored).exit_code == 0
    assert not list(runner.folder.rglob("*evil*"))


def test_a_deleted_run_is_gone_on_every_machine(runner: SuiteRunner, stored: str, machines: Machines) -> None:
    assert "complete" in runner("runs", "--runs", stored).stdout
    store = ObjectStore(stored)
    for item in store.walk("r"):
        store.delete(item.key)
    result = runner("runs", "--runs", stored)
    assert (result.exit_code, result.stdout) == (0, f"{stored}: no runs here\n")
    assert runner("show", "r", "--runs", stored).exit_code == 2


def test_new_records_are_added_to_a_copy_and_nothing_is_read_twice(
    runner: SuiteRunner, stored: str, s3: FaultyStore
) -> None:
    def reads() -> int:
        return sum(method == "GET" and "/results/" in path and "list-type" not in path for method, path in s3.requests)

    ve.load_run("r", runs=stored)
    first = reads()
    path = find_named_run(f"{stored}/r", Path("runs"))
    assert reads() == first > 0
    before = (path / "results.jsonl").stat()
    line = json.loads((path / "results.jsonl").read_text().splitlines()[0])
    ObjectStore(stored).put(
        "r/results/000009-0a0a0a0a-000001.jsonl", json.dumps({**line, "note": None, "sample_index": 7}).encode()
    )
    find_named_run(f"{stored}/r", Path("runs"))
    after = (path / "results.jsonl").stat()
    assert (after.st_ino, after.st_size > before.st_size) == (before.st_ino, True)


def test_a_copy_can_be_deleted_at_any_time(runner: SuiteRunner, stored: str, machines: Machines) -> None:
    folder = find_named_run(f"{stored}/r", Path("runs"))
    (folder / "results.jsonl").unlink()
    assert len(list(read_records(find_named_run(f"{stored}/r", Path("runs"))))) == 2
    shutil.rmtree(folder)
    assert len(ve.load_run("r", runs=stored).records) == 2
    assert Label is not None


def test_an_answer_that_cannot_be_used_is_in_the_store(runner: SuiteRunner, runs: str, machines: Machines) -> None:
    runner.write("tree")
    runner.api.faults.queue(Fault("no_image"))
    assert run(runner, runs).exit_code == 3
    machines.use("b")
    (record,) = ve.load_run("r", runs=runs).records
    assert b'"data":[]' in ObjectStore(runs).read(f"r/{record.reply_path}").replace(b" ", b"")
    assert runner("run", "--resume", f"{runs}/r", "--runs", runs).exit_code == 3
    assert runner.called[0] == 1
    retried = runner("run", "--resume", f"{runs}/r", "--runs", runs, "--retry-unusable")
    assert (retried.exit_code, runner.called[0]) == (0, 2), retried.output
