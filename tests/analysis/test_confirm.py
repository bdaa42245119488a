"""``compare --confirm``: must_pass cases that broke are generated again, and judged with the new samples."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from fake_api import Fault, GenerationRequest, JudgeRequest, Script
from gecko_script import judge
from PIL import Image
from suite_runner import LOOK, SuiteRunner
from toys import Toy
from typer.testing import Result

import visioneval as ve
from visioneval import Record, UsageError, read_info
from visioneval.records.stores.writing import NAME, open_confirmations, read_confirmations

pytestmark = pytest.mark.slow

BOAT: dict[str, Any] = {"id": "boat", "prompt": "a boat", "tags": ["must_pass"]}
CAR: dict[str, Any] = {"id": "car", "prompt": "a car", "tags": ["must_pass"]}
TREE: dict[str, Any] = {"id": "tree", "prompt": "a tree"}


class Answers:
    """Every image is new, and the judge passes (P) or fails (F) the images of a prompt in the order of the letters."""

    def __init__(self, script: Script) -> None:
        self.letters: dict[str, list[str]] = defaultdict(list)
        self.images = 0
        self.faults: list[Fault] = []
        self.judge_faults: list[Fault] = []
        script.generate(self._generate)
        script.judge(self._judge)

    def set(self, **letters: str) -> None:
        self.letters.clear()
        self.letters.update({prompt: list(text) for prompt, text in letters.items()})

    def _generate(self, request: GenerationRequest) -> Any:
        if self.faults:
            return self.faults.pop(0)
        return [self._image() for _ in range(request.n)]

    def _image(self) -> bytes:
        self.images += 1
        out = io.BytesIO()
        Image.new("RGB", (32, 24), (self.images & 255, self.images >> 8, 7)).save(out, "PNG")
        return out.getvalue()

    def _judge(self, request: JudgeRequest) -> Any:
        if self.judge_faults:
            return self.judge_faults.pop(0)
        letters = next((left for name, left in self.letters.items() if f"a {name}" in request.text and left), ["P"])
        is_nice = letters.pop(0) == "P"
        return {"nice": is_nice, "reason": "as it is", "verdict": "PASS" if is_nice else "FAIL"}


@pytest.fixture
def answers(runner: SuiteRunner, script: Script) -> Answers:
    return Answers(script)


def two_runs(
    runner: SuiteRunner, answers: Answers, *flags: str, cases: Sequence[Any] = (BOAT, TREE), **suite: Any
) -> None:
    """Runs ``a``, in which everything passes, and ``b``, in which boats fail."""
    runner.write(cases=list(cases), **suite)
    answers.set()
    assert runner.run("--quiet", *flags, run_id="a").exit_code == 0
    answers.set(boat="F" * 50)
    assert runner.run("--quiet", *flags, run_id="b").exit_code in (0, 1)


def compare(runner: SuiteRunner, *arguments: str, a: str = "a", b: str = "b") -> Result:
    return runner("compare", a, b, "--runs", str(runner.out), "--fail-on", "must_pass", *arguments)


def gate_of(result: Result) -> dict[str, Any]:
    gates = {gate["fail_on"]: gate for gate in json.loads(result.stdout)["gates"]}
    return dict(gates["must_pass"])


def new_records(runner: SuiteRunner, run_id: str = "b") -> list[Record]:
    return sorted(read_confirmations(runner.out / run_id), key=lambda record: record.cell)


@pytest.mark.parametrize(
    ("letters", "code", "text", "samples"),
    [
        ("FPF", 1, "1 of 1 case tagged must_pass broke: boat (failed 3 of 4)", 3),
        ("PFPP", 0, "0 of 1 case tagged must_pass broke; 1 broke, but new samples did not confirm it: boat (failed 2 of 5)", 4),
    ],
)  # fmt: skip
def test_a_broken_case_is_judged_with_new_samples(
    runner: SuiteRunner, answers: Answers, letters: str, code: int, text: str, samples: int
) -> None:
    two_runs(runner, answers)
    before, generated = (runner.out / "b" / "results.jsonl").read_bytes(), runner.called
    answers.set(boat=letters)
    result = compare(runner, "--confirm", "4", "--json")
    assert result.exit_code == json.loads(result.stdout)["exit_code"] == code, result.output
    assert text in gate_of(result)["message"]
    assert (runner.called[0] - generated[0], runner.called[1] - generated[1]) == (samples, samples)
    records = new_records(runner)
    assert [record.cell for record in records] == [("boat", "m", sample) for sample in range(1, samples + 1)]
    assert len({record.artifact_sha256 for record in [*records, *runner.records("b").values()]}) == samples + 2
    assert {record.run_id for record in records} == {"b"}
    assert all((runner.out / "b" / str(record.artifact_path)).is_file() for record in records)
    assert (runner.out / "b" / "results.jsonl").read_bytes() == before
    assert "confirming 1 uncertain case with up to 4 new samples each" in result.stderr
    counts = f"{letters.count('P')} pass {letters.count('F')} fail 0 error, {samples * 0.05:.4f} USD"
    assert f"new samples: {counts}" in result.stderr


def test_nothing_is_generated_where_nothing_broke(
    runner: SuiteRunner, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.write(cases=[BOAT, TREE])
    assert [runner.run("--quiet", run_id=name).exit_code for name in "ab"] == [0, 0]
    called = runner.called
    monkeypatch.delenv("LOCAL_KEY")
    assert compare(runner, "--confirm", "4").exit_code == 0
    assert runner.called == called
    assert not (runner.out / "b" / NAME).exists()


def test_existing_new_samples_are_used_again(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers)
    answers.set(boat="PFPP")
    assert compare(runner, "--confirm", "4").exit_code == 0
    called, lines = runner.called, (runner.out / "b" / NAME).read_bytes()
    again = compare(runner, "--confirm", "4", "--json")
    assert (again.exit_code, gate_of(again)["cases"][0]["new"]) == (0, {"passed": 3, "failed": 1, "errors": 0})
    assert compare(runner, "--confirm", "2").exit_code == 0  # all four count: a smaller number cannot choose among them
    assert (runner.called, (runner.out / "b" / NAME).read_bytes()) == (called, lines)
    assert "confirming" not in again.stderr
    answers.set(boat="FFFFF")  # up to nine: two failed of five, three more decide
    assert compare(runner, "--confirm", "8").exit_code == 1
    assert [record.sample_index for record in new_records(runner)] == [1, 2, 3, 4, 5, 6, 7]


def test_without_confirm_only_the_samples_of_the_run_count(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers)
    (runner.out / "b" / NAME).touch()
    assert "--confirm" not in compare(runner).stdout
    answers.set(boat="PPP")
    assert compare(runner, "--confirm", "4").exit_code == 0
    result = compare(runner)
    assert result.exit_code == 1
    assert "B has new samples from an earlier --confirm: not used here" in result.stdout
    assert "boat (failed 1 of 1)" in " ".join(result.stdout.split())
    assert "earlier --confirm" not in compare(runner, "--confirm", "4").stdout


def test_flaky_cases_are_not_confirmed(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers, cases=[{**BOAT, "flaky": True}, TREE])
    called = runner.called
    result = compare(runner, "--confirm", "4")
    assert (result.exit_code, runner.called) == (3, called)
    assert "no gate could fail" in " ".join(result.output.split())


def host(runner: SuiteRunner) -> dict[str, str]:
    return {"base_url": runner.api.openai_base_url, "api_key_env": "LOCAL_KEY"}


def model(runner: SuiteRunner, label: str, **params: Any) -> dict[str, Any]:
    return {"provider": "openai", "label": label, "params": {"model": "gpt-image-2", **params}, **host(runner)}


def test_each_model_run_is_confirmed(runner: SuiteRunner, answers: Answers) -> None:
    """Also one of them alone."""
    models = [model(runner, "x"), model(runner, "y", quality="low")]
    two_runs(runner, answers, models=models)
    assert compare(runner, "--confirm", "4", a="a@x", b="b@y").exit_code == 1
    assert {record.model_label for record in new_records(runner)} == {"y"}
    result = compare(runner, "--confirm", "4", "--json")
    assert "2 of 2 cases tagged must_pass broke: boat on x (failed 3 of 3), boat on y" in gate_of(result)["message"]
    assert {record.cell for record in new_records(runner)} == {("boat", run, at) for run in "xy" for at in (1, 2)}
    sent = [entry.asked.params for entry in runner.api.requests if isinstance(entry.asked, GenerationRequest)]
    assert [params.get("quality") for params in sent[-4:]].count("low") == 2


def test_renamed_model_runs_are_confirmed(runner: SuiteRunner, answers: Answers) -> None:
    runner.write(cases=[BOAT], models=[model(runner, "old"), model(runner, "z")])
    assert runner.run("--quiet", run_id="a").exit_code == 0
    runner.write(cases=[BOAT], models=[model(runner, "new"), model(runner, "z")])
    answers.set(boat="FF")
    runner.run("--quiet", run_id="b")
    answers.set(boat="FFFF")
    result = compare(runner, "--confirm", "4", "--map", "old=new")
    assert result.exit_code == 1
    assert {record.model_label for record in new_records(runner)} == {"new", "z"}


def test_calls_with_several_images_are_generated_whole(runner: SuiteRunner, answers: Answers) -> None:
    runner.write(cases=[BOAT], models=[model(runner, "m", n=3)])
    assert runner.run("--quiet", run_id="a").exit_code == 0
    answers.set(boat="FFF")
    runner.run("--quiet", run_id="b")
    generations = runner.called[0]
    answers.set(boat="PPPP")
    result = compare(runner, "--confirm", "4", "--json")
    assert gate_of(result)["cases"][0]["new"] == {"passed": 4, "failed": 0, "errors": 0}
    assert (result.exit_code, runner.called[0] - generations) == (0, 2)
    assert [record.sample_index for record in new_records(runner)] == [3, 4, 5, 6]


def test_cases_that_share_an_output_are_confirmed_with_it(runner: SuiteRunner, answers: Answers) -> None:
    counter = {"id": "counter", "prompt": "a car", "output_of": "boat", "tags": ["must_pass"]}
    runner.write(cases=[{**BOAT, "tags": []}, counter])
    assert runner.run("--quiet", run_id="a").exit_code == 0
    answers.set(car="F")
    runner.run("--quiet", run_id="b")
    answers.set(car="FF")
    result = compare(runner, "--confirm", "4", "--json")
    assert "counter (failed 3 of 3)" in gate_of(result)["message"]
    assert {record.cell[::2] for record in new_records(runner)} == {
        (name, sample) for name in ("boat", "counter") for sample in (1, 2)
    }


def test_selected_runs_are_confirmed_as_they_were_run(runner: SuiteRunner, answers: Answers) -> None:
    second = {**LOOK, "key": "other", "metrics": {"fine": {"type": "pass_fail", "description": "it is fine"}}}
    runner.write(cases=[TREE, BOAT, CAR], graders=[LOOK, second], verdict=["nice"])
    flags = ("--grader", "look", "--limit", "2")
    assert runner.run("--quiet", *flags, run_id="a").exit_code == 0
    answers.set(boat="F")
    runner.run("--quiet", *flags, run_id="b")
    answers.set(boat="FF")
    assert compare(runner, "--confirm", "4").exit_code == 1
    assert [[grader.key for grader in record.graders] for record in new_records(runner)] == [["look"], ["look"]]


def test_the_stored_suite_counts(runner: SuiteRunner, answers: Answers) -> None:
    (runner.folder / "mine").mkdir()
    (runner.folder / "mine" / "rubric.j2").write_text(
        "Judge {{ case.prompt }} by {{ case.criteria }}: {{ metrics }} {{ vars.mood }}"
    )
    suite = {"vars": {"mood": "calm"}, "graders": [LOOK]}
    two_runs(runner, answers, "--var", "mood=wild", **suite)
    runner.write("other", vars={"mood": "odd"}, models=[model(runner, "m", quality="high")])
    answers.set(boat="FF")
    assert compare(runner, "--confirm", "4").exit_code == 1
    before = runner.records("b")["boat", 0]
    for record in new_records(runner):
        assert (record.prompt, record.run_params, record.grade_key) == (
            before.prompt,
            before.run_params,
            before.grade_key,
        )
        assert record.generation_key.rpartition(":")[0] == before.generation_key.rpartition(":")[0]


def test_a_changed_input_is_refused(runner: SuiteRunner, answers: Answers) -> None:
    Image.new("RGB", (32, 24), "red").save(runner.folder / "base.png")
    two_runs(runner, answers, cases=[{**BOAT, "images": ["base.png"]}])
    Image.new("RGB", (32, 24), "blue").save(runner.folder / "base.png")
    called = runner.called
    result = compare(runner, "--confirm", "4")
    assert (result.exit_code, runner.called) == (2, called)
    assert "images of 'boat' on 'm' changed since" in result.stderr
    assert result.stderr.count("\n") == 1


def test_outdated_new_samples_do_not_count(runner: SuiteRunner, answers: Answers) -> None:
    """The run was resumed with another prompt, or with more samples: its new samples are not like its own."""
    two_runs(runner, answers)
    answers.set(boat="PPP")
    assert compare(runner, "--confirm", "4").exit_code == 0
    path = runner.write(cases=[{**BOAT, "prompt": "a boat at sea"}, TREE])
    answers.set(boat="F")
    assert runner("run", path, "--runs", runner.out, "--resume", "b", "--quiet").exit_code in (0, 1)
    answers.set(boat="FF")
    assert compare(runner, "--confirm", "4").exit_code == 1
    assert [record.prompt for record in new_records(runner)] == ["a boat at sea"] * 2 + ["a boat"]


def one_line(result: Result, code: int, text: str) -> None:
    assert result.exit_code == code, result.output
    assert text in result.stderr
    assert result.stderr.count("\n") == 1, result.stderr


def test_wrong_usage(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers)
    called = runner.called
    for arguments, text in (
        (["--confirm", "0"], "0"),
        (["--confirm", "101"], "101"),
        (["--confirm", "many"], "many"),
        (["--offline"], "--offline: only for new samples, so only with --confirm"),
        (["--budget", "1", "--trust-suite"], "--budget, --trust-suite: only for new samples"),
        (["--confirm", "2", "--var", "mood=calm"], "--var changes the suite of B"),
        (["--confirm", "2", "--markdown", "runs"], "runs"),
    ):
        result = compare(runner, *arguments)
        assert (result.exit_code, text in result.stderr, runner.called) == (2, True, called), result.stderr
    result = runner("compare", "a", "b", "--runs", runner.out, "--fail-on", "broken", "--confirm", "2")
    one_line(result, 2, "--confirm is for the gates regressed, must_pass and METRIC:NUMBER: add --fail-on regressed")


def unconfirmed(result: Result, reason: str) -> None:
    assert result.exit_code == 3, result.output
    gate = gate_of(result)
    assert gate["state"] == "unmeasured"
    assert "broke and could not be confirmed" in gate["message"]
    assert reason in gate["message"]


def test_missing_and_refused_keys_and_a_spent_quota(
    runner: SuiteRunner, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_runs(runner, answers)
    with monkeypatch.context() as patch:
        patch.delenv("LOCAL_KEY")
        unconfirmed(compare(runner, "--confirm", "4", "--json"), "set the environment variable LOCAL_KEY")
    with monkeypatch.context() as patch:
        patch.setenv("LOCAL_KEY", "sk-wrong-0123456789abcdef")
        unconfirmed(compare(runner, "--confirm", "4", "--json"), "key")
    answers.faults, generations = [Fault("quota")] * 9, runner.called[0]
    unconfirmed(
        compare(runner, "--confirm", "4", "--max-concurrency", "1", "--json"), "the quota at openai is spent: 429: "
    )
    assert runner.called[0] - generations <= 1
    answers.faults = []
    answers.set(boat="FF")
    assert compare(runner, "--confirm", "4").exit_code == 1


def test_the_budget_is_for_the_whole_command(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers, cases=[BOAT, CAR])
    answers.set(boat="FPFP", car="FPFP")
    generations = runner.called[0]
    unconfirmed(compare(runner, "--confirm", "4", "--budget", "0.11", "--json"), "the budget of 0.11 USD is used up")
    assert runner.called[0] - generations == 2  # 0.05 USD each
    unconfirmed(compare(runner, "--confirm", "4", "--budget", "0.001", "--json"), "budget of 0.001 USD is too small")
    assert compare(runner, "--confirm", "4", "--budget", "5").exit_code == 1


def test_a_generation_that_fails_is_repeated_the_next_time(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers)
    answers.set(boat="PPPP")
    answers.faults = [Fault("bad_request")] * 2
    unconfirmed(compare(runner, "--confirm", "2", "--json"), "could not be confirmed (sample 1: invalid")
    assert [record.verdict for record in new_records(runner)] == ["ERROR", "ERROR"]
    assert compare(runner, "--confirm", "2").exit_code == 0
    assert [record.verdict for record in new_records(runner)] == ["PASS", "PASS"]


def test_an_error_among_new_samples_does_not_matter_where_the_others_decide(
    runner: SuiteRunner, answers: Answers
) -> None:
    two_runs(runner, answers)
    answers.set(boat="FF")
    answers.faults = [Fault("bad_request")]
    result = compare(runner, "--confirm", "4", "--json")
    assert (result.exit_code, gate_of(result)["cases"][0]["new"]) == (1, {"passed": 0, "failed": 2, "errors": 1})
    again = compare(runner, "--confirm", "4", "--json")
    for same in (result, again):
        assert "used 2 of 4 new samples that would confirm every case" in same.stderr
        assert gate_of(same)["message"] == "1 of 1 case tagged must_pass broke: boat (failed 3 of 3)"


def test_a_refused_prompt_fails_as_it_does_in_a_run(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers)
    answers.faults = [Fault("refusal")] * 2
    result = compare(runner, "--confirm", "4", "--json")
    assert (result.exit_code, gate_of(result)["cases"][0]["new"]["failed"]) == (1, 2)


def test_a_confirmation_is_replayed_from_the_cache(runner: SuiteRunner, answers: Answers) -> None:
    cache = ("--cache", str(runner.folder / "cache"))
    two_runs(runner, answers, *cache)
    unconfirmed(compare(runner, "--confirm", "4", "--offline", *cache, "--json"), "offline: not in the cache")
    answers.set(boat="PPP")
    assert compare(runner, "--confirm", "4", *cache).exit_code == 0
    called = runner.called
    (runner.out / "b" / NAME).unlink()
    result = compare(runner, "--confirm", "4", "--offline", *cache, "--json")
    assert (result.exit_code, runner.called) == (0, called)
    assert gate_of(result)["cases"][0]["new"] == {"passed": 3, "failed": 0, "errors": 0}
    assert all(record.cached for record in new_records(runner))


def test_the_cache_hands_out_no_earlier_image(runner: SuiteRunner, answers: Answers) -> None:
    """Another run has cached images of the same samples: they are used only where that is asked for."""
    cache = ("--cache", str(runner.folder / "cache"))
    two_runs(runner, answers, *cache)
    answers.set()
    assert runner.run("--quiet", "--samples", "5", *cache, run_id="c").exit_code == 0
    called = runner.called
    answers.set(boat="FF")
    assert compare(runner, "--confirm", "4", *cache).exit_code == 1
    assert runner.called[0] == called[0] + 2
    earlier = {record.artifact_sha256 for record in runner.records("c").values()}
    assert earlier.isdisjoint(record.artifact_sha256 for record in new_records(runner))


def test_new_samples_of_an_earlier_run_with_the_same_id_are_not_reused(runner: SuiteRunner, answers: Answers) -> None:
    """A job that runs every night has the same run ID and the same cache."""
    two_runs(runner, answers)
    answers.set(boat="PPP")
    assert compare(runner, "--confirm", "4").exit_code == 0
    earlier = {record.artifact_sha256 for record in new_records(runner)}
    shutil.rmtree(runner.out)
    two_runs(runner, answers)
    answers.set(boat="FF")
    assert compare(runner, "--confirm", "4").exit_code == 1
    assert earlier.isdisjoint(record.artifact_sha256 for record in new_records(runner))


def test_a_sample_that_was_paid_for_is_not_generated_twice(runner: SuiteRunner, answers: Answers) -> None:
    """The judge failed after the image was generated: only the judge is asked again."""
    two_runs(runner, answers)
    answers.set(boat="PPP")
    answers.judge_faults = [Fault("bad_request")] * 3
    unconfirmed(compare(runner, "--confirm", "4", "--json"), "could not be confirmed (sample 1: unmeasured: ")
    called = runner.called
    assert compare(runner, "--confirm", "4").exit_code == 0
    assert (runner.called[0] - called[0], runner.called[1] - called[1]) == (0, 2)  # sample 4 has passed


def test_python_api(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers)
    answers.set(boat="FF")
    result = ve.compare("a", "b", fail_on=["must_pass"], confirm=4, runs=runner.out)
    assert (result.exit_code, result.gates[0].cases[0].new.failed) == (1, 2)
    run = ve.load_run("b", runs=runner.out)
    assert (
        ve.compare(runner.out / "a", run, fail_on=["must_pass"], confirm=4, offline=True, runs=runner.out).exit_code
        == 1
    )
    undecided = ve.compare(runner.out / "a", run, confirm=4, offline=True, runs=runner.out)
    states = {gate.fail_on.text: gate.state for gate in undecided.gates}
    assert (undecided.exit_code, states["must_pass"], states["regressed"]) == (1, "failed", "cannot_tell")
    for settings in ({"confirm": 0}, {"confirm": 101}, {"offline": True}):
        with pytest.raises(UsageError):
            ve.compare("a", "b", runs=runner.out, **settings)
    for settings in ({"limit": 1}, {"confirm": 4, "samples": 2}):
        with pytest.raises(TypeError):
            ve.compare("a", "b", runs=runner.out, **settings)


def test_secret_variables_are_given_again(runner: SuiteRunner, answers: Answers) -> None:
    flags = ("--var", "site_token=abcdefghijkl")
    two_runs(
        runner,
        answers,
        *flags,
        vars={"site_token": "unknown"},
        cases=[{**BOAT, "criteria": "like {{ site_token }}"}],
    )
    result = compare(runner, "--confirm", "4")
    assert result.exit_code == 2
    assert "add --var site_token=VALUE" in result.stderr
    answers.set(boat="FF")
    assert compare(runner, "--confirm", "4", *flags).exit_code == 1
    assert b"abcdefghijkl" not in (runner.out / "b" / NAME).read_bytes()


def test_the_questions_of_the_run_are_asked_again(runner: SuiteRunner, answers: Answers, script: Script) -> None:
    seen: list[JudgeRequest] = []
    answer = {"a": "yes", "b": "no"}
    name = "a"
    inner = judge(lambda question, request: answer[name])

    def ask(request: JudgeRequest) -> Any:
        seen.append(request)
        return inner(request)

    script.judge(ask)
    runner.write(cases=[BOAT], graders=[{"key": "gecko", "type": "gecko"}], verdict=["gecko >= 0.8"])
    for name in "ab":
        runner.run("--quiet", "--cache", name, run_id=name)
    questions, before = (runner.out / "b" / "questions.json").read_bytes(), len(seen)
    assert compare(runner, "--confirm", "4", "--cache", "new").exit_code == 1
    assert len(seen) == before + 2
    assert not any("keywords" in (request.schema or {})["properties"] for request in seen[before:])
    assert (runner.out / "b" / "questions.json").read_bytes() == questions


def test_a_model_that_repeats_itself_is_reported(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers, cases=[BOAT])
    answers.images -= 1
    result = compare(runner, "--confirm", "4", "--json")
    assert "boat on m: sample 1 is the same file as a sample of the run" in result.stderr


def test_two_commands_do_not_confirm_at_once(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers)
    folder = runner.out / "b"
    with open_confirmations(folder, read_info(folder)):
        one_line(compare(runner, "--confirm", "4"), 2, "another visioneval process is writing this run")


def test_a_truncated_line_is_repaired(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers)
    answers.set(boat="FF")
    assert compare(runner, "--confirm", "4").exit_code == 1
    path = runner.out / "b" / NAME
    path.write_bytes(path.read_bytes()[:-40])
    answers.set(boat="F")
    assert compare(runner, "--confirm", "4").exit_code == 1
    assert [record.sample_index for record in new_records(runner)] == [1, 2]
    path.write_text("no record\n")
    result = compare(runner, "--confirm", "4")
    one_line(result, 2, f"{NAME}:1: not a record")


def test_a_link_out_of_the_run_is_refused(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers)
    (runner.out / "b" / NAME).symlink_to(runner.folder / "elsewhere")
    one_line(compare(runner, "--confirm", "4"), 2, "is a link to a file outside the run")


def test_a_suite_that_runs_code_needs_trust(toy: Toy) -> None:
    for name, look in (("a", "fine"), ("b", "bad")):
        toy.run({"tags": ["must_pass"], "metadata": {"look": look}}, arguments=("--run-id", name))
    result = toy("compare", "a", "b", "--fail-on", "must_pass", "--confirm", "4")
    assert result.exit_code == 2
    assert all("--trust-suite" in line for line in result.stderr.splitlines())
    result = toy("compare", "a", "b", "--fail-on", "must_pass", "--confirm", "4", "--trust-suite")
    assert result.exit_code == 1
    assert "failed 3 of 3" in " ".join(result.stdout.split())


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_an_interrupt_preserves_what_was_finished(toy: Toy) -> None:
    for name, look in (("a", "fine"), ("b", "bad")):
        case = {"tags": ["must_pass"], "metadata": {"look": look, "wait": 0.2}}
        toy.run(case, case, arguments=("--run-id", name))
    words = ("compare", "a", "b", "--fail-on", "must_pass", "--confirm", "4", "--trust-suite")
    program = toy.program(*words, "--max-concurrency", "1", "--json")
    path = toy.folder / "runs" / "b" / NAME
    end = time.monotonic() + 60
    while not (path.is_file() and path.read_bytes()):
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    program.send_signal(signal.SIGINT)
    out, errors = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "Traceback" not in errors
    (gate,) = (gate for gate in json.loads(out)["gates"] if gate["fail_on"] == "must_pass")
    assert "broke and could not be confirmed (interrupted)" in gate["message"]
    lines = path.read_bytes()
    assert 1 <= lines.count(b"\n") < 4
    assert read_info(toy.folder / "runs" / "b").state == "complete"
    assert toy(*words).exit_code == 1
    assert path.read_bytes().startswith(lines)
    assert path.read_bytes().count(b"\n") == 4


def notes_of(runner: SuiteRunner, *flags: str) -> tuple[list[str], str]:
    """The notes of a comparison in JSON, which JUnit repeats, and what it prints on stderr."""
    path = runner.folder / "notes.xml"
    result = runner("compare", "a", "b", "--runs", str(runner.out), "--json", "--junit", str(path), *flags)
    notes: list[str] = json.loads(result.stdout)["notes"]
    assert [item.text for item in ET.parse(path).iter("system-out")] == ["\n".join(notes)] * bool(notes)
    return notes, result.stderr


@pytest.mark.parametrize(
    ("fail_on", "used"),
    [
        (["must_pass"], ["used 3 of 4 new samples that would confirm every case"]),
        (["must_pass", "pass_rate:0.9"], ["used 3 of 8 new samples that would confirm every case"]),
    ],
)
def test_what_was_confirmed_is_in_every_format(
    runner: SuiteRunner, answers: Answers, fail_on: list[str], used: list[str]
) -> None:
    two_runs(runner, answers)
    gates = [word for gate in fail_on for word in ("--fail-on", gate)]
    assert notes_of(runner, *gates)[0] == []
    answers.set(boat="PPP")
    notes, printed = notes_of(runner, "--confirm", "4", *gates)
    assert "confirming 1 uncertain case with up to 4 new samples each" in notes[0]
    assert notes[1:] == [*used, "new samples: 3 pass 0 fail 0 error, 0.1500 USD"]
    assert printed.splitlines() == notes
    assert notes_of(runner, "--confirm", "4", *gates)[0] == used, "nothing new was generated"
    assert notes_of(runner, *gates)[0] == ["B has new samples from an earlier --confirm: not used here"]
    result = ve.compare("a", "b", runs=runner.out, confirm=4, fail_on=fail_on)
    assert list(result.confirmation_notes) == used
