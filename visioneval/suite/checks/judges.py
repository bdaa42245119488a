"""Checks of judges and of everything that asks one: keys are left to the run, hosts and templates are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from visioneval.errors import Problem, TemplateError
from visioneval.registry import JUDGES, check_of
from visioneval.resources import builtin
from visioneval.suite.judges import BaseJudge
from visioneval.suite.loading.messages import Loc, did_you_mean, runs_code
from visioneval.suite.loading.paths import Trust
from visioneval.suite.model import Suite, template_folders
from visioneval.suite.prompts import rendered
from visioneval.suite.remote import Remote
from visioneval.templates.render import render_file, template_files

Found = Iterator[tuple[Loc, str] | Problem]


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
    if suite.templates_dir and (refusal := trust.refusal(suite.templates_dir, folder)):
        yield ("templates_dir",), refusal
        return
    yield from _templates(suite, folder, trust)


def _judge(judge: BaseJudge, folder: Path, trust: Trust) -> Found:
    if judge.runs_code and not trust.everything:
        yield ("provider",), runs_code(judge.provider_name, getattr(judge, "options", None))
    if isinstance(judge, Remote):
        yield from (((key,), problem) for key, problem in _remote(judge, trust))
    if check := check_of(JUDGES, judge.provider_name, "problems"):
        yield from check(judge, folder, trust)


def _remote(entry: Remote, trust: Trust) -> Iterator[tuple[str, str]]:
    """What must not be sent where the entry says, by the key that says so."""
    if problem := entry.host_problem(trusted=trust.everything):
        yield "base_url", problem
    if problem := entry.credentials_problem(trusted=trust.everything):
        yield "google", problem


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
            rules = [rule.rule for rule in case.verdict or suite.verdict if rule.level == "fail"]
            for template, seen in grader.template_contexts(shown, prompt, rules=rules, variables=suite.vars):
                for message in unreadable(template) or _misrendered(template, seen, folders):
                    if message not in said:
                        said.add(message)
                        yield loc, f"{message} (case {case.id!r})"


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
