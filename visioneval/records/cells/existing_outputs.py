"""Finds the existing images of a ``files`` model run."""

from __future__ import annotations

from pathlib import Path

from visioneval.records.files.links import is_inside
from visioneval.records.model import Record, read_records
from visioneval.records.stores.lookup import fetch_outputs, find_run
from visioneval.suite.cases.outputs import ExistingOutput, Finished, RecordedOutput, split_run
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.model import Suite
from visioneval.suite.runs import dataset_outputs
from visioneval.types import ModelRun


def existing_outputs(run: ModelRun, suite: Suite, folder: Path, root: Path) -> Finished:
    """The outputs of another run, a dataset or the cases; none for a pattern. Raises ``VisionEvalError``."""
    config: BaseProvider = run.config
    if config.source_run is None:
        return dataset_outputs(run, suite, folder)
    name, label = split_run(config.source_run)
    source = find_run(name, root)
    fetch_outputs(source)
    outputs: dict[str, dict[int, ExistingOutput | None]] = {}
    for record in read_records(source):
        if record.model_label == label:
            outputs.setdefault(record.test_id, {})[record.sample_index] = _in_run(source, record)
    return {case: [samples.get(index) for index in range(max(samples) + 1)] for case, samples in outputs.items()}


def _in_run(source: Path, record: Record) -> RecordedOutput | None:
    """An output of another run; ``None`` if there is none or it is a link to a file outside that run."""
    relative = record.artifact_path
    if not relative or not is_inside(source, relative):
        return None
    return RecordedOutput(path=str(source.absolute() / relative), sha256=record.artifact_sha256 or "")
