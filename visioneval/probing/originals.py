"""The outputs that a probe changes: those of a run that passed, or existing outputs and files of a suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visioneval.errors import UsageError
from visioneval.expansion.plan import Call, Plan
from visioneval.media.urls import is_url
from visioneval.records.files.links import is_inside
from visioneval.records.model import Record, read_records
from visioneval.suite.filters import any_glob
from visioneval.types import Status, Verdict


@dataclass(frozen=True, slots=True)
class Original:
    """An output to change: the call that grades it, its sample, its file, and the parameters of its generation."""

    call: Call
    sample: int
    path: Path
    params: Mapping[str, Any] = field(default_factory=dict)
    sha256: str | None = None
    """What the run recorded; ``None`` for a file of a suite."""

    @property
    def name(self) -> str:
        """How notes name it."""
        return f"{self.call.case.id} on {self.call.run.label}, sample {self.sample}"


class Notes:
    """What was skipped, counted by reason: one line for each."""

    def __init__(self) -> None:
        self._outputs: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._kinds: dict[str, dict[str, set[str]]] = {}
        self._lines: dict[str, None] = {}

    def say(self, line: str) -> None:
        """Adds a line about all outputs."""
        self._lines[line] = None

    def skip(self, name: str, reason: str) -> None:
        """Counts an output that cannot be probed."""
        self._outputs[reason] += 1
        self._examples[reason] = min(name, self._examples.get(reason, name))  # outputs finish in any order

    def not_planted(self, name: str, kind: str, reason: str) -> None:
        """Counts a kind of change that does not apply to an output."""
        self._kinds.setdefault(reason, {}).setdefault(kind, set()).add(name)

    def lines(self) -> tuple[str, ...]:
        """All notes, in an order that does not depend on which output was done first."""
        skipped = [
            f"skipped {count} output{'s' * (count != 1)}: {reason} ({self._examples[reason]})"
            for reason, count in sorted(self._outputs.items())
        ]
        unplanted = [
            f"not planted in {len(names)} output{'s' * (len(names) != 1)}: {', '.join(sorted(kinds))}: {reason}"
            for reason, kinds in sorted(self._kinds.items())
            if (names := set[str]().union(*kinds.values()))
        ]
        return (*self._lines, *skipped, *unplanted)


def passing_outputs(plan: Plan, folder: Path, label: str | None, notes: Notes) -> list[Original]:
    """The outputs of a run whose cells passed. Raises ``UsageError`` if there are none."""
    by_cell = {record.cell: record for record in read_records(folder)}
    originals, failed = [], 0
    for call in _cells(plan):
        for sample in call.samples:
            record = by_cell.get((call.case.id, call.run.label, sample))
            if record is None or not (label is None or any_glob((label,), call.run.label)):
                continue
            if record.verdict is not Verdict.PASS or record.status is not Status.COMPLETED:
                failed += 1
                continue
            original = _recorded(call, record, folder, notes)
            if original is not None:
                originals.append(original)
    if not originals:
        raise UsageError(f"{folder}: no output to probe: none of the selected cells passed with an image")
    if failed:
        notes.say(f"left out {failed} cell{'s' * (failed != 1)} that did not pass with an output")
    return originals


def _recorded(call: Call, record: Record, folder: Path, notes: Notes) -> Original | None:
    name = f"{call.case.id} on {call.run.label}, sample {record.sample_index}"
    if record.mime is None or not record.mime.startswith("image/"):
        notes.skip(name, "is no image")
        return None
    if record.artifact_path is None or not is_inside(folder, record.artifact_path):
        notes.skip(name, "its file is not in the run")
        return None
    path = folder / record.artifact_path
    return Original(call, record.sample_index, path, record.run_params, record.artifact_sha256)


def suite_outputs(plan: Plan, notes: Notes) -> list[Original]:
    """The existing outputs of a suite; for cases without any, the reference, or else the first input image.

    Raises ``UsageError`` if it has none of these: its outputs must be generated first.
    """
    originals: list[Original] = []
    fallbacks: dict[str, Original] = {}
    for call in _cells(plan):
        if call.run.config.reads_outputs:
            originals += _existing(call, plan.folder, notes)
        elif (path := call.files.reference or call.files.base) is not None:
            fallbacks.setdefault(call.case.id, Original(call, call.samples[0], path))
    covered = {original.call.case.id for original in originals}
    originals += [original for case, original in fallbacks.items() if case not in covered]
    if not originals:
        raise UsageError(
            f"{plan.suite.name}: has no existing outputs, references or input images to probe:"
            " run it with 'visioneval run', and probe that run"
        )
    return originals


def _existing(call: Call, folder: Path, notes: Notes) -> Iterator[Original]:
    path = str(call.params.get("path") or "")
    for sample in call.samples:
        if not path or is_url(path) or not call.run.config.has_outputs:
            name = f"{call.case.id} on {call.run.label}, sample {sample}"
            notes.skip(name, "its output is remote: run the suite, and probe that run" if path else "has no output")
            continue
        yield Original(call, sample, folder / path, call.params)


def _cells(plan: Plan) -> Iterator[Call]:
    """Every call of a plan, and the calls that grade its outputs against other prompts."""
    for call in plan.calls():
        yield from (call, *call.dependents)
