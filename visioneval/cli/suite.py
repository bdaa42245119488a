"""Commands about a suite: init, validate, plan, schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from visioneval import bounds
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.errors import UsageError


class Template(StrEnum):
    """What ``init`` can write."""

    quickstart = "quickstart"
    generation = "generation"
    editing = "editing"
    gecko = "gecko"

    @property
    def folder(self) -> str:
        """The folder under ``suites/`` that is written."""
        return "gecko_offline" if self is Template.gecko else self.value


class Ci(StrEnum):
    """The CI systems that ``init`` can write a workflow for."""

    github = "github"


WORKFLOWS = {Ci.github: (Path(__file__).with_name("github.yml"), Path(".github/workflows/visioneval.yml"))}


def init(
    folder: Annotated[Path, options.word("DIR", "Where to write it; here, if not given.")] = Path(),
    template: Annotated[
        Template | None, options.value("--template", "NAME", "quickstart (default), generation, editing or gecko.")
    ] = None,
    ci: Annotated[
        Ci | None, options.value("--ci", "NAME", "github: a workflow; with no --template, that alone.")
    ] = None,
) -> None:
    """Write a commented suite that runs, with its images, or a workflow for CI."""
    from visioneval.resources import builtin

    files: dict[Path, Path] = {}
    if template is not None or ci is None:
        source = builtin("suites") / (template or Template.quickstart).folder
        found = (path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        files = {path.relative_to(source): path for path in sorted(found)}
    if ci is not None:
        own, name = WORKFLOWS[ci]
        files[name] = own
    _copy(files, folder)
    if Path("suite.yaml") in files:
        print(f"next: visioneval run {folder / 'suite.yaml'}")
    else:
        print("next: set SUITE in it, then: visioneval baseline set latest")


def _copy(files: Mapping[Path, Path], folder: Path) -> None:
    """All files or none, where one is there already. Raises ``UsageError``."""
    from shutil import copyfile

    taken = [str(folder / name) for name in files if (folder / name).exists()]
    if taken:
        raise UsageError(f"{taken[0]}: exists already; nothing was written. Name another folder: visioneval init DIR")
    try:
        for name, source in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copyfile(source, folder / name)
    except OSError as error:
        raise UsageError(f"{folder}: cannot write here: {error.strerror or error}") from None
    for name in files:
        print(f"wrote {folder / name}")


@bounded(*bounds.ALL)
def validate(
    suites: options.Suites,
    var: options.Variables = None,
    judge: options.Judges = None,
    trust_suite: options.TrustSuite = False,
    out: options.RunsFolder = options.RUNS,
) -> None:
    """Check suites: every problem in one go, as file:line:column."""
    from visioneval.cli.plan_table import many, missing_keys
    from visioneval.errors import Problem, SuiteError
    from visioneval.records.model import Selection

    flags = options.SuiteFlags.of(out, trust=trust_suite, var=var, judge=judge)
    problems: list[Problem] = []
    for path in suites:
        try:
            _, plan = options.load_and_expand(path, Selection(), flags)
        except SuiteError as error:
            problems.extend(error.problems)
            continue
        counts = ((len(plan.suite.cases), "case"), (len(plan.runs), "model run"), (plan.cells, "cell"))
        print(f"{path}: fine: {', '.join(many(number, what) for number, what in counts)}")
        for line in missing_keys(plan):
            print(f"{path}: missing key: {line}")
    if problems:
        raise SuiteError(problems)


@bounded(*bounds.ALL)
def plan(
    suites: options.Suites,
    case: options.Cases = None,
    tag: options.Tags = None,
    model: options.Models = None,
    grader: options.Graders = None,
    limit: options.Limit = None,
    samples: options.Samples = None,
    var: options.Variables = None,
    judge: options.Judges = None,
    trust_suite: options.TrustSuite = False,
    out: options.RunsFolder = options.RUNS,
    as_json: Annotated[bool, options.flag("--json", "The whole plan as a line of JSON per suite.")] = False,
) -> None:
    """Show what a run would do and cost. Nothing is called or written."""
    from visioneval.cli.plan_table import plan_json, print_plan

    chosen = options.selection(case, tag, model, grader, limit)
    flags = options.SuiteFlags.of(out, trust=trust_suite, var=var, judge=judge, samples=samples)
    for _, planned in options.load_all(suites, chosen, flags):
        if as_json:
            print(plan_json(planned, out))
        else:
            print_plan(planned, options.console(), out)


def schema() -> None:
    """Print the JSON Schema of a suite, for editors.

    visioneval schema > visioneval.schema.json
    """
    from visioneval.suite.model import json_schema

    print(json.dumps(json_schema(), indent=2))
