"""What the shell completes: run ids, model run labels, cases, tags, graders, metrics and templates.

Completion reads suites and runs of this machine as their commands do, but trusts none, makes no network call, and
prints nothing: a problem is no suggestion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from visioneval.errors import VisionEvalError
from visioneval.settings import LATEST, RUNS, SUITE_FILE

if TYPE_CHECKING:
    from visioneval.suite.model import Suite

MAX_SUGGESTIONS = 200


def _completer(names: Callable[[Any, str], Iterable[str]]) -> Callable[[typer.Context, str], list[str]]:
    """The names that begin with what was typed."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            matching = dict.fromkeys(name for name in names(ctx, incomplete) if name.startswith(incomplete))
        except (VisionEvalError, OSError, ValueError):
            return []
        return [name for name in matching if name.isprintable()][:MAX_SUGGESTIONS]

    return complete


@_completer
def run_names(ctx: Any, incomplete: str) -> Iterator[str]:
    """Run ids and ``latest``; after ``@``, the labels of the run."""
    name, at, _ = incomplete.partition("@")
    if at:
        yield from (f"{name}@{label}" for label in _run_labels(ctx, name))
        return
    yield LATEST
    from visioneval.records.untrusted import list_runs

    folder = _runs_folder(ctx)
    yield from (run.name for run, _ in (list_runs(folder) if folder.is_dir() else ()))


@_completer
def model_labels(ctx: Any, incomplete: str) -> Iterable[str]:  # noqa: ARG001
    """The labels of the model runs of the suite or run on the command line."""
    from visioneval.running.loading import SuiteOptions, load_plan

    for path in _suite_paths(ctx):
        yield from (run.label for run in load_plan(path, SuiteOptions()).runs)
    for name in _run_arguments(ctx):
        yield from _run_labels(ctx, name)


@_completer
def case_ids(ctx: Any, incomplete: str) -> Iterable[str]:  # noqa: ARG001
    """The ids of the cases."""
    return (case.id for suite in _suites(ctx) for case in suite.cases)


@_completer
def case_tags(ctx: Any, incomplete: str) -> Iterable[str]:  # noqa: ARG001
    """The tags of the cases."""
    return (tag for suite in _suites(ctx) for case in suite.cases for tag in case.tags)


@_completer
def grader_keys(ctx: Any, incomplete: str) -> Iterable[str]:  # noqa: ARG001
    """The keys of the graders."""
    return (grader.key for suite in _suites(ctx) for grader in suite.graders)


@_completer
def metric_names(ctx: Any, incomplete: str) -> Iterator[str]:  # noqa: ARG001
    """The metrics of the runs on the command line."""
    from visioneval.analysis.run_lookup import named_run

    for name in _run_arguments(ctx):
        yield from named_run(name, _runs_folder(ctx))[1].metrics


@_completer
def template_names(ctx: Any, incomplete: str) -> Iterable[str]:  # noqa: ARG001
    """The suites that ``init`` writes."""
    from visioneval.installation import suite_folders

    return suite_folders()


def _suites(ctx: Any) -> Iterator[Suite]:
    """The suites on the command line, and those of the runs on it."""
    from visioneval.analysis.run_lookup import named_run
    from visioneval.running.loading import SuiteOptions, load_plan

    for path in _suite_paths(ctx):
        yield load_plan(path, SuiteOptions()).suite
    for name in _run_arguments(ctx):
        yield named_run(name, _runs_folder(ctx))[1].suite


def _suite_paths(ctx: Any) -> list[Path]:
    """An option without its value ends parsing, and leaves the arguments as text."""
    return [*map(Path, ctx.params.get("suites") or ()), *(Path(text) for text in ctx.args if _is_suite(text))]


def _is_suite(text: str) -> bool:
    """Whether a word is the file of a suite, or a folder with one."""
    return Path(text).is_file() or (Path(text) / SUITE_FILE).is_file()


def _run_arguments(ctx: Any) -> list[str]:
    """The runs that the command line names, without their labels."""
    values = (ctx.params.get(name) for name in ("run", "name", "a", "b", "resume"))
    texts = [text for text in ctx.args if not text.startswith("-") and not _is_suite(text)]
    named = [value for value in values if isinstance(value, str) and value and not (texts and value == LATEST)]
    return [name.partition("@")[0] for name in (*named, *texts)]


def _runs_folder(ctx: Any) -> Path:
    return Path(ctx.params.get("runs") or RUNS)


def _run_labels(ctx: Any, name: str) -> Iterable[str]:
    from visioneval.analysis.run_lookup import named_run

    return (str(entry.label) for entry in named_run(name, _runs_folder(ctx))[1].suite.models)
