"""The command that makes questions without generation anything: questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval import bounds
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.engine.questions import PromptResult


@bounded(*bounds.ALL)
def questions(
    suite: Annotated[Path, options.word("SUITE", "A suite file.")],
    output: Annotated[Path | None, options.value("--output/-o", "FILE", "Instead of standard output.")] = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    limit: options.Limit = None,
    var: options.Variables = None,
    judge: options.Judges = None,
    reuse: options.ReuseAnswers = options.Reused.judges,
    cache: options.CacheFolder = None,
    trust_suite: options.TrustSuite = False,
    out: options.RunsFolder = options.RUNS,
) -> None:
    """Make the questions of every prompt, to look at, edit and pin. Nothing is generated.

    visioneval questions suite.yaml -o questions.yaml
    """
    from visioneval.engine.call_settings import CallSettings, check_budget, open_calls
    from visioneval.engine.components import build_components
    from visioneval.engine.questions import asker, entries, make_questions, question_plan
    from visioneval.report.terminal.questions import pinned_yaml

    if output is not None and output.exists():
        raise UsageError(f"{output}: exists already, and may hold edits; name another file")
    flags = options.SuiteFlags.of(out, trust=trust_suite, var=var, judge=judge)
    _, plan = options.load_and_expand(suite, options.selection(case, tag, None, None, limit), flags)
    asking = question_plan(plan)
    reused = options.reuse_of(reuse, offline=False, resume_command=False)
    session = CallSettings(cache=cache, reuse=reused)
    check_budget(asking, session)
    with open_calls(asking, session, "", options.say) as calls:
        tools = build_components(asking)
        done = make_questions(asking, tools, asker(asking, tools, calls), calls, _say, options.say)
    if done.refusal is not None:
        options.say(done.refusal)
    elif not done.complete:
        options.say("interrupted: the same command goes on where it stopped")
        raise typer.Exit(130)
    found = entries(done.results)
    if found and output is None:
        print(pinned_yaml(found), end="")
    elif found and output is not None:
        _write(output, pinned_yaml(found))
    if not done.complete or any(each.error for each in done.results):
        raise typer.Exit(3)


def _say(done: PromptResult) -> None:
    from visioneval.report.text import one_line

    cases = ", ".join(case.id for case in done.task.cases)
    if done.entry is None:
        options.say(f"{cases}: no questions: {one_line(str(done.error))}")
        return
    dropped = f", {len(done.entry.dropped)} dropped" if done.entry.dropped else ""
    options.say(f"{cases}: {len(done.entry.questions)} questions, {done.entry.source}{dropped}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None
    print(f"wrote {path}; pin it: 'questions: {path.name}' on the gecko grader")
