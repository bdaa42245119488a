"""The commands about judges: ``questions``, ``agreement``, ``pairwise``, ``rank`` and ``probe``."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visioneval import bounds
from visioneval.cli import completion, options
from visioneval.cli.start import OF_SUITES
from visioneval.errors import UsageError
from visioneval.settings import CALLS, LATEST, OUTPUT, RUNS, SELECTION, CallKeywords, SelectionKeywords, settings_of

if TYPE_CHECKING:
    from visioneval.report.sections import Report
    from visioneval.running.pairs import PairwiseResult
    from visioneval.running.questions import PromptResult


@options.with_settings("cases", "tags", "limit", *OF_SUITES, "reuse", "cache", bounds=bounds.ALL)
def questions(
    suite: Annotated[Path, options.argument("SUITE", "A suite file, or a folder with a suite.yaml.")],
    settings: dict[str, Any],
    output: Annotated[
        Path | None, options.value("--output/-o", "FILE", "Write to this file instead of standard output.")
    ] = None,
) -> None:
    """Generate the questions of every prompt, to edit and pin.

    Generates no images.

    Examples:
        visioneval questions suite.yaml -o questions.yaml
        visioneval questions suite.yaml --case 'bread*'
        visioneval questions suite.yaml --judge default=openai:gpt-5.4
    """
    from visioneval.api.options import run_options
    from visioneval.atomic import open_output
    from visioneval.report.judges import pinned_yaml
    from visioneval.running.questions import questions_of_suite

    if output is not None and output.exists():
        raise UsageError(f"{output}: already exists and may contain edits; choose another file")
    run_settings = run_options(**settings)
    outcome = questions_of_suite(suite, run_settings.suite, run_settings.calls, _say_questions, options.say)
    if outcome.refusal is not None:
        options.say(outcome.refusal)
    elif not outcome.complete:
        options.say("interrupted: to continue, repeat the command")
        raise typer.Exit(outcome.exit_code)
    if outcome.entries:
        with open_output(output) as file:
            file.write(pinned_yaml(outcome.entries))
        if output is not None:
            print(f"wrote {output}; to pin the questions, add 'questions: {output.name}' to the gecko grader")
    raise typer.Exit(outcome.exit_code)


def _say_questions(result: PromptResult) -> None:
    from visioneval.report.text import one_line

    cases = ", ".join(case.id for case in result.task.cases)
    if result.entry is None:
        options.say(f"{cases}: no questions: {one_line(str(result.error))}")
        return
    dropped = f", {len(result.entry.dropped)} dropped" if result.entry.dropped else ""
    options.say(f"{cases}: {len(result.entry.questions)} questions, {result.entry.source}{dropped}")


def agreement(
    names: options.RunsOrLatest = None,
    minimum: Annotated[
        list[str] | None,
        options.value(
            "--min",
            "METRIC[:MEASURE]:VALUE",
            "Exit 1 if the lower bound of the 95 % interval of the agreement on METRIC is below VALUE. Repeatable.",
        ),
    ] = None,
    minimum_point: Annotated[
        list[str] | None,
        options.value(
            "--min-point",
            "METRIC[:MEASURE]:VALUE",
            "Exit 1 if the estimate of the agreement on METRIC is below VALUE. Repeatable.",
        ),
    ] = None,
    correct: Annotated[
        bool,
        options.flag(
            "--correct",
            "Also correct the graders' rates and means with labels of a random draw; with two runs, compare them.",
        ),
    ] = False,
    allow: Annotated[
        list[str] | None,
        options.value(
            "--allow",
            "unmeasured[=RATE]",
            "Accept that more than 5% of the labeled cells were not measured. Repeatable.",
        ),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.")] = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Compare graders with human labels.

    Prints agreement with intervals, confusion tables and the largest disagreements.

    MEASURE is kappa, quadratic_kappa, spearman, accuracy, fail_precision, fail_recall, kendall, pearson or
    pairwise_accuracy. Default: kappa for yes/no metrics and words, quadratic_kappa for the scale of a rubric,
    spearman for other numbers.

    Exits 3 if a metric has too few labels, or if more than 5% of the labeled cells were not measured. --correct
    needs labels of random cells: 'label RUN --which random:N'.

    Examples:
        visioneval agreement
        visioneval agreement night-1 night-2 --min usable:0.6
        visioneval agreement latest --correct
    """
    from visioneval.api.graders import agreement as compare_with_labels
    from visioneval.report.agreement import agreement_report

    result = compare_with_labels(
        *names or (LATEST,),
        minimums=_minimums("--min", minimum),
        minimum_points=_minimums("--min-point", minimum_point),
        correct=correct,
        allow=allow or (),
        runs=runs,
        warn=options.say,
    )
    if as_json:
        print(json.dumps(result.model_dump(mode="json")))  # ASCII: a run may be a stranger's
    else:
        _print_report(agreement_report(result))
    raise typer.Exit(result.exit_code)


def _minimums(flag: str, texts: list[str] | None) -> dict[str, float]:
    """The required values by ``METRIC`` or ``METRIC:MEASURE``."""
    minimums: dict[str, float] = {}
    for text in texts or []:
        target, _, number = text.rpartition(":")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not target or not -1 <= value <= 1:
            raise UsageError(f"{flag} {text!r}: write METRIC:VALUE or METRIC:MEASURE:VALUE with a value from -1 to 1")
        if target in minimums:
            raise UsageError(f"{flag} {target}: given twice")
        minimums[target] = value
    return minimums


SIDE = "Path, ID, unique prefix or 'latest'; RUN@LABEL for model runs (globs)."


@options.with_settings("cases", "tags", "limit", *settings_of(CallKeywords), "debug", bounds=bounds.ALL)
def pairwise(
    a: Annotated[str, options.argument("A", f"The baseline run. {SIDE}", autocompletion=completion.run_names)],
    b: Annotated[str, options.argument("B", "The candidate run; its suite provides the prompts and the judge.")],
    settings: dict[str, Any],
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
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.", OUTPUT)] = False,
    quiet: Annotated[bool, options.flag("--quiet", "Print only the results.", OUTPUT)] = False,
) -> None:
    """Ask a judge whether it prefers the images of run A or of run B.

    Shows each pair side by side, unlabeled, in both orders. Stores the answers in run B and asks each once, except
    with --reuse none. Exits 3 if a pair could not be judged.

    Examples:
        visioneval pairwise old new
        visioneval pairwise 'latest@*plain' 'latest@*styled'
        visioneval pairwise old new --judge default=openai:gpt-5.4 --budget 2
    """
    from visioneval.analysis.preferences import never_asked_pairs
    from visioneval.api.comparisons import judge_pairs, plan_pairs
    from visioneval.api.options import run_options
    from visioneval.report.outcome import never_asked_text
    from visioneval.running.cells.services import Listener

    run_settings = run_options(**settings)
    with options.prints_on_stderr():
        job = plan_pairs(a, b, judge, model_map or (), run_settings, options.say)
    if not quiet:
        options.say(str(job.pairs))
    with options.prints_on_stderr():
        result = judge_pairs(job, run_settings.calls, Listener(say=options.say))
    _print_pairs(result, job.folder, as_json=as_json, quiet=quiet)
    if text := never_asked_text(never_asked_pairs(result.preferences)):
        options.say(f"{text}; to ask, repeat the command without --offline")
    if not result.complete:
        reason = "the budget is used up" if result.out_of_budget else "interrupted"
        again = "to continue, repeat the command"
        if not run_settings.calls.reuse.judgements:
            again = "to continue, repeat the command without --reuse none, which would ask about all pairs again"
        options.say(f"{reason}: {again}")
    raise typer.Exit(result.exit_code)


def _print_pairs(result: PairwiseResult, folder: Path, *, as_json: bool, quiet: bool) -> None:
    from visioneval.report.ranking import preference_data, preferences_section
    from visioneval.report.terminal import print_section

    if as_json:
        data = {
            "complete": result.complete,
            "cost_usd": result.meters.total.cost_usd,
            "cost_usd_by_judge": {name: meter.cost_usd for name, meter in result.meters.by_judge.items()},
            "preferences": list(map(preference_data, result.preferences)),
        }
        print(json.dumps(data))
    elif result.preferences:
        print_section(preferences_section(result.preferences), options.console())
    if not quiet:
        options.say(str(result.meters))
        if result.preferences:
            options.say(f"stored in {folder / 'preferences.jsonl'}")


class RankBy(StrEnum):
    """The values of ``--by``."""

    judges = "judges"
    people = "people"


def rank(
    names: options.RunsOrLatest = None,
    by: Annotated[
        RankBy,
        options.value("--by", "WHO", "Rank by the answers of judges ('pairwise') or of people ('label --pairs')."),
    ] = RankBy.judges,
    judge: Annotated[
        str | None,
        options.value(
            "--judge",
            "NAME",
            "Only this judge: PROVIDER:MODEL, or its name in the suite; default: one ranking per judge.",
            SELECTION,
        ),
    ] = None,
    model: options.Models = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.", OUTPUT)] = False,
    markdown: Annotated[
        Path | None, options.value("--markdown", "FILE", "Also write Markdown, for a job summary.", OUTPUT)
    ] = None,
    html: Annotated[
        Path | None, options.value("--html", "FILE", "Also write one HTML file with a plot.", OUTPUT)
    ] = None,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Rank model runs by pairwise answers of judges or people.

    Prints Bradley-Terry strengths, and ranks with 95% intervals. Reads the answers of 'pairwise', of pairwise
    graders and of 'label --pairs'.

    Exits 3 if a pair could not be judged, or if the answers do not connect all model runs.

    Examples:
        visioneval rank
        visioneval rank latest --by people
        visioneval rank night-1 night-2 --html ranks.html
    """
    from visioneval.api.comparisons import rank as rank_runs
    from visioneval.report.ranking import ranking_report

    result = rank_runs(
        *names or (LATEST,),
        by=by.value,
        judge=judge,
        cases=case or (),
        tags=tag or (),
        models=model or (),
        runs=runs,
        warn=options.say,
    )
    report = ranking_report(result)
    _write_report(report, markdown, html)
    if as_json:
        print(result.model_dump_json())
    else:
        _print_report(report)
    raise typer.Exit(result.exit_code)


@options.with_settings(*settings_of(SelectionKeywords), "debug", bounds=bounds.ALL)
def probe(
    settings: dict[str, Any],
    source: Annotated[
        str, options.argument("SUITE|RUN", "A suite file, or a run as for 'show'. Default: the latest run.")
    ] = LATEST,
    kinds: Annotated[
        list[str] | None,
        options.value(
            "--kinds",
            "KIND",
            "Only these kinds of perturbation, such as pixels, copy.letter or harmless. Repeatable.",
            SELECTION,
        ),
    ] = None,
    with_judges: Annotated[
        bool,
        options.flag(
            "--judges", "Also probe graders that ask judges, on the same images and with changed prompts.", CALLS
        ),
    ] = False,
    seed: Annotated[
        int, options.value("--seed", "N", "The seed of the positions of perturbations. Equal seeds give equal probes.")
    ] = 0,
    min_detection: Annotated[
        list[str] | None,
        options.value(
            "--min-detection",
            "KIND[@STRENGTH]:RATE",
            "Exit 1 if the lower bound of the detection rate, by any rule, is below RATE, such as copy.letter:0.9. "
            "KIND can be the beginning of a name; @STRENGTH means this strength and stronger. Exit 3 if no such "
            "change could be made. Repeatable.",
            OUTPUT,
        ),
    ] = None,
    max_false_alarm: Annotated[
        float | None,
        options.value(
            "--max-false-alarm",
            "RATE",
            "Exit 1 if the upper bound of the false-alarm rate over all harmless changes is above RATE; what was not "
            "measured counts as an alarm. Exit 3 if none could be measured.",
            OUTPUT,
            min=0,
            max=1,
        ),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.", OUTPUT)] = False,
    markdown: Annotated[
        Path | None, options.value("--markdown", "FILE", "Also write Markdown, for a job summary.", OUTPUT)
    ] = None,
    html: Annotated[
        Path | None, options.value("--html", "FILE", "Also write one HTML file with each missed perturbation.", OUTPUT)
    ] = None,
) -> None:
    """Perturb outputs that pass, and count what the graders catch.

    Probes the outputs of a RUN that passed, or the existing outputs, references and input images of a SUITE.
    Harmless changes, such as JPEG, show false alarms. Generates nothing, and asks judges only with --judges.

    Exits 1 if a gate failed. Exits 3 if no perturbation could be applied, a gate was not measured, or a judge was
    never asked.

    Examples:
        visioneval probe latest
        visioneval probe suite.yaml --kinds copy.letter --html probe.html
        visioneval probe --min-detection copy.letter:0.9 --max-false-alarm 0.05
    """
    from visioneval.api.options import run_options
    from visioneval.cli.results import check_reports, plain_listener
    from visioneval.probing.prepare import ProbeRequest
    from visioneval.probing.probe import run_probe
    from visioneval.report.probe import probe_report

    request = ProbeRequest(
        source, tuple(kinds or ()), seed, with_judges, tuple(min_detection or ()), max_false_alarm, html is not None
    )
    run_settings = run_options(**settings)
    calls = run_settings.calls
    check_reports(markdown, html)
    with options.prints_on_stderr():
        result = run_probe(request, run_settings.suite, calls, plain_listener(debug=calls.debug))
    _write_report(probe_report(result.findings), markdown, None)
    _write_report(probe_report(result.findings, result.images), None, html)
    with options.ignore_closed_output():
        if as_json:
            print(result.findings.model_dump_json())
        else:
            _print_report(probe_report(result.findings))
    raise typer.Exit(result.exit_code)


def _write_report(report: Report, markdown: Path | None, html: Path | None) -> None:
    from visioneval.atomic import write_report

    if markdown is not None:
        from visioneval.report.markdown import report_markdown

        write_report(markdown, report_markdown(report))
    if html is not None:
        from visioneval.report.html.pages import sections_page

        write_report(html, sections_page(report))


def _print_report(report: Report) -> None:
    """Prints a report without what is folded, as these commands have no ``--full``."""
    from visioneval.report.terminal import print_end, print_report

    sections = [part for part in report.sections if not getattr(part, "fold", "")]
    print_report(replace(report, sections=sections), options.console())
    if len(sections) > 2:
        print_end(report, options.console())
