"""The configuration of existing images and videos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from visioneval.media.urls import public_address
from visioneval.providers.files.dataset import OutputDataset, dataset_labels, dataset_outputs
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.outputs import FilePath, Finished, RunLabels, split_run
from visioneval.suite.entries.providers import BaseProvider
from visioneval.types import TaskType


class FilesProvider(BaseProvider):
    """Existing images and videos: a path pattern, another run, or a dataset."""

    can_do: ClassVar[frozenset[TaskType]] = frozenset(TaskType)
    is_free: ClassVar[bool] = True
    reads_outputs: ClassVar[bool] = True

    provider: Literal["files"]
    path: FilePath | None = Field(
        default=None, description="A path pattern with {case}, {model} (the label) and {sample}."
    )
    run: FilePath | None = Field(default=None, description="RUN or RUN@LABEL: the outputs of another run.")
    dataset: OutputDataset | None = Field(
        default=None, description="A table that says which file is the output of which case."
    )
    outputs: Literal["none"] | None = Field(
        default=None, description="none: cells without outputs, for recorded answers."
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
            _check_pattern(self.path)
        return self

    def model_runs(
        self, cases: Sequence[TestCase], folder: Path, run_labels: RunLabels
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.run is not None:
            run, label = split_run(self.run)
            for run_label in [label] if label else run_labels(run):
                yield (self.label if label and self.label else run_label), {"run": f"{run}@{run_label}"}
        elif self.dataset is not None:
            yield from ((label, {}) for label in dataset_labels(self.dataset, self.label, folder))
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
            return dataset_outputs(self.dataset, label, cases, variables, folder)
        return {case.id: case.outputs[label] for case in cases if label in case.outputs}


def _check_pattern(pattern: str) -> None:
    try:
        parts = list(Formatter().parse(pattern))
    except ValueError:
        parts = [("", "?", "", None)]
    if any(name not in (None, "case", "model", "sample") or spec or how for _, name, spec, how in parts):
        raise ValueError("path may contain {case}, {model} and {sample}, and no other braces")
