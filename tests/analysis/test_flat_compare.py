"""A comparison of long runs: cells stay on disk, and what is kept of each is a few bytes."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from compare_factory import cell, mark, side

from visioneval import RunFormatError
from visioneval.analysis.compare.compare import Comparison, ComparisonFilters, compare
from visioneval.analysis.compare.gates import check_gates, parse_fail_on
from visioneval.analysis.run_lookup import read_side
from visioneval.analysis.sides import Cell
from visioneval.records.reader import open_records, parse_line
from visioneval.report.compare import comparison_json

REASON = "the headline stands too close to the edge of the page " * 8
CASES = 5
BYTES_PER_PAIR = 700
"""A quarter of two cells."""


def _record(case: int, sample: int, **changes: Any) -> dict[str, Any]:
    grader = {"key": "look", "type": "rubric", "cost_usd": sample / 7, "fingerprint": {"config_sha256": "c" * 64}}
    return {
        "schema_version": 2,
        "run_id": "r",
        "test_id": f"case{case}",
        "model_label": "m",
        "sample_index": sample,
        "prompt": "a tree",
        "tags": ["tree", f"tag{case}"],
        "verdict": "PASS",
        "scores": {"look": sample % 5, "copy.cer": sample / 7 + case},
        "reasons": {"look": f"{REASON}{sample}"},
        "artifact_path": f"artifacts/case{case}/m/{sample}.png",
        "artifact_sha256": f"{sample:064}",
        "grade_key": f"case:{case} rules:1",
        "graders": [grader],
        **changes,
    }


def _write(path: Path, records: Iterator[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records), encoding="utf-8")
    return path


def _runs(folder: Path, cells: int) -> tuple[Path, Path]:
    folder.mkdir()
    names = [*product(range(CASES), range(cells // CASES))]
    changed = {"verdict": "FAIL", "failed_rules": ["look >= 3"]}
    return (
        _write(folder / "a.jsonl", (_record(*name) for name in names)),
        _write(folder / "b.jsonl", (_record(*name, **(changed if name[1] % 3 == 1 else {})) for name in names)),
    )


def _compared(a: Path, b: Path, **filters: tuple[str, ...]) -> Comparison:
    sides = (read_side(str(path), a.parent) for path in (a, b))
    return compare(*sides, ComparisonFilters(**filters))


def _outputs(comparison: Comparison) -> int:
    """The length of everything that is printed."""
    gates = check_gates(comparison, parse_fail_on([]))
    return len(gates) + sum(len(part) for part in comparison_json(comparison, gates, 0))


def _peak(a: Path, b: Path) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        assert _outputs(_compared(a, b)) > 1000
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_hardly_grows_with_the_samples(tmp_path: Path) -> None:
    few, many = _runs(tmp_path / "few", 200), _runs(tmp_path / "many", 1000)
    _peak(*few)  # imports and caches
    grown = _peak(*many) - _peak(*few)
    assert grown < 800 * BYTES_PER_PAIR, f"{grown / 800:.0f} bytes for each further pair"


def test_what_is_listed_is_read_again_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = _compared(*_runs(tmp_path / "runs", 300))
    lines: list[bytes] = []

    def counted(kind: str, line: bytes, where: str, adapter: Any) -> Any:
        lines.append(line)
        return parse_line(kind, line, where, adapter)

    monkeypatch.setattr("visioneval.records.reader.parse_line", counted)
    broken = comparison.changed("broken")
    assert (len(broken), comparison.counts["broken"], len(comparison.stable_pairs), len(lines)) == (100, 100, 300, 0)
    assert [pair.b.sample_index for pair in broken[:3]] == [1, 4, 7]
    assert next(iter(broken[-1:])).b.reasons == {"look": f"{REASON}58"}
    assert len(lines) == 2 * 3 + 2


def test_the_last_line_of_a_cell_counts_in_its_place(tmp_path: Path) -> None:
    lines = [(0, 0, "PASS"), (1, 0, "ERROR"), (0, 1, "PASS"), (1, 0, "FAIL"), (0, 0, "FAIL")]
    records = (_record(case, sample, verdict=verdict) for case, sample, verdict in lines)
    path = _write(tmp_path / "a.jsonl", records)
    with path.open("a", encoding="utf-8") as file:
        file.write('\n{"schema_version":2,"run_id":"r","test_id":"case2","mod')
    cells = open_records(path, Cell)
    assert [(item.test_id, item.sample_index, item.verdict) for item in cells] == [
        ("case0", 1, "PASS"), ("case1", 0, "FAIL"), ("case0", 0, "FAIL"),
    ]  # fmt: skip
    assert [*cells.names()] == [(item.test_id, item.model_label, item.sample_index) for item in cells]
    assert [item.test_id for item in cells[1:]] == ["case1", "case0"]
    assert cells[-1].sample_index == 0


BAD: dict[str, tuple[str, str]] = {
    "verdict": ('"verdict":"PASS"', '"verdict":"MAYBE"'),
    "finite": ('"look":', '"look":1e999,"x":'),
    "sample_index": ('"sample_index":', '"sample_index":-1,"x":'),
    "artifact_path": ("artifacts/", "../"),
    "damaged": ('"grade_key"', '"grade_key'),
}


@pytest.mark.parametrize(
    ("name", "filters"),
    [*((name, {}) for name in BAD), ("verdict", {"cases": ("case4",)}), ("damaged", {"tags": ("tag4",)})],
)
def test_the_first_invalid_line_of_a_is_reported_whatever_is_read_first(
    tmp_path: Path, name: str, filters: dict[str, Any]
) -> None:
    a, b = _runs(tmp_path / "runs", 40)
    for path, numbers in ((a, (30, 20)), (b, (0,))):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        for number in numbers:
            lines[number] = lines[number].replace(*BAD[name])
        path.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(RunFormatError, match=rf"a\.jsonl:21: .*{name}.*: delete this line"):
        _compared(a, b, **filters)


def test_an_outdated_line_is_checked_too(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", iter([_record(0, 0), _record(1, 0, verdict="MAYBE"), _record(1, 0)]))
    with pytest.raises(RunFormatError, match=r"a\.jsonl:2: verdict"):
        open_records(path, Cell)


@pytest.mark.parametrize("change", ["cut", "cut in a line", "moved", "gone"])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path, change: str) -> None:
    a, b = _runs(tmp_path / "runs", 40)
    comparison, data = _compared(a, b), b.read_bytes()
    if change == "gone":
        b.unlink()
    else:
        b.write_bytes({"cut": data[: data.index(b"\n") + 1], "cut in a line": data[:-9], "moved": b"\n" + data}[change])
    message = "No such file" if change == "gone" else "changed while it was read: run this command again"
    with pytest.raises(RunFormatError, match=rf"b\.jsonl: {message}"):
        list(comparison.pairs)


def test_a_file_that_grows_is_compared_as_it_was(tmp_path: Path) -> None:
    a, b = _runs(tmp_path / "runs", 40)
    comparison = _compared(a, b)
    with b.open("ab") as file:
        file.write(json.dumps(_record(9, 9)).encode() + b"\n")
    assert len([*comparison.pairs]) == len(comparison.pairs) == 40


def test_alignment_scores_before_the_first_grader_are_listed() -> None:
    """A grader of another type has written the metric of the first pair."""
    first = [cell("c0", scores={"fit": 10 * at}) for at in (1, 3)]
    comparison = compare(
        *(side([item, cell("c1", scores={"fit": None}, graders=(mark("fit", "alignment"),))]) for item in first)
    )
    assert [(pair.b.test_id, item.a, item.b) for item, pair in comparison.aligned_pairs()] == [
        ("c1", None, None), ("c0", 10.0, 30.0),
    ]  # fmt: skip
