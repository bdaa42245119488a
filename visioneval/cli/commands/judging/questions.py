"""The command ``questions``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval import bounds
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.defaults import RUNS
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.running.questions import PromptResult


@bounded(*bounds.ALL)
def questions(
    suite: Annotated[Path, options.argument("SUITE", "A suite file.")],
    output: Annotated[
        Path | None, options.value("--output/-o", "FILE", "Write to this file instead of standard output.")
    ] = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    limit: options.Limit = None,
    var: options.Variables = None,
    judge: options.Judges = None,
    reuse: options.ReuseAnswers = options.ReuseFlag.judges,
    cache: options.CacheFolder = None,
    trust_suite: options.TrustSuite = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Make the questions of every prompt, to review, edit and pin. Generates no images.

    visioneval questions suite.yaml -o questions.yaml
    """
    from visioneval.report.files import open_output
    from visioneval.report.terminal.questions import pinned_yaml
    from visioneval.running.calls.settings import check_budget, open_calls
    from visioneval.running.cells.services import build_components
    from visioneval.running.loading import load_plan
    from visioneval.running.questions import entries, make_questions, question_plan
    from visioneval.settings import run_options

    if output is not None and output.exists():
        raise UsageError(f"{output}: already exists and may contain edits; choose another file")
    settings = run_options(
        cases=case or (),
        tags=tag or (),
        limit=limit,
        variables=options.pairs("--var", "NAME=VALUE", var),
        judges=options.pairs("--judge", "NAME=PROVIDER:MODEL", judge),
        runs=runs,
        reuse=reuse.value,
        cache=cache,
        trust_suite=trust_suite,
    )
    plan = question_plan(load_plan(suite, settings.suite))
    check_budget(plan, settings.calls)
    with open_calls(plan, settings.calls, "", options.say) as calls:
        components = build_components(plan)
        outcome = make_questions(plan, components, calls, _report, options.say)
    if outcome.refusal is not None:
        options.say(outcome.refusal)
    elif not outcome.complete:
        options.say("interrupted: to continue, repeat the command")
        raise typer.Exit(outcome.exit_code)
    question_sets = entries(outcome.results)
    if question_sets:
        with open_output(output) as file:
            file.write(pinned_yaml(question_sets))
        if output is not None:
            print(f"wrote {output}; to pin the questions, add 'questions: {output.name}' to the gecko grader")
    raise typer.Exit(outcome.exit_code)


def _report(result: PromptResult) -> None:
    from visioneval.report.text import one_line

    cases = ", ".join(case.id for case in result.task.cases)
    if result.entry is None:
        options.say(f"{cases}: no questions: {one_line(str(result.error))}")
        return
    dropped = f", {len(result.entry.dropped)} dropped" if result.entry.dropped else ""
    options.say(f"{cases}: {len(result.entry.questions)} questions, {result.entry.source}{dropped}")
