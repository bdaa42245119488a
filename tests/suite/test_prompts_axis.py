"""The suite's ``prompts``: an axis of model runs, the prompt that is sent, and the prompt that graders see."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compare_factory import cell, side
from engine_parts import plan_of
from suite_text import suite
from toys import Toy

from visioneval import UsageError, Verdict, read_info, read_records
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.pairing import pair_cells
from visioneval.media.images import sha256
from visioneval.running.calls.prices import generation_size
from visioneval.running.estimate import estimate
from visioneval.running.keys import call_key, grade_key
from visioneval.running.plan import Call, Plan
from visioneval.running.questions import prompt_tasks
from visioneval.suite.load import LoadedSuite
from visioneval.suite.prompts import without_prompt

PLAIN = {"label": "plain", "template": "{{ case.prompt }}"}
STYLED = {"label": "styled", "template": "{{ case.prompt }}, {{ look }}"}
TWO_MOCKS = [{"provider": "mock", "label": "a"}, {"provider": "mock", "label": "b"}]


def hash_of(path: Path) -> str:
    return sha256(path.read_bytes())


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """``planned(prompts, changes={}, **select)``: the plan of a suite with these prompts."""

    def plan(prompts: list[dict[str, Any]], changes: dict[str, Any] | None = None, **select: Any) -> Plan:
        monkeypatch.chdir(tmp_path)
        text = {
            "name": "demo",
            "vars": {"look": "in ink"},
            "cases": [{"id": "one", "prompt": "a tree", "tags": ["t"]}, {"id": "two", "prompt": "a boat"}],
            "models": [{"provider": "mock", "label": "m"}],
            "graders": [{"key": "image", "type": "properties"}],
            "verdict": ["not image.blank"],
            "prompts": prompts,
            **(changes or {}),
        }
        Path("suite.yaml").write_text(json.dumps(text))
        return plan_of(Path("suite.yaml"), **select)

    return plan


def by_cell(plan: Plan) -> dict[tuple[str, str], Call]:
    return {(each.case.id, call.run.label): each for call in plan.calls() for each in (call, *call.dependents)}


def test_prompts_vary_fastest_and_end_the_label(planned: Callable[..., Plan]) -> None:
    grid = {"models": [{"provider": "mock", "label": "m", "grid": {"seed": [1, 2]}}, {"provider": "mock"}]}
    plan = planned([PLAIN, STYLED], grid)
    labels = [f"{base},prompt={prompt}" for base in ("m,seed=1", "m,seed=2", "mock") for prompt in ("plain", "styled")]
    assert [run.label for run in plan.runs] == labels
    assert plan.cells == 12


def test_without_prompts_labels_and_keys_stay_as_they_are(planned: Callable[..., Plan]) -> None:
    without, axis = planned([]), planned([PLAIN])
    assert [run.label for run in without.runs] == ["m"]
    one, other = next(without.calls()), next(axis.calls())
    assert call_key(one, hash_of) == call_key(other, hash_of)
    assert grade_key(one, hash_of) == grade_key(other, hash_of)


def test_the_template_sees_the_rendered_prompt_the_case_and_the_variables(planned: Callable[..., Plan]) -> None:
    template = (
        "{{ case.prompt }} | {{ case.metadata.k }} | {{ metadata.k }} | {{ look }} | {{ case.id }} | {{ case.task }}"
    )
    cases = {"cases": [{"id": "one", "prompt": "{{ look }} {{ '{{' }}", "metadata": {"k": "v"}}]}
    call = next(planned([{"label": "all", "template": template}], cases).calls())
    assert call.sent_prompt == "in ink {{ | v | v | in ink | one | image_generation"
    assert call.prompt == call.graded_prompt == "in ink {{"


@pytest.mark.parametrize(("graded_as", "seen"), [("case", "a tree"), ("sent", "a tree, in ink")])
def test_graders_see_the_prompt_that_graded_as_names(planned: Callable[..., Plan], graded_as: str, seen: str) -> None:
    plan = planned([PLAIN, {**STYLED, "graded_as": graded_as}])
    calls = by_cell(plan)
    plain, styled = calls["one", "m,prompt=plain"], calls["one", "m,prompt=styled"]
    assert (styled.prompt, styled.sent_prompt, styled.graded_prompt) == ("a tree", "a tree, in ink", seen)
    assert call_key(plain, hash_of) != call_key(styled, hash_of)
    assert (grade_key(plain, hash_of) == grade_key(styled, hash_of)) is (graded_as == "case")


def test_the_same_sent_prompt_is_the_same_generation(planned: Callable[..., Plan]) -> None:
    calls = by_cell(planned([PLAIN, {"label": "same", "template": "{{ case.prompt | trim }}"}]))
    keys = {call_key(calls["one", f"m,prompt={label}"], hash_of) for label in ("plain", "same")}
    assert len(keys) == 1


def test_the_price_bound_counts_the_sent_prompt(planned: Callable[..., Plan]) -> None:
    calls = by_cell(planned([PLAIN, {"label": "long", "template": "{{ case.prompt }}" + "x" * 5000}]))
    sizes = [generation_size(calls["one", f"m,prompt={label}"]).input_tokens for label in ("plain", "long")]
    assert sizes[1] - sizes[0] == 5000


def test_when_leaves_out_cells_but_no_case(planned: Callable[..., Plan]) -> None:
    plan = planned([PLAIN, {**STYLED, "when": {"tags": ["t"]}}], {"samples": 2, "models": TWO_MOCKS})
    assert {(call.case.id, call.run.label) for call in plan.calls()} == {
        ("one", "a,prompt=plain"), ("one", "a,prompt=styled"), ("one", "b,prompt=plain"), ("one", "b,prompt=styled"),
        ("two", "a,prompt=plain"), ("two", "b,prompt=plain"),
    }  # fmt: skip
    work = estimate(plan)
    assert (work.calls, work.cells, plan.cells) == (12, 12, 12)
    counts = [plan.count(case, run)[1] for case in plan.suite.cases for run in plan.runs]
    assert counts == [2, 2, 2, 2, 2, 0, 2, 0]


def test_a_case_with_output_of_has_the_cells_of_its_source(planned: Callable[..., Plan]) -> None:
    counter = {"id": "other", "prompt": "two trees", "output_of": "one", "expect": {"aligned": False}}
    cases = [{"id": "one", "prompt": "a tree", "tags": ["t"]}, {"id": "two", "prompt": "a boat"}, counter]
    prompts = [PLAIN, {**STYLED, "when": {"tags": ["t"]}, "graded_as": "sent"}]
    plan = planned(prompts, {"cases": cases})
    calls = by_cell(plan)
    assert ("other", "m,prompt=styled") in calls
    assert plan.cells == 5
    assert calls["other", "m,prompt=plain"].graded_prompt == "two trees"
    assert calls["other", "m,prompt=styled"].graded_prompt == "two trees, in ink"
    assert plan.graded_prompts(plan.suite.cases[2]) == ("two trees", "two trees, in ink")


def test_the_resolved_suite_expands_to_the_same_model_runs(planned: Callable[..., Plan], tmp_path: Path) -> None:
    models = {"models": [{"provider": "mock", "label": "m", "grid": {"seed": [1, 2]}, "prompts": ["styled"]}]}
    plan = planned([PLAIN, STYLED], models)
    again = planned([PLAIN, STYLED], {"models": [json.loads(run.config.model_dump_json()) for run in plan.runs]})
    assert [run.label for run in again.runs] == ["m,seed=1,prompt=styled", "m,seed=2,prompt=styled"]
    assert [call.sent_prompt for call in again.calls()] == [call.sent_prompt for call in plan.calls()]


def test_existing_outputs_have_no_prompt_in_their_label(
    planned: Callable[..., Plan], save_image: Callable[..., Path]
) -> None:
    save_image("one.png")
    save_image("two.png")
    models = {
        "models": [{"provider": "files", "label": "old", "path": "{case}.png"}, {"provider": "mock", "label": "m"}]
    }
    plan = planned([{**STYLED, "graded_as": "sent", "when": {"tags": ["t"]}}, PLAIN], models)
    assert [run.label for run in plan.runs] == ["old", "m,prompt=styled", "m,prompt=plain"]
    old = by_cell(plan)["two", "old"]
    assert (old.sent_prompt, old.graded_prompt) == ("a boat", "a boat")


def test_flags_select_by_the_label_and_by_what_is_left(planned: Callable[..., Plan]) -> None:
    prompts = [PLAIN, {**STYLED, "when": {"tags": ["t"]}}]
    plan = planned(prompts, models=("*prompt=styled",))
    assert [(call.case.id, call.run.label) for call in plan.calls()] == [("one", "m,prompt=styled")]
    assert [case.id for case in plan.suite.cases] == ["one"]  # two has no cell there
    assert [run.label for run in planned(prompts, cases=("two",)).runs] == ["m,prompt=plain"]
    with pytest.raises(UsageError, match="--model: no match for '\\*prompt=styld'"):
        planned(prompts, models=("*prompt=styld",))


def test_several_outputs_per_call_share_the_sent_prompt(planned: Callable[..., Plan]) -> None:
    host = {"base_url": "http://localhost:9", "api_key_env": "LOCAL_KEY"}
    model = {"provider": "openai", "label": "m", "params": {"model": "gpt-image-2", "n": 3}, **host}
    calls = list(planned([STYLED], {"models": [model], "samples": 2}).calls())
    assert [(call.sent_prompt, call.samples) for call in calls[:2]] == [
        ("a tree, in ink", (0, 1, 2)), ("a tree, in ink", (3, 4, 5))
    ]  # fmt: skip


def test_questions_are_made_for_every_prompt_that_graders_see(planned: Callable[..., Plan]) -> None:
    changes = {
        "graders": [{"key": "gecko", "type": "gecko", "judge": "default"}],
        "judges": {"default": {"provider": "openai", "model": "gpt-5.4-mini"}},
        "verdict": ["gecko >= 0.5"],
        "prices": {"openai:gpt-5.4-mini": {"per_call": 1.0}},
    }
    of_case = planned([PLAIN, STYLED], changes)
    of_sent = planned([PLAIN, {**STYLED, "graded_as": "sent"}], changes)
    assert [task.prompt for task in prompt_tasks(of_case)] == ["a tree", "a boat"]
    assert [task.prompt for task in prompt_tasks(of_sent)] == ["a tree", "a tree, in ink", "a boat", "a boat, in ink"]
    judge_calls = [estimate(plan).costs[0].calls for plan in (of_case, of_sent)]
    assert judge_calls == [4 + 2, 4 + 4]  # four cells, and one call for each prompt's questions


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        (
            "prompts: [{label: a, template: x}, {label: b, template: x, when: {tags: [t], cases: [two]}}]",
            "6:66: warning: no case matches all conditions, so no model run has this prompt",
        ),
        ("prompts: [{label: a, template: x}]", "6:32: warning: all 2 prompts are the same when rendered"),
    ],
)
def test_what_may_not_be_intended_is_a_warning(load: Callable[..., LoadedSuite], lines: str, warning: str) -> None:
    cases = "cases: [{id: one, prompt: a tree, tags: [t]}, {id: two, prompt: b}]"
    messages = [str(each) for each in load(suite(lines, cases=cases)).warnings]
    assert any(warning in message for message in messages), messages


def test_prompts_that_no_model_is_sent_are_a_warning(
    load: Callable[..., LoadedSuite], save_image: Callable[..., Path]
) -> None:
    save_image("one.png")
    axis = "prompts: [{label: a, template: '{{ case.prompt }}'}, {label: b, template: '{{ case.prompt }}!'}]"
    of_files = load(suite(axis, models="models: [{provider: files, label: f, path: '{case}.png'}]"))
    assert "6:10: warning: no model of this suite generates" in str(of_files.warnings[0])
    of_one = load(suite(axis, models="models: [{provider: mock, prompts: [a]}]"))
    assert "6:54: warning: no model uses the prompt 'b'" in str(of_one.warnings[0])


def test_the_prompt_is_the_last_part_of_a_label() -> None:
    assert without_prompt("m,prompt=plain") == "m"
    assert without_prompt("m,seed=1,prompt=a.b-c") == "m,seed=1"
    for label in ("m", "m,seed=1", "prompt=plain", "m,prompt=a,seed=1"):
        assert without_prompt(label) == label


def axis_cells(*labels: str, verdict: str = "PASS") -> list[Any]:
    return [cell(case, verdict, model_label=label) for label in labels for case in ("one", "two")]


def test_model_runs_that_differ_only_in_the_prompt_are_paired() -> None:
    a, b = side(axis_cells("m,prompt=plain", "n,prompt=plain")), side(axis_cells("n,prompt=styled", "m,prompt=styled"))
    pairing = pair_cells(a, b)
    assert dict(pairing.labels) == {"m,prompt=plain": "m,prompt=styled", "n,prompt=plain": "n,prompt=styled"}
    assert (len(pairing.pairs), len(pairing.only_a), len(pairing.only_b)) == (4, 0, 0)
    assert all(without_prompt(pair.a.model_label) == without_prompt(pair.b.model_label) for pair in pairing.pairs)


def test_a_run_from_before_the_axis_is_paired_with_its_one_prompt() -> None:
    pairing = pair_cells(side(axis_cells("m", "n")), side(axis_cells("m,prompt=plain", "n,prompt=plain")))
    assert dict(pairing.labels) == {"m": "m,prompt=plain", "n": "n,prompt=plain"}


def test_equal_labels_and_ambiguous_prompts_are_not_paired_by_the_prompt() -> None:
    both = ("m,prompt=plain", "m,prompt=styled")
    assert dict(pair_cells(side(axis_cells(*both)), side(axis_cells(*both))).labels) == {label: label for label in both}
    one_equal = pair_cells(
        side(axis_cells("m,prompt=plain", "n,prompt=plain")), side(axis_cells("m,prompt=plain", "n,prompt=styled"))
    )
    assert dict(one_equal.labels) == {"m,prompt=plain": "m,prompt=plain"}
    with pytest.raises(UsageError, match="no model run in common"):
        pair_cells(side(axis_cells("m", "n")), side(axis_cells(*both)))


def test_compare_reads_globs_and_shows_both_prompts(toy: Toy) -> None:
    path = toy.write({"tags": ["t"]}, {}, prompts=[PLAIN, {"label": "loud", "template": "{{ case.prompt }}!"}])
    assert toy("run", path, "--trust-suite", "--run-id", "r").exit_code == 0
    shown = toy("compare", "r@*prompt=plain", "r@*prompt=loud", "--html", "c.html")
    assert shown.exit_code == 0, shown.output
    assert "prompt=plain" in shown.output
    assert '!"' in Path("c.html").read_text().split('"sent":', 1)[1][:200]
    unknown = toy("compare", "r@*prompt=plai", "r@*prompt=loud")
    assert unknown.exit_code == 2
    assert "no model run '*prompt=plai'" in unknown.output


def test_records_resume_grade_and_baselines(toy: Toy) -> None:
    toy.write({}, prompts=[PLAIN, {"label": "loud", "template": "{{ case.prompt }}!", "graded_as": "sent"}])
    assert toy("run", "suite.yaml", "--trust-suite", "--run-id", "r").exit_code == 0
    folder = Path("runs/r")
    records = {record.model_label.rpartition("=")[2]: record for record in read_records(folder)}
    own = records["plain"].prompt
    assert (records["plain"].sent_prompt, records["plain"].graded_prompt) == (None, None)
    assert (records["loud"].prompt, records["loud"].sent_prompt, records["loud"].graded_prompt) == (
        own,
        f"{own}!",
        f"{own}!",
    )
    assert records["loud"].shown_prompt == f"{own}!"
    assert f"{own}!" in toy("show", "r", "case0").output
    assert toy("baseline", "set", "r").exit_code == 0
    assert toy("compare", "baseline", "r@*prompt=loud", "--fail-on", "broken").exit_code == 0
    # a changed template generates its own cells again, and no others
    toy.write({}, prompts=[PLAIN, {"label": "loud", "template": "{{ case.prompt }}!!"}])
    resumed = toy("run", "suite.yaml", "--trust-suite", "--resume", "r")
    assert resumed.exit_code == 0, resumed.output
    after = {record.model_label.rpartition("=")[2]: record for record in read_records(folder)}
    assert after["plain"] == records["plain"]
    assert (after["loud"].sent_prompt, after["loud"].graded_prompt) == (f"{own}!!", None)
    # grade generates nothing: the record keeps what was sent
    toy.write({}, prompts=[PLAIN, {"label": "loud", "template": "{{ case.prompt }}?", "graded_as": "sent"}])
    graded = toy("grade", "r", "--suite", "suite.yaml", "--trust-suite", "--run-id", "g")
    assert graded.exit_code == 0, graded.output
    assert "1 images were generated from a prompt that has since changed" in graded.output
    loud = next(record for record in read_records(Path("runs/g")) if record.model_label.endswith("loud"))
    assert (loud.prompt, loud.sent_prompt, loud.graded_prompt) == (own, f"{own}!!", f"{own}?")
    part = toy("grade", "r@*prompt=plain", "--trust-suite", "--run-id", "p")
    assert part.exit_code == 0, part.output
    assert [record.model_label for record in read_records(Path("runs/p"))] == [records["plain"].model_label]
    assert read_info(Path("runs/p")).graded_from == "r@*prompt=plain"


def test_equal_sent_prompts_are_generated_once_with_a_cache(toy: Toy) -> None:
    toy.write({}, prompts=[PLAIN, {"label": "same", "template": "{{ case.prompt }}"}])
    assert toy("run", "suite.yaml", "--trust-suite", "--cache", "c", "--run-id", "r").exit_code == 0
    hashes = {record.artifact_sha256 for record in read_records(Path("runs/r"))}
    assert len(hashes) == 1
    assert toy("run", "suite.yaml", "--trust-suite", "--cache", "c", "--offline", "--run-id", "s").exit_code == 0
    assert all(record.cached for record in read_records(Path("runs/s")))


def test_a_lost_cell_of_a_paired_prompt_is_reported() -> None:
    a, b = side(axis_cells("m,prompt=plain")), side([cell("one", model_label="m,prompt=long")])
    comparison = compare(a, replace(b, is_narrowed=True))
    assert [lost.test_id for lost in comparison.only_a] == ["two"]
    assert next(iter(comparison.pairs)).a.verdict is Verdict.PASS
