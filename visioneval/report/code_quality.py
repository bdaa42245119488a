"""GitLab's code-quality report: an issue for each cell that failed, or that broke, at the line of its case."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.sides import Cell, writers_of
from visioneval.analysis.summary.summary import in_order
from visioneval.errors import SuiteError, UsageError
from visioneval.records.model import Record, RunInfo
from visioneval.report.compare import change_lines, failed_with_reason
from visioneval.report.differences import CHANGE_WORDS
from visioneval.report.text import cut_middle, one_line
from visioneval.suite.filters import chain_of
from visioneval.suite.loading.document import Positions, decode, read_yaml
from visioneval.suite.loading.gather import read_bytes
from visioneval.suite.messages import Loc
from visioneval.types import MUST_PASS, Verdict

_Kind = Literal["failed", "error", "broken", "error_after"]
_Location = tuple[str, int]
_MAX_MESSAGE = 1000
"""Characters of a description."""


def run_quality(runs: Iterable[tuple[RunInfo, Iterable[Record]]]) -> str:
    """The cells of runs that are ``FAIL`` or ``ERROR``, as JSON."""
    return _document(issue for info, records in runs for issue in _failures(info, records))


def comparison_quality(comparison: Comparison) -> str:
    """The cells that broke, and the new errors, as JSON."""
    b = comparison.b
    locations = _Locations(b.info) if b.info is not None else None
    file = b.name if b.file is None else _in_repository(b.file) or b.file.name
    kinds: tuple[Literal["broken", "error_after"], ...] = ("broken", "error_after")
    return _document(
        _issue(
            kind,
            b.suite or b.name,
            pair.b,
            [CHANGE_WORDS[kind][0], *change_lines(pair, comparison)],
            locations.of(pair.b.test_id) if locations else (file, 1),
            must_pass=pair.must_pass,
        )
        for kind in kinds
        for pair in comparison.changed(kind)
    )


def _document(issues: Iterable[Mapping[str, Any]]) -> str:
    return f"{json.dumps(list(issues), indent=2)}\n"


def _failures(info: RunInfo, records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    writers, locations = writers_of(info), _Locations(info)
    for record in in_order(info, records):
        lines: list[str] = []
        if record.verdict is Verdict.FAIL:
            lines = [failed_with_reason(rule, record, writers) for rule in record.failed_rules]
            lines = lines or [f"failure tags: {', '.join(record.failure_tags)}"]
        elif record.verdict is Verdict.ERROR:
            error = record.error
            lines = [f"{error.stage}, {error.kind}: {one_line(error.message)}"] if error else ["ERROR"]
        if lines:
            kind: _Kind = "failed" if record.verdict is Verdict.FAIL else "error"
            location = locations.of(record.test_id)
            yield _issue(kind, info.suite.name, record, lines, location, must_pass=MUST_PASS in record.tags)


def _issue(
    kind: _Kind, suite: str, cell: Cell | Record, lines: Sequence[str], location: _Location, *, must_pass: bool
) -> dict[str, Any]:
    """An issue. Its fingerprint is the same in every run, as GitLab compares those of two branches by it."""
    names = (location[0], suite, kind, cell.test_id, cell.model_label, str(cell.sample_index))
    severity = "minor" if kind.startswith("error") else "critical" if must_pass else "major"
    name = f"{cell.test_id} [{cell.sample_index}] of {cell.model_label}"
    return {
        "description": f"{one_line(name)}: {cut_middle('; '.join(lines), _MAX_MESSAGE)}",
        "check_name": f"visioneval: {kind.replace('error_after', 'new error')}",
        "fingerprint": hashlib.sha256("\n".join(names).encode()).hexdigest(),
        "severity": "info" if cell.flaky else severity,
        "location": {"path": location[0], "lines": {"begin": location[1]}},
    }


def _in_repository(path: Path) -> str:
    """The path within the repository of the working directory; empty if it is outside."""
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except (OSError, ValueError):
        return ""


class _Locations:
    """Where the cases of a run are written: a file, relative to the repository, and a line.

    A case of a dataset is at the entry of the only dataset. All cases are in line 1 if the suite's file has changed
    since the run, or is not in the repository.
    """

    def __init__(self, info: RunInfo) -> None:
        suite = Path(info.suite_path)
        self._cases: dict[str, _Location] = {}
        self._datasets: list[_Location] = []
        self._seen: set[str] = set()
        self._default = _in_repository(suite) or suite.name, 1
        self._read(suite, info.source_sha256)

    def of(self, test_id: str) -> _Location:
        """The location of a case."""
        default = self._datasets[0] if len(self._datasets) == 1 else self._default
        return self._cases.get(chain_of(test_id), default)

    def _read(self, path: Path, digest: str | None = None) -> None:
        """Adds the cases of a suite with this hash, or of a file of cases."""
        positions, shown = Positions(), _in_repository(path)
        if not shown or shown in self._seen:
            return
        self._seen.add(shown)
        try:
            data = read_bytes(path)
            content = read_yaml(decode(data, shown), shown, positions)
        except (UsageError, SuiteError):
            return
        if digest not in (None, hashlib.sha256(data).hexdigest()):
            return
        start: Loc = () if isinstance(content, list) else ("cases",)
        entries = content.get("cases") if isinstance(content, dict) else content
        for at, entry in enumerate(entries if isinstance(entries, list) else ()):
            if not isinstance(entry, dict):
                continue
            location = shown, positions.find((*start, at))[0][0]
            if isinstance(case := entry.get("id"), str):
                self._cases.setdefault(case, location)
            elif isinstance(name := entry.get("file"), str):
                self._read(path.parent / name)
            elif "dataset" in entry:
                self._datasets.append(location)
