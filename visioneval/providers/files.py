"""The `files` provider: existing images and videos by a path, of another run, or of a dataset. Nothing is generated."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from string import Formatter
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from visioneval.errors import ProviderError, UsageError
from visioneval.media.images import MAX_BYTES, sha256
from visioneval.media.urls import fetch, is_url, public_address
from visioneval.providers.base import Address, Generation, GenerationRequest
from visioneval.suite.case import TestCase, rendered
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.files import (
    ExistingOutput,
    FilePath,
    Finished,
    RunLabels,
    TableFile,
    Trust,
    output_of_cell,
    rebased,
    split_run,
)
from visioneval.suite.loading.row_cases import prompt_id
from visioneval.suite.loading.rows import Row, missing_columns
from visioneval.suite.loading.tables import file_stem, located_table, read_cell_rows, table_name
from visioneval.suite.messages import Loc
from visioneval.threads import Threads
from visioneval.types import TaskType


class FilesProvider(BaseProvider):
    """Existing images and videos: a path pattern, another run, or a dataset."""

    can_do: ClassVar[frozenset[TaskType]] = frozenset(TaskType)
    is_free: ClassVar[bool] = True
    reads_outputs: ClassVar[bool] = True

    provider: Literal["files"]
    path: FilePath | None = Field(
        default=None, description="A pattern with `{case}` (`sign/2` for a turn), `{model}` (the label) and `{sample}`."
    )
    run: FilePath | None = Field(
        default=None,
        description="`RUN` or `RUN@LABEL`: the outputs of another run. One that is missing or was changed is an ERROR.",
    )
    dataset: OutputDataset | None = Field(
        default=None, description="A file of rows that names the output of each case."
    )
    outputs: Literal["none"] | None = Field(
        default=None,
        description="`none`: cells without outputs, for recorded answers. Every grader is then `gecko` or `rubric` "
        "with a `recorded` judge.",
    )

    @property
    def has_outputs(self) -> bool:
        return self.outputs is None

    @property
    def may_lack_outputs(self) -> bool:
        return self.dataset is not None or self.run is not None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("path", "run", "dataset", "outputs") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"files takes one source of outputs, not {' and '.join(given)}")
        if self.path is not None:
            try:
                parts = list(Formatter().parse(self.path))
            except ValueError:
                parts = [("", "?", "", None)]
            if any(name not in (None, "case", "model", "sample") or spec or how for _, name, spec, how in parts):
                raise ValueError("path may contain {case}, {model} and {sample}, and no other braces")
        return self

    def model_runs(
        self, cases: Sequence[TestCase], folder: Path, run_labels: RunLabels
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.run is not None:
            run, label = split_run(self.run)
            for run_label in [label] if label else run_labels(run):
                yield (self.label if label and self.label else run_label), {"run": f"{run}@{run_label}"}
        elif self.dataset is not None:
            yield from ((label, {}) for label in _dataset_labels(self.dataset, self.label, folder))
        elif self.path is not None or not self.has_outputs:
            yield self.base_label, {}
        else:
            labels = dict.fromkeys(label for case in cases for label in case.outputs)
            yield from ((label, {}) for label in labels if self.label in (None, label))

    @property
    def outputs_option(self) -> tuple[str, ...]:
        if self.dataset is not None:
            return ("dataset", "path")
        return next(((name,) for name in ("path", "run") if getattr(self, name) is not None), ())

    def source_problem(self, message: str) -> tuple[tuple[str, ...], str]:
        return (
            self.outputs_option,
            message if self.dataset is None else f"dataset: {public_address(self.dataset.path)}: {message}",
        )

    @property
    def source_run(self) -> str | None:
        return self.run

    def from_run(self, source: str) -> Self:
        return self.model_copy(update={"run": source})

    def path_of(self, case_id: str, label: str, sample: int) -> str | None:
        return None if self.path is None else self.path.format(case=case_id, model=label, sample=sample)

    def existing_outputs(
        self, label: str, cases: Sequence[TestCase], variables: Mapping[str, Any], folder: Path
    ) -> Finished:
        if self.path is not None:
            return {}
        if self.dataset is not None:
            return _dataset_outputs(self.dataset, label, cases, variables, folder)
        return {case.id: case.outputs[label] for case in cases if label in case.outputs}


class OutputDataset(TableFile):
    """Existing outputs in a file of rows. Rows match cases by id, or by prompt if they have no id."""

    fields: dict[str, str] = Field(
        description="Columns or paths of `output`, of `id` or `prompt`, and of `model` if there are several. Rows "
        "without an id are matched to their case by the prompt."
    )

    @model_validator(mode="after")
    def _enough(self) -> Self:
        known = {"output", "id", "prompt", "model"}
        if unknown := sorted(self.fields.keys() - known):
            raise ValueError(f"fields: unknown {', '.join(unknown)} (known: {', '.join(sorted(known))})")
        if "output" not in self.fields or not self.fields.keys() & {"id", "prompt"}:
            raise ValueError("fields: map 'output', and 'id' or 'prompt'")
        return self


def _dataset_labels(dataset: OutputDataset, only: str | None, folder: Path) -> list[str]:
    rows = dataset_rows(dataset, folder)
    column = dataset.fields.get("model")
    if column is None:
        return [only or file_stem(located_table(dataset.path, folder)[0])]
    labels = dict.fromkeys(str(label) for row in rows if (label := row.get(column)) not in (None, ""))
    return [label for label in labels if only in (None, label)]


def dataset_rows(dataset: OutputDataset, folder: Path) -> Sequence[Row]:
    """The rows of a dataset. Raises like ``read_rows``; an unchanged file is read once."""
    name, path = located_table(dataset.path, folder)
    if isinstance(path, str):
        return _rows(path, name, dataset.separator, (0, 0))
    try:
        status = path.stat()
        return _rows(path, name, dataset.separator, (status.st_mtime_ns, status.st_size))
    except OSError as error:
        raise UsageError((error.strerror or str(error)).lower()) from None


@lru_cache(maxsize=2)
def _rows(path: Path | str, name: str, separator: str | None, _state: tuple[int, int]) -> Sequence[Row]:
    return read_cell_rows(path, name, separator=separator)


def _dataset_outputs(
    dataset: OutputDataset, label: str, cases: Sequence[TestCase], variables: Mapping[str, Any], folder: Path
) -> Finished:
    """The outputs of a model run in a dataset, by case."""
    outputs: dict[str, list[ExistingOutput]] = {}
    fields, name = dataset.fields, located_table(dataset.path, folder)[0]
    start = name if is_url(name) else (folder / name).parent
    by_prompt = {
        prompt_id(rendered(case, variables)[0]): case.id
        for case in (cases if "prompt" in fields else ())
        if case.output_of is None
    }
    for row in dataset_rows(dataset, folder):
        cell = {key: "" if (value := row.get(column)) is None else str(value) for key, column in fields.items()}
        if "model" in fields and cell["model"] != label:
            continue
        key = cell.get("id") or by_prompt.get(prompt_id(cell.get("prompt", "")))
        if not key:
            continue
        raw = output_of_cell(row.get(fields["output"]), f"{public_address(name)}:{row.line}")
        if "path" in raw:
            raw["path"] = rebased(raw["path"], start, folder)
        outputs.setdefault(key, []).append(ExistingOutput.model_validate(raw))
    return outputs


def problems(entry: FilesProvider, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str]]:
    """Yields files and runs that the suite may not read."""
    named: list[tuple[Loc, str, Path]] = []
    if entry.path:
        named.append((("path",), entry.path.split("{")[0], folder))
    if entry.run and ("/" in (run := split_run(entry.run)[0]) or run in (".", "..")):
        named.append((("run",), run, Path.cwd()))
    if entry.dataset:
        named.append((("dataset", "path"), entry.dataset.path, folder))
        with suppress(UsageError):  # a folder without metadata is reported when it is read
            named.append((("dataset", "path"), table_name(entry.dataset.path, folder), folder))
    for key, path, start in named:
        if refusal := trust.refusal(path, start, remote=key != ("run",)):
            yield key, refusal


def run_problems(entry: FilesProvider, folder: Path) -> Iterator[tuple[Loc, str]]:
    """Yields missing columns of a readable dataset."""
    if entry.dataset is not None:
        missing = missing_columns(dataset_rows(entry.dataset, folder), entry.dataset.fields)
        yield from ((("dataset", "fields", key), message) for key, message in missing)


_FETCHING = Threads(16, thread_name_prefix="fetch")
"""Downloads need no CPU, so they must not hold the threads of the run, which are as many as the machine needs."""


class Files:
    """Reads the output that the plan found for a cell; ``params["path"]`` is its path."""

    def __init__(self, config: FilesProvider) -> None:
        self.config = config

    async def generate(self, request: GenerationRequest) -> Generation:
        """The existing output; empty for cells without one. Raises ``ProviderError`` if it is missing."""
        if not self.config.has_outputs:
            return Generation()
        path = str(request.params["path"])
        if problem := request.params.get("problem"):
            raise ProviderError(_with_source(request.params, str(problem)), kind="invalid")
        if not path:
            missing = f"no output of {request.model_label!r} for the case {request.case.id!r}"
            raise ProviderError(missing, kind="invalid")
        if request.params.get("by_address"):
            return Generation(outputs=(Address(path, str(request.params["mime"])),), run_params=request.params)
        work = asyncio.get_running_loop().run_in_executor(_FETCHING if is_url(path) else None, _read, request, path)
        data = await work
        return Generation(outputs=(data,), run_params=request.params)

    edit = generate


def _with_source(params: Mapping[str, Any], message: str) -> str:
    """Prefixes a message with the file and line of the dataset, if there is one."""
    return f"{params['row']}: {message}" if "row" in params else message


def _read(request: GenerationRequest, name: str) -> bytes:
    source = _with_source(request.params, public_address(name))
    if is_url(name):
        try:
            return fetch(name, MAX_BYTES)
        except UsageError as error:
            raise ProviderError(f"{source}: {error}", kind="invalid") from None
    path = request.folder / name
    try:
        status = path.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # reading a pipe could block forever
            raise ProviderError(f"{source}: not a file", kind="invalid")
        if status.st_size > MAX_BYTES:
            raise ProviderError(f"{source}: over the limit of {MAX_BYTES:,} bytes", kind="bad_image")
        data = path.read_bytes()
    except OSError as error:
        raise ProviderError(f"{source}: {error.strerror or error}", kind="invalid") from None
    expected = request.params.get("sha256")
    if expected == "":
        raise ProviderError(f"{source}: its record has no hash, so that it cannot be checked", kind="bad_image")
    if expected is not None and sha256(data) != expected:
        raise ProviderError(f"{source}: was changed after it was generated", kind="bad_image")
    return data
