"""The commands ``init``, ``validate``, ``plan`` and ``schema``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visioneval import bounds
from visioneval.cli import completion, options
from visioneval.cli.workflows import (
    WORKFLOWS,
    Ci,
    check_suites,
    filled_workflow,
    ignore_runs,
    print_next,
    redacted_tags,
)
from visioneval.errors import Problem, UsageError
from visioneval.settings import SUITE_FILE, CaseKeywords, settings_of

if TYPE_CHECKING:
    from visioneval.api.suites import ValidSuite


DEFAULT_TEMPLATE = "quickstart"
DEFAULT_BUDGET = 10.0
SCHEMA_FILE = Path("visioneval.schema.json")
MODELINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n".encode()
"""Editors with a YAML language server check and complete the suite by this schema."""


def init(
    folder: Annotated[
        Path, options.argument("DIR", "The folder to write to; default: the working directory.")
    ] = Path(),
    template: Annotated[
        str | None,
        options.value(
            "--template",
            "NAME",
            "The suite to write; default: quickstart. --list shows all of them.",
            autocompletion=completion.template_names,
        ),
    ] = None,
    list_templates: Annotated[
        bool, options.flag("--list", "List the templates, one line each, and write nothing.")
    ] = False,
    ci: Annotated[
        Ci | None,
        options.value(
            "--ci", "NAME", "github or gitlab: also write its workflow; without --template, write only the workflow."
        ),
    ] = None,
    suite: Annotated[
        list[Path] | None,
        options.value("--suite", "SUITE", "With --ci: a suite in DIR; default: suite.yaml. Repeatable."),
    ] = None,
    redact: Annotated[
        list[str] | None,
        options.value(
            "--redact",
            "TAG",
            "With --ci: of cases with this tag, jobs publish no image and no text about one. Repeatable."
            " Default: person, in a template with this tag.",
        ),
    ] = None,
    budget: Annotated[
        float, options.value("--budget", "USD", "With --ci: the most that a suite may spend in one job.", min=0.01)
    ] = DEFAULT_BUDGET,
) -> None:
    """Write a runnable, commented suite, or a CI workflow.

    Examples:
        visioneval init --list
        visioneval init flyers --template generation
        visioneval init --ci github --suite flyers/suite.yaml
    """
    from visioneval.suite.model import json_schema

    if list_templates:
        if template is not None or ci is not None:
            raise UsageError("--list writes nothing: leave out --template and --ci")
        _print_templates()
        return
    files: dict[Path, bytes] = {}
    if template is not None or ci is None:
        source = _template_folder(DEFAULT_TEMPLATE if template is None else template)
        paths = (path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        files = {path.relative_to(source): path.read_bytes() for path in sorted(paths)}
        files[SUITE_FILE] = MODELINE + files[SUITE_FILE]
        files[SCHEMA_FILE] = (json.dumps(json_schema(), indent=2) + "\n").encode()
    if ci is not None:
        suites = [path.as_posix() for path in suite or [SUITE_FILE]]
        if suite:
            check_suites(suites, folder)
        tags = redacted_tags(suites, folder if template is None else source, redact, is_template=template is not None)
        filled = filled_workflow(ci, suites, budget, tags)
        files[WORKFLOWS[ci][1]] = filled.encode()
    elif suite or redact or budget != DEFAULT_BUDGET:
        raise UsageError("--suite, --redact and --budget need --ci")
    _write(files, folder)
    if ci is not None:
        ignore_runs(folder)
        print_next(ci, suites, filled)
        return
    print(f"next: visioneval run {folder / SUITE_FILE}")


def _template_folder(name: str) -> Path:
    """The folder of a template. Raises ``UsageError``."""
    from visioneval.errors import did_you_mean
    from visioneval.installation import suite_folders

    folders = suite_folders()
    if name not in folders:
        raise UsageError(
            f"--template {name}: there is no such template{did_you_mean(name, folders)}. "
            "List all: visioneval init --list"
        )
    return folders[name]


def _print_templates() -> None:
    """One line for each template: its name, what it is for, and the keys that it needs."""
    from visioneval.installation import suite_folders
    from visioneval.suite.load import load_suite

    folders = suite_folders()
    width = max(map(len, folders))
    for name, folder in folders.items():
        suite = load_suite(folder / SUITE_FILE, run_labels=lambda _: []).suite
        needed = [entry.needs_keys for entry in suite.models] + [judge.needs_keys for judge in suite.judges.values()]
        keys = sorted({key for entry_keys in needed for key in entry_keys})
        print(f"{name:{width}}  {suite.description or ''} Needs {' and '.join(keys) or 'no key'}.")


def _write(files: Mapping[Path, bytes], folder: Path) -> None:
    """Writes all files, or none if one exists already or cannot be written. Raises ``UsageError``."""
    written: list[Path] = []
    try:
        existing = [str(folder / name) for name in files if (folder / name).exists()]
        if existing:
            raise UsageError(
                f"{existing[0]}: already exists; nothing was written. Delete or rename it, or choose another folder:"
                " visioneval init DIR"
            )
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            written.append(folder / name)
            (folder / name).write_bytes(content)
    except OSError as error:
        for path in written:
            with suppress(OSError):
                path.unlink()
        raise UsageError(f"{folder}: cannot write: {error.strerror or error}; nothing was written") from None
    for path in written:
        print(f"wrote {path}")


DETECT = "Sample size"
OF_SUITES = ("variables", "judges", "runs", "trust_suite")
"""The settings that say how a suite is read."""


@options.with_settings(*OF_SUITES, bounds=bounds.ALL)
def validate(
    suites: options.Suites,
    settings: dict[str, Any],
    strict: Annotated[bool, options.flag("--strict", "Warnings are errors, notes are not.")] = False,
    form: Annotated[
        str,
        options.value("--format", "text|json|github", "text; json: one object; github: annotations for pull requests."),
    ] = "text",
) -> None:
    """Check suites, and print all problems at once as file:line:column.

    Exits 2 if a suite has a problem.

    Examples:
        visioneval validate suite.yaml
        visioneval validate flyers edits --strict
        visioneval validate suite.yaml --format github
    """
    from visioneval.api.options import run_options
    from visioneval.api.suites import check_suite
    from visioneval.errors import ExitCode, SuiteError, UsageError, did_you_mean
    from visioneval.running.sanitize import Sanitizer

    if form not in (formats := ("text", "json", "github")):
        raise UsageError(f"--format: unknown format {form!r}{did_you_mean(form, formats)}")
    suite_options = run_options(**settings).suite
    problems: list[Problem] = []
    valid: list[ValidSuite] = []
    for path in suites:
        try:
            with options.prints_on_stderr():
                suite = check_suite(path, suite_options, strict=strict)
            valid.append(suite)
        except SuiteError as error:
            problems.extend(error.problems)
        else:
            if form == "text":
                from visioneval.cli.plan_table import missing_key_lines

                missing = (f"{suite.path}: missing key: {line}" for line in missing_key_lines(suite.missing_keys))
                print("\n".join((f"{suite.path}: valid: {suite.sizes}", *map(str, suite.warnings), *missing)))
    if form == "text" and problems:
        raise SuiteError(problems)
    if form != "text":
        listed = [*problems, *(warning for suite in valid for warning in suite.warnings)]
        text = problems_json(valid, listed) if form == "json" else "\n".join(github_annotations(listed))
        print(Sanitizer.around().text(text))
    if problems:
        raise typer.Exit(ExitCode.USAGE)


@options.with_settings(
    *settings_of(CaseKeywords), "samples", "until_decided", "max_samples", "shard", *OF_SUITES, bounds=bounds.ALL
)
def plan(
    suites: options.Suites,
    settings: dict[str, Any],
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
    as_json: Annotated[bool, options.flag("--json", "Print the whole plan as one line of JSON per suite.")] = False,
) -> None:
    """Show what a run would do and cost. Makes no calls, writes nothing.

    Examples:
        visioneval plan suite.yaml
        visioneval plan suite.yaml --detect 5
        visioneval plan suite.yaml --gate 'pass_rate >= 0.9' --like latest
    """
    from visioneval.api.options import run_options
    from visioneval.api.suites import detect_options, estimate_plan
    from visioneval.cli.plan_table import plan_json, print_plan
    from visioneval.running.estimate import size_notes
    from visioneval.running.loading import load_plans

    run_settings = run_options(**settings)
    runs = run_settings.suite.runs
    difference = detect_options(detect, gate, like or [], pass_rate, case_correlation, runs, options.say)
    with options.prints_on_stderr():
        plans = load_plans(suites, run_settings.suite)
    for warning in (warning for planned in plans for warning in (*planned.loaded.warnings, *size_notes(planned))):
        options.say(str(warning))
    for suite_plan in [estimate_plan(planned, run_settings, difference) for planned in plans]:
        if as_json:
            print(plan_json(suite_plan))
        else:
            print_plan(suite_plan, options.console())


def schema() -> None:
    """Print the JSON Schema of a suite, for editors.

    Examples:
        visioneval schema > visioneval.schema.json
    """
    from visioneval.suite.model import json_schema

    print(json.dumps(json_schema(), indent=2))


_LEVELS = {"warning": "warning", "note": "notice"}
"""The words before messages that are no errors, and what GitHub calls them."""
_ESCAPED = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_ESCAPED_IN_PROPERTIES = {**_ESCAPED, ":": "%3A", ",": "%2C"}


def problems_json(suites: Iterable[ValidSuite], problems: Iterable[Problem]) -> str:
    """One JSON object: the valid suites, and all problems and warnings with their positions."""
    rows = [
        {"file": problem.file, "line": problem.line, "column": problem.column, "severity": level, "message": message}
        for problem, level, message in _levels(problems)
    ]
    sizes = ("path", "cases", "model_runs", "cells")
    valid = [
        {name: getattr(suite, name) for name in sizes} | {"missing_keys": sorted(suite.missing_keys)}
        for suite in suites
    ]
    return json.dumps({"suites": valid, "problems": rows})


def github_annotations(problems: Iterable[Problem]) -> Iterator[str]:
    """A workflow command of GitHub Actions for each problem and warning, shown beside the line in a pull request."""
    for problem, level, message in _levels(problems):
        where = f"file={_escaped(problem.file, _ESCAPED_IN_PROPERTIES)}"
        if problem.line:
            where += f",line={problem.line},col={problem.column}"
        yield f"::{_LEVELS.get(level, level)} {where}::{_escaped(message, _ESCAPED)}"


def _levels(problems: Iterable[Problem]) -> Iterator[tuple[Problem, str, str]]:
    """Each problem with ``error``, ``warning`` or ``note``, and its message without this word."""
    for problem in problems:
        level, _, message = problem.message.partition(": ")
        yield (problem, level, message) if level in _LEVELS else (problem, "error", problem.message)


def _escaped(text: str, table: dict[str, str]) -> str:
    return "".join(table.get(sign, sign) for sign in text)
