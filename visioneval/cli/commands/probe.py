"""The command ``probe``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval import bounds
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.defaults import MAX_CONCURRENCY, RUNS

if TYPE_CHECKING:
    from visioneval.probing.probe import ProbeResult


@bounded(*bounds.ALL)
def probe(
    source: Annotated[str, options.argument("SUITE|RUN", "A suite file, or a run as for 'show'.")],
    kinds: Annotated[
        list[str] | None,
        options.value(
            "--kinds",
            "KIND",
            "Only these kinds of change, such as pixels, copy.letter or harmless. Repeatable.",
            options.SELECTION,
        ),
    ] = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    model: options.Models = None,
    grader: options.Graders = None,
    limit: options.Limit = None,
    var: options.Variables = None,
    judge: options.Judges = None,
    judges: Annotated[
        bool,
        options.flag(
            "--judges",
            "Also probe graders that ask judges, on the same images and with changed prompts.",
            options.CALLS,
        ),
    ] = False,
    seed: Annotated[int, options.value("--seed", "N", "Where damage lies; the same probe twice is the same.")] = 0,
    min_detection: Annotated[
        list[str] | None,
        options.value(
            "--min-detection",
            "KIND[@STRENGTH]:RATE",
            "Exit 1 if less of this damage is surely caught, such as copy.letter:0.9. Repeatable.",
            options.OUTPUT,
        ),
    ] = None,
    max_false_alarm: Annotated[
        float | None,
        options.value(
            "--max-false-alarm",
            "RATE",
            "Exit 1 if more harmless changes may fail.",
            options.OUTPUT,
            min=0,
            max=1,
        ),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.", options.OUTPUT)] = False,
    markdown: Annotated[
        Path | None, options.value("--markdown", "FILE", "Also write Markdown, for a job summary.", options.OUTPUT)
    ] = None,
    html: Annotated[
        Path | None,
        options.value("--html", "FILE", "Also write one HTML file with each missed damage.", options.OUTPUT),
    ] = None,
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
    """Plant damage of known kind and strength in outputs that pass, and count what the graders catch.

    A RUN is probed on its outputs that passed, a SUITE on its existing outputs, references and input images. Harmless
    changes, such as JPEG, show the false alarms. Nothing is generated, and no judge is asked without --judges.

    Exits 1 if a gate failed, and 3 if nothing could be planted, a gate is not measured, or a judge was never asked.
    """
    from visioneval.cli.progress import print_traceback
    from visioneval.cli.reports import check_reports
    from visioneval.probing.prepare import ProbeRequest
    from visioneval.probing.probe import run_probe
    from visioneval.running.cells.services import Listener
    from visioneval.settings import run_options

    request = ProbeRequest(
        source, tuple(kinds or ()), seed, judges, tuple(min_detection or ()), max_false_alarm, html is not None
    )
    settings = run_options(
        cases=case or (),
        tags=tag or (),
        models=model or (),
        graders=grader or (),
        limit=limit,
        variables=options.pairs("--var", "NAME=VALUE", var),
        judges=options.pairs("--judge", "NAME=PROVIDER:MODEL", judge),
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
    check_reports(markdown, html)
    with options.prints_on_stderr():
        on_error = print_traceback if debug else lambda _: None
        result = run_probe(
            request, settings.suite, settings.calls, Listener(say=options.say, note=options.say, debug=on_error)
        )
    _write(result, markdown, html)
    _print(result, as_json=as_json)
    raise typer.Exit(result.exit_code)


def _write(result: ProbeResult, markdown: Path | None, html: Path | None) -> None:
    from visioneval.report.files import write_report

    if markdown is not None:
        from visioneval.report.probe_markdown import probe_markdown

        write_report(markdown, probe_markdown(result.findings))
    if html is not None:
        from visioneval.report.html.probe import probe_page

        write_report(html, probe_page(result.findings, result.images))


def _print(result: ProbeResult, *, as_json: bool) -> None:
    from visioneval.report.terminal.probe import print_probe

    with options.ignore_closed_output():
        if as_json:
            print(result.findings.model_dump_json())
        else:
            print_probe(result.findings, options.console())
