"""Checks of judges and of the graders that use them: hosts and templates. API keys are checked by the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from visioneval.errors import Problem, TemplateError
from visioneval.registry import JUDGES, check_of
from visioneval.resources import builtin
from visioneval.suite.checks.panels import panel_problems
from visioneval.suite.checks.templates import RULES, template_findings
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judge_prompt import JudgeTemplate
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.loading.messages import Loc, untrusted_code_message
from visioneval.suite.loading.paths import Trust
from visioneval.suite.model import Suite, template_folders
from visioneval.suite.prompts import rendered
from visioneval.suite.remote import Remote
from visioneval.templates.render import render_file, template_files

Problems = Iterator[tuple[Loc, str] | Problem]


def judge_problems(suite: Suite, folder: Path, trust: Trust) -> Problems:
    """Problems of ``judges:``, of hosts that would receive a key, and of graders that use a judge."""
    for index, entry in enumerate(suite.models):
        if isinstance(entry, Remote):
            yield from ((("models", index, key), problem) for key, problem in _remote(entry, trust))
    for name, judge in suite.judges.items():
        for found_problem in _judge(judge, folder, trust):
            yield (
                found_problem
                if isinstance(found_problem, Problem)
                else (("judges", name, *found_problem[0]), found_problem[1])
            )
    yield from panel_problems(suite)
    if suite.templates_dir and (refusal := trust.refusal(suite.templates_dir, folder)):
        yield ("templates_dir",), refusal
        return
    yield from _templates(suite, folder, trust)


def _judge(judge: BaseJudge, folder: Path, trust: Trust) -> Problems:
    if judge.runs_code and not trust.everything:
        yield ("provider",), untrusted_code_message(judge.provider_name, getattr(judge, "options", None))
    if isinstance(judge, Remote):
        yield from (((key,), problem) for key, problem in _remote(judge, trust))
    if check := check_of(JUDGES, judge.provider_name, "problems"):
        yield from check(judge, folder, trust)


def _remote(entry: Remote, trust: Trust) -> Iterator[tuple[str, str]]:
    """Hosts and credentials that the entry may not use, each with the key that names it."""
    if problem := entry.host_problem(trusted=trust.everything):
        yield "base_url", problem
    if problem := entry.credentials_problem(trusted=trust.everything):
        yield "google", problem


def judge_warnings(suite: Suite, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str]]:
    """What a template leaves out although a run with it is possible: each message once, where it applies first."""
    folders = template_folders(suite, folder, builtin("prompts"))
    reported: set[str] = set()
    for index, grader in enumerate(suite.graders):
        for template in grader.judge_templates:
            if _file_problems(template.name, folders=folders, trust=trust):
                continue
            for finding in template_findings(template, folders, suite.vars):
                if not finding.is_error and finding.message not in reported:
                    reported.add(finding.message)
                    yield ("graders", index, template.option), finding.message


def _templates(suite: Suite, folder: Path, trust: Trust) -> Problems:
    """Checks what the templates use, and renders each for every case that it applies to."""
    folders = template_folders(suite, folder, builtin("prompts"))
    file_problems = lru_cache(maxsize=None)(partial(_file_problems, folders=folders, trust=trust))
    for index, grader in enumerate(suite.graders):
        options = {template.name: template.option for template in grader.judge_templates}
        for template in grader.judge_templates:
            if file_problems(template.name):
                continue  # reported if a case uses it
            for finding in template_findings(template, folders, suite.vars):
                if finding.is_error:
                    yield ("graders", index, template.option), finding.message
        for name, message in _case_problems(suite, grader, folders, file_problems):
            yield ("graders", index, options.get(name, "template")), message


def _case_problems(
    suite: Suite,
    grader: BaseGrader,
    folders: tuple[Path, ...],
    file_problems: Callable[[str], list[str]],
) -> Iterator[tuple[str, str]]:
    """Templates that cannot be read or rendered for a case, so that no variable is undefined in the run."""
    reported: set[str] = set()
    declared = {template.name: template for template in grader.judge_templates}
    for case in suite.cases:
        if grader.when is not None and not grader.when.fits(case.id, case.task_type, case.tags):
            continue
        try:
            prompt, criteria = rendered(case, suite.vars)
        except TemplateError:
            continue  # reported for the case itself
        resolved = case.model_copy(update={"criteria": criteria})
        for template, context in grader.template_contexts(resolved, prompt, variables=suite.vars):
            problems = file_problems(template) or _render_problems(template, context, folders, declared.get(template))
            for message in problems:
                if message not in reported:
                    reported.add(message)
                    yield template, f"{message} (case {case.id!r})"


def _file_problems(template: str, *, folders: tuple[Path, ...], trust: Trust) -> list[str]:
    """Why a template, or a template that it includes, cannot or must not be read."""
    shipped = builtin("prompts")
    try:
        files = template_files(template, folders)
    except TemplateError as error:
        return [_about(template, error)]
    suite_files = [path for path in files.values() if not path.is_relative_to(shipped)]
    return [refusal for path in suite_files if (refusal := trust.refusal(str(path), path.parent))]


def _render_problems(
    template: str, context: Mapping[str, Any], folders: tuple[Path, ...], declared: JudgeTemplate | None
) -> list[str]:
    """Why a template does not render for a case, except for what ``template_findings`` reports."""
    try:
        render_file(template, folders, context)
    except TemplateError as error:
        if declared is not None and f"{RULES!r} is not set" in str(error):
            return []
        hidden = declared.hidden if declared else ()
        withheld = next((name for name in hidden if f"{name!r} is not set" in str(error)), None)
        if withheld is not None:
            return [f"{template}: uses {withheld!r}, which this grader does not show: see its option 'show'"]
        return [_about(template, error)]
    return []


def _about(template: str, error: TemplateError) -> str:
    return str(error) if template in str(error) else f"{template}: {error}"
