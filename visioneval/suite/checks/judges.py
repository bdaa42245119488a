"""Checks of judges and of everything that asks one: keys are left to the run, hosts and templates are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from visioneval.errors import Problem, SuiteError, TemplateError, VisionEvalError
from visioneval.graders.alignment.config import alignment_context
from visioneval.graders.gecko.config import CHECK, asking_context, checking_context, making_context
from visioneval.graders.pairwise.config import pairwise_context
from visioneval.resources import builtin
from visioneval.suite.case import TestCase
from visioneval.suite.graders import (
    AlignmentGrader,
    BaseGrader,
    GeckoGrader,
    PairwiseGrader,
    RubricGrader,
    TextGrader,
    is_video,
)
from visioneval.suite.judge_prompt import rubric_context, rubric_groups, rules_over, text_contexts
from visioneval.suite.judges import BaseJudge, RecordedJudge
from visioneval.suite.loading.datasets import missing_columns, read_rows
from visioneval.suite.loading.messages import Loc, did_you_mean, runs_code
from visioneval.suite.loading.paths import Trust
from visioneval.suite.model import Suite, template_folders
from visioneval.suite.prompts import rendered
from visioneval.suite.questions import GeckoQuestion
from visioneval.suite.remote import Remote
from visioneval.templates.render import render_file, template_files

Found = Iterator[tuple[Loc, str] | Problem]
_OUTPUT = ({"id": "output", "about": "the picture to judge"},)


def judge_problems(suite: Suite, folder: Path, trust: Trust) -> Found:
    """Problems of ``judges:``, of hosts that would be sent a key, and of the graders that ask."""
    for index, entry in enumerate(suite.models):
        if isinstance(entry, Remote):
            yield from ((("models", index, key), problem) for key, problem in _remote(entry, trust))
    for name, judge in suite.judges.items():
        for found in _judge(judge, folder, trust):
            yield found if isinstance(found, Problem) else (("judges", name, *found[0]), found[1])
    for index, grader in enumerate(suite.graders):
        asked = grader.judge_name
        if asked is not None and asked not in suite.judges:
            hint = did_you_mean(asked, suite.judges)
            yield ("graders", index, "judge"), f"there is no judge {asked!r} under 'judges:'{hint}"
    yield from _zooms(suite)
    if suite.prompts_dir and (refusal := trust.refusal(suite.prompts_dir, folder)):
        yield ("prompts_dir",), refusal
        return
    yield from _templates(suite, folder, trust)


def _zooms(suite: Suite) -> Found:
    """A judge crops pictures; a video has none to crop."""
    for index, grader in enumerate(suite.graders):
        if isinstance(grader, RubricGrader) and grader.zoom is not None:
            when = grader.when
            seen = (case for case in suite.cases if when is None or when.fits(case.id, case.task_type, case.tags))
            videos = (case.id for case in seen if is_video(case))
            if name := next(videos, None):
                yield ("graders", index, "zoom"), f"zoom is for pictures, and the case {name!r} is about a video"


def _judge(judge: BaseJudge, folder: Path, trust: Trust) -> Found:
    if judge.runs_code and not trust.everything:
        name = getattr(judge, "provider", "")
        yield ("provider",), runs_code(str(name))
    if isinstance(judge, Remote):
        yield from (((key,), problem) for key, problem in _remote(judge, trust))
    if isinstance(judge, RecordedJudge):
        yield from _recorded(judge, folder, trust)


def _remote(entry: Remote, trust: Trust) -> Iterator[tuple[str, str]]:
    """What must not be sent where the entry says, by the key that says so."""
    if problem := entry.host_problem(trusted=trust.everything):
        yield "base_url", problem
    if problem := entry.credentials_problem(trusted=trust.everything):
        yield "google", problem


def _recorded(judge: RecordedJudge, folder: Path, trust: Trust) -> Found:
    if refusal := trust.refusal(judge.path, folder):
        yield ("path",), refusal
        return
    try:
        rows = read_rows(folder / judge.path, judge.path)
    except SuiteError as error:
        yield from error.problems
    except VisionEvalError as error:
        yield ("path",), f"{judge.path}: {error}"
    else:
        for key, message in missing_columns(rows, judge.fields.model_dump(exclude_none=True)):
            yield ("fields", key), message


def _templates(suite: Suite, folder: Path, trust: Trust) -> Found:
    """Renders every template of a judge for every case that it is for, so that nothing is undefined in the run."""
    folders = template_folders(suite, folder, builtin("prompts"))
    unreadable = lru_cache(maxsize=None)(partial(_unreadable, folders=folders, trust=trust))
    for index, grader in enumerate(suite.graders):
        loc = ("graders", index, "template")
        said: set[str] = set()
        for case in suite.cases:
            if grader.when is not None and not grader.when.fits(case.id, case.task_type, case.tags):
                continue
            try:
                prompt, criteria = rendered(case, suite.vars)
            except TemplateError:
                continue  # told of the case itself
            shown = case.model_copy(update={"criteria": criteria})
            for template, seen in _asked(grader, shown, prompt, suite):
                for message in unreadable(template) or _misrendered(template, seen, folders):
                    if message not in said:
                        said.add(message)
                        yield loc, f"{message} (case {case.id!r})"


def _asked(grader: BaseGrader, case: TestCase, prompt: str, suite: Suite) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every template that the grader has filled in for a case, and what it sees."""
    if isinstance(grader, TextGrader) and grader.judge_name is not None and case.expect.text is not None:
        yield from text_contexts(case, prompt, "a description", describe=grader.describe).items()
    if isinstance(grader, AlignmentGrader):
        yield grader.template, alignment_context(case, prompt, pictures=_OUTPUT, variables=suite.vars)
    if isinstance(grader, PairwiseGrader):
        yield grader.template, pairwise_context(case, prompt, pictures=_OUTPUT, variables=suite.vars)
    if isinstance(grader, GeckoGrader) and grader.metrics(case):
        yield from _gecko(grader, case, prompt)
    if isinstance(grader, RubricGrader):
        rules = [rule.rule for rule in case.verdict or suite.verdict if rule.level == "fail"]
        for metrics in rubric_groups(grader):
            yield (
                grader.template,
                rubric_context(
                    case,
                    prompt,
                    grader,
                    metrics,
                    rules=rules_over(rules, metrics),
                    pictures=_OUTPUT,
                    variables=suite.vars,
                ),
            )


def _gecko(grader: GeckoGrader, case: TestCase, prompt: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    asked = [*(case.questions or ()), *case.add_questions] or [GeckoQuestion(id="q1", question="Is it there?")]
    yield grader.template_for_answers, asking_context(asked)
    if case.questions is None:
        yield grader.template_for_questions, making_context(grader.media, prompt)
        if grader.check_questions:
            yield CHECK, checking_context(prompt, asked)


def _unreadable(template: str, *, folders: tuple[Path, ...], trust: Trust) -> list[str]:
    """Why a template, or one that it names, cannot or must not be read."""
    shipped = builtin("prompts")
    try:
        files = template_files(template, folders)
    except TemplateError as error:
        return [_about(template, error)]
    own = [path for path in files.values() if not path.is_relative_to(shipped)]
    return [refusal for path in own if (refusal := trust.refusal(str(path), path.parent))]


def _misrendered(template: str, seen: Mapping[str, Any], folders: tuple[Path, ...]) -> list[str]:
    """Why a template does not render for a case."""
    try:
        render_file(template, folders, seen)
    except TemplateError as error:
        return [_about(template, error)]
    return []


def _about(template: str, error: TemplateError) -> str:
    return str(error) if template in str(error) else f"{template}: {error}"
