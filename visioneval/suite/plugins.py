"""Custom classes: loads them, reads what they declare, and checks the suite's options against them.

A class may have ``Options`` (a pydantic model), ``version`` (any value that ``str`` accepts) and, as a grader,
``metrics(case)``. It is loaded and instantiated here, when a trusted suite is checked, and again when a run starts.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from visioneval.errors import UsageError, VisionEvalError, did_you_mean
from visioneval.registry import Part, describe_user_error, load_class
from visioneval.suite.cases.case import TestCase
from visioneval.suite.entries.graders import BaseGrader, CustomGrader, Declared
from visioneval.suite.entries.judges import CustomJudge
from visioneval.suite.entries.providers import BaseProvider, CustomProvider
from visioneval.suite.findings import Loc
from visioneval.suite.loading.messages import document_path, explain
from visioneval.suite.model import Suite
from visioneval.types import Metric, TaskType

Custom = CustomGrader | CustomProvider | CustomJudge
Problems = Iterator[tuple[Loc, str]]
_METHODS_BY_TASK: Mapping[TaskType, str] = {
    TaskType.IMAGE_GENERATION: "generate",
    TaskType.IMAGE_EDITING: "edit",
    TaskType.VIDEO_GENERATION: "generate",
}
_MAIN_METHODS: Mapping[type[Any], tuple[str, ...]] = {
    CustomGrader: ("grade",),
    CustomProvider: ("generate", "edit"),
    CustomJudge: ("ask",),
}
"""The methods of which each kind of class must have at least one."""


def build(name: str, table: Mapping[str, Part], config: Any, folder: Path) -> Any:
    """Builds the grader, provider or judge called ``name`` from its config.

    A custom class with ``Options`` gets an instance of them as ``config.options``. Raises ``UsageError`` if a custom
    class cannot be imported or built, or lacks the main method of its kind.
    """
    cls = load_class(name, table, folder)
    if name in table:
        return cls(config)
    if (options := _options_of(name, cls)) is not None:
        for _, message in _option_problems(options, config.options):
            raise UsageError(f"{name}: invalid options: {message}")
        config = config.model_copy(update={"options": options.model_validate(config.options)})
    instance = _instance(name, cls, config)
    _check_main_method(name, instance, config)
    return instance


def _instance(name: str, cls: Any, config: Any) -> Any:
    if not _accepts_config(cls, config):
        raise UsageError(f"{name}: cannot be created: the class needs an __init__(self, config)")
    try:
        return cls(config)
    except VisionEvalError as error:
        raise UsageError(f"{name}: cannot be created: {error}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{name}: cannot be created: {describe_user_error(error, first_line=True)}") from error


def _accepts_config(cls: Any, config: Any) -> bool:
    """Whether a class can be called with its config as the only argument, as far as its signature is known."""
    try:
        inspect.signature(cls).bind(config)
    except TypeError:
        return False
    except ValueError:  # a class in C has no signature
        return True
    return True


def _check_main_method(name: str, instance: Any, config: Any) -> None:
    """Raises ``UsageError`` if an instance lacks the main method of its kind."""
    for kind, methods in _MAIN_METHODS.items():
        if isinstance(config, kind) and not any(callable(getattr(instance, method, None)) for method in methods):
            raise UsageError(f"{name}: has no method {' or '.join(map(repr, methods))}")


def task_problems(name: str, instance: Any, entry: BaseProvider, tasks: Iterable[TaskType]) -> list[str]:
    """A message for each of the ``tasks`` that an entry should do and for which its instance has no method."""
    needed = {task for task in tasks if entry.does(task)}
    return [
        f"{name}: has no method {method!r}, so it cannot do {task}; restrict it with 'tasks'"
        for task, method in _METHODS_BY_TASK.items()
        if task in needed and not callable(getattr(instance, method, None))
    ]


def with_declarations(suite: Suite, folder: Path, *, is_from_run: bool = False) -> tuple[Suite, list[tuple[Loc, str]]]:
    """Adds to a trusted suite what its custom classes declare, and returns problems in the classes and their use.

    If the suite comes from a run, an entry whose class is broken stays unchanged, since resuming may not need it.
    """
    problems: list[tuple[Loc, str]] = []

    def described(entry: Any, loc: Loc) -> Any:
        if not isinstance(entry, Custom):
            return entry
        try:
            changed, entry_problems = _with_declaration(entry, suite.cases, folder, is_built=not is_from_run)
        except UsageError as error:
            if not is_from_run:
                problems.append(((*loc, _name_key(entry)), str(error).partition("\n")[0]))
            return entry
        problems.extend(((*loc, *path), message) for path, message in entry_problems)
        return changed

    update = {
        "models": tuple(described(entry, ("models", index)) for index, entry in enumerate(suite.models)),
        "judges": {name: described(judge, ("judges", name)) for name, judge in suite.judges.items()},
        "graders": tuple(described(grader, ("graders", index)) for index, grader in enumerate(suite.graders)),
    }
    return suite.model_copy(update=update), problems


def has_known_metrics(grader: BaseGrader) -> bool:
    """Whether a grader's metrics are known. A class that is not loaded needs ``writes`` in the suite."""
    if not isinstance(grader, CustomGrader) or grader.writes:
        return True
    return grader.declared is not None and grader.declared.metrics is not None


def _name_key(entry: Custom) -> str:
    """The key of an entry that names its class."""
    return "type" if isinstance(entry, CustomGrader) else "provider"


def _with_declaration(
    entry: Any, cases: Sequence[TestCase], folder: Path, *, is_built: bool
) -> tuple[Any, list[tuple[Loc, str]]]:
    """An entry with what its class declares, and problems of its options and metrics.

    With ``is_built``, the class is instantiated, unless the API key of its entry is missing. Raises ``UsageError`` for
    a broken class.
    """
    name = getattr(entry, _name_key(entry))
    cls = load_class(name, {}, folder)
    misfits = list(_option_problems(_options_of(name, cls), entry.options))
    version = getattr(cls, "version", None)
    entry = entry.model_copy(update={"declared": None if version is None else Declared(version=str(version))})
    if misfits:
        return entry, misfits
    has_metrics = isinstance(entry, CustomGrader) and callable(getattr(cls, "metrics", None))
    is_built = has_metrics or (is_built and _has_key(entry))
    instance = build(name, {}, entry, folder) if is_built else None
    if isinstance(entry, CustomProvider) and instance is not None:
        tasks = (case.task_type for case in cases)
        return entry, [(("provider",), message) for message in task_problems(name, instance, entry, tasks)]
    if not isinstance(entry, CustomGrader):
        return entry, []
    return _with_metrics(entry, instance if has_metrics else None, cases)


def _has_key(entry: Any) -> bool:
    """Whether the API key of an entry is set, if it needs one. Without it, the class may be unable to start."""
    return all(os.environ.get(name) for name in getattr(entry, "needs_keys", ()))


def _options_of(name: str, cls: Any) -> type[BaseModel] | None:
    """The ``Options`` of a class. Unknown keys are forbidden unless the model sets ``extra`` itself."""
    options = getattr(cls, "Options", None)
    if options is None:
        return None
    if not (isinstance(options, type) and issubclass(options, BaseModel)):
        raise UsageError(f"{name}: Options must be a pydantic model: derive it from pydantic.BaseModel")
    if "extra" in options.model_config:
        return options
    return type(options.__name__, (options,), {"model_config": ConfigDict(extra="forbid"), "__module__": __name__})


def _option_problems(options: type[BaseModel] | None, written: Mapping[str, Any]) -> Problems:
    if options is None:
        return
    try:
        options.model_validate(written)
    except ValidationError as error:
        schema = options.model_json_schema()
        for entry in error.errors(include_url=False):
            of_key = ("[key]",) if entry["type"] == "extra_forbidden" else ()
            path = document_path(entry["loc"])
            key = f"{path[-1]}: " if entry["type"] == "value_error" and path else ""  # of a validator of the class
            yield ("options", *path, *of_key), key + explain(entry, schema)


def _with_metrics(
    grader: CustomGrader, instance: Any, cases: Sequence[TestCase]
) -> tuple[CustomGrader, list[tuple[Loc, str]]]:
    """A grader with the metrics that its class declares for each case. Without them, ``instance`` is ``None``."""
    name = grader.type
    if instance is None:
        message = f"the key 'writes' is missing: list the metrics, since the class {name} has no metrics(case)"
        return grader, [] if grader.writes else [((), message)]
    by_case = {case.id: _metrics_for(instance, name, case) for case in cases if grader.is_for(case)}
    metrics = {metric: meaning for written in by_case.values() for metric, meaning in written.items()}
    declared = Declared(
        version=grader.version, metrics=metrics, cases={case: tuple(written) for case, written in by_case.items()}
    )
    return grader.model_copy(update={"declared": declared}), list(_metric_problems(grader, metrics))


def _metrics_for(instance: Any, name: str, case: TestCase) -> dict[str, Metric]:
    try:
        written = instance.metrics(case)
    except (Exception, SystemExit) as error:
        message = f"metrics(case) failed for {case.id!r}: {describe_user_error(error, first_line=True)}"
        raise UsageError(f"{name}: {message}") from error
    if not isinstance(written, Mapping):
        raise UsageError(f"{name}: metrics(case) returned {type(written).__name__}, not dict, for {case.id!r}")
    return {str(metric): _valid_metric(name, case, metric, meaning) for metric, meaning in written.items()}


def _valid_metric(name: str, case: TestCase, metric: Any, meaning: Any) -> Metric:
    try:
        return Metric.model_validate(meaning)
    except ValidationError as error:
        problems = (explain(entry, Metric.model_json_schema()) for entry in error.errors(include_url=False))
        message = f"metrics(case) returned an invalid {str(metric)!r} for {case.id!r}: {'; '.join(problems)}"
        raise UsageError(f"{name}: {message}") from error


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
