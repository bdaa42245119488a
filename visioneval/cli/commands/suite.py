"""The commands about suites: ``validate``, ``plan`` and ``schema``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval import bounds
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.defaults import RUNS

if TYPE_CHECKING:
    from visioneval.api.suites import ValidSuite

DETECT = "Sample size"


@bounded(*bounds.ALL)
def validate(
    suites: options.Suites,
    var: options.Variables = None,
    judge: options.Judges = None,
    trust_suite: options.TrustSuite = False,
    strict: Annotated[bool, options.flag("--strict", "Warnings are errors, notes are not.")] = False,
    runs: options.RunsFolder = RUNS,
    form: Annotated[
        str,
        options.value("--format", "text|json|github", "text; json: one object; github: annotations for pull requests."),
    ] = "text",
) -> None:
    """Check suites. Prints all problems at once, as file:line:column."""
    from visioneval.api.suites import check_suite
    from visioneval.cli.problem_formats import github_annotations, problems_json, valid_lines
    from visioneval.errors import ExitCode, Problem, SuiteError, UsageError, did_you_mean
    from visioneval.running.sanitize import Sanitizer
    from visioneval.settings import run_options

    if form not in (formats := ("text", "json", "github")):
        raise UsageError(f"--format: unknown format {form!r}{did_you_mean(form, formats)}")
    settings = run_options(
        variables=options.pairs("--var", "NAME=VALUE", var),
        judges=options.pairs("--judge", "NAME=PROVIDER:MODEL", judge),
        runs=runs,
        trust_suite=trust_suite,
    )
    problems: list[Problem] = []
    valid: list[ValidSuite] = []
    for path in suites:
        try:
            valid.append(suite := check_suite(path, settings.suite, strict=strict))
        except SuiteError as error:
            problems.extend(error.problems)
        else:
            if form == "text":
                print("\n".join(valid_lines(suite)))
    if form == "text" and problems:
        raise SuiteError(problems)
    if form != "text":
        listed = [*problems, *(warning for suite in valid for warning in suite.warnings)]
        text = problems_json(valid, listed) if form == "json" else "\n".join(github_annotations(listed))
        print(Sanitizer.around().text(text))
    if problems:
        raise typer.Exit(ExitCode.USAGE)


@bounded(*bounds.ALL)
def plan(
    suites: options.Suites,
    case: options.Cases = None,
    tag: options.Tags = None,
    model: options.Models = None,
    grader: options.Graders = None,
    limit: options.Limit = None,
    samples: options.Samples = None,
    shard: options.ShardOfCases = None,
    var: options.Variables = None,
    judge: options.Judges = None,
    trust_suite: options.TrustSuite = False,
    detect: Annotated[
        str | None,
        options.value(
            "--detect",
            "POINTS|METRIC:VALUE",
            "Also show how many cases and samples detect this difference between two runs with 80 % power: points of "
            "the pass rate, or a difference of a metric.",
            DETECT,
        ),
    ] = None,
    gate: Annotated[
        str | None,
        options.value(
            "--gate",
            "GATE",
            "Also show how often a gate over a rate fails by chance with these cases and samples, such as "
            "'pass_rate >= 0.9'.",
            DETECT,
        ),
    ] = None,
    like: Annotated[
        list[str] | None,
        options.value(
            "--like", "RUN", "Take the variance from this run; from two runs, that of their differences.", DETECT
        ),
    ] = None,
    pass_rate: Annotated[
        float | None,
        options.value(
            "--pass-rate", "RATE", "Without --like: the pass rate, or share of yes, 0 to 1. Default: 0.8.", DETECT
        ),
    ] = None,
    case_correlation: Annotated[
        float | None,
        options.value(
            "--case-correlation",
            "RHO",
            "The correlation between samples of a case, 0 to 1, where no run shows it. Default: 0.5.",
            DETECT,
        ),
    ] = None,
    runs: options.RunsFolder = RUNS,
    as_json: Annotated[bool, options.flag("--json", "Print the whole plan as one line of JSON per suite.")] = False,
) -> None:
    """Show what a run would do and cost. Makes no calls and writes nothing."""
    from visioneval.api.runs import detect_options, estimate_plan
    from visioneval.cli.plan_table import plan_json, print_plan
    from visioneval.running.loading import load_plans
    from visioneval.running.sizes import size_notes
    from visioneval.settings import run_options

    settings = run_options(
        cases=case or (),
        tags=tag or (),
        models=model or (),
        graders=grader or (),
        limit=limit,
        samples=samples,
        shard=shard,
        variables=options.pairs("--var", "NAME=VALUE", var),
        judges=options.pairs("--judge", "NAME=PROVIDER:MODEL", judge),
        runs=runs,
        trust_suite=trust_suite,
    )
    difference = detect_options(detect, gate, like or [], pass_rate, case_correlation, runs, options.say)
    with options.prints_on_stderr():
        plans = load_plans(suites, settings.suite)
    for warning in (warning for planned in plans for warning in (*planned.loaded.warnings, *size_notes(planned))):
        options.say(str(warning))
    for suite_plan in [estimate_plan(planned, settings, difference) for planned in plans]:
        if as_json:
            print(plan_json(suite_plan))
        else:
            print_plan(suite_plan, options.console())


def schema() -> None:
    """Print the JSON Schema of a suite, for editors.

    visioneval schema > visioneval.schema.json
    """
    from visioneval.suite.model import json_schema

    print(json.dumps(json_schema(), indent=2))
