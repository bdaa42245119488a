"""From the settings of a run to its options: the one place where they are checked and converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeVar, Unpack

from visioneval.errors import UsageError, did_you_mean
from visioneval.records.stores.lookup import cache_folder, find_named_run, runs_folder
from visioneval.running.calls.calls import Reuse
from visioneval.running.calls.settings import CallSettings
from visioneval.running.loading import SuiteOptions
from visioneval.running.prepare import ClusterOptions, RunOptions
from visioneval.running.until import UntilOptions
from visioneval.settings import MAX_SAMPLES, SETTINGS, CommandKeywords, Setting, as_text, as_words, settings_of
from visioneval.suite.runs import Selection, Shard

Options = TypeVar("Options", SuiteOptions, CallSettings, RunOptions)


def checked_keywords(function: Callable[..., Any], settings: Mapping[str, Any], keywords: type) -> dict[str, Any]:
    """The settings of a function of the API. Raises ``TypeError`` for one that it does not have."""
    known = settings_of(keywords).keys()
    for name in settings:
        if name not in known:
            own = {key for key, each in signature(function).parameters.items() if each.kind != Parameter.VAR_KEYWORD}
            raise TypeError(f"{function.__name__}() has no setting {name!r}{did_you_mean(name, known | own)}")
    return dict(settings)


def run_options(*, command_line: tuple[str, ...] = (), **settings: Unpack[CommandKeywords]) -> RunOptions:
    """The options of a run. ``command_line`` is what was typed, without the program. Raises ``UsageError``."""
    given: dict[str, Any] = {**{name: setting.default for name, setting in SETTINGS.items()}, **settings}
    for name, value in given.items():
        if value is not None:
            _check(SETTINGS[name], value)
    _check_together(given)
    runs = runs_folder(given["runs"])
    shard, cache, log_file = given["shard"], given["cache"], given["log_file"]
    resume = None if given["resume"] is None else find_named_run(str(given["resume"]), runs)
    values = {
        **given,
        **{name: tuple(given[name] or ()) for name in ("cases", "tags", "models", "graders", "redact")},
        "shard": None if shard is None else Shard.parse(shard),
        "variables": {name: as_text(value) for name, value in (given["variables"] or {}).items()},
        "judges": given["judges"] or {},
        "trust": given["trust_suite"],
        "runs": runs,
        "cache": None if cache is None else cache_folder(cache),
        "reuse": Reuse.of(
            given["reuse"], offline=given["offline"], resumes=resume is not None, retry_unusable=given["retry_unusable"]
        ),
        "log_file": None if log_file is None else Path(log_file),
        "resume": resume,
        "until": UntilOptions(given["max_samples"] or MAX_SAMPLES, given["baseline"])
        if given["until_decided"]
        else None,
        "cluster": ClusterOptions(given["ray_address"], given["workers"]) if given["ray"] else None,
        "command_line": command_line,
        "words": tuple(as_words(settings)),
    }
    values["selection"] = Selection(**{name: values[name] for name in Selection.model_fields})
    values["suite"], values["calls"] = _taking(SuiteOptions, values), _taking(CallSettings, values)
    return _taking(RunOptions, values)


def _taking(options: type[Options], values: Mapping[str, Any]) -> Options:
    """The options with those values that they have fields for."""
    return options(**{field.name: values[field.name] for field in fields(options) if field.name in values})


def _check(setting: Setting, value: Any) -> None:
    """Raises ``UsageError`` for a value of the wrong form or out of range."""
    name, low, high = setting.name, setting.minimum, setting.maximum
    if setting.is_list and isinstance(value, str):
        raise UsageError(f"{name} must be a list of strings, not one string")
    if setting.is_mapping and not isinstance(value, Mapping):
        raise UsageError(f"{name} must be a dictionary")
    if setting.choices and value not in setting.choices:
        raise UsageError(f"{name}: {value!r} is not valid: use {', '.join(setting.choices)}")
    if name == "budget_usd" and not 0 < value < float("inf"):
        raise UsageError(f"the budget must be a positive number of US dollars, not {value}")
    if (low is not None and value < low) or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"from {low} to {high}"
        raise UsageError(f"{name} must be {limits}, not {value}")


def _check_together(given: Mapping[str, Any]) -> None:
    """Raises ``UsageError`` for settings that exclude or need each other."""
    if given["offline"] and given["reuse"] == "none":
        raise UsageError("offline takes all answers from the cache, and reuse 'none' takes none: leave out one of them")
    if given["retry_unusable"]:
        if given["offline"]:
            raise UsageError("--retry-unusable generates again, and --offline generates nothing: leave out one of them")
        if given["keep_errors"]:
            raise UsageError("--retry-unusable repeats errors, and --keep-errors repeats none: leave out one of them")
        if given["resume"] is None and given["reuse"] != "all":
            raise UsageError("--retry-unusable needs --resume or --reuse all: other runs generate all images")
    needed = {"ray_address": "ray", "workers": "ray", "max_samples": "until_decided", "baseline": "until_decided"}
    for name, other in needed.items():
        if given[name] is not None and not given[other]:
            raise UsageError(f"{SETTINGS[name].flag} needs {SETTINGS[other].flag}")
