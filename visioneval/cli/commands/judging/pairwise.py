"""The command ``pairwise``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval import bounds
from visioneval.cli import completion, options
from visioneval.cli.bound_flags import bounded
from visioneval.defaults import MAX_CONCURRENCY, RUNS

if TYPE_CHECKING:
    from visioneval.running.pairs import PairwiseResult

SIDE = "Path, ID, unique prefix or 'latest'; RUN@LABEL for model runs (globs)."


@bounded(*bounds.ALL)
def pairwise(
    a: Annotated[str, options.argument("A", f"The baseline run. {SIDE}", autocompletion=completion.run_names)],
    b: Annotated[str, options.argument("B", "The candidate run; its suite provides the prompts and the judge.")],
    judge: Annotated[
        str | None,
        options.value(
            "--judge",
            "NAME[=PROVIDER:MODEL]",
            "A judge in B's suite, or another model under that name; default: the judge of its pairwise grader,"
            " or 'default'.",
        ),
    ] = None,
    model_map: options.ModelMap = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    limit: options.Limit = None,
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.", options.OUTPUT)] = False,
    quiet: Annotated[bool, options.flag("--quiet", "Print only the results.", options.OUTPUT)] = False,
    var: options.Variables = None,
    runs: options.Runs = RUNS,
    reuse: options.ReuseAnswers = options.ReuseFlag.judges,
    offline: options.Offline = False,
    cache: options.CacheFolder = None,
    budget: options.BudgetUsd = None,
    max_concurrency: options.MaxConcurrency = MAX_CONCURRENCY,
    log_file: options.LogFile = None,
    debug: options.Debug = False,
    trust_suite: options.TrustSuite = False,
) -> None:
    """Ask a judge whether it prefers the images of run A or of run B: side by side, unlabeled, in both orders.

    The answers are stored in run B and are not asked again, except with --reuse none.

    Exits 3 if a pair could not be judged.
    """
    from visioneval.analysis.compare.preferences import never_asked_pairs
    from visioneval.api.comparisons import judge_pairs, plan_pairs
    from visioneval.report.outcome import never_asked_text
    from visioneval.running.cells.services import Listener
    from visioneval.settings import run_options

    settings = run_options(
        cases=case or (),
        tags=tag or (),
        limit=limit,
        variables=options.pairs("--var", "NAME=VALUE", var),
        runs=runs,
        reuse=reuse.value,
        offline=offline,
        cache=cache,
        budget_usd=budget,
        max_concurrency=max_concurrency,
        log_file=log_file,
        debug=debug,
        trust_suite=trust_suite,
    )
    with options.prints_on_stderr():
        job = plan_pairs(a, b, judge, model_map or (), settings, options.say)
    if not quiet:
        options.say(str(job.pairs))
    with options.prints_on_stderr():
        result = judge_pairs(job, settings.calls, Listener(say=options.say))
    _show(result, job.folder, as_json=as_json, quiet=quiet)
    if text := never_asked_text(never_asked_pairs(result.preferences)):
        options.say(f"{text}; to ask, repeat the command without --offline")
    if not result.complete:
        reason = "the budget is used up" if result.out_of_budget else "interrupted"
        again = "to continue, repeat the command"
        if not settings.calls.reuse.judgements:
            again = "to continue, repeat the command without --reuse none, which would ask about all pairs again"
        options.say(f"{reason}: {again}")
    raise typer.Exit(result.exit_code)


def _show(result: PairwiseResult, folder: Path, *, as_json: bool, quiet: bool) -> None:
    from visioneval.report.terminal.preferences import preference_data, print_preferences

    if as_json:
        data = {
            "complete": result.complete,
            "cost_usd": result.meters.total.cost_usd,
            "cost_usd_by_judge": {name: meter.cost_usd for name, meter in result.meters.by_judge.items()},
            "preferences": list(map(preference_data, result.preferences)),
        }
        print(json.dumps(data))
    elif result.preferences:
        print_preferences(result.preferences, options.console())
    if not quiet:
        options.say(str(result.meters))
        if result.preferences:
            options.say(f"stored in {folder / 'preferences.jsonl'}")
