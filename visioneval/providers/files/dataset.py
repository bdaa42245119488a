"""A dataset of existing outputs: its columns, its model runs, and the outputs of each case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from visioneval.errors import UsageError
from visioneval.media.urls import is_url, public_address
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.outputs import ExistingOutput, Finished, output_of_cell
from visioneval.suite.cases.prompts import rendered
from visioneval.suite.entries.datasets import TableFile
from visioneval.suite.loading.datasets.cases import prompt_id
from visioneval.suite.loading.datasets.rows import Row
from visioneval.suite.loading.datasets.tables import file_stem, located_table, read_cell_rows
from visioneval.suite.loading.paths import rebased


class OutputDataset(TableFile):
    """Existing outputs listed in a table; rows match cases by id, or by prompt if they have no id."""

    fields: dict[str, str] = Field(description="The columns for output, for id or prompt, and optionally for model.")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        known = {"output", "id", "prompt", "model"}
        if unknown := sorted(self.fields.keys() - known):
            raise ValueError(f"fields: unknown {', '.join(unknown)} (known: {', '.join(sorted(known))})")
        if "output" not in self.fields or not self.fields.keys() & {"id", "prompt"}:
            raise ValueError("fields: map 'output', and 'id' or 'prompt'")
        return self


def dataset_labels(dataset: OutputDataset, only: str | None, folder: Path) -> list[str]:
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


def dataset_outputs(
    dataset: OutputDataset, label: str, cases: Sequence[TestCase], variables: Mapping[str, Any], folder: Path
) -> Finished:
    """The outputs of a model run in a dataset, by case."""
    outputs: dict[str, list[ExistingOutput]] = {}
    name = located_table(dataset.path, folder)[0]
    start = name if is_url(name) else (folder / name).parent
    ids = _ids_by_prompt(cases, variables) if "prompt" in dataset.fields else {}
    for key, cell, row in _rows_of(dataset, label, ids, folder):
        raw = output_of_cell(cell, row)
        if "path" in raw:
            raw["path"] = rebased(raw["path"], start, folder)
        outputs.setdefault(key, []).append(ExistingOutput.model_validate(raw))
    return outputs


def _rows_of(
    dataset: OutputDataset, label: str, by_prompt: Mapping[str, str], folder: Path
) -> Iterator[tuple[str, Any, str]]:
    """The case, output cell and location of each row of a model run that matches a case."""
    fields = dataset.fields
    name = located_table(dataset.path, folder)[0]
    for row in dataset_rows(dataset, folder):
        cell = {key: "" if (value := row.get(column)) is None else str(value) for key, column in fields.items()}
        if "model" in fields and cell["model"] != label:
            continue
        key = cell.get("id") or by_prompt.get(prompt_id(cell.get("prompt", "")), "")
        if key:
            yield key, row.get(fields["output"]), f"{public_address(name)}:{row.line}"


def _ids_by_prompt(cases: Sequence[TestCase], variables: Mapping[str, Any]) -> dict[str, str]:
    return {prompt_id(rendered(case, variables)[0]): case.id for case in cases if case.output_of is None}
