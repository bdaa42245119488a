"""A run read twice, so that its largest part is never held: once for the findings, once for its cells in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from visioneval.analysis.summary import in_order, select_model_run
from visioneval.records.model import CellKey, Fingerprint, Record, RunInfo, each_line

_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_NONE = Fingerprint(config_sha256="")
_KEPT_DETAILS = ("judge_verdict", "prompt_sha256", "source", "coverage", "dropped")
_KEPT_OF_A_QUESTION = ("question", "type", "score")
_SHARED = ("run_id", "test_id", "model_label", "prompt", "tags", "failed_rules", "provider")


@dataclass(frozen=True, slots=True)
class SlimRun:
    """A run whose ``cells``, in the suite's order, lack what only somebody who looks at one of them needs.

    ``places[i]`` is the place of cell i among what ``in_full`` gives, which is in the order of the file.
    """

    folder: Path
    info: RunInfo
    cells: list[Record]
    places: list[int]
    lines: frozenset[int]

    def in_full(self) -> Iterator[Record]:
        """Every cell whole, once, read from the file again. Raises ``RunFormatError``."""
        for number, record in enumerate(each_line(self.folder / "results.jsonl", _RECORD)):
            if number in self.lines:
                yield record


def read_slim(folder: Path, info: RunInfo, label: str | None = None) -> SlimRun:
    """Reads a run, or one model run of it. Raises ``RunFormatError``."""
    shared: dict[Any, Any] = {}
    last: dict[CellKey, tuple[int, Record]] = {}
    for number, record in enumerate(each_line(folder / "results.jsonl", _RECORD)):
        if label in (None, record.model_label):
            last[record.cell] = number, _lean(record, shared)
    ranks = {number: rank for rank, number in enumerate(sorted(number for number, _ in last.values()))}
    if label is not None:
        info = select_model_run(info, label, len(last))
    cells = in_order(info, (record for _, record in last.values()))
    return SlimRun(folder, info, cells, [ranks[last[cell.cell][0]] for cell in cells], frozenset(ranks))


def _lean_details(details: Mapping[str, Any], shared: dict[Any, Any]) -> dict[str, Any]:
    """What findings are made of: verdicts of judges, and of a gecko grader's questions their words and scores."""
    kept: dict[str, Any] = {name: _once(details[name], shared) for name in _KEPT_DETAILS if name in details}
    if isinstance(details.get("questions"), list):
        asked = (question for question in details["questions"] if isinstance(question, dict))
        kept["questions"] = [
            {name: _once(question.get(name), shared) for name in _KEPT_OF_A_QUESTION} for question in asked
        ]
    return kept


def _once(value: Any, shared: dict[Any, Any]) -> Any:
    """Of equal texts the first one, so that each is held once."""
    return shared.setdefault(value, value) if isinstance(value, str) else value


def _lean(record: Record, shared: dict[Any, Any]) -> Record:
    graders = tuple(
        grader.model_copy(
            update={
                "details": _lean_details(grader.details, shared),
                "fingerprint": _NONE,
            }
        )
        for grader in record.graders
    )
    left: dict[str, Any] = {"metadata": {}, "run_params": {}, "usage": None, "generation_key": "", "grade_key": ""}
    values = ((name, getattr(record, name)) for name in _SHARED)
    kept = {name: shared.setdefault(value, value) for name, value in values}
    return record.model_copy(update={"graders": graders, **left, **kept})
