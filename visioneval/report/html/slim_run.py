"""Reads a run twice to save memory: once without large fields for the summary, once for full cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from visioneval.analysis.summary.summary import in_order
from visioneval.records.files.lines import read_lines
from visioneval.records.judge_answers import JudgeAnswer
from visioneval.records.model import CellKey, Fingerprint, Record, RunInfo
from visioneval.suite.filters import any_glob

_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_DETAIL_FIELDS = ("judge_verdict", "prompt_sha256", "source", "coverage", "dropped", "votes", "read")
_QUESTION_FIELDS = ("question", "type", "score")
_SHARED = ("run_id", "test_id", "model_label", "prompt", "tags", "failed_rules", "provider")


@dataclass(frozen=True, slots=True)
class SlimRun:
    """A run whose ``cells``, in the order of the suite, lack large fields.

    ``positions[i]`` is the index of cell i in the output of ``full_records``, which is in the order of the file.
    """

    folder: Path
    info: RunInfo
    cells: list[Record]
    positions: list[int]
    lines: frozenset[int]
    label: str | None = None
    """The model run, if it is only one of the run."""

    def full_records(self) -> Iterator[Record]:
        """Reads every cell in full from the file. Raises ``RunFormatError``."""
        for number, record in enumerate(read_lines(self.folder / "results.jsonl", _RECORD)):
            if number in self.lines:
                yield record


def read_slim(folder: Path, info: RunInfo, label: str | None = None) -> SlimRun:
    """Reads a run, or its model runs whose label matches. Raises ``RunFormatError``."""
    shared: dict[Any, Any] = {}
    last: dict[CellKey, tuple[int, Record]] = {}
    for number, record in enumerate(read_lines(folder / "results.jsonl", _RECORD)):
        if label is None or any_glob((label,), record.model_label):
            last[record.cell] = number, _slim_record(record, shared)
    ranks = {number: rank for rank, number in enumerate(sorted(number for number, _ in last.values()))}
    if label is not None:
        info = info.of_model_runs(label, len(last))
    cells = in_order(info, (record for _, record in last.values()))
    positions = [ranks[last[cell.cell][0]] for cell in cells]
    return SlimRun(folder, info, cells, positions, frozenset(ranks), label)


def _slim_details(details: Mapping[str, Any], shared: dict[Any, Any]) -> dict[str, Any]:
    """The details that the summary needs: judge verdicts, and text and scores of a gecko grader's questions."""
    slim: dict[str, Any] = {name: _intern(details[name], shared) for name in _DETAIL_FIELDS if name in details}
    if isinstance(details.get("questions"), list):
        questions = (question for question in details["questions"] if isinstance(question, dict))
        slim["questions"] = [
            {name: _intern(question.get(name), shared) for name in _QUESTION_FIELDS} for question in questions
        ]
    return slim


def _intern(value: Any, shared: dict[Any, Any]) -> Any:
    """Shares equal strings, to save memory."""
    return shared.setdefault(value, value) if isinstance(value, str) else value


def _slim_answer(answer: JudgeAnswer, shared: dict[Any, Any]) -> JudgeAnswer:
    names = {"judge": _intern(answer.judge, shared), "model": _intern(answer.model, shared)}
    emptied: dict[str, Any] = {"reasons": {}, "failure_tags": (), "usage": None}
    details = _slim_details(answer.details, shared)
    return answer.model_copy(update={**names, **emptied, "details": details})


@cache
def _slim_fingerprint(judge_model: str | None) -> Fingerprint:
    return Fingerprint(judge_model=judge_model, config_sha256="")


def _slim_record(record: Record, shared: dict[Any, Any]) -> Record:
    graders = tuple(
        grader.model_copy(
            update={
                "details": _slim_details(grader.details, shared),
                "fingerprint": _slim_fingerprint(grader.fingerprint.judge_model),
                "judges": tuple(_slim_answer(answer, shared) for answer in grader.judges),
            }
        )
        for grader in record.graders
    )
    emptied: dict[str, Any] = {"metadata": {}, "run_params": {}, "usage": None, "generation_key": "", "grade_key": ""}
    values = ((name, getattr(record, name)) for name in _SHARED)
    shared_values = {name: shared.setdefault(value, value) for name, value in values}
    return record.model_copy(update={"graders": graders, **emptied, **shared_values})
