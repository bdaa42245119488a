"""Classes of the user's own: what they say of themselves, and whether the suite's options fit them.

A class may have ``Options`` (a pydantic model), ``version`` (anything that ``str`` takes) and, as a grader,
``metrics(case)``. It is loaded here, when a trusted suite is checked, and again when a run is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from visioneval.errors import UsageError, VisionEvalError
from visioneval.registry import Part, load_class
from visioneval.suite.case import TestCase
from visioneval.suite.graders import BaseGrader, CustomGrader, Declared
from visioneval.suite.judges import CustomJudge
from visioneval.suite.loading.messages import Loc, did_you_mean, explain, in_document
from visioneval.suite.model import Suite
from visioneval.suite.providers import CustomProvider
from visioneval.types import Metric

Custom = CustomGrader | CustomProvider | CustomJudge
Found = Iterator[tuple[Loc, str]]


def build(name: str, table: Mapping[str, Part], config: Any, folder: Path) -> Any:
    """The grader, provider or judge called ``name``, built from its config.

    A class of the user's own that has ``Options`` finds an instance of them as ``config.options``. Raises
    ``UsageError`` in one line where such a class cannot be imported or built.
    """
    cls = load_class(name, table, folder)
    if name in table:
        return cls(config)
    if (options := _options_of(name, cls)) is not None:
        try:
            config = config.model_copy(update={"options": options.model_validate(config.options)})
        except ValidationError as error:
            raise UsageError(f"{name}: its options do not fit: {error.errors()[0]['msg']}") from None
    try:
        return cls(config)
    except VisionEvalError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{name}: cannot be built: {type(error).__name__}: {error}") from error


def described_suite(suite: Suite, folder: Path, *, is_held: bool = False) -> tuple[Suite, list[tuple[Loc, str]]]:
    """A trusted suite with what its classes say of themselves, and what is wrong with how it uses them.

    Raises ``UsageError`` for a class that cannot be imported or built; where a run holds the suite, such an entry stays
    as it is held, since not all of a run's classes are needed to go on with it.
    """
    problems: list[tuple[Loc, str]] = []

    def described(entry: Any, loc: Loc) -> Any:
        if not isinstance(entry, Custom):
            return entry
        try:
            changed, misfits = _described(entry, suite.cases, folder)
        except UsageError:
            if not is_held:
                raise
            return entry
        problems.extend(((*loc, *at), message) for at, message in misfits)
        return changed

    update = {
        "models": tuple(described(entry, ("models", index)) for index, entry in enumerate(suite.models)),
        "judges": {name: described(judge, ("judges", name)) for name, judge in suite.judges.items()},
        "graders": tuple(described(grader, ("graders", index)) for index, grader in enumerate(suite.graders)),
    }
    return suite.model_copy(update=update), problems


def says_what_it_writes(grader: BaseGrader) -> bool:
    """Whether a grader's metrics are known: those of a class that was not loaded are, where the suite writes them."""
    if not isinstance(grader, CustomGrader) or grader.writes:
        return True
    return grader.declared is not None and grader.declared.metrics is not None


def _described(entry: Any, cases: Sequence[TestCase], folder: Path) -> tuple[Any, list[tuple[Loc, str]]]:
    """An entry with what its class says of itself, and what is wrong with its options and metrics."""
    name = entry.type if isinstance(entry, CustomGrader) else entry.provider
    cls = load_class(name, {}, folder)
    misfits = list(_misfits(_options_of(name, cls), entry.options))
    version = getattr(cls, "version", None)
    entry = entry.model_copy(update={"declared": None if version is None else Declared(version=str(version))})
    if misfits or not isinstance(entry, CustomGrader):
        return entry, misfits
    return _with_metrics(entry, cls, cases, folder)


def _options_of(name: str, cls: Any) -> type[BaseModel] | None:
    """The ``Options`` of a class, which take no key that they do not name, unless they say so themselves."""
    options = getattr(cls, "Options", None)
    if options is None:
        return None
    if not (isinstance(options, type) and issubclass(options, BaseModel)):
        raise UsageError(f"{name}: its Options are no pydantic model: derive them from pydantic.BaseModel")
    if "extra" in options.model_config:
        return options
    return type(options.__name__, (options,), {"model_config": ConfigDict(extra="forbid"), "__module__": __name__})


def _misfits(options: type[BaseModel] | None, written: Mapping[str, Any]) -> Found:
    if options is None:
        return
    try:
        options.model_validate(written)
    except ValidationError as error:
        schema = options.model_json_schema()
        for each in error.errors(include_url=False):
            of_key = ("[key]",) if each["type"] == "extra_forbidden" else ()
            yield ("options", *in_document(each["loc"]), *of_key), explain(each, schema)


def _with_metrics(
    grader: CustomGrader, cls: Any, cases: Sequence[TestCase], folder: Path
) -> tuple[CustomGrader, list[tuple[Loc, str]]]:
    """A grader with what its class writes for each case."""
    name = grader.type
    if not callable(getattr(cls, "metrics", None)):
        message = f"the key 'writes' is missing: the class {name} has no metrics(case) that says it"
        return grader, [] if grader.writes else [((), message)]
    built = build(name, {}, grader, folder)
    by_case = {case.id: _metrics_for(built, name, case) for case in cases if grader.is_for(case)}
    metrics = {metric: meaning for written in by_case.values() for metric, meaning in written.items()}
    declared = Declared(
        version=grader.version, metrics=metrics, cases={case: tuple(written) for case, written in by_case.items()}
    )
    return grader.model_copy(update={"declared": declared}), list(_unlike(grader, metrics))


def _metrics_for(built: Any, name: str, case: TestCase) -> dict[str, Metric]:
    try:
        written = built.metrics(case)
        return {str(metric): Metric.model_validate(meaning) for metric, meaning in dict(written).items()}
    except (Exception, SystemExit) as error:
        first = str(error).partition("\n")[0]
        raise UsageError(f"{name}: metrics(case) failed for {case.id!r}: {type(error).__name__}: {first}") from error


def _unlike(grader: CustomGrader, metrics: Mapping[str, Metric]) -> Found:
    """Where the suite's ``writes`` and the class do not say the same."""
    if not grader.writes:
        return
    for name, metric in grader.writes.items():
        if name not in metrics:
            message = f"the class {grader.type} writes no {name!r}{did_you_mean(name, metrics)}"
            yield ("writes", name, "[key]"), message
        elif metric != metrics[name]:
            yield ("writes", name), f"the class {grader.type} means {name!r} otherwise: leave 'writes' to it"
    for name in metrics.keys() - grader.writes.keys():
        yield ("writes",), f"the class {grader.type} writes {name!r} too: name it, or leave 'writes' to the class"
