"""Checks of judges and of the graders that use them: hosts and templates. API keys are checked by the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from visioneval.errors import Problem, TemplateError
from visioneval.registry import JUDGES, check_of
from visioneval.resources import builtin
from visioneval.suite.cases.prompts import rendered
from visioneval.suite.checks.panels import panel_problems
from visioneval.suite.checks.rules import SuiteContext
from visioneval.suite.checks.templates import RULES, ShownVariables, template_findings
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judge_prompt import JudgeTemplate
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.loading.messages import Loc, SuiteWarning, untrusted_code_message
from visioneval.suite.loading.paths import Trust
from visioneval.suite.model import Suite, template_folders
from visioneval.suite.remote import Remote
from visioneval.templates.render import Templates
from visioneval.templates.shown import set_values, shown_values

Problems = Iterator[tuple[Loc, str] | Problem]


def judge_problems(suite: Suite, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str] | Problem | SuiteWarning]:
    """Problems of ``judges:``, of hosts that would receive a key, and of graders that use a judge, with warnings."""
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


def recorded_answer_problems(
    view: SuiteContext, folder: Path, trust: Trust
) -> Iterator[tuple[Loc, str] | Problem | SuiteWarning]:
    """Recorded answers that the run could not use, with warnings about cells without one."""
    for name, judge in view.suite.judges.items():
        if check := check_of(JUDGES, judge.provider_name, "answer_problems"):
            graders = [grader for grader in view.suite.graders if name in grader.judge_names]
            for entry in check(judge, folder, trust, view, graders):
                if isinstance(entry, Problem):
                    yield entry
                elif isinstance(entry, SuiteWarning):
                    yield SuiteWarning(("judges", name, *entry.loc), entry.message)
                else:
                    yield ("judges", name, *entry[0]), entry[1]


def _judge(judge: BaseJudge, folder: Path, trust: Trust) -> Problems:
    if judge.needs_trust and not trust.everything:
        yield ("provider",), untrusted_code_message(judge.provider_name, getattr(judge, "options", None))
    if isinstance(judge, Remote):
        yield from (((key,), problem) for key, problem in _remote(judge, trust))
    if check := check_of(JUDGES, judge.provider_name, "problems"):
        yield from check(judge, folder, trust)


def _remote(entry: Remote, trust: Trust) -> Iterator[tuple[str, str]]:
    """Hosts and credentials that the entry may not use, each with the key that names it."""
    if problem := entry.host_problem(trusted=trust.everything):
        yield "base_url", problem
    if (refusal := entry.credentials_problem(trusted=trust.everything)) is not None:
        yield refusal
    if problem := entry.output_hosts_problem(trusted=trust.everything):
        yield "output_hosts", problem


def _templates(suite: Suite, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """Renders each template for every case that it applies to, and checks what it shows.

    A warning comes once, where it applies first.
    """
    templates = Templates(template_folders(suite, folder, builtin("prompts")))
    file_problems = lru_cache(maxsize=None)(partial(_file_problems, templates=templates, trust=trust))
    warned: set[str] = set()
    for index, grader in enumerate(suite.graders):
        declared: dict[str, JudgeTemplate] = {}
        shown: dict[str, dict[str, ShownVariables]] = {}
        case_problems = list(_case_problems(suite, grader, templates, file_problems, declared, shown))
        for template in declared.values():
            if file_problems(template.name):
                continue  # reported if a case uses it
            for finding in template_findings(template, templates, suite.vars, shown.get(template.name, {})):
                loc = ("graders", index, template.option)
                if finding.is_error:
                    yield loc, finding.message
                elif finding.message not in warned:
                    warned.add(finding.message)
                    yield SuiteWarning(loc, finding.message)
        for name, message in case_problems:
            yield ("graders", index, declared[name].option if name in declared else "template"), message


def _case_problems(
    suite: Suite,
    grader: BaseGrader,
    templates: Templates,
    file_problems: Callable[[str], list[str]],
    declared: dict[str, JudgeTemplate],
    shown: dict[str, dict[str, ShownVariables]],
) -> Iterator[tuple[str, str]]:
    """Templates that cannot be read or rendered for a case, so that no variable is undefined in the run.

    Adds the grader's templates to ``declared``, by name, and what they show of each case to ``shown``.
    """
    reported: set[str] = set()
    for case in suite.cases:
        if not grader.is_for(case):
            continue
        try:
            prompt, criteria = rendered(case, suite.vars)
        except TemplateError:
            continue  # reported for the case itself
        resolved = case.model_copy(update={"criteria": criteria})
        try:
            by_name = {template.name: template for template in grader.judge_templates(resolved, suite.vars)}
            contexts = list(grader.template_contexts(resolved, prompt, variables=suite.vars))
        except TemplateError as error:
            yield "", f"the name of the template: {error} (case {case.id!r})"
            return
        declared |= by_name
        for name, context in contexts:
            template = by_name.get(name)
            variables = shown.setdefault(name, {}).setdefault(case.id, ShownVariables())
            problems = file_problems(name) or _render_problems(name, context, templates, template, variables)
            for message in problems:
                if message not in reported:
                    reported.add(message)
                    yield name, f"{message} (case {case.id!r})"


def _file_problems(template: str, *, templates: Templates, trust: Trust) -> list[str]:
    """Why a template, or a template that it includes, cannot or must not be read."""
    shipped = builtin("prompts")
    try:
        files = templates.files(template)
    except TemplateError as error:
        return [_about(template, error)]
    suite_files = [path for path in files.values() if not path.is_relative_to(shipped)]
    return [refusal for path in suite_files if (refusal := trust.refusal(str(path), path.parent))]


def _render_problems(
    name: str,
    context: Mapping[str, Any],
    templates: Templates,
    template: JudgeTemplate | None,
    variables: ShownVariables,
) -> list[str]:
    """Why a template does not render for a case, except for what ``template_findings`` reports.

    If it renders, adds what it shows to the ``variables`` of the case.
    """
    render = partial(templates.render, name)
    try:
        output = render(context)
    except TemplateError as error:
        if template is not None and f"{RULES!r} is not set" in str(error):
            return []
        hidden = template.hidden if template else ()
        withheld = next((variable for variable in hidden if f"{variable!r} is not set" in str(error)), None)
        if withheld is not None:
            return [f"{name}: uses {withheld!r}, which this grader does not show: see its option 'show'"]
        return [_about(name, error)]
    if template is not None:
        repeats = bool(template.without_ids) and all(sign in output for sign in template.without_ids)
        ids = () if repeats else template.ids
        names = set_values((*template.must_show, *template.instead, *ids), context)
        variables.has_value |= names
        variables.shown |= shown_values(names - variables.shown, context, output, render)
    return []


def _about(template: str, error: TemplateError) -> str:
    return str(error) if template in str(error) else f"{template}: {error}"
