"""Generating the questions of every prompt without a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from engine_parts import StubJudge, calls_for, plan_of
from toys import LOOK, Toy

from visioneval import AuthError, BudgetError, GraderError, ProviderError, Question, StorageError, TestCase, UsageError
from visioneval.judging.ask import Ask
from visioneval.records.questions import PromptQuestions, prompt_sha256
from visioneval.running.calls.calls import Calls
from visioneval.running.cells.services import Components
from visioneval.running.jobs import copy_questions
from visioneval.running.plan import Plan
from visioneval.running.questions import PromptResult, QuestionsOutcome, make_questions, prompt_tasks, question_plan
from visioneval.templates.render import Templates

GECKO = {"key": "gecko", "type": "gecko"}
PINNED = [{"id": "q1", "question": "Is it blue?", "type": "color"}]
JUDGE = {"provider": "openai", "model": "gpt-5.4"}


def suite(**changes: Any) -> dict[str, Any]:
    known = {
        "models": [{"provider": "mock"}],
        "judges": {"default": JUDGE},
        "graders": [LOOK, GECKO],
        "verdict": ["fine"],
    }
    return {**known, **changes}


def plan_for(toy: Toy, *cases: dict[str, Any], **changes: Any) -> Plan:
    return question_plan(plan_of(toy.write(*cases, **suite(**changes))))


def test_only_graders_that_ask_questions_remain(toy: Toy) -> None:
    plan = plan_for(toy)
    assert [grader.key for grader in plan.suite.graders] == ["gecko"]
    assert (plan.runs, plan.finished, list(plan.judges)) == ((), {}, ["default"])


@pytest.mark.parametrize("graders", [[LOOK], [LOOK, {**GECKO, "when": {"tags": ["x"]}}]])
def test_a_suite_without_questions_is_refused(toy: Toy, graders: list[dict[str, Any]]) -> None:
    plan = plan_of(toy.write({}, {"tags": ["x"]}, **suite(graders=graders)), cases=("case0",))
    with pytest.raises(UsageError, match="toy: no gecko grader applies to these cases"):
        question_plan(plan)


def test_cases_with_the_same_prompt_share_a_task(toy: Toy) -> None:
    cases: list[dict[str, Any]] = [{"prompt": "a {{ thing }}"}, {"prompt": "a boat"}, {"prompt": "a tree"}]
    tasks = prompt_tasks(plan_for(toy, *cases, vars={"thing": "tree"}))
    assert [(task.prompt, [case.id for case in task.cases], task.grader.key) for task in tasks] == [
        ("a tree", ["case0", "case2"], "gecko"), ("a boat", ["case1"], "gecko")
    ]  # fmt: skip


def test_a_case_with_pinned_questions_has_a_separate_task(toy: Toy) -> None:
    tasks = prompt_tasks(plan_for(toy, {}, {"questions": PINNED}, {"questions": PINNED}, {}))
    assert [[case.id for case in task.cases] for task in tasks] == [["case0", "case3"], ["case1"], ["case2"]]


def test_a_case_that_the_grader_skips_has_no_task(toy: Toy) -> None:
    graders = [LOOK, {**GECKO, "when": {"tags": ["x"]}}]
    tasks = prompt_tasks(plan_for(toy, {}, {"prompt": "a boat", "tags": ["x"]}, graders=graders))
    assert [task.prompt for task in tasks] == ["a boat"]


@dataclass
class QuestionMaker:
    """A grader that asks about each prompt, and fails for prompts in ``errors``."""

    errors: dict[str, Exception] = field(default_factory=dict)

    async def make_questions(self, case: TestCase, prompt: str, ask: Ask, templates: Templates) -> PromptQuestions:
        if prompt in self.errors:
            raise self.errors[prompt]
        reply = await ask(Question((prompt,)))
        return PromptQuestions(
            prompt_sha256=prompt_sha256(prompt), keywords=reply.text, source="generated", questions=()
        )


def make_all(
    plan: Plan, watched: list[PromptResult] | None = None, calls: Calls | None = None, **errors: Exception
) -> QuestionsOutcome:
    """The outcome for a plan whose prompts may fail with ``errors``."""
    judge = StubJudge()
    components = Components({}, {"gecko": QuestionMaker(errors)}, {"default": judge})  # type: ignore[dict-item]
    collected = [] if watched is None else watched
    outcome = make_questions(plan, components, calls or calls_for(plan), collected.append, lambda _: None)
    assert {about.model_label for about in judge.asked} <= {""}, "questions are those of no model run"
    return outcome


PROMPTS = [{"prompt": name} for name in ("a", "b", "c")]


def test_results_are_in_the_order_of_the_suite(toy: Toy) -> None:
    watched: list[PromptResult] = []
    outcome = make_all(plan_for(toy, *PROMPTS), watched)
    assert [result.entry and result.entry.keywords for result in outcome.results] == ["about a", "about b", "about c"]
    assert (outcome.complete, outcome.refusal, len(watched)) == (True, None, 3)


@pytest.mark.parametrize("error", [GraderError("unusable"), ProviderError("down", kind="transient")])
def test_a_prompt_that_fails_does_not_stop_the_others(toy: Toy, error: Exception) -> None:
    outcome = make_all(plan_for(toy, *PROMPTS), b=error)
    assert [result.error for result in outcome.results] == [None, str(error), None]
    assert outcome.complete
    assert [(prompt, cases, entry.keywords) for prompt, cases, entry in outcome.entries] == [
        ("a", ("case0",), "about a"), ("c", ("case2",), "about c")
    ]  # fmt: skip


def test_secrets_are_removed_from_errors(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_TOKEN", "hunter2-hunter2")
    outcome = make_all(plan_for(toy, *PROMPTS), a=GraderError("with hunter2-hunter2"))
    assert outcome.results[0].error == "with ***"


@pytest.mark.parametrize("error", [AuthError("refused"), StorageError("disk full"), RuntimeError("a bug")])
def test_a_fault_is_raised(toy: Toy, error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        make_all(plan_for(toy, *PROMPTS), a=error)


def test_an_exhausted_budget_leaves_prompts_out(toy: Toy) -> None:
    plan = plan_for(toy, *PROMPTS)
    calls = calls_for(plan)
    calls.budget.refusal = "the budget is used up"
    outcome = make_all(plan, calls=calls, c=BudgetError("used up"))
    assert (outcome.complete, outcome.refusal) == (False, "the budget is used up")
    assert "c" not in [result.task.prompt for result in outcome.results]


def test_questions_that_cannot_be_copied_stop_the_run(tmp_path: Path) -> None:
    for name in ("source", "target/questions.json"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "source/questions.json").write_text("{}")
    with pytest.raises(StorageError, match=r"target/questions\.json: cannot write: "):
        copy_questions(tmp_path / "source", tmp_path / "target")
