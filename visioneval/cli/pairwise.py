"""The command ``prefer``: find both runs, pair their images, ask a judge about each pair, show what it preferred."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval import bounds
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.cli.run_lookup import named_run, read_side

if TYPE_CHECKING:
    from visioneval.engine.pairwise.runs import Compared

NARROW = "What to compare"
SIDE = "Path, id, unique prefix or 'latest'; RUN@LABEL for one model run."


@bounded(*bounds.ALL)
def prefer(
    a: Annotated[str, options.word("A", f"The run to compare with. {SIDE}")],
    b: Annotated[str, options.word("B", "The run that may be better or worse; its suite says what was asked for.")],
    judge: Annotated[
        str | None,
        options.value(
            "--judge",
            "NAME[=PROVIDER:MODEL]",
            "A judge of B's suite, or another model under that name; default: its pairwise grader's, or 'default'.",
        ),
    ] = None,
    renamed: Annotated[
        list[str] | None,
        options.value("--map", "OLD=NEW", "The model run OLD of A is NEW in B. Repeatable.", NARROW),
    ] = None,
    case: Annotated[list[str] | None, options.value("--case", "GLOB", "Only these cases. Repeatable.", NARROW)] = None,
    tag: Annotated[
        list[str] | None, options.value("--tag", "TAG", "Only cases with one of these tags. Repeatable.", NARROW)
    ] = None,
    limit: Annotated[
        int | None, options.value("--limit", "N", "Only the first N selected cases.", NARROW, min=1)
    ] = None,
    as_json: Annotated[
        bool, options.flag("--json", "All findings as JSON on standard output.", options.RESULT)
    ] = False,
    quiet: Annotated[bool, options.flag("--quiet", "Only the findings.", options.RESULT)] = False,
    var: options.Variables = None,
    out: options.Out = options.RUNS,
    reuse: options.ReuseAnswers = options.Reused.judges,
    offline: options.Offline = False,
    cache: options.CacheFolder = None,
    budget: options.BudgetUsd = None,
    max_concurrency: options.MaxConcurrency = 64,
    log_file: options.LogFile = None,
    debug: options.Debug = False,
    trust_suite: options.TrustSuite = False,
) -> None:
    """Ask a judge which images it prefers, those of run A or of run B: both at once, unnamed, in both orders.

    The answers are kept in B's run; what is there is not asked again, but for --reuse none.

    Exits 3 where a pair could not be judged.
    """
    from visioneval.engine.pairwise.runs import compare_runs, pair_runs, pairwise_plan
    from visioneval.records.model import Selection

    (folder_a, _, _), (folder_b, _, _) = named_run(a, out), named_run(b, out)
    changes = options.SuiteFlags.of(out, trust=trust_suite, var=var, judge=None)
    chosen = Selection(cases=tuple(case or ()), tags=tuple(tag or ()), limit=limit)
    _, plan = options.load_held(folder_b, chosen, changes)
    plan = pairwise_plan(plan, judge)
    reused = options.reuse_of(reuse, offline=offline, resume_command=False)
    session = options.session(reused, cache, budget, max_concurrency, log_file, debug=debug)
    sides = read_side(a, out), read_side(b, out)
    found = pair_runs(plan, sides, (folder_a, folder_b), renamed or ())
    if not quiet:
        options.say(str(found))
    done = compare_runs(plan, found, folder_b, session, options.say)
    again = "the same command goes on where it stopped"
    if not reused.judgements:
        again = "the same command asks all of it again; without --reuse none, only what has no answer"
    _show(done, folder_b, again, as_json=as_json, quiet=quiet)
    raise typer.Exit(done.exit_code)


def _show(done: Compared, folder: Path, again: str, *, as_json: bool, quiet: bool) -> None:
    from visioneval.report.terminal.preferences import preference_data, print_preferences

    if as_json:
        told = {
            "complete": done.complete,
            "cost_usd": done.meter.cost_usd,
            "preferences": list(map(preference_data, done.preferences)),
        }
        print(json.dumps(told))
    elif done.preferences:
        print_preferences(done.preferences, options.console())
    if not quiet:
        options.say(str(done.meter))
        if done.preferences:
            options.say(f"kept in {folder / 'preferences.jsonl'}")
    if not done.complete:
        why = "the budget is used up" if done.out_of_budget else "interrupted"
        options.say(f"{why}: {again}")
