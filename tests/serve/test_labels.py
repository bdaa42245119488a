"""Label files: concurrent writers and kills lose no data on disk."""

from __future__ import annotations

import json
import resource
from collections import deque
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from fork_server import ForkedProgram
from pydantic import ValidationError
from record_factory import info
from tables import rows_of

from visioneval import RunFormatError, StorageError
from visioneval.records.labels import Label, append_labels, newest, read_anchors, read_labels

rows = rows_of(__file__)

pytestmark = pytest.mark.slow

FIELDS = [
    "schema_version", "rater", "test_id", "model_label", "sample_index", "other", "question", "answer", "seconds",
    "at", "source", "artifact_sha256", "other_sha256",
]  # fmt: skip


def label(**changes: Any) -> Label:
    known = {
        "rater": "ann",
        "test_id": "one",
        "model_label": "m",
        "sample_index": 0,
        "question": "usable",
        "answer": True,
        "at": "2025-06-14T09:00:00+00:00",
        "source": "page",
    }
    return Label(**{**known, **changes})


@pytest.mark.parametrize("answer", [True, False, 0, 1, 3, 2.5, "b", ["x", "y"], [], None, "ünï \u2028 \x1b[31m <b>"])
def test_label_round_trip(tmp_path: Path, answer: Any) -> None:
    path = tmp_path / "labels.jsonl"
    given = label(answer=answer, seconds=1.5, other="run@m,n=1")
    append_labels(path, [given])
    (result,) = read_labels(path)
    assert result == given
    assert type(result.answer) is type(given.answer)
    (line,) = path.read_bytes().split(b"\n")[:-1]
    assert list(json.loads(line)) == FIELDS


def test_missing_file_gives_no_labels(tmp_path: Path) -> None:
    assert read_labels(tmp_path / "labels.jsonl") == []
    (tmp_path / "labels.jsonl").touch()
    assert read_labels(tmp_path / "labels.jsonl") == []


def test_newest_answer_counts_and_older_answers_remain(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    for answer in (True, False):
        append_labels(path, [label(answer=answer), label(rater="bo")])
    append_labels(path, [label(question="note", answer="x"), label(question="note", answer=None)])
    labels = read_labels(path)
    assert len(labels) == 6
    assert [(entry.rater, entry.answer) for entry in newest(labels)] == [("ann", False), ("bo", True)]


def test_truncated_last_line_is_ignored_and_removed_on_append(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    append_labels(path, [label(), label(rater="bo")])
    whole = path.read_bytes()
    for cut in (1, 20, len(whole) // 2 - 1):
        path.write_bytes(whole + whole[:cut])
        assert len(read_labels(path)) == 2
        append_labels(path, [label(rater="cy")])
        assert [entry.rater for entry in read_labels(path)] == ["ann", "bo", "cy"]
        assert path.read_bytes().startswith(whole)


def test_complete_last_line_without_newline_is_read(tmp_path: Path) -> None:
    path = tmp_path / "anchors.jsonl"
    path.write_text(label(rater="agreed").model_dump_json())
    append_labels(path, [label()])
    assert [entry.rater for entry in read_labels(path)] == ["agreed", "ann"]


def test_long_truncated_line_is_removed_completely(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    append_labels(path, [label()])
    with path.open("ab") as file:
        file.write(b'{"question": "' + b"x" * 200_000)
    append_labels(path, [label(rater="bo")])
    assert [entry.rater for entry in read_labels(path)] == ["ann", "bo"]


@pytest.mark.parametrize(("line", "message"), rows("invalid_label_is_reported_with_line"))
def test_invalid_label_is_reported_with_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(f"{label().model_dump_json()}\n{line}\n{label().model_dump_json()}\n")
    with pytest.raises(RunFormatError) as expected:
        read_labels(path)
    assert str(expected.value).startswith(f"{path}:{message}")


@pytest.mark.parametrize(
    "change",
    [{"at": "yesterday"}, {"at": "2025-06-14T09:00:00"}, {"rater": "  "}, {"rater": "a\nb"}, {"sample_index": -1},
     {"answer": float("nan")}, {"answer": {"a": 1}}, {"source": "guess"}, {"seconds": -1}, {"mood": 1}],
)  # fmt: skip
def test_rejects_invalid_answers(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        label(**change)


def test_times_are_stored_in_utc() -> None:
    assert label(at="2025-06-14T11:00:00+02:00").at == "2025-06-14T09:00:00+00:00"


WRITE_MANY = """
import sys
from pathlib import Path
from visioneval.records.labels import Label, append_labels
rater = sys.argv[1]
for at in range(100):
    cell = {"test_id": "one", "model_label": "m", "sample_index": at, "at": "2025-06-14T09:00:00+00:00"}
    append_labels(Path("labels.jsonl"), [Label(**cell, rater=rater, answer=rater * 50, question="note", source="page")])
"""


def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    writers = [ForkedProgram(rater, cwd=tmp_path, code=WRITE_MANY) for rater in ("ann", "bo", "cy")]
    assert [writer.communicate(60) for writer in writers] == [("", "")] * 3
    result = read_labels(tmp_path / "labels.jsonl")
    assert len(result) == 300
    for rater in ("ann", "bo", "cy"):
        assert [entry.sample_index for entry in result if entry.rater == rater] == list(range(100))


def test_unwritable_file_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as expected:
        append_labels(tmp_path / "nowhere" / "labels.jsonl", [label()])
    assert "\n" not in str(expected.value)


def test_full_disk_leaves_no_partial_labels(tmp_path: Path) -> None:
    path, several = tmp_path / "labels.jsonl", [label(), label(question="note", answer="x")]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(StorageError, match="File too large"):
            deque(map(append_labels, repeat(path, 100), repeat(several)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    result = read_labels(path)
    assert len(result) > 10
    assert len(result) % 2 == 0
    assert path.read_bytes().endswith(b"\n")


def test_anchors_of_the_run_take_precedence_over_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    suite = info().suite.model_copy(
        update={"labels": info().suite.resolved_labels.model_copy(update={"anchors": "agreed.jsonl"})}
    )
    facts = info(suite=suite, suite_path=str(tmp_path / "suites" / "suite.yaml"))
    (tmp_path / "suites").mkdir()
    assert read_anchors(tmp_path, facts) == []
    append_labels(tmp_path / "suites" / "agreed.jsonl", [label(rater="agreed", source="anchor")])
    assert [entry.answer for entry in read_anchors(tmp_path, facts)] == [True]
    append_labels(tmp_path / "anchors.jsonl", [label(rater="agreed", source="anchor", answer=False)])
    assert [entry.answer for entry in read_anchors(tmp_path, facts)] == [False]
    assert [entry.answer for entry in read_anchors(tmp_path, info())] == [False]
