"""What a generation and a grading depend on, and which rules and graders a cell has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_parts import plan_of
from toys import LOOK, SECOND, Toy

from visioneval import CaseFiles, UsageError
from visioneval.records.key_parts import changed_parts
from visioneval.running.keys import generation_key, grade_key
from visioneval.running.plan import Call
from visioneval.suite.runs import Selection, check_selection, selected

BASE, MASK, REFERENCE = Path("base.png"), Path("mask.png"), Path("reference.png")
CONTENTS: dict[Path, str] = {BASE: "1", MASK: "1", REFERENCE: "1"}


@pytest.fixture
def call(toy: Toy) -> Call:
    """A call with one file of each kind."""
    (call,) = plan_of(toy.write()).calls()
    return replace(call, files=CaseFiles((("base", BASE),), {"editable": MASK}, REFERENCE))


def keys(call: Call, changed: Mapping[Path, str] | None = None) -> tuple[str, str]:
    contents = {**CONTENTS, **(changed or {})}
    return generation_key(call, 0, contents.__getitem__), grade_key(call, contents.__getitem__)


@pytest.mark.parametrize(
    ("file", "generation", "grading"),
    [(BASE, {"images"}, {"images"}), (MASK, {"masks"}, {"masks"}), (REFERENCE, set(), {"reference"})],
)
def test_a_changed_file_changes_what_depends_on_it(
    call: Call, file: Path, generation: set[str], grading: set[str]
) -> None:
    before, after = keys(call), keys(call, {file: "2"})
    assert [set(changed_parts(a, b)) for a, b in zip(before, after, strict=True)] == [generation, grading]


def test_a_turn_depends_on_every_turn_before(call: Call) -> None:
    def last_of_three(first_prompt: str) -> Call:
        first = replace(call, sent_prompt=first_prompt)
        second = replace(call, sent_prompt="make it blue", previous=first)
        return replace(call, sent_prompt="add a hat", previous=second)

    (before, _), (same, _), (after, _) = (keys(last_of_three(prompt)) for prompt in ("a cat", "a cat", "a dog"))
    assert before == same
    assert set(changed_parts(before, after)) == {"earlier-turns"}


def test_a_rule_judges_the_model_runs_that_it_names(toy: Toy) -> None:
    models = [{"provider": "mine:Generate", "label": label} for label in ("old", "new")]
    rules = ["fine", {"rule": "level > 0.9", "models": ["new"]}]
    plan = plan_of(toy.write(models=models, verdict=rules))
    assert {call.run.label: [rule.text for rule, _ in call.grading.rules] for call in plan.calls()} == {
        "old": ["fine"],
        "new": ["fine", "level > 0.9"],
    }


@pytest.mark.parametrize(
    ("gates", "optional"), [([], {"second"}), (["rate(second) >= 0"], set()), (["rate(fine) >= 0"], {"second"})]
)
def test_a_grader_that_only_warns_is_optional_unless_a_gate_reads_it(
    toy: Toy, gates: list[str], optional: set[str]
) -> None:
    suite: dict[str, Any] = {"graders": [LOOK, SECOND], "verdict": ["fine", {"rule": "second", "level": "warn"}]}
    (call,) = plan_of(toy.write(**suite, gates=["pass_rate == 1", *gates])).calls()
    assert call.grading.optional_graders == optional


def test_a_selected_case_brings_the_case_whose_outputs_it_uses(toy: Toy) -> None:
    suite = plan_of(toy.write({}, {"output_of": "case0"}, {})).whole_suite
    assert [case.id for case in selected(suite, Selection(cases=("case1",))).cases] == ["case0", "case1"]


def test_a_tag_that_no_case_has_is_refused(toy: Toy) -> None:
    suite = plan_of(toy.write({"tags": ["logo"]}, {})).whole_suite
    with pytest.raises(UsageError, match=r"^--tag: no case has the tag 'lgo' \(did you mean 'logo'\?\)$"):
        check_selection(suite, Selection(tags=("logo", "lgo")))
