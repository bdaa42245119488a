"""Generates the questions of every prompt without a run, so that users can review and pin them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from visioneval.errors import ExitCode, GraderError, ProviderError, UsageError
from visioneval.graders.base import QuestionMaker
from visioneval.providers.base import CellRef
from visioneval.records.questions import PromptQuestions
from visioneval.running.calls.calls import Calls
from visioneval.running.calls.judges import Judges, Meter
from visioneval.running.calls.settings import CallSettings, check_budget, open_calls
from visioneval.running.cells.services import Components, build_components
from visioneval.running.execution import Outcome, Progress, run_to_end
from visioneval.running.loading import SuiteOptions, load_plan
from visioneval.running.plan import Plan, applies
from visioneval.running.sanitize import sanitizer_for
from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import QUESTIONS, BaseGrader, of_kind

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class PromptTask:
    """A prompt, its cases, and the grader that generates its questions."""

    prompt: str
    cases: tuple[TestCase, ...]
    grader: BaseGrader


@dataclass(frozen=True, slots=True)
class PromptResult:
    """The questions of a prompt, or the error."""

    task: PromptTask
    entry: PromptQuestions | None = None
    error: str | None = None


OnResult = Callable[[PromptResult], None]


@dataclass(frozen=True, slots=True)
class QuestionsOutcome:
    """The results of all prompts in suite order; not ``complete`` if some are missing.

    ``refusal`` is the message of the budget if it stopped the step; otherwise an interrupt did.
    """

    results: list[PromptResult]
    complete: bool
    refusal: str | None = None

    @property
    def exit_code(self) -> ExitCode:
        """3 if the budget stopped it or a prompt has no questions, 130 after an interrupt, otherwise 0."""
        if not self.complete and self.refusal is None:
            return ExitCode.INTERRUPTED
        has_gaps = not self.complete or any(result.error for result in self.results)
        return ExitCode.INCOMPLETE if has_gaps else ExitCode.PASSED

    @property
    def entries(self) -> list[tuple[str, tuple[str, ...], PromptQuestions]]:
        """Prompt, case IDs and questions of all prompts that succeeded."""
        return [
            (result.task.prompt, tuple(case.id for case in result.task.cases), result.entry)
            for result in self.results
            if result.entry
        ]


def questions_of_suite(
    path: Path, suite: SuiteOptions, settings: CallSettings, on_result: OnResult, say: Callable[[str], None]
) -> QuestionsOutcome:
    """Loads a suite and generates the questions of every prompt, as ``make_questions`` does.

    Raises ``UsageError``, ``SuiteError`` and ``BudgetError``, too.
    """
    plan = question_plan(load_plan(path, suite))
    check_budget(plan, settings)
    with open_calls(plan, settings, "", say) as calls:
        return make_questions(plan, build_components(plan), calls, on_result, say)


def question_plan(plan: Plan) -> Plan:
    """The plan with only the graders that ask questions, and no model runs. Raises ``UsageError`` if there are none."""
    asking = of_kind(plan.suite.graders, QUESTIONS)
    graders = tuple(grader.with_judge(grader.judge_names[0]) for grader in asking)
    if not any(applies(grader, case) for grader in graders for case in plan.suite.cases):
        raise UsageError(f"{plan.suite.name}: no gecko grader applies to these cases")
    return replace(plan, suite=plan.suite.model_copy(update={"graders": graders}), runs=(), finished={})


def prompt_tasks(plan: Plan) -> list[PromptTask]:
    """Every prompt once, in suite order. Cases with pinned questions get a task each."""
    tasks: dict[tuple[str, str], PromptTask] = {}
    for case in plan.suite.cases:
        grader = next((each for each in plan.suite.graders if applies(each, case)), None)
        if grader is None or grader.kind is not QUESTIONS:
            continue
        for prompt in plan.graded_prompts(case):
            key = (prompt, case.id if case.questions is not None else "")
            before = tasks.get(key)
            cases = (*(before.cases if before else ()), case)
            tasks[key] = PromptTask(prompt, cases, before.grader if before else grader)
    return list(tasks.values())


def make_questions(
    plan: Plan, components: Components, calls: Calls, on_result: OnResult, say: Callable[[str], None]
) -> QuestionsOutcome:
    """Generates the questions of every prompt. Calls ``on_result`` with each result.

    The first interrupt lets running prompts finish, the second cancels them. Raises ``AuthError`` and
    ``StorageError`` after the calls in flight have ended.
    """
    tasks, judges = prompt_tasks(plan), Judges(plan.suite.judges, components.judges, calls)
    results: dict[int, PromptResult] = {}
    progress = Progress(calls)

    async def make(item: tuple[int, PromptTask]) -> None:
        index, task = item
        case, maker = task.cases[0], cast("QuestionMaker", components.graders[task.grader.key])
        about, meter = CellRef(case.id, "", 0), Meter()
        ask = lambda question: judges.ask(task.grader.judge_names[0], question, about, meter)  # noqa: E731
        try:
            entry = await maker.make_questions(case, task.prompt, ask, plan.templates)
            results[index] = PromptResult(task, entry)
        except (GraderError, ProviderError) as error:
            results[index] = PromptResult(task, error=sanitizer_for(plan).text(error))
        on_result(results[index])

    async def make_all() -> Outcome:
        await progress.work_through(iter(enumerate(tasks)), min(AT_ONCE, len(tasks)), make)
        return progress.outcome(is_left=len(results) < len(tasks))

    run_to_end(make_all, progress, say)
    complete = len(results) == len(tasks)
    return QuestionsOutcome([results[index] for index in sorted(results)], complete, calls.budget.refusal)
