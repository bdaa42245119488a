"""Turns together with flags, shards, budgets, prompts, existing outputs and comparisons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from compare_factory import cell, side
from edited_turns import CAT, TURNS, TurnRuns, links
from fake_api import FakeAPI
from PIL import Image

from visioneval import Verdict
from visioneval.analysis.compare.compare import compare
from visioneval.records.between_cells import read_preferences
from visioneval.records.stores.writing import read_confirmations
from visioneval.suite.filters import chain_of

DOG: dict[str, Any] = {"id": "dog", "images": ["base.png"], "prompt": "pat it", "tags": ["late"]}
OLD = {"provider": "files", "label": "old", "path": "out/{case}.png"}
JUDGE = {"openai:gpt-5.4": {"per_call": 0.01}}
TAGGED = {**CAT, "turns": [TURNS[0], {"prompt": TURNS[1], "tags": ["late"]}, TURNS[2]]}


@pytest.fixture
def turns(tmp_path: Path, local_api: FakeAPI) -> TurnRuns:
    runner = TurnRuns(tmp_path, local_api)
    runner.write(cases=[TAGGED, DOG])
    return runner


def ids(turns: TurnRuns, run_id: str = "r") -> list[str]:
    return sorted(case for case, _ in turns.records(run_id))


@pytest.mark.parametrize(
    ("flags", "selected"),
    [
        (["--case", "cat"], ["cat/1", "cat/2", "cat/3"]),
        (["--case", "cat/2"], ["cat/1", "cat/2"]),
        (["--case", "*/1"], ["cat/1"]),
        (["--tag", "late"], ["cat/1", "cat/2", "dog"]),
        (["--limit", "1"], ["cat/1", "cat/2", "cat/3"]),
        (["--limit", "2"], ["cat/1", "cat/2", "cat/3", "dog"]),
        (["--limit", "1", "--tag", "late"], ["cat/1", "cat/2"]),
    ],
)
def test_flags_select_turns_with_those_before_them(turns: TurnRuns, flags: list[str], selected: list[str]) -> None:
    assert turns.run(*flags).exit_code == 0
    assert ids(turns) == selected
    turns.forget()
    assert turns("run", "--resume", turns.out / "r").exit_code == 0
    assert not turns.api.requests


def test_an_unknown_turn_is_refused(turns: TurnRuns) -> None:
    done = turns.run("--case", "cat/4")
    assert done.exit_code == 2
    assert "--case: no match for 'cat/4' (did you mean 'cat/" in done.output


def test_plan_counts_every_turn(turns: TurnRuns) -> None:
    turns.edit(samples=2)
    output = turns("plan", "suite.yaml").output
    assert "8 generation calls, 8 images" in output
    assert "about 0.40 USD" in output  # 8 x 0.04 + 8 x 0.01


def test_a_budget_stops_before_the_turn_that_exceeds_it(turns: TurnRuns) -> None:
    turns.edit(cases=[TAGGED])
    done = turns.run("--budget", "0.07")
    assert done.exit_code == 3
    assert [edit.prompt for edit in turns.take_edits()] == TURNS[:1]
    assert ids(turns) == ["cat/1"]
    assert turns("run", "--resume", turns.out / "r", "--budget", "1").exit_code == 0
    assert [edit.prompt for edit in turns.take_edits()] == TURNS[1:]
    assert list(links(turns.turns())) == [True, True]


def test_shards_have_whole_cases_and_merge_to_the_same_run(turns: TurnRuns) -> None:
    many = [{**CAT, "id": f"cat{at}", "turns": [f"{prompt} {at}" for prompt in TURNS]} for at in range(6)]
    turns.edit(cases=many)
    for part in (1, 2):
        turns.run("--shard", f"{part}/2", run_id=f"s{part}")
    assert turns("merge", turns.out / "s1", turns.out / "s2", "--runs", turns.out, "--run-id", "m").exit_code == 0
    for part in ("s1", "s2"):
        assert len(ids(turns, part)) == 3 * len({chain_of(name) for name in ids(turns, part)}) > 0
    for case in many:
        chain = turns.turns("m", case=case["id"])
        assert list(links(chain)) == [True, True]
        assert all((turns.out / "m" / str(record.base_path)).is_file() for record in chain[1:])


def test_prompts_apply_to_each_turn_and_are_for_what_the_first_one_is(turns: TurnRuns) -> None:
    late = {"label": "late", "template": "{{ case.prompt }} now", "when": {"tags": ["late"]}}
    early = {"label": "early", "template": "{{ case.prompt }} soon", "when": {"cases": ["cat"]}}
    turns.edit(prompts=[late, early])
    assert turns.run().exit_code == 0
    by_label: dict[str, list[str]] = {}
    for edit in turns.take_edits():
        by_label.setdefault(edit.prompt.rpartition(" ")[2], []).append(edit.prompt)
    assert by_label == {"soon": [f"{prompt} soon" for prompt in TURNS], "now": ["pat it now"]}


class TestExistingOutputs:
    @pytest.fixture(autouse=True)
    def outputs(self, turns: TurnRuns) -> None:
        for at, name in enumerate(("cat/1", "cat/2", "cat/3", "extra")):
            path = turns.folder / "out" / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 24), (at, 9, 9)).save(path)
        turns.edit(cases=[TAGGED], models=[OLD], prices=JUDGE)

    def test_a_pattern_names_the_output_of_each_turn(self, turns: TurnRuns) -> None:
        assert turns.run().exit_code == 0
        assert list(links(turns.turns())) == [True, True]
        seen = {images[-1]: images[0] for images in turns.judged_images()}
        for before, record in zip(turns.turns(), turns.turns()[1:], strict=False):
            assert seen[str(record.artifact_sha256)] == before.artifact_sha256

    def test_a_turn_after_a_broken_output_is_an_error(self, turns: TurnRuns) -> None:
        (turns.folder / "out" / "cat" / "2.png").write_text("torn")
        assert turns.run().exit_code == 3
        first, second, third = turns.turns()
        assert (first.verdict, second.verdict) == ("PASS", "ERROR")
        assert third.error.message == "cat/2 has no output to edit: it ended in an error"

    def test_a_changed_output_changes_what_the_next_turn_is_graded_on(self, turns: TurnRuns) -> None:
        assert turns.run().exit_code == 0
        Image.new("RGB", (32, 24), "red").save(turns.folder / "out" / "cat" / "1.png")
        done = turns("run", "--resume", turns.out / "r")
        assert "to generate: 3 (1 image changed, 2 earlier-turns changed)" in done.output
        assert list(links(turns.turns())) == [True, True]

    def test_outputs_in_the_turns_with_another_number_of_samples(self, turns: TurnRuns) -> None:
        names = [["out/cat/1.png"], ["out/cat/2.png", "out/extra.png"]]
        listed = [{"prompt": "x", "outputs": {"old": paths}} for paths in names]
        turns.edit(cases=[{**CAT, "turns": listed}], models=[{"provider": "files"}], prices=JUDGE)
        assert turns.run().exit_code == 3
        records = turns.records()
        assert records["cat/2", 0].base_sha256 == records["cat/1", 0].artifact_sha256
        error = records["cat/2", 1].error
        assert error.message == "cat/1 has no output to edit: it has no sample 1"


class TestComparisons:
    def test_turns_of_a_case_are_one_cluster(self) -> None:
        names = [f"c{at}/{turn}" for at in range(4) for turn in (1, 2, 3)]
        cells = [
            [cell(name, verdict=Verdict.PASS if (hash_of(name) + shift) % 3 else Verdict.FAIL) for name in names]
            for shift in (0, 1)
        ]
        comparison = compare(side(cells[0]), side(cells[1]))
        rate = comparison.pass_rate
        assert (rate.n_cases, rate.n_pairs) == (4, 12)

    def test_a_turn_is_compared_with_the_same_turn(self, turns: TurnRuns) -> None:
        assert turns.run(run_id="a").exit_code == 0
        turns.bad = {TURNS[1]}
        assert turns.run("--reuse", "none", run_id="b").exit_code == 1
        done = turns("compare", "a", "b", "--runs", turns.out, "--json")
        assert "Graded differently" not in done.output
        result = json.loads(done.stdout)
        assert [(change["test_id"], change["change"]) for change in result["changes"]] == [("cat/2", "broken")]
        assert (result["pass_rate"]["n_pairs"], result["pass_rate"]["n_cases"]) == (4, 2)
        narrowed = turns("compare", "a", "b", "--runs", turns.out, "--json", "--case", "cat")
        assert json.loads(narrowed.stdout)["pass_rate"]["n_pairs"] == 3

    def test_a_baseline_has_every_turn(self, turns: TurnRuns) -> None:
        assert turns.run(run_id="a").exit_code == 0
        assert turns("baseline", "set", turns.out / "a").exit_code == 0
        done = turns("compare", "baseline", turns.out / "a", "--json", "--case", "cat")
        assert json.loads(done.stdout)["counts"]["still_passing"] == 3

    def test_confirm_generates_all_turns_up_to_the_one_that_broke(self, turns: TurnRuns) -> None:
        count = iter(range(100))
        generate = turns._generate

        def new_every_time(request: Any) -> Any:
            turns.salts[request.prompt] = str(next(count))
            return generate(request)

        turns.api.script.generate(new_every_time)
        must_pass = {**CAT, "turns": TURNS}
        turns.edit(cases=[must_pass])
        assert turns.run(run_id="a").exit_code == 0
        turns.bad = {TURNS[1]}
        assert turns.run(run_id="b").exit_code == 1
        turns.forget()
        arguments = ("compare", "a", "b", "--runs", turns.out, "--fail-on", "must_pass", "--confirm", "4")
        done = turns(*arguments)
        assert done.exit_code == 1, done.output
        assert "Graded differently" not in done.output  # other inputs are the model's
        gates = {gate["fail_on"]: gate["message"] for gate in json.loads(turns(*arguments, "--json").stdout)["gates"]}
        assert gates["must_pass"] == "1 of 3 cases tagged must_pass broke: cat/2 (failed 3 of 3)"
        assert [edit.prompt for edit in turns.take_edits()].count(TURNS[1]) == 2
        new = read_confirmations(turns.out / "b")
        assert {record.test_id for record in new} == {"cat/1", "cat/2"}
        by_cell = {(record.test_id, record.sample_index): record for record in new}
        for sample in {record.sample_index for record in new}:
            chain = [by_cell[name, sample] for name in ("cat/1", "cat/2")]
            assert list(links(chain)) == [True]
        repeated = turns(*arguments)
        assert repeated.exit_code == 1
        assert not turns.take_edits()


def hash_of(name: str) -> int:
    return sum(map(ord, name))


def test_pairwise_judges_see_first_turns_only(turns: TurnRuns) -> None:
    host = {"base_url": turns.api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    models = [
        {"provider": "openai", "label": name, "params": {"model": "gpt-image-2", "user": name}, **host} for name in "ab"
    ]
    turns.edit(
        cases=[TAGGED],
        models=models,
        graders=[{"key": "better", "type": "pairwise"}, {"key": "f", "type": "properties"}],
        verdict=["f.blank"],
    )
    turns.salts = {}
    generate = turns._generate

    def by_user(request: Any) -> Any:
        turns.salts[request.prompt] = str(request.params.get("user"))
        return generate(request)

    turns.api.script.generate(by_user)
    turns.api.script.judge({"reason": "so", "answer": "A"})
    assert turns.run().exit_code == 0
    assert {preference.test_id for preference in read_preferences(turns.out / "r")} == {"cat/1"}


def test_two_runs_are_compared_by_their_first_turns(turns: TurnRuns) -> None:
    assert turns.run(run_id="a").exit_code == 0
    turns.salts = dict.fromkeys([*TURNS, "pat it"], "b")
    assert turns.run(run_id="b").exit_code == 0
    turns.api.script.judge({"reason": "so", "answer": "A"})
    done = turns("pairwise", "a", "b", "--runs", turns.out)
    assert done.exit_code == 0, done.output
    assert "2 cells of later turns are left out: their two outputs edit different images" in done.output
    assert {preference.test_id for preference in read_preferences(turns.out / "b")} == {"cat/1", "dog"}


def test_recorded_answers_without_images_are_graded_turn_by_turn(turns: TurnRuns) -> None:
    (turns.folder / "answers.csv").write_text(
        "case,question,answer\ncat/1,nice,false\ncat/2,nice,true\ncat/3,nice,true\n"
    )
    people = {"default": {"provider": "recorded", "path": "answers.csv"}}
    turns.edit(
        cases=[TAGGED], judges=people, models=[{"provider": "files", "label": "m", "outputs": "none"}], prices={}
    )
    assert turns.run().exit_code == 1
    assert [(record.verdict, record.base_path) for record in turns.turns()] == [("FAIL", None), *[("PASS", None)] * 2]


def test_diversity_compares_the_samples_of_each_turn(turns: TurnRuns) -> None:
    count = iter(range(100))
    generate = turns._generate

    def new_every_time(request: Any) -> Any:
        turns.salts[request.prompt] = str(next(count))
        return generate(request)

    turns.api.script.generate(new_every_time)
    turns.edit(
        cases=[{**CAT, "turns": TURNS[:2]}],
        samples=2,
        graders=[{"key": "div", "type": "diversity"}, {"key": "f", "type": "properties"}],
        verdict=["f.blank"],
    )
    assert turns.run().exit_code == 0
    lines = (turns.out / "r" / "diversity.jsonl").read_text().splitlines()
    assert {json.loads(line)["test_id"] for line in lines} == {"cat/1", "cat/2"}
