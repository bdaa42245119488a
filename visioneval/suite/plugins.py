"""Custom classes: loads them, reads what they declare, and checks the suite's options against them.

A class is loaded and instantiated here, when a suite that may use it is checked, and again when a run starts.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, RootModel, ValidationError

from visioneval.errors import UsageError, VisionEvalError, did_you_mean
from visioneval.plugins import (
    BUILT_IN_PARTS,
    NAME,
    CustomClass,
    Part,
    Plugin,
    describe_user_error,
    installed_plugins,
    load_class,
    load_object,
    read_attribute,
)
from visioneval.suite.case import TestCase
from visioneval.suite.entries import CustomEntry, Declared
from visioneval.suite.entries.graders import BaseGrader, CustomGrader
from visioneval.suite.entries.judges import CustomJudge
from visioneval.suite.entries.providers import BaseProvider, CustomProvider
from visioneval.suite.messages import Loc, document_path, explain
from visioneval.suite.metrics import describe_meaning, same_meaning
from visioneval.suite.model import Suite
from visioneval.types import Metric, TaskType

Problems = Iterator[tuple[Loc, str]]
_METHODS_BY_TASK: Mapping[TaskType, str] = {
    TaskType.IMAGE_GENERATION: "generate",
    TaskType.IMAGE_EDITING: "edit",
    TaskType.VIDEO_GENERATION: "generate",
}
MEMBERS: Mapping[str, str] = {
    "__init__(self, config)": "gets the suite's entry. Stable names: `options`; of a grader `key`, `type`, `judge` "
    "(key, list or `None`); of a provider `provider`, `label`, `params`, `api_key_env`; of a judge `provider`, "
    "`model`, `params`, `api_key_env`",
    "class Options(BaseModel)": "the schema of `options:`. Values are converted unless it is strict. Without it, they "
    "are a mapping",
    "version": "a number or one line; by default, that of the plug-in's package. A new one grades, generates or asks "
    "again; a changed default in `Options` does not",
    "visioneval_api": "optional: `1`. Another number is refused",
    "grade(context)": "of a grader: returns a `Grade`",
    "metrics(case)": "of a grader: `{name: Metric}`, or nothing. Without it, the suite needs `writes:`; both must "
    "agree",
    "generate(request)": "of a provider: returns a `Generation` of an image or a video",
    "edit(request)": "of a provider: returns a `Generation` of an edit. `tasks` leaves cases of the other task out",
    "ask(question, about)": "of a judge: returns a `Reply`",
    "api_key_env": "of a provider or judge: the name of the only variable with a key that a stranger's suite "
    "may use, such as `ACME_API_KEY`",
}
"""What visioneval uses of a class, for the reference."""
_MAIN_METHODS: Mapping[str, tuple[str, ...]] = {
    CustomGrader.group: ("grade",),
    CustomProvider.group: ("generate", "edit"),
    CustomJudge.group: ("ask",),
}
"""The methods of which each kind of class must have at least one."""


def build(name: str, table: Mapping[str, Part], config: Any, folder: Path) -> Any:
    """Builds the grader, provider or judge called ``name`` from its config.

    A custom class with ``Options`` gets an instance of them as ``config.options``. Raises ``UsageError`` if a custom
    class cannot be imported or built, or lacks the main method of its kind.
    """
    if not isinstance(config, CustomEntry):
        return load_object(table[name].work)(config)
    loaded = load_class(name, config.group, folder)
    if not config.needs_trust and loaded.version != config.version:  # such as a worker of a cluster
        raise UsageError(
            f"{loaded.title}: the run needs version {config.version}, but this machine has {loaded.version}:"
            " install the same package"
        )
    return _built(loaded, config)


def _built(loaded: CustomClass, config: CustomEntry) -> Any:
    if (options := _options_of(loaded)) is not None:
        for _, message in _option_problems(loaded, options, config.options):
            raise UsageError(f"{loaded.title}: invalid options: {message}")
        config = config.model_copy(update={"options": options.model_validate(config.options)})
    _check_init(loaded)
    try:
        instance = loaded.cls(config)
    except VisionEvalError as error:
        raise UsageError(f"{loaded.title}: cannot be created: {error}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{loaded.title}: cannot be created: {describe_user_error(error, first_line=True)}") from error
    _check_main_method(loaded.title, instance, config.group)
    return instance


def _check_init(loaded: CustomClass) -> None:
    """Raises ``UsageError`` if a class cannot be called with its config alone, as far as its signature is known."""
    title = f"{loaded.title}: cannot be created"
    if inspect.isabstract(loaded.cls):
        missing = ", ".join(map(repr, sorted(loaded.cls.__abstractmethods__)))
        raise UsageError(f"{title}: the class is abstract, without {missing}")
    try:
        inspect.signature(loaded.cls).bind(None)
    except TypeError as error:
        raise UsageError(f"{title}: the class needs an __init__(self, config)") from error
    except ValueError:  # a class in C has no signature
        return


def _check_main_method(title: str, value: Any, group: str) -> None:
    """Raises ``UsageError`` if a class or an instance lacks the main method of its kind."""
    methods = _MAIN_METHODS[group]
    if not any(callable(read_attribute(title, value, method)) for method in methods):
        raise UsageError(f"{title}: has no method {' or '.join(map(repr, methods))}")


@dataclass(frozen=True, slots=True)
class CheckedPlugin:
    """A plug-in, and whether suites can use it."""

    plugin: Plugin
    version: str | None = None
    """The version in records and keys; ``None`` if it cannot be used."""
    problem: str | None = None
    """Why it cannot be used, in one line."""


def checked_plugins() -> list[CheckedPlugin]:
    """All plug-ins of installed packages. Imports each."""
    return [_checked(plugin) for plugin in installed_plugins()]


def _checked(plugin: Plugin) -> CheckedPlugin:
    if plugin.name in BUILT_IN_PARTS[plugin.group]:
        problem = f"visioneval has a {plugin.kind} of this name, which suites get: rename the entry point"
        return CheckedPlugin(plugin, problem=problem)
    if not re.fullmatch(NAME, plugin.name):
        problem = "a name has only a-z, 0-9, '_' and '-', begins with a letter, and has at most 60 characters"
        return CheckedPlugin(plugin, problem=problem)
    try:
        loaded = load_class(plugin.name, plugin.group, Path())
        _options_of(loaded)
        _check_init(loaded)
        if isinstance(loaded.cls, type):  # what a function returns is only known when a suite uses it
            _check_main_method(loaded.title, loaded.cls, plugin.group)
    except UsageError as error:
        return CheckedPlugin(plugin, problem=str(error).partition(": ")[2])
    except Exception as error:  # one package must not hide the others
        return CheckedPlugin(plugin, problem=describe_user_error(error, first_line=True))
    return CheckedPlugin(plugin, loaded.version)


def task_problems(name: str, instance: Any, entry: BaseProvider, tasks: Iterable[TaskType]) -> list[str]:
    """A message for each of the ``tasks`` that an entry should do and for which its instance has no method."""
    needed = {task for task in tasks if entry.does(task)}
    return [
        f"{name}: has no method {method!r}, so it cannot do {task}; restrict it with 'tasks'"
        for task, method in _METHODS_BY_TASK.items()
        if task in needed and not callable(getattr(instance, method, None))
    ]


def with_declarations(
    suite: Suite, folder: Path, *, trust: bool, is_from_run: bool = False
) -> tuple[Suite, list[tuple[Loc, str]]]:
    """Adds to a suite what its custom classes declare, and returns problems in the classes and their use.

    Without ``trust``, only plug-ins are loaded. If the suite comes from a run, an entry whose class is broken stays
    unchanged, since resuming may not need it.
    """
    problems: list[tuple[Loc, str]] = []
    changed: dict[Loc, Any] = {}
    for loc, entry in _custom_entries(suite):
        if entry.needs_trust and not trust:
            continue
        try:
            changed[loc], misfits = _with_declaration(entry, suite.cases, folder, trust=trust, is_built=not is_from_run)
            problems.extend(((*loc, *path), message) for path, message in misfits)
        except UsageError as error:
            if not is_from_run:
                problems.append(((*loc, entry.name_key), str(error).partition("\n")[0]))
    update = {
        "models": tuple(changed.get(("models", index), entry) for index, entry in enumerate(suite.models)),
        "judges": {name: changed.get(("judges", name), judge) for name, judge in suite.judges.items()},
        "graders": tuple(changed.get(("graders", index), grader) for index, grader in enumerate(suite.graders)),
    }
    return suite.model_copy(update=update), problems


def version_warnings(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields the entries of plug-ins whose code may change while their version stays."""
    for loc, entry in _custom_entries(suite):
        if entry.needs_trust:
            continue
        plugins = (plugin for plugin in installed_plugins() if plugin.is_editable)
        editable: set[object] = {(plugin.group, plugin.name, plugin.version) for plugin in plugins}
        if (entry.group, entry.class_name, entry.version) not in editable:
            continue
        with suppress(UsageError):  # of a run, which may not need the class
            if load_class(entry.class_name, entry.group, Path()).has_own_version:
                continue
        message = (
            f"{entry.class_name}: its package is installed in editable mode, so its version stays {entry.version}"
            " when its code changes, and nothing runs again: give the class a 'version'"
        )
        yield (*loc, entry.name_key), message


def _custom_entries(suite: Suite) -> Iterator[tuple[Loc, CustomEntry]]:
    """The entries with classes that are not visioneval's, each with its path in the suite."""
    entries: list[tuple[Loc, Any]] = [(("models", index), model) for index, model in enumerate(suite.models)]
    entries += [(("judges", name), judge) for name, judge in suite.judges.items()]
    entries += [(("graders", index), grader) for index, grader in enumerate(suite.graders)]
    yield from ((loc, entry) for loc, entry in entries if isinstance(entry, CustomEntry))


def has_known_metrics(grader: BaseGrader) -> bool:
    """Whether a grader's metrics are known. A class that is not loaded needs ``writes`` in the suite."""
    if not isinstance(grader, CustomGrader) or grader.writes:
        return True
    return grader.declared is not None and grader.declared.metrics is not None


def _with_declaration(
    entry: Any, cases: Sequence[TestCase], folder: Path, *, trust: bool, is_built: bool
) -> tuple[Any, list[tuple[Loc, str]]]:
    """An entry with what its class declares, and problems of its options and metrics.

    With ``is_built``, the class is instantiated, unless the API key of its entry is missing. Raises ``UsageError`` for
    a broken class.
    """
    loaded = load_class(entry.class_name, entry.group, folder)
    misfits = [*_option_problems(loaded, _options_of(loaded), entry.options)]
    variable = getattr(entry, "api_key_env", None)
    usual = None if trust else read_attribute(loaded.title, loaded.cls, "api_key_env")
    if not trust and variable not in (None, usual):  # a plug-in would get it because an untrusted suite names it
        message = f"{variable!r} is not the variable of {loaded.title}: pass --trust-suite if you trust the suite"
        misfits.append((("api_key_env",), message))
    version = loaded.version
    entry = entry.model_copy(update={"declared": None if version is None else Declared(version=version)})
    if misfits:
        return entry, misfits
    has_metrics = isinstance(entry, CustomGrader) and callable(read_attribute(loaded.title, loaded.cls, "metrics"))
    has_key = all(os.environ.get(name) for name in getattr(entry, "needs_keys", ()))  # else it may be unable to start
    instance = _built(loaded, entry) if has_metrics or (is_built and has_key) else None
    if isinstance(entry, CustomProvider) and instance is not None:
        tasks = (case.task_type for case in cases)
        return entry, [(("provider",), message) for message in task_problems(entry.class_name, instance, entry, tasks)]
    if not isinstance(entry, CustomGrader):
        return entry, []
    return _with_metrics(entry, instance if has_metrics else None, cases)


def _options_of(loaded: CustomClass) -> type[BaseModel] | None:
    """The ``Options`` of a class. Unknown keys are forbidden unless the model sets ``extra`` itself."""
    options = read_attribute(loaded.title, loaded.cls, "Options")
    if options is None:
        return None
    if not (isinstance(options, type) and issubclass(options, BaseModel)):
        raise UsageError(f"{loaded.title}: Options must be a pydantic model: derive it from pydantic.BaseModel")
    try:
        options.model_rebuild()  # fails here if a type is imported under TYPE_CHECKING only
        if "extra" in options.model_config or issubclass(options, RootModel):  # a root model has no keys of its own
            return options
        return type(options.__name__, (options,), {"model_config": ConfigDict(extra="forbid"), "__module__": __name__})
    except Exception as error:
        problem = describe_user_error(error, first_line=True)
        raise UsageError(f"{loaded.title}: Options cannot be used: {problem}") from error


def _option_problems(loaded: CustomClass, options: type[BaseModel] | None, written: Mapping[str, Any]) -> Problems:
    """What is wrong with options as written. Raises ``UsageError`` if a validator of the class fails in another way."""
    if options is None:
        return
    try:
        options.model_validate(written)
    except ValidationError as error:
        schema = {}
        with suppress(Exception):  # a type of the class may have none
            schema = options.model_json_schema()
        for entry in error.errors(include_url=False):
            of_key = ("[key]",) if entry["type"] == "extra_forbidden" else ()
            path = document_path(entry["loc"])
            key = f"{path[-1]}: " if entry["type"] == "value_error" and path else ""  # of a validator of the class
            yield ("options", *path, *of_key), key + explain(entry, schema)
    except (Exception, SystemExit) as error:
        problem = describe_user_error(error, first_line=True)
        raise UsageError(f"{loaded.title}: Options failed: {problem}") from error


def _with_metrics(
    grader: CustomGrader, instance: Any, cases: Sequence[TestCase]
) -> tuple[CustomGrader, list[tuple[Loc, str]]]:
    """A grader with the metrics that its class declares for each case. Without them, ``instance`` is ``None``."""
    name = grader.type
    if instance is None:
        message = f"the key 'writes' is missing: list the metrics, since the class {name} has no metrics(case)"
        return grader, [] if grader.writes else [((), message)]
    by_case = {case.id: _metrics_for(instance, name, case) for case in cases if grader.is_for(case)}
    metrics: dict[str, Metric] = {}
    two_meanings: list[tuple[Loc, str]] = []
    for case_id, written in by_case.items():
        for metric, meaning in written.items():
            first = metrics.setdefault(metric, meaning)
            if not same_meaning(first, meaning) and not two_meanings:
                meanings = f"{describe_meaning(first)}, but {describe_meaning(meaning)} for {case_id!r}"
                two_meanings.append(((), f"{name} declares {metric!r} as {meanings}: use two names"))
    declared = Declared(
        version=grader.version, metrics=metrics, cases={case: tuple(written) for case, written in by_case.items()}
    )
    return grader.model_copy(update={"declared": declared}), [*two_meanings, *_metric_problems(grader, metrics)]


def _metrics_for(instance: Any, name: str, case: TestCase) -> dict[str, Metric]:
    try:
        written = instance.metrics(case)
    except (Exception, SystemExit) as error:
        message = f"metrics(case) failed for {case.id!r}: {describe_user_error(error, first_line=True)}"
        raise UsageError(f"{name}: {message}") from error
    if not isinstance(written, Mapping):
        raise UsageError(f"{name}: metrics(case) returned {type(written).__name__}, not dict, for {case.id!r}")
    metrics: dict[str, Metric] = {}
    for metric, meaning in written.items():
        try:
            metrics[str(metric)] = Metric.model_validate(meaning)
        except ValidationError as error:
            problems = (explain(entry, Metric.model_json_schema()) for entry in error.errors(include_url=False))
            message = f"metrics(case) returned an invalid {str(metric)!r} for {case.id!r}: {'; '.join(problems)}"
            raise UsageError(f"{name}: {message}") from error
    return metrics


def _metric_problems(grader: CustomGrader, metrics: Mapping[str, Metric]) -> Problems:
    """Differences between the suite's ``writes`` and the metrics of the class."""
    if not grader.writes:
        return
    for name, metric in grader.writes.items():
        if name not in metrics:
            message = f"the class {grader.type} does not write {name!r}{did_you_mean(name, metrics)}"
            yield ("writes", name, "[key]"), message
        elif metric != metrics[name]:
            yield ("writes", name), f"the class {grader.type} defines {name!r} differently: remove 'writes'"
    for name in metrics.keys() - grader.writes.keys():
        yield ("writes",), f"the class {grader.type} also writes {name!r}: add it, or remove 'writes'"
