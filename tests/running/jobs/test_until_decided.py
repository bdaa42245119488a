"""``run --until-decided``: further samples of the cases that a gate or a comparison depends on."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from fake_api import Fault, GenerationRequest, JudgeRequest, Script
from PIL import Image
from suite_runner import SuiteRunner
from typer.testing import Result

import visioneval as ve
from visioneval import UsageError
from visioneval.records.stores.writing import read_confirmations

BOAT: dict[str, Any] = {"id": "boat", "prompt": "a boat", "tags": ["must_pass"]}
TREE: dict[str, Any] = {"id": "tree", "prompt": "a tree", "tags": ["green"]}
UNTIL = ("--until-decided", "--max-samples", "4")
CELL_USD = 0.05


class Verdicts:
    """Every image is new. Its judge passes (P), fails (F) or does not answer (E), by the letters of the prompt: the
    first for the first sample, and so on; P after the last."""

    def __init__(self, script: Script) -> None:
        self.letters: dict[str, str] = {}
        self._asked: defaultdict[str, int] = defaultdict(int)
        self.images = 0
        script.generate(self._generate)
        script.judge(self._judge)

    def set(self, **letters: str) -> None:
        self.letters = letters
        self._asked.clear()

    def _generate(self, request: GenerationRequest) -> Any:
        return [self._image() for _ in range(request.n)]

    def _image(self) -> bytes:
        self.images += 1
        out = io.BytesIO()
        Image.new("RGB", (32, 24), (self.images & 255, self.images >> 8, 7)).save(out, "PNG")
        return out.getvalue()

    def _judge(self, request: JudgeRequest) -> Any:
        name = next((name for name in self.letters if f"a {name}" in request.text), "")
        at, letters = self._asked[name], self.letters.get(name, "")
        self._asked[name] += 1
        letter = letters[at] if at < len(letters) else "P"
        if letter == "E":
            return Fault("bad_request")
        is_nice = letter == "P"
        return {"nice": is_nice, "reason": "as it is", "verdict": "PASS" if is_nice else "FAIL"}


@pytest.fixture
def verdicts(runner: SuiteRunner, script: Script) -> Verdicts:
    return Verdicts(script)


def until(runner: SuiteRunner, *flags: str | Path, run_id: str = "r") -> Result:
    return runner.run(*UNTIL, *flags, "--max-concurrency", "1", run_id=run_id)


def samples_of(runner: SuiteRunner, run_id: str = "r") -> dict[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    for test_id, _ in runner.records(run_id):
        counts[test_id] += 1
    return dict(counts)


def gates_of(runner: SuiteRunner, run_id: str = "r") -> list[tuple[int, str]]:
    record = runner.info(run_id).until_decided
    assert record is not None
    return [(gate.samples, gate.outcome) for gate in record.gates]


def summary_of(runner: SuiteRunner, run_id: str = "r") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((runner.out / run_id / "summary.json").read_text())
    return loaded


@pytest.mark.parametrize(
    ("letters", "gate", "code", "samples", "outcome"),
    [
        ("F", "pass_rate >= 0.9", 1, 1, "decided"),  # 7 of 8 would fail it too
        ("", "pass_rate >= 0.5", 0, 2, "decided"),  # 4 of 8 pass it
        ("FFFF", "pass_rate >= 0.6", 1, 4, "undecided"),
        ("FPPP", "pass_rate >= 0.8", 0, 4, "undecided"),
        ("F", "pass_rate == 1", 1, 1, "decided"),
        ("", "pass_rate == 1", 0, 4, "undecided"),
        ("", "refusal_rate <= 0.5", 0, 2, "decided"),
        ("", "rate(nice) >= 0.5", 0, 2, "decided"),
    ],
)
def test_samples_are_generated_until_the_gate_is_decided(
    runner: SuiteRunner, verdicts: Verdicts, letters: str, gate: str, code: int, samples: int, outcome: str
) -> None:
    runner.write(gates=[gate])
    verdicts.set(boat=letters)
    result = until(runner)
    assert result.exit_code == code
    assert samples_of(runner) == {"tree": samples, "boat": samples}
    assert gates_of(runner) == [(samples, outcome)]
    number = f"{samples} sample{'s' * (samples > 1)} of each case"
    assert f"decided with {number}" in result.stdout
    assert f"{8 - 2 * samples} cells fewer than with --samples 4" in result.stdout
    finding = summary_of(runner)
    assert finding["until_decided"] == {"cells": 2 * samples, "max_samples": 4, "most_cells": 8}
    assert finding["gates"][0]["samples"] == samples
    assert finding["planned_cells"] == 2 * samples
    assert verdicts.images == 2 * samples


def test_only_cases_of_open_gates_get_samples_and_other_gates_do_not_count_them(
    runner: SuiteRunner, verdicts: Verdicts
) -> None:
    """The gate over all cells passes with 1 of 2, and would fail with 2 of 5."""
    runner.write(gates=["pass_rate >= 0.12", {"rule": "pass_rate >= 0.75", "cases": ["boat"]}])
    verdicts.set(boat="PFFP", tree="F")
    result = until(runner)
    assert result.exit_code == 1
    assert samples_of(runner) == {"tree": 1, "boat": 3}
    assert gates_of(runner) == [(1, "decided"), (3, "decided")]
    assert [(gate["n"], gate["state"]) for gate in summary_of(runner)["gates"][:2]] == [(2, "passed"), (3, "failed")]
    shown = runner("show", runner.out / "r")
    assert "decided with 3 samples of each case" in shown.stdout
    assert shown.exit_code == 0


def test_a_tag_a_model_and_a_case_narrow_what_is_generated(runner: SuiteRunner, verdicts: Verdicts) -> None:
    runner.write(gates=[{"rule": "pass_rate >= 0.5", "tags": ["green"]}], cases=[TREE, BOAT])
    assert until(runner, run_id="a").exit_code == 0
    assert samples_of(runner, "a") == {"tree": 2, "boat": 1}
    assert until(runner, "--case", "tree", run_id="b").exit_code == 0
    assert samples_of(runner, "b") == {"tree": 2}
    refused = until(runner, "--case", "boat", run_id="c")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "no case is in its scope" in refused.stderr


def test_the_first_look_has_the_samples_of_the_run(runner: SuiteRunner, verdicts: Verdicts) -> None:
    runner.write(gates=["pass_rate >= 0.6"])
    verdicts.set(boat="FFFF")
    assert until(runner, "--samples", "3").exit_code == 1
    assert samples_of(runner) == {"tree": 4, "boat": 4}
    verdicts.set()
    assert until(runner, "--samples", "3", run_id="s").exit_code == 0
    assert gates_of(runner, "s") == [(3, "decided")]


def test_calls_with_several_images_count_as_samples(runner: SuiteRunner, verdicts: Verdicts) -> None:
    host = {"base_url": runner.api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    entry = {"provider": "openai", "label": "m", "params": {"model": "gpt-image-2", "n": 2}, **host}
    runner.write("tree", gates=["pass_rate >= 0.5"], models=[entry])
    assert until(runner).exit_code == 0
    assert samples_of(runner) == {"tree": 4}
    assert gates_of(runner) == [(2, "decided")]


def test_turns_and_cases_with_the_same_output_are_one_unit(runner: SuiteRunner, verdicts: Verdicts) -> None:
    again = {"id": "again", "prompt": "a tree", "output_of": "tree"}
    turns = {"id": "hut", "images": ["base.png"], "turns": ["a hut", "a hut in snow"]}
    Image.new("RGB", (32, 24)).save(runner.folder / "base.png")
    runner.write(gates=[{"rule": "pass_rate >= 0.5", "cases": ["again", "hut"]}], cases=[TREE, again, turns])
    assert until(runner).exit_code == 0
    assert samples_of(runner) == {"tree": 2, "again": 2, "hut/1": 2, "hut/2": 2}


def test_errors_end_it(runner: SuiteRunner, verdicts: Verdicts) -> None:
    runner.write(gates=["pass_rate >= 0.5"])
    verdicts.set(boat="EEE")
    assert until(runner).exit_code == 3
    assert samples_of(runner) == {"tree": 1, "boat": 1}
    assert gates_of(runner) == [(1, "unmeasured")]


def test_a_bound_that_no_samples_can_decide(runner: SuiteRunner, verdicts: Verdicts) -> None:
    runner.write(gates=[{"rule": "pass_rate >= 0.5", "decide": "bound"}])
    result = until(runner)
    assert result.exit_code == 3
    assert samples_of(runner) == {"tree": 1, "boat": 1}
    assert gates_of(runner) == [(1, "between_cases")]
    assert "its cases are too few or differ too much: more of them can decide it" in " ".join(result.stdout.split())


def test_a_spent_budget_cannot_tell_and_a_resumed_run_ends_as_one_that_was_not_stopped(
    runner: SuiteRunner, verdicts: Verdicts
) -> None:
    runner.write(gates=["pass_rate >= 0.5"])
    assert until(runner, run_id="whole").exit_code == 0
    stopped = until(runner, "--budget", str(3.5 * CELL_USD), run_id="cut")
    assert stopped.exit_code == 3
    assert "the budget is used up" in stopped.stderr
    assert "fewer than with" not in stopped.stdout
    assert summary_of(runner, "cut")["gates"][0]["state"] == "cannot_tell"
    assert gates_of(runner, "cut") == [(1, "open")]
    resumed = runner("run", "--resume", runner.out / "cut")
    assert resumed.exit_code == 0
    assert "4 cells fewer than with --samples 4" in resumed.stdout
    assert samples_of(runner, "cut") == samples_of(runner, "whole")
    whole, cut = (runner.info(name).until_decided for name in ("whole", "cut"))
    assert whole == cut
    assert runner.info("cut").planned_cells == 4
    whole_gates, cut_gates = (summary_of(runner, name)["gates"] for name in ("whole", "cut"))
    assert whole_gates == cut_gates
    assert verdicts.images == 8


def test_a_finished_run_gets_further_samples_when_it_is_resumed(runner: SuiteRunner, verdicts: Verdicts) -> None:
    runner.write(gates=["pass_rate >= 0.5"])
    assert runner.run().exit_code == 0
    assert runner("run", "--resume", runner.out / "r", *UNTIL).exit_code == 0
    assert gates_of(runner) == [(2, "decided")]


def test_offline_generates_only_what_the_cache_has(runner: SuiteRunner, verdicts: Verdicts, tmp_path: Path) -> None:
    runner.write(gates=["pass_rate >= 0.5"])
    first = ("--cache", tmp_path / "first")
    assert runner.run(*first, run_id="one").exit_code == 0
    lacking = until(runner, *first, "--offline", run_id="two")
    assert lacking.exit_code == 3
    assert "offline: the cache has no further sample of 'tree' on 'm': nothing more is generated" in lacking.stderr
    assert "fewer than with" not in lacking.stdout
    assert samples_of(runner, "two") == {"tree": 1, "boat": 1}
    assert summary_of(runner, "two")["gates"][0]["state"] == "cannot_tell"
    whole = ("--cache", tmp_path / "whole")
    assert until(runner, *whole, run_id="three").exit_code == 0
    images = verdicts.images
    assert until(runner, *whole, "--offline", run_id="four").exit_code == 0
    assert gates_of(runner, "four") == gates_of(runner, "three")
    assert verdicts.images == images


@pytest.mark.parametrize(
    ("suite", "flags", "message"),
    [
        ({"gates": ["pass_rate >= 0.5"]}, ("--shard", "1/2"), "leave out --shard"),
        ({"gates": ["pass_rate >= 0.5"]}, ("--ray",), "leave out --ray"),
        ({"gates": ["pass_rate >= 0.5"]}, ("--samples", "4"), "use --max-samples 5 or more"),
        ({"gates": ["pass_rate >= 0.5"]}, ("--baseline", "gone"), "no such baseline"),
        ({}, (), "the suite has no gates"),
        ({"gates": ["error_rate <= 0.1"]}, (), "it is about errors"),
        ({"gates": ["mean(seconds) <= 9"]}, (), "its metric has no range"),
        ({"gates": ["pass_rate != 0.5"]}, (), "no limit on one side"),
        (
            {
                "gates": ["pass_rate >= 0.5"],
                "models": [{"provider": "files", "label": "old", "path": "{case}.png"}],
                "prices": {},
            },
            (),
            "'old' reads existing outputs",
        ),
    ],
)
def test_what_no_sample_can_decide_is_refused(
    runner: SuiteRunner, verdicts: Verdicts, suite: dict[str, Any], flags: tuple[str, ...], message: str
) -> None:
    runner.write(**suite)
    for name in ("tree", "boat"):
        Image.new("RGB", (8, 8)).save(runner.folder / f"{name}.png")
    result = until(runner, *flags)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr
    assert not runner.out.exists()
    if "--baseline" not in flags:
        planned = runner("run", runner.folder / "suite.yaml", "--dry-run", *UNTIL, *flags)
        assert (planned.exit_code, message in planned.stderr) == (2, True)


@pytest.mark.parametrize("flags", [("--max-samples", "4"), ("--baseline", "main")])
def test_flags_that_need_another(runner: SuiteRunner, flags: tuple[str, str]) -> None:
    runner.write(gates=["pass_rate >= 0.5"])
    result = runner.run(*flags)
    assert (result.exit_code, f"{flags[0]} needs --until-decided" in result.stderr) == (2, True)


def test_a_graded_run_has_the_same_samples(runner: SuiteRunner, verdicts: Verdicts) -> None:
    """Its gates count the samples that decide them."""
    runner.write(gates=["pass_rate >= 0.12", {"rule": "pass_rate >= 0.75", "cases": ["boat"]}])
    verdicts.set(boat="PFFP", tree="F")
    until(runner)
    assert runner("grade", runner.out / "r", "--runs", runner.out, "--run-id", "g").exit_code == 1
    assert samples_of(runner, "g") == {"tree": 1, "boat": 3}
    gates = summary_of(runner, "g")["gates"]
    assert [(gate["n"], gate["samples"], gate["state"]) for gate in gates[:2]] == [(2, 1, "passed"), (3, 3, "failed")]
    assert summary_of(runner, "g")["until_decided"] is None
    assert gates_of(runner, "g") == gates_of(runner, "r")


def test_an_open_gate_cannot_tell_after_grading_either(runner: SuiteRunner, verdicts: Verdicts) -> None:
    """The value of its samples passes, but they do not decide it, and ``grade`` generates no others."""
    runner.write(gates=["pass_rate >= 0.5"])
    assert runner.run(run_id="one").exit_code == 0
    assert until(runner, "--offline").exit_code == 3
    graded = runner("grade", runner.out / "r", "--runs", runner.out, "--run-id", "g")
    assert graded.exit_code == 3
    assert "not decided with 1 sample of each case, of at most 4" in " ".join(graded.stdout.split())
    assert gates_of(runner, "g") == [(1, "open")]
    runner.write(gates=["pass_rate >= 0.1"])
    looser = runner(
        "grade", runner.out / "r", "--suite", runner.folder / "suite.yaml", "--runs", runner.out, "--run-id", "h"
    )
    assert looser.exit_code == 0


@pytest.fixture
def baseline(runner: SuiteRunner, verdicts: Verdicts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline in which everything passes."""
    monkeypatch.chdir(runner.folder.parent)
    runner.write(cases=[BOAT, TREE])
    assert runner.run(run_id="a").exit_code == 0
    assert runner("baseline", "set", runner.out / "a").exit_code == 0


@pytest.mark.usefixtures("baseline")
@pytest.mark.parametrize(("letters", "code", "new"), [("FPPP", 3, 6), ("FFFF", 1, 2), ("P", 0, 0)])
def test_a_comparison_with_a_baseline_is_decided_by_new_samples(
    runner: SuiteRunner, verdicts: Verdicts, letters: str, code: int, new: int
) -> None:
    verdicts.set(boat=letters)
    result = until(runner, "--baseline", "main", run_id="c")
    assert "must_pass" in result.stdout
    assert len(read_confirmations(runner.out / "c")) == new
    assert samples_of(runner, "c") == {"tree": 1, "boat": 1}
    assert ("new samples did not confirm it: boat" in " ".join(result.stdout.split())) is (letters == "FPPP")
    assert result.exit_code == code


@pytest.mark.usefixtures("baseline")
def test_gates_and_a_comparison_share_the_budget_and_the_severest_exit_code_counts(
    runner: SuiteRunner, verdicts: Verdicts
) -> None:
    runner.write(cases=[BOAT, TREE], gates=["pass_rate >= 0.12"])
    verdicts.set(boat="FFFF")
    assert until(runner, "--baseline", "main", "--budget", str(2.5 * CELL_USD), run_id="b").exit_code == 3
    assert summary_of(runner, "b")["exit_code"] == 0
    verdicts.set(boat="FFFF")
    assert until(runner, "--baseline", "main", "--budget", str(9 * CELL_USD), run_id="c").exit_code == 1


@pytest.mark.usefixtures("baseline")
def test_a_comparison_reads_the_first_look_and_new_samples_come_after_all_others(
    runner: SuiteRunner, verdicts: Verdicts
) -> None:
    runner.write(cases=[BOAT, TREE], gates=[{"rule": "pass_rate >= 0.5", "cases": ["tree"]}])
    verdicts.set(boat="FPPP")
    until(runner, "--baseline", "main", run_id="b")
    assert samples_of(runner, "b") == {"tree": 2, "boat": 1}
    own = {sample for _, sample in runner.records("b")}
    new = {cell.sample_index for cell in read_confirmations(runner.out / "b")}
    assert (own, new) == ({0, 1}, {2, 3})
    compared = runner("compare", "baseline", runner.out / "b", "--json")
    assert json.loads(compared.stdout)["b"]["cells"] == 2
    assert runner("baseline", "set", runner.out / "b", "--name", "of_b").exit_code == 0
    lines = Path("baselines/of_b.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 2
    again = runner("compare", "baseline:of_b", runner.out / "a")
    assert "missing" not in again.stderr
    assert again.exit_code == 0


@pytest.mark.usefixtures("baseline")
def test_python_api(runner: SuiteRunner, verdicts: Verdicts) -> None:
    path = runner.write(cases=[BOAT, TREE], gates=["pass_rate >= 0.5"])
    run = ve.run(path, until_decided=True, max_samples=4, baseline="main", runs=runner.out)
    assert run.exit_code == 0
    assert run.summary.until_decided is not None
    assert run.comparison is not None
    assert [gate.state for gate in run.comparison.gates][:3] == ["not_applicable", "passed", "passed"]
    plan = ve.plan(path, until_decided=True, max_samples=4)
    assert plan.until is not None
    assert (plan.until.most_cells, plan.estimate.cells) == (8, 2)
    with pytest.raises(UsageError, match="--max-samples needs --until-decided"):
        ve.plan(path, max_samples=4)


def test_a_plan_says_what_it_costs_at_most_and_on_average(runner: SuiteRunner) -> None:
    path = runner.write(gates=["pass_rate >= 0.5"])
    shown = runner("plan", path, *UNTIL)
    assert "at most 8 images (0.40 USD), on average about" in " ".join(shown.stdout.split())
    data = json.loads(runner("plan", path, *UNTIL, "--json").stdout)["until_decided"]
    assert (data["most_cells"], data["most_usd"]) == (8, pytest.approx(8 * CELL_USD))
    assert 2 <= data["average_cells"] <= 8
    assert data["average_usd"] == pytest.approx(CELL_USD * data["average_cells"], abs=CELL_USD)
    assert "until decided" not in runner("plan", path).stdout
