"""Runs of cases with turns: each edits the output of the one before, also from the cache, resumed and graded again."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from edited_turns import CAT, TURNS, Edit, TurnRuns, links
from fake_api import FakeAPI, Fault
from PIL import Image

from visioneval import Record, Status, Verdict

pytestmark = pytest.mark.slow


@pytest.fixture
def turns(tmp_path: Path, local_api: FakeAPI) -> TurnRuns:
    runner = TurnRuns(tmp_path, local_api)
    runner.write()
    return runner


def hashes(records: list[Record]) -> list[str | None]:
    return [record.artifact_sha256 for record in records]


def test_each_turn_edits_the_output_of_the_turn_before_and_is_graded_on_it(turns: TurnRuns) -> None:
    counter = {"id": "counter", "prompt": "it is green", "output_of": "cat/2"}
    turns.write(cases=[CAT, counter])
    done = turns.run()
    assert done.exit_code == 0, done.output
    records = turns.turns()
    assert [record.test_id for record in records] == ["cat/1", "cat/2", "cat/3"]
    assert [record.verdict for record in records] == [Verdict.PASS] * 3
    base, (first, second, third) = sha256((turns.folder / "base.png").read_bytes()).hexdigest(), hashes(records)
    assert len({base, first, second, third}) == 4
    assert list(links(records)) == [True, True]
    assert (records[0].base_path, records[0].base_sha256) == (None, None)
    used = turns.records()["counter", 0]
    assert (used.artifact_path, used.base_path) == (records[1].artifact_path, records[1].base_path)
    asked = list(turns.api.requests)
    assert turns.judged_images() == {(base, first), (first, second), (second, third)}
    turns.api.requests.extend(asked)
    assert turns.take_edits() == [
        Edit("make it red", (base,)),
        Edit("make it green", (first,)),
        Edit("make it blue", (second,)),
    ]
    assert records[2].cost_usd == 0.04
    assert turns.summary()["cost_usd"] == pytest.approx(3 * 0.04 + 4 * 0.01)


def test_a_turn_that_fails_its_rules_does_not_stop_the_next(turns: TurnRuns) -> None:
    turns.bad = {"make it red"}
    assert turns.run().exit_code == 1
    assert [record.verdict for record in turns.turns()] == ["FAIL", "PASS", "PASS"]


@pytest.mark.parametrize(
    ("fault", "status", "verdict", "why", "code"),
    [
        (Fault("bad_request"), Status.ERROR, "ERROR", "it ended in an error", 3),
        (Fault("refusal"), Status.REFUSED, "FAIL", "its generation was refused", 3),
    ],
)  # fmt: skip
def test_turns_after_one_without_an_output_are_errors_that_name_it(
    turns: TurnRuns, fault: Fault, status: Status, verdict: str, why: str, code: int
) -> None:
    turns.faults = {"make it green": fault}
    done = turns.run()
    assert done.exit_code == code
    first, second, third = turns.turns()
    assert (first.verdict, second.status, second.verdict, third.verdict) == ("PASS", status, verdict, "ERROR")
    assert (third.error.stage, third.error.kind) == ("generate", "missing_input")
    assert third.error.message == f"cat/2 has no output to edit: {why}"
    assert (third.attempts, third.cost_usd, third.base_path) == (0, None, None)
    assert {edit.prompt for edit in turns.take_edits()} == {"make it red", "make it green"}


def test_an_error_of_the_first_turn_is_named_by_all_later_ones(turns: TurnRuns) -> None:
    turns.faults = {"make it red": Fault("bad_request")}
    assert turns.run().exit_code == 3
    errors = [record.error.message for record in turns.turns()[1:] if record.error]
    assert errors == ["cat/1 has no output to edit: it ended in an error"] * 2
    turns.faults.clear()
    turns.forget()
    assert turns("run", "--resume", turns.out / "r").exit_code == 0
    assert len(turns.take_edits()) == 3
    assert list(links(turns.turns())) == [True, True]


def test_only_the_last_turn_can_expect_a_refusal(turns: TurnRuns) -> None:
    refused = {"prompt": "make it cruel", "expect": {"refusal": True}}
    turns.write(cases=[{**CAT, "turns": [*TURNS[:2], refused]}])
    turns.faults = {"make it cruel": Fault("refusal")}
    assert turns.run().exit_code == 0
    assert [record.status for record in turns.turns()] == ["completed", "completed", "refused"]


def test_a_mask_of_another_size_than_the_output_is_an_error_without_a_call(turns: TurnRuns) -> None:
    mask = Image.new("RGBA", (16, 16), (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), (0, 0, 8, 8))
    mask.save(turns.folder / "m.png")
    turns.write(cases=[{**CAT, "turns": [TURNS[0], {"prompt": TURNS[1], "mask": "m.png"}, TURNS[2]]}])
    assert turns.run().exit_code == 3
    _, second, third = turns.turns()
    assert second.error.message == "the mask m.png is 16 x 16 pixels, but the output of cat/1 is 32 x 24 pixels"
    assert third.error.message == "cat/2 has no output to edit: it ended in an error"
    assert len(turns.take_edits()) == 1


def test_more_images_of_a_turn_come_after_the_image_that_it_edits(turns: TurnRuns) -> None:
    style = {"path": "style.png", "role": "style"}
    Image.new("RGB", (8, 8), "red").save(turns.folder / "style.png")
    turns.write(cases=[{**CAT, "turns": [TURNS[0], {"prompt": TURNS[1], "images": [style]}]}])
    assert turns.run().exit_code == 0
    first, second = turns.take_edits()
    assert first.images == (sha256((turns.folder / "base.png").read_bytes()).hexdigest(),)
    assert second.images == (
        turns.turns()[0].artifact_sha256,
        sha256((turns.folder / "style.png").read_bytes()).hexdigest(),
    )


class TestCache:
    def test_a_second_run_and_a_replay_make_no_call(self, turns: TurnRuns) -> None:
        assert turns.run().exit_code == 0
        turns.forget()
        assert turns.run("--reuse", "all", run_id="s").exit_code == 0
        assert turns.run("--offline", run_id="t").exit_code == 0
        assert not turns.api.requests
        assert hashes(turns.turns()) == hashes(turns.turns("s")) == hashes(turns.turns("t"))
        assert [record.cached for record in turns.turns("t")] == [True] * 3

    def test_another_first_output_never_meets_an_old_edit(self, turns: TurnRuns) -> None:
        assert turns.run().exit_code == 0
        turns.salts = {TURNS[0]: "anew"}
        turns.forget()
        turns.edit(cases=[{**CAT, "turns": ["make it red ", *TURNS[1:]]}])  # another first prompt
        assert turns.run("--reuse", "all", run_id="s").exit_code == 0
        assert len(turns.take_edits()) == 3
        assert list(links(turns.turns("s"))) == [True, True]
        assert not set(hashes(turns.turns())) & set(hashes(turns.turns("s")))

    def test_the_same_first_output_of_another_prompt_reuses_later_edits(self, turns: TurnRuns) -> None:
        generate = turns._generate
        turns.api.script.generate(
            lambda request: (turns.folder / "base.png").read_bytes() if "red" in request.prompt else generate(request)
        )
        assert turns.run().exit_code == 0
        turns.forget()
        turns.edit(cases=[{**CAT, "turns": ["paint it red", *TURNS[1:]]}])
        assert turns.run("--reuse", "all", run_id="s").exit_code == 0
        assert [edit.prompt for edit in turns.take_edits()] == ["paint it red"]
        keys = [{record.generation_key for record in turns.turns(run)} for run in "rs"]
        assert not keys[0] & keys[1]  # yet each turn depends on all turns before it

    def test_a_replay_without_a_later_turn_is_an_error_of_that_turn(self, turns: TurnRuns) -> None:
        turns.edit(cases=[{**CAT, "turns": TURNS[:1]}])
        assert turns.run().exit_code == 0
        turns.edit(cases=[CAT])
        assert turns.run("--offline", run_id="s").exit_code == 3
        _, second, third = turns.turns("s")
        assert second.error.kind == "offline"
        assert third.error.message == "cat/2 has no output to edit: it ended in an error"


class TestResume:
    @pytest.fixture(autouse=True)
    def finished(self, turns: TurnRuns) -> None:
        assert turns.run("--cache", "one").exit_code == 0
        turns.forget()

    def resume(self, turns: TurnRuns, *arguments: str) -> Any:
        """With an empty cache, so that every generation is a call."""
        done = turns("run", turns.folder / "suite.yaml", "--resume", turns.out / "r", "--cache", "two", *arguments)
        assert done.exit_code == 0, done.output
        assert list(links(turns.turns())) == [True] * (len(turns.turns()) - 1)
        return done.output

    def test_nothing_changed(self, turns: TurnRuns) -> None:
        assert "to generate: 0; to grade again: 0; unchanged: 3" in self.resume(turns)
        assert not turns.api.requests

    @pytest.mark.parametrize("missing", [1, 3])
    def test_a_missing_turn_and_all_after_it_are_generated(self, turns: TurnRuns, missing: int) -> None:
        before = hashes(turns.turns())
        turns.rewrite("r", lambda record: None if record["test_id"] == f"cat/{missing}" else record)
        self.resume(turns)
        assert [edit.prompt for edit in turns.take_edits()] == TURNS[missing - 1 :]
        assert hashes(turns.turns()) == before

    def test_what_a_killed_run_paid_for_is_not_paid_again(self, turns: TurnRuns) -> None:
        turns.rewrite("r", lambda record: record if record["test_id"] == "cat/1" else None)
        done = turns("run", turns.folder / "suite.yaml", "--resume", turns.out / "r", "--cache", "one")
        assert done.exit_code == 0, done.output
        assert not turns.api.requests
        assert [record.cost_usd for record in turns.turns()] == [0.04] * 3
        assert list(links(turns.turns())) == [True, True]

    def test_a_changed_prompt_changes_this_turn_and_all_after_it(self, turns: TurnRuns) -> None:
        turns.edit(cases=[{**CAT, "turns": [TURNS[0], "make it grey", TURNS[2]]}])
        output = self.resume(turns)
        assert "to generate: 2 (1 prompt changed, 1 earlier-turns changed)" in output
        assert [edit.prompt for edit in turns.take_edits()] == ["make it grey", TURNS[2]]

    def test_an_added_turn_edits_the_last_output(self, turns: TurnRuns) -> None:
        turns.edit(cases=[{**CAT, "turns": [*TURNS, "make it black"]}])
        last = turns.turns()[-1].artifact_sha256
        self.resume(turns)
        assert turns.take_edits() == [Edit("make it black", (str(last),))]

    def test_an_overwritten_output_is_generated_again_with_all_edits_of_it(self, turns: TurnRuns) -> None:
        path = turns.out / "r" / str(turns.turns()[1].artifact_path)
        path.unlink()
        Image.new("RGB", (32, 24), "pink").save(path)
        output = self.resume(turns)
        assert "1 with a changed image file, 1 edit an image that is generated again" in output
        assert [edit.prompt for edit in turns.take_edits()] == TURNS[1:]

    def test_an_edit_of_another_output_than_the_run_has_is_generated_again(self, turns: TurnRuns) -> None:
        """As after a resume that was stopped between two turns."""
        turns.rewrite("r", lambda record: record | ({"base_sha256": "0" * 64} if record["test_id"] == "cat/2" else {}))
        assert "1 edit an image that has changed, 1 edit an image that is generated again" in self.resume(turns)
        assert [edit.prompt for edit in turns.take_edits()] == TURNS[1:]

    def test_a_resume_that_stops_leaves_no_edit_of_an_output_that_is_gone(self, turns: TurnRuns) -> None:
        turns.edit(cases=[{**CAT, "turns": ["paint it red", *TURNS[1:]]}])
        stopped = (
            "run",
            turns.folder / "suite.yaml",
            "--resume",
            turns.out / "r",
            "--cache",
            "two",
            "--budget",
            "0.07",
        )
        assert turns(*stopped).exit_code == 3
        assert [(record.test_id, record.prompt) for record in turns.turns()] == [("cat/1", "paint it red")]
        old = [json.loads(line) for line in (turns.out / "r" / "stale.jsonl").read_text().splitlines()]
        assert {record["test_id"] for record in old} == {"cat/2", "cat/3"}
        self.resume(turns)
        assert [edit.prompt for edit in turns.take_edits()] == ["paint it red", *TURNS[1:]]

    def test_changed_criteria_of_a_turn_only_grade_it_again_on_its_own_input(self, turns: TurnRuns) -> None:
        turns.edit(cases=[{**CAT, "turns": [TURNS[0], {"prompt": TURNS[1], "criteria": "Green"}, TURNS[2]]}])
        assert "to generate: 0; to grade again: 1 (1 case changed)" in self.resume(turns)
        first, second, _ = hashes(turns.turns())
        assert turns.judged_images() == {(first, second)}

    def test_changed_rules_ask_nobody(self, turns: TurnRuns) -> None:
        turns.edit(verdict=["not nice"])
        done = turns("run", turns.folder / "suite.yaml", "--resume", turns.out / "r", "--cache", "two")
        assert "re-evaluated: 3 (3 rules changed)" in done.output
        assert [record.verdict for record in turns.turns()] == ["FAIL"] * 3
        assert not turns.api.requests

    def test_kept_errors_stay(self, turns: TurnRuns) -> None:
        turns.faults = {TURNS[1]: Fault("bad_request")}
        turns.edit(cases=[{**CAT, "turns": [TURNS[0], TURNS[1], "make it black"]}])
        turns.rewrite("r", lambda record: None if record["test_id"] == "cat/2" else record)
        arguments = ("run", turns.folder / "suite.yaml", "--resume", turns.out / "r", "--cache", "two")
        assert turns(*arguments).exit_code == 3
        turns.forget()
        assert "unchanged: 3" in turns(*arguments, "--keep-errors").output
        assert not turns.api.requests


class TestGrade:
    @pytest.fixture(autouse=True)
    def finished(self, turns: TurnRuns) -> None:
        assert turns.run().exit_code == 0
        turns.forget()

    def grade(self, turns: TurnRuns, *arguments: str | Path, run_id: str = "g") -> Any:
        return turns("grade", turns.out / "r", "--runs", turns.out, "--run-id", run_id, "--reuse", "none", *arguments)

    def test_each_turn_is_graded_on_the_stored_output_of_the_turn_before(self, turns: TurnRuns) -> None:
        base, (first, second, third) = (
            sha256((turns.folder / "base.png").read_bytes()).hexdigest(),
            hashes(turns.turns()),
        )
        done = self.grade(turns)
        assert done.exit_code == 0, done.output
        assert turns.judged_images() == {(base, first), (first, second), (second, third)}
        assert list(links(turns.turns("g"))) == [True, True]
        assert [record.grade_key for record in turns.turns("g")] == [record.grade_key for record in turns.turns()]

    def test_a_selected_turn_is_graded_on_its_input(self, turns: TurnRuns) -> None:
        assert self.grade(turns, "--case", "cat/2").exit_code == 0
        assert [record.test_id for record in turns.turns("g")] == ["cat/1", "cat/2"]

    def test_new_rules_take_the_stored_scores(self, turns: TurnRuns) -> None:
        turns.edit(verdict=["nice", {"rule": "nice", "level": "warn"}])
        done = turns(
            "grade", turns.out / "r", "--suite", turns.folder / "suite.yaml", "--runs", turns.out, "--run-id", "g"
        )
        assert done.exit_code == 0, done.output
        assert "3 cells are re-evaluated by the rules with their stored scores" in done.output
        assert not turns.api.requests
        assert list(links(turns.turns("g"))) == [True, True]

    def test_an_edit_of_another_output_than_the_run_has_is_an_error(self, turns: TurnRuns) -> None:
        turns.rewrite("r", lambda record: record | ({"base_sha256": "0" * 64} if record["test_id"] == "cat/2" else {}))
        assert self.grade(turns).exit_code == 3
        first, second, third = turns.turns("g")
        assert "it edits an earlier output of cat/1: resume the run" in second.error.message
        assert (first.verdict, third.verdict) == ("PASS", "ERROR")

    def test_a_missing_turn_is_an_error_and_so_are_the_edits_of_it(self, turns: TurnRuns) -> None:
        turns.rewrite("r", lambda record: None if record["test_id"] == "cat/1" else record)
        assert self.grade(turns).exit_code == 3
        kinds = [record.error.kind for record in turns.turns("g") if record.error]
        assert kinds == ["missing_output", "missing_input", "missing_input"]

    def test_a_changed_output_file_is_an_error_and_so_are_the_edits_of_it(self, turns: TurnRuns) -> None:
        path = turns.out / "r" / str(turns.turns()[0].artifact_path)
        path.unlink()
        Image.new("RGB", (32, 24), "pink").save(path)
        assert self.grade(turns).exit_code == 3
        first, second, third = turns.turns("g")
        assert "was changed after it was generated" in first.error.message
        assert [record.error and record.error.kind for record in (second, third)] == ["missing_input"] * 2


def test_samples_are_chains(turns: TurnRuns) -> None:
    count = iter(range(100))
    generate = turns._generate

    def answer(request: Any) -> Any:
        turns.salts[request.prompt] = str(next(count))
        return generate(request)

    turns.api.script.generate(answer)
    turns.edit(samples=3)
    assert turns.run("--max-concurrency", "2").exit_code == 0
    chains = [turns.turns(sample=sample) for sample in range(3)]
    assert all(list(links(chain)) == [True, True] for chain in chains)
    assert len({digest for chain in chains for digest in hashes(chain)}) == 9
    inputs = {edit.images[0] for edit in turns.take_edits() if edit.prompt == TURNS[1]}
    assert inputs == {chain[0].artifact_sha256 for chain in chains}


def test_a_stored_suite_with_a_turn_out_of_order_is_refused(turns: TurnRuns) -> None:
    assert turns.run().exit_code == 0
    path = turns.out / "r" / "run.json"
    info = json.loads(path.read_text())
    info["suite"]["cases"].pop(1)
    path.write_text(json.dumps(info))
    done = turns("run", "--resume", turns.out / "r")
    assert done.exit_code == 2
    assert "the turn 'cat/3' does not follow 'cat/2'" in done.output


def test_a_record_cannot_name_an_input_outside_the_run(turns: TurnRuns) -> None:
    assert turns.run().exit_code == 0
    turns.rewrite("r", lambda record: record | {"base_path": "../base.png"})
    done = turns("show", turns.out / "r", "cat")
    assert done.exit_code == 2
    assert "is not a path inside the run" in done.output
