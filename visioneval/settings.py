"""The settings of a run: keywords of the Python API and flags of the command line, as one options object."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypedDict, get_args, get_type_hints

from visioneval.defaults import MAX_CONCURRENCY, RUNS
from visioneval.errors import UsageError, did_you_mean
from visioneval.records.stores.locations import cache_folder
from visioneval.records.stores.lookup import find_named_run, runs_folder
from visioneval.running.calls.caching.reuse import Reuse, ReuseChoice
from visioneval.running.calls.settings import CallSettings
from visioneval.running.loading import SuiteOptions
from visioneval.running.prepare import ClusterOptions, RunOptions
from visioneval.suite.selection.selection import Selection
from visioneval.suite.selection.shards import Shard

MAX_WORKERS = 10_000


class CallKeywords(TypedDict, total=False):
    """How providers are called."""

    variables: Mapping[str, Any]
    """Override the suite's ``vars``, as ``--var`` does: a text is read as YAML."""
    runs: Path | str
    """The folder of runs, or its URL in an object store (``s3://``, ``gs://``); ``runs`` by default."""
    reuse: ReuseChoice
    """Which cached answers to reuse: ``all``, ``judges`` (default: answers about identical images, and local
    measurements) or ``none``."""
    offline: bool
    """Makes no network calls: all answers come from the cache. Local graders may measure."""
    cache: Path | str
    """The cache folder, instead of the user's, or the URL of a cache that several machines share."""
    budget_usd: float
    """The maximum cost in US dollars, instead of the suite's."""
    max_concurrency: int
    """Concurrent calls per model; 64 by default."""
    log_file: Path | str
    """Gets one line of JSON per call."""
    trust_suite: bool
    """Allows the suite to run its own code and to read files outside its folder."""


class SelectionKeywords(CallKeywords, total=False):
    """What to run. Lists of names select; patterns are globs."""

    cases: Sequence[str]
    tags: Sequence[str]
    models: Sequence[str]
    graders: Sequence[str]
    limit: int
    """Only the first cases that are selected."""
    judges: Mapping[str, str]
    """``PROVIDER:MODEL`` by the name of a judge of the suite."""


class PlanKeywords(SelectionKeywords, total=False):
    """The settings of a plan."""

    samples: int
    """Outputs per case and model run, instead of the suite's."""
    shard: str
    """``I/N``: only part I of N of the selected cases. ``merge`` unites the runs of all parts."""


class GradeKeywords(SelectionKeywords, total=False):
    """The settings of grading a run again."""

    run_id: str
    note: str


class RunKeywords(PlanKeywords, GradeKeywords, total=False):
    """All settings of a run."""

    resume: Path | str
    """The run to resume."""
    keep_errors: bool
    """Does not repeat the cells of a resumed run that ended in an error."""
    retry_unusable: bool
    """Generates again, and pays again, where an answer has no usable image; with ``resume`` or ``reuse="all"``."""
    ray: bool
    """Does the cells on a Ray cluster, which is started here unless ``ray_address`` names one."""
    ray_address: str
    """The address of a running cluster: ``HOST:PORT`` or ``auto``."""
    workers: int
    """How many processes of the cluster do cells, each on one core; by default one per core."""


def checked_keywords(function: Callable[..., Any], settings: Mapping[str, Any], keywords: type) -> dict[str, Any]:
    """The settings of a function of the API. Raises ``TypeError`` for one that it does not have."""
    known = get_type_hints(keywords).keys()
    for name in settings:
        if name not in known:
            own = {key for key, each in signature(function).parameters.items() if each.kind != Parameter.VAR_KEYWORD}
            raise TypeError(f"{function.__name__}() has no setting {name!r}{did_you_mean(name, known | own)}")
    return dict(settings)


def run_options(
    *,
    cases: Sequence[str] = (),
    tags: Sequence[str] = (),
    models: Sequence[str] = (),
    graders: Sequence[str] = (),
    limit: int | None = None,
    samples: int | None = None,
    shard: str | None = None,
    variables: Mapping[str, Any] | None = None,
    judges: Mapping[str, str] | None = None,
    runs: Path | str = RUNS,
    run_id: str | None = None,
    note: str | None = None,
    resume: Path | str | None = None,
    keep_errors: bool = False,
    retry_unusable: bool = False,
    reuse: ReuseChoice = "judges",
    offline: bool = False,
    cache: Path | str | None = None,
    budget_usd: float | None = None,
    max_concurrency: int = MAX_CONCURRENCY,
    log_file: Path | str | None = None,
    debug: bool = False,
    trust_suite: bool = False,
    ray: bool = False,
    ray_address: str | None = None,
    workers: int | None = None,
    command_line: tuple[str, ...] = (),
) -> RunOptions:
    """The options of a run. Raises ``UsageError``."""
    for name, patterns in (("cases", cases), ("tags", tags), ("models", models), ("graders", graders)):
        if isinstance(patterns, str):
            raise UsageError(f"{name} must be a list of strings, not one string")
    for name, mapping in (("variables", variables), ("judges", judges)):
        if mapping is not None and not isinstance(mapping, Mapping):
            raise UsageError(f"{name} must be a dictionary")
    _check_range("limit", limit, 1, None)
    _check_range("samples", samples, 1, 1000)
    _check_range("max_concurrency", max_concurrency, 1, 4096)
    if budget_usd is not None and not 0 < budget_usd < float("inf"):
        raise UsageError(f"the budget must be a positive number of US dollars, not {budget_usd}")
    if reuse not in get_args(ReuseChoice):
        raise UsageError(f"reuse: {reuse!r} is not valid: use {', '.join(get_args(ReuseChoice))}")
    if offline and reuse == "none":
        raise UsageError("offline takes all answers from the cache, and reuse 'none' takes none: leave out one of them")
    if retry_unusable:
        _check_retry(offline=offline, keep_errors=keep_errors, reuses=resume is not None or reuse == "all")
    selection = Selection(
        cases=tuple(cases),
        tags=tuple(tags),
        models=tuple(models),
        graders=tuple(graders),
        limit=limit,
        samples=samples,
        shard=None if shard is None else Shard.parse(shard),
    )
    suite = SuiteOptions(
        selection=selection,
        variables={name: v if isinstance(v, str) else json.dumps(v) for name, v in (variables or {}).items()},
        judges=judges or {},
        samples=samples,
        trust=trust_suite,
        runs=runs_folder(runs),
    )
    calls = CallSettings(
        max_concurrency,
        None if cache is None else cache_folder(cache),
        Reuse.of(reuse, offline=offline, resumes=resume is not None, retry_unusable=retry_unusable),
        budget_usd,
        None if log_file is None else Path(log_file),
        debug,
    )
    folder = None if resume is None else find_named_run(str(resume), runs_folder(runs))
    return RunOptions(
        suite=suite,
        calls=calls,
        run_id=run_id,
        note=note,
        resume=folder,
        keep_errors=keep_errors,
        command_line=command_line,
        cluster=_cluster_options(ray, ray_address, workers),
    )


def _check_retry(*, offline: bool, keep_errors: bool, reuses: bool) -> None:
    """Raises ``UsageError`` for a run that cannot ask again for what it cannot use."""
    if offline:
        raise UsageError("--retry-unusable generates again, and --offline generates nothing: leave out one of them")
    if keep_errors:
        raise UsageError("--retry-unusable repeats errors, and --keep-errors repeats none: leave out one of them")
    if not reuses:
        raise UsageError("--retry-unusable needs --resume or --reuse all: other runs generate all images")


def _cluster_options(is_on: bool, address: str | None, workers: int | None) -> ClusterOptions | None:
    """The cluster of a run. Raises ``UsageError`` for options of a cluster without one."""
    for name, value in (("--ray-address", address), ("--workers", workers)):
        if value is not None and not is_on:
            raise UsageError(f"{name} needs --ray")
    _check_range("workers", workers, 1, MAX_WORKERS)
    return ClusterOptions(address, workers) if is_on else None


def _check_range(name: str, value: int | None, minimum: int, maximum: int | None) -> None:
    if value is not None and (value < minimum or (maximum is not None and value > maximum)):
        limits = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise UsageError(f"{name} must be {limits}, not {value}")
