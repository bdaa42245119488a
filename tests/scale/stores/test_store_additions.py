"""What is added to a run in a store after it has ended: new samples, preferences and labels."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest
from fake_api import JudgeRequest
from PIL import Image
from stores import Machines
from suite_runner import SuiteRunner

from visioneval.label.labeling import Labeling
from visioneval.label.work import LabelRequest, prepare
from visioneval.records.stores.claims import RunClaim, read_claim
from visioneval.records.stores.lookup import copies_at, runs_folder
from visioneval.records.stores.store import ObjectStore

pytestmark = pytest.mark.slow


def run(runner: SuiteRunner, runs: str, *words: str, run_id: str) -> Any:
    return runner("run", runner.folder / "suite.yaml", "--runs", runs, "--run-id", run_id, *words)


def test_confirmations_are_stored_in_the_store(runner: SuiteRunner, runs: str, machines: Machines) -> None:
    runner.write(cases=[{"id": "a", "prompt": "a tree", "tags": ["must_pass"]}])
    assert run(runner, runs, run_id="before").exit_code == 0
    runner.api.script.judge({"nice": False, "reason": "no", "verdict": "FAIL"})
    assert run(runner, runs, "--reuse", "none", run_id="after").exit_code == 1
    machines.use("b")
    words = ("compare", "before", "after", "--runs", runs, "--confirm", "2")
    result = runner(*words)
    assert result.exit_code == 1, result.output
    assert "broke: a (failed " in result.output, result.output
    called = runner.called
    machines.use("c")
    assert runner(*words).exit_code == 1
    assert runner.called == called
    assert not Path("runs").exists()
    assert len(ObjectStore(runs).walk("after/confirmations")) >= 1


@pytest.fixture
def two_models(runner: SuiteRunner, runs: str, machines: Machines) -> str:
    """A run with a red and a blue output of each case."""
    for label in ("red", "blue"):
        (runner.folder / label).mkdir()
        for at in range(2):
            image = Image.new("RGB", (32, 24 + at), label)
            image.paste("green", (8, 8, 20, 16))
            image.save(runner.folder / label / f"c{at}.png")
    models = [{"provider": "files", "label": label, "path": f"{label}/{{case}}.png"} for label in ("red", "blue")]
    graders = [{"key": "file", "type": "properties"}]
    prices = {"openai:gpt-5.4": {"per_call": 0.01}}
    runner.write("c0", "c1", models=models, graders=graders, verdict=["file"], prices=prices)
    assert run(runner, runs, run_id="r").exit_code == 0
    return runs


@pytest.mark.parametrize(
    ("flag", "is_everything"), [(("--thumbnails", "thumbs"), False), (("--html", "compare.html"), True)]
)
def test_thumbnails_download_only_what_they_show(
    runner: SuiteRunner,
    runs: str,
    machines: Machines,
    flag: tuple[str, str],
    is_everything: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    cases = [{"id": name, "prompt": name, "expect": {"size": "32x24"}} for name in ("broke", "fine")]
    models = [{"provider": "files", "label": "m", "path": "{case}.png"}]
    graders = [{"key": "file", "type": "properties"}]
    runner.write(cases=cases, models=models, graders=graders, verdict=["file"], prices={})
    for name in ("broke", "fine"):
        image = Image.new("RGB", (32, 24), "red")
        image.paste("green", (8, 8, 20, 16))
        image.save(runner.folder / f"{name}.png")
    assert run(runner, runs, run_id="before").exit_code == 0
    Image.new("RGB", (16, 16), "blue").save(runner.folder / "broke.png")
    assert run(runner, runs, run_id="after").exit_code == 1
    folder = machines.use("b")
    result = runner("compare", "before", "after", "--runs", runs, "--markdown", "comment.md", *flag)
    assert "1 broken" in result.output, result.output
    assert Path(flag[1]).is_file() or len(list(Path(flag[1]).iterdir())) == 1
    for name in ("before", "after"):
        downloaded = {path.parts[-3] for path in folder.glob(f"stores/*/runs/{name}/artifacts/*/*/*")}
        assert downloaded == ({"broke", "fine"} if is_everything else {"broke"}), name


def test_preferences_are_asked_once_for_all_machines(runner: SuiteRunner, two_models: str, machines: Machines) -> None:
    def answer(request: JudgeRequest) -> Any:
        return {"reason": "it comes first", "answer": "A"}

    runner.api.script.judge(answer)
    words = ("pairwise", "r@red", "r@blue", "--runs", two_models)
    for machine in ("b", "c"):
        machines.use(machine)
        result = runner(*words)
        assert result.exit_code == 0, result.output
        assert runner.called[1] == 4
    machines.use("d")
    result = runner(*words, "--reuse", "none")
    assert (result.exit_code, runner.called[1]) == (0, 8)
    machines.use("e")
    ranked = runner("rank", "r", "--runs", two_models)
    assert ranked.exit_code == 0, ranked.output
    claim = read_claim(ObjectStore(two_models), "r")
    assert claim is not None
    assert claim.body.state == "released"


def test_a_run_that_is_written_takes_labels_but_no_preferences(
    runner: SuiteRunner, two_models: str, machines: Machines
) -> None:
    claim = RunClaim.acquire(ObjectStore(two_models), "r")
    machines.use("b")
    result = runner("pairwise", "r@red", "r@blue", "--runs", two_models)
    assert (result.exit_code, runner.called) == (2, (0, 0))
    assert "is being written by process" in result.stderr
    (runner.folder / "l.csv").write_text("case,model,rater,usable\nc0,red,ann,yes\n")
    assert "labels added: 1" in runner("label", "import", "l.csv", "r", "--runs", two_models).output
    claim.release()
    assert runner("run", "--resume", "r", "--runs", two_models).exit_code == 0
    machines.use("c")
    assert "ann,c0,red" in runner("label", "export", "r", "--runs", two_models).stdout


def test_the_label_page_saves_each_answer_in_the_store(
    runner: SuiteRunner, two_models: str, machines: Machines
) -> None:
    machines.use("b")
    task = prepare(LabelRequest("r@red", runs_folder(two_models), seed=1))
    labeling = Labeling(task)
    item = labeling.next("ann")["item"]
    values = {ask["key"]: True for ask in item["asks"] if ask["type"] == "yes_no"}
    assert labeling.answer("ann", item["id"], values, 1.0)["done"] == 1
    stored = ObjectStore(two_models).entries("r/labels")
    assert len(stored) == 1
    machines.use("c")
    assert "ann,c" in runner("label", "export", "r", "--runs", two_models).stdout
    again = Labeling(prepare(LabelRequest("r@red", runs_folder(two_models), seed=1)))
    assert again.next("ann")["done"] == 1


def test_answers_on_two_machines_keep_their_order(runner: SuiteRunner, two_models: str, machines: Machines) -> None:
    folders = []
    for machine in ("b", "c", "d"):
        machines.use(machine)
        copies = copies_at(runs_folder(two_models))
        assert copies is not None
        copies.refresh("r")
        folders.append(copies)
    for number, copies in enumerate((*folders[:2], *folders[:2], folders[1], folders[0])):
        copies.append("r", "labels", [str(number).encode()])
    for copies in folders:
        assert (copies.refresh("r") / "labels.jsonl").read_text().split() == ["0", "1", "2", "3", "4", "5"]


def test_a_process_that_still_writes_on_this_machine_keeps_its_folder(
    runner: SuiteRunner, two_models: str, machines: Machines
) -> None:
    """Its claim has expired, as after the machine slept."""
    assert runner("run", "--resume", "r", "--runs", two_models).exit_code == 0
    copies = copies_at(runs_folder(two_models))
    assert copies is not None
    with (copies.work / "r/results.jsonl").open("rb") as results:
        fcntl.flock(results, fcntl.LOCK_EX)
        result = runner("run", "--resume", "r", "--runs", two_models)
    assert result.exit_code == 2
    assert "another visioneval process is writing this run" in result.stderr
    assert runner("run", "--resume", "r", "--runs", two_models).exit_code == 0
