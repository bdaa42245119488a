"""Checks of judges and of the graders that use them: hosts, panels, templates. API keys are checked by the run.

Templates of judges must show what was asked, and use no variable that a judge must not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from visioneval.errors import Problem, TemplateError, did_you_mean
from visioneval.installation import builtin
from visioneval.plugins import JUDGES, check_of
from visioneval.suite.checks.generation import CaseTexts
from visioneval.suite.checks.rules import Problems, SuiteContext
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judges import JudgeTemplate, combinations_of
from visioneval.suite.files import Trust
from visioneval.suite.messages import Loc, SuiteWarning, untrusted_code_message
from visioneval.suite.model import Suite, template_folders
from visioneval.suite.remote import Remote
from visioneval.templates.render import Templates, set_values, shown_values
from visioneval.types import Metric

Finding = tuple[Loc, str] | Problem | SuiteWarning


def judge_problems(suite: Suite, folder: Path, trust: Trust, texts: CaseTexts) -> Iterator[Finding]:
    """Problems of ``judges:``, of hosts that would receive a key, and of graders that use a judge, with warnings."""
    for index, entry in enumerate(suite.models):
        if isinstance(entry, Remote):
            yield from ((("models", index, key), problem) for key, problem in _remote(entry, trust))
    for name, judge in suite.judges.items():
        loc = ("judges", name)
        if judge.needs_trust and not trust.everything:
            options = getattr(judge, "options", None)
            yield (*loc, "provider"), untrusted_code_message(judge.provider_name, options)
        if isinstance(judge, Remote):
            yield from (((*loc, key), problem) for key, problem in _remote(judge, trust))
        if check := check_of(JUDGES, judge.provider_name, "problems"):
            yield from (_located(problem, loc) for problem in check(judge, folder, trust))
    for index, grader in enumerate(suite.graders):
        for key, message in (*_panel_judges(suite, grader), *_panel_options(suite, grader)):
            yield ("graders", index, *key), message
    if suite.templates_dir and (refusal := trust.refusal(suite.templates_dir, folder)):
        yield ("templates_dir",), refusal
        return
    yield from _templates(suite, folder, trust, texts)


def recorded_answer_problems(view: SuiteContext, folder: Path, trust: Trust) -> Iterator[Finding]:
    """Recorded answers that the run could not use, with warnings about cells without one."""
    for name, judge in view.suite.judges.items():
        if check := check_of(JUDGES, judge.provider_name, "answer_problems"):
            graders = [grader for grader in view.suite.graders if name in grader.judge_names]
            problems = check(judge, folder, trust, view, graders)
            yield from (_located(problem, ("judges", name)) for problem in problems)


def _located(problem: Finding, loc: Loc) -> Finding:
    """The same problem in the suite, where its path is below ``loc``. One in another file has its position."""
    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, SuiteWarning):
        return SuiteWarning((*loc, *problem.loc), problem.message)
    return (*loc, *problem[0]), problem[1]


def _remote(entry: Remote, trust: Trust) -> Iterator[tuple[str, str]]:
    """Hosts and credentials that the entry may not use, each with the key that names it."""
    if problem := entry.host_problem(trusted=trust.everything):
        yield "base_url", problem
    if (refusal := entry.credentials_problem(trusted=trust.everything)) is not None:
        yield refusal
    if problem := entry.output_hosts_problem(trusted=trust.everything):
        yield "output_hosts", problem


def _templates(suite: Suite, folder: Path, trust: Trust, texts: CaseTexts) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """Renders each template for every case that it applies to, and checks what it shows.

    A warning comes once, where it applies first.
    """
    templates = Templates(template_folders(suite, folder, builtin("prompts")))
    file_problems = lru_cache(maxsize=None)(partial(_file_problems, templates=templates, trust=trust))
    warned: set[str] = set()
    for index, grader in enumerate(suite.graders):
        declared: dict[str, JudgeTemplate] = {}
        shown: dict[str, dict[str, ShownVariables]] = {}
        case_problems = list(_case_problems(suite, texts, grader, templates, file_problems, declared, shown))
        for template in declared.values():
            if file_problems(template.name):
                continue  # reported if a case uses it
            loc = ("graders", index, template.option)
            for message, is_error in _template_findings(template, templates, suite.vars, shown.get(template.name, {})):
                if is_error:
                    yield loc, message
                elif message not in warned:
                    warned.add(message)
                    yield SuiteWarning(loc, message)
        for name, message in case_problems:
            yield ("graders", index, declared[name].option if name in declared else "template"), message


def _case_problems(
    suite: Suite,
    texts: CaseTexts,
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
        if case.id not in texts:
            continue  # reported for the case itself
        prompt, criteria = texts[case.id]
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
    try:
        files = templates.files(template)
    except TemplateError as error:
        return [_about(template, error)]
    suite_files = [path for path in files.values() if not path.is_relative_to(builtin("prompts"))]
    return [refusal for path in suite_files if (refusal := trust.refusal(str(path), path.parent))]


def _render_problems(
    name: str,
    context: Mapping[str, Any],
    templates: Templates,
    template: JudgeTemplate | None,
    variables: ShownVariables,
) -> list[str]:
    """Why a template does not render for a case, except for what ``_template_findings`` reports.

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
        repeats = bool(template.without_ids) and templates.says(name, *template.without_ids)
        ids = () if repeats else template.ids
        names = set_values((*template.must_show, *template.instead, *ids), context)
        variables.has_value |= names
        variables.shown |= shown_values(names - variables.shown, context, output, render)
    return []


def _about(template: str, error: TemplateError) -> str:
    return str(error) if template in str(error) else f"{template}: {error}"


def _panel_judges(suite: Suite, grader: BaseGrader) -> Problems:
    names = grader.judge_names
    is_list = not isinstance(getattr(grader, "judge", None), str)
    for position, name in enumerate(names):
        key: Loc = ("judge", position) if is_list else ("judge",)
        if name in names[:position]:
            yield key, f"the panel names the judge {name!r} twice"
        elif name not in suite.judges:
            yield key, f"there is no judge {name!r} under 'judges'{did_you_mean(name, suite.judges)}"
        else:
            options = suite.judges[name].answering_options
            others = (other for other in names[:position] if other in suite.judges)
            if twin := next((other for other in others if suite.judges[other].answering_options == options), None):
                same = f"{twin!r} and {name!r} are the same model with the same settings"
                yield key, f"{same}, so they would share every answer"


def _panel_options(suite: Suite, grader: BaseGrader) -> Problems:
    combine, quorum = getattr(grader, "combine", None), getattr(grader, "quorum", None)
    if not grader.has_panel:
        for name, value in (("combine", combine), ("quorum", quorum)):
            if value is not None:
                yield (name,), f"{name} needs a panel: list several judges, as in 'judge: [a, b, c]'"
        return
    judges = len(grader.judge_names)
    if quorum is not None and quorum > judges:
        yield ("quorum",), f"quorum is {quorum}, but the panel has only {judges} judges"
    for name, metric in _metrics(suite, grader).items() if combine is not None else ():
        if combine not in combinations_of(metric):
            kind = {"bool": "yes or no", "number": "a number", "one_of": "one of a list of words"}[metric.type]
            yield ("combine",), f"{combine} does not fit {name!r}, which is {kind}: remove 'combine' for the default"
            return


def panel_warnings(suite: Suite) -> Problems:
    """Yields panels that can split evenly: an even number of judges with a yes-or-no metric."""
    for index, grader in enumerate(suite.graders):
        judges = len(grader.judge_names)
        if not grader.has_panel or judges % 2:
            continue
        answers = ((name, metric) for name, metric in _metrics(suite, grader).items() if metric.type != "number")
        for name, metric in islice(answers, 1):
            odd = "cannot" if metric.type == "bool" else "is split more rarely"
            message = f"{judges} judges can be split on {name!r}, which is then not measured; an odd number {odd}"
            yield ("graders", index, "judge"), message


def _metrics(suite: Suite, grader: BaseGrader) -> dict[str, Metric]:
    cases = (case for case in suite.cases if grader.is_for(case))
    return {name: metric for case in cases for name, metric in grader.metrics(case).items()}


RULES = "rules"
_MEANT = {"image_description": "prompt"}
"""Names that other tools use for a variable."""


TemplateFinding = tuple[str, bool]
"""Something wrong with a template, and whether it is an error: else a run with it is possible."""


@dataclass(slots=True)
class ShownVariables:
    """What a template shows of a case in any of its calls."""

    has_value: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)

    @property
    def unshown(self) -> set[str]:
        """Variables with a value that the judge of the case never sees."""
        return self.has_value - self.shown


def _template_findings(
    template: JudgeTemplate, templates: Templates, variables: Mapping[str, Any], cases: Mapping[str, ShownVariables]
) -> Iterator[TemplateFinding]:
    """The findings about a readable template; none if it cannot be parsed, which rendering reports.

    ``cases`` are those that it was rendered for.
    """
    try:
        used, literals = templates.names_in(template.name)
    except TemplateError:
        return
    for literal in literals:  # a name in single braces, which a judge would see as it is
        variable = _MEANT.get(literal, literal)
        advice = f"write '{{{{ {variable} }}}}'"
        if variable in template.hidden:
            advice = f"remove it, because this grader does not show {variable!r}"
        is_needed = variable in (*template.must_show, *template.instead)
        is_missing = any(variable in case.unshown for case in cases.values())
        yield f"{template.name}: '{{{literal}}}' is not replaced: {advice}", is_needed and is_missing
    if RULES in used and RULES not in variables:
        yield f"{template.name}: {RULES!r} is not set: verdict rules are never shown to a judge", True
    yield from _unshown(template, cases, {_MEANT.get(literal, literal) for literal in literals})


def _unshown(
    template: JudgeTemplate, cases: Mapping[str, ShownVariables], named: set[str]
) -> Iterator[TemplateFinding]:
    """What was asked for and is not shown, without what ``named`` reports in single braces.

    A message names a case only if other cases are not affected.
    """
    enough = {*template.must_show, *template.instead}
    asked = [case for case, variables in cases.items() if variables.has_value & enough]
    blind = [case for case in asked if not cases[case].shown & enough]
    if template.must_show and blind:
        if not enough & named:
            first, *others = (*template.must_show, *template.instead)
            neither = f"shows neither {first!r} nor {' nor '.join(map(repr, others))}"
            names = neither if others else f"does not show {first!r}"
            intended = " (a judge of the output alone needs 'show: [output]')" if template.can_hide_all else ""
            message = f"{template.name}: {names}, so the judge never sees what was asked{intended}"
            yield f"{message}{_of_cases(blind, asked)}", True
        return
    for name in template.must_show:
        asked = [case for case, variables in cases.items() if name in variables.has_value]
        missing = [case for case in asked if name in cases[case].unshown]
        if missing and name not in named:
            rest = ", ".join(shown for shown in template.show if shown != name)
            intended = f" (if that is intended: 'show: [{rest}]')" if rest else ""
            message = f"{template.name}: does not show {name!r}, so the judge never sees it{intended}"
            yield f"{message}{_of_cases(missing, asked)}", False
    for name in template.ids:
        if missing := [case for case, variables in cases.items() if name in variables.unshown]:
            variable, _, key = name.partition(".")
            message = f"{template.name}: does not show the {key!r} of all {variable}"
            yield f"{message}, which the judge's answers must name{_of_cases(missing, list(cases))}", True


def _of_cases(affected: Sequence[str], cases: Sequence[str]) -> str:
    """The first affected case, unless all cases are affected."""
    return f" (case {affected[0]!r})" if len(affected) < len(cases) else ""
