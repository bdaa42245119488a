"""Tests of baselines: compact, stable, and unchanged by a round trip."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from record_factory import record, run_of
from toys import Toy

from visioneval import Record, RunFormatError, UsageError
from visioneval.analysis.sides import Side, side_of_baseline, writers_of
from visioneval.records.baselines import Baseline, is_baseline, make_baseline, read_baseline, write_baseline

INFO = run_of({"one": {}, "two": {}}, ["m"], [], {"fine": {"type": "bool"}})
GRADER = {"key": "look", "type": "own:Look", "details": {"raw": "much"}, "cost_usd": 0.25, "fingerprint": {"config_sha256": "c" * 64}}  # fmt: skip


def _records(**changes: Any) -> list[Record]:
    full = {
        "run_id": "20250101-x",
        "tags": ("text",),
        "flaky": True,
        "verdict": "FAIL",
        "failed_rules": ("fine",),
        "scores": {"fine": False},
        "reasons": {"fine": "all is ill"},
        "graders": [GRADER],
        "artifact_path": "artifacts/one/m/0.png",
        "artifact_sha256": "f" * 64,
        "cost_usd": 0.5,
        "seconds": 2.0,
    }
    return [record(test_id=name, **{**full, **changes}) for name in ("two", "one")]


def _written(tmp_path: Path, **changes: Any) -> str:
    path = tmp_path / "deep" / "main.jsonl"
    write_baseline([make_baseline(INFO, _records(**changes), writers_of(INFO))], path)
    return path.read_text(encoding="utf-8")


def _side(tmp_path: Path) -> Side:
    return side_of_baseline("baseline", read_baseline(tmp_path / "deep" / "main.jsonl"))


def test_baseline_round_trip(tmp_path: Path) -> None:
    text = _written(tmp_path)
    assert is_baseline(tmp_path / "deep" / "main.jsonl")
    side = _side(tmp_path)
    single, two = side.cells
    assert (single.test_id, two.test_id) == ("one", "two")
    assert (single.verdict, single.failed_rules, single.scores, single.flaky) == (
        "FAIL",
        ("fine",),
        {"fine": False},
        True,
    )
    assert (single.artifact_sha256, single.artifact_path, single.total_cost_usd) == ("f" * 64, None, 0.75)
    assert [(mark.key, mark.type, mark.fingerprint.config_sha256) for mark in single.graders] == [
        ("look", "own:Look", "c" * 64)
    ]
    assert (side.suite, side.writers, side.metrics["fine"].type) == ("demo", {"fine": "look"}, "bool")
    for dropped in ("seconds", "run_id", "reasons", "prompt", "artifact_path", "details", "all is ill", "20250101"):
        assert dropped not in text


def test_baseline_does_not_depend_on_time(tmp_path: Path) -> None:
    first = _written(tmp_path)
    assert _written(tmp_path, seconds=9.0, run_id="20260606-y", reasons={"fine": "other words"}) == first
    other = _written(tmp_path, scores={"fine": True}).splitlines()
    assert [old == new for old, new in zip(first.splitlines(), other, strict=True)] == [True, False, False]
    for line in other:
        keys = list(json.loads(line))
        assert keys == sorted(keys)


@pytest.mark.parametrize(("is_optional", "is_unmeasured"), [(False, True), (True, False)])
def test_a_baseline_names_the_graders_that_failed(tmp_path: Path, is_optional: bool, is_unmeasured: bool) -> None:
    failed = {**GRADER, "is_unmeasured": True, "is_optional": is_optional}
    text = _written(tmp_path, graders=[failed])
    assert [cell.is_unmeasured for cell in _side(tmp_path).cells] == [is_unmeasured] * 2
    assert ('"failed_graders": ["look"]' in text) is is_unmeasured


@pytest.mark.parametrize("is_partial", [True, False])
def test_a_partial_baseline_says_so(tmp_path: Path, is_partial: bool) -> None:
    path = tmp_path / "main.jsonl"
    write_baseline([make_baseline(INFO, _records(), writers_of(INFO), is_partial=is_partial)], path)
    assert side_of_baseline("baseline", read_baseline(path)).is_partial is is_partial


def _broken(tmp_path: Path, at: int, old: str, new: str) -> Baseline:
    _written(tmp_path)
    path = tmp_path / "deep" / "main.jsonl"
    lines = path.read_text().splitlines()
    lines[at] = lines[at].replace(old, new)
    path.write_text("\n".join(lines))
    return read_baseline(path)


@pytest.mark.parametrize(
    ("at", "old", "new", "message"),
    [
        (
            0,
            '"baseline": 3',
            '"baseline": 4, "more": true',
            r"main\.jsonl:1: baseline version 4 is not the supported version 3: upgrade visioneval",
        ),
        (
            0,
            '"baseline": 3',
            '"baseline": 2',
            r"main\.jsonl:1: baseline version 2 is not the supported version 3: set it again with 'visioneval baseline",
        ),
        (1, '"verdict": "FAIL"', '"verdict": "MEH"', r"main\.jsonl:2: verdict: Input should be 'PASS'"),
        (2, '"test_id"', '"tset_id"', r"main\.jsonl:3: test_id: Field required"),
        (2, '"look": "', '"look": "x', r"main\.jsonl:3: graders: refers to a grading that is not in line 1"),
        (2, '"rules": "', '"rules": "x', r"main\.jsonl:3: rules: refers to rules that are not in line 1"),
        (
            0,
            '"fine": {}',
            '"fine": {"expression": "1 +"}',
            r"main\.jsonl:1: metrics\.fine\.expression: the expression ends too early; restore",
        ),
        (0, '"fine": {}', '"fine": {"reads": {"x": {"step": "y"}}}', r"main\.jsonl:1: metrics\.fine\.reads\.x\.step: "),
        (1, "{", "{{", r"main\.jsonl:2: not a baseline: damaged or truncated"),
    ],
)
def test_reports_broken_baselines_with_line(tmp_path: Path, at: int, old: str, new: str, message: str) -> None:
    with pytest.raises(RunFormatError, match=message):
        _broken(tmp_path, at, old, new)


@pytest.mark.parametrize(
    ("repeated", "text"),
    [
        (lambda first, second: (first, second, first), "4: one on m, sample 0, is also in line 2"),
        (lambda first, second: (first, first), "3: one on m, sample 0, is also in line 2"),  # the number is right
        (lambda first, second: (second, first.replace("FAIL", "PASS"), "", first), "5: one on m, sample 0, is also in line 3"),
    ],
    ids=["added", "instead of another", "both versions"],
)  # fmt: skip
def test_reports_repeated_lines(tmp_path: Path, repeated: Callable[[str, str], tuple[str, ...]], text: str) -> None:
    """As a merge leaves them."""
    path = tmp_path / "deep" / "main.jsonl"
    _written(tmp_path)
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join((header, *repeated(*lines))))
    with pytest.raises(RunFormatError, match=rf"main\.jsonl:{text}: restore this file, or set the baseline again"):
        read_baseline(path)


@pytest.mark.parametrize("lost", [slice(1, 2), slice(-1, None)])
def test_reports_lost_lines(tmp_path: Path, lost: slice) -> None:
    """As a merge loses them. All cells that are left could be the same."""
    path = tmp_path / "deep" / "main.jsonl"
    _written(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    count = len(lines) - 1
    del lines[lost]
    path.write_text("".join(lines))
    with pytest.raises(RunFormatError, match=rf"main\.jsonl:1: the run has {count} cells, but {count - 1} line"):
        read_baseline(path)


def test_reports_a_missing_baseline(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(RunFormatError, match="not a baseline: the file is empty"):
        read_baseline(tmp_path / "empty.jsonl")
    with pytest.raises(RunFormatError, match="No such file"):
        read_baseline(tmp_path / "nope.jsonl")
    with pytest.raises(UsageError, match="cannot write"):
        write_baseline([make_baseline(INFO, [], {})], tmp_path / "empty.jsonl" / "x.jsonl")


def test_baseline_commands(toy: Toy) -> None:
    assert toy("baseline", "list").stdout.startswith("baselines: no baselines here")
    toy.run({}, {"metadata": {"look": "bad"}}, arguments=("--run-id", "first"))
    result = toy("baseline", "set", "first")
    assert result.exit_code == 0
    assert result.stdout.startswith("wrote baselines/main.jsonl: 2 cells, 1 of them passed; commit it")
    assert "main" in toy("baseline", "list").stdout
    assert toy("compare", "baseline", "first").exit_code == 0
    compared = toy("compare", "baseline:main@toy", "first").stdout
    assert "Broken (" not in compared
    assert "Fixed (" not in compared
    toy("baseline", "set", "first", "--name", "other")
    assert Path("baselines/other.jsonl").read_bytes() == Path("baselines/main.jsonl").read_bytes()
    refused = toy("baseline", "set", "first", "--name", "../x")
    assert (refused.exit_code, "'../x' is not a valid baseline name" in refused.stderr) == (2, True)


def test_commands_report_repeated_lines(toy: Toy) -> None:
    """All cells of one line count as one, and those of another as none."""
    toy.run({}, {"metadata": {"look": "bad"}}, arguments=("--run-id", "first"))
    toy("baseline", "set", "first")
    path = Path("baselines/main.jsonl")
    header, passed, _ = path.read_text().splitlines(keepends=True)
    path.write_text(header + passed + passed)
    for command in (("compare", "baseline", "first"), ("compare", "first", "baseline:main"), ("baseline", "list")):
        refused = toy(*command)
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1), command
        assert "main.jsonl:3: case0 on toy, sample 0, is also in line 2: restore this file" in refused.stderr
    assert toy("baseline", "set", "first").exit_code == 0
    assert toy("compare", "baseline", "first").exit_code == 0


def test_rejects_an_incomplete_run_as_baseline(toy: Toy) -> None:
    toy.run({}, arguments=("--run-id", "first"))
    path = Path("runs/first/run.json")
    path.write_text(path.read_text().replace('"state": "complete"', '"state": "interrupted"'))
    refused = toy("baseline", "set", "first")
    assert refused.exit_code == 2
    assert "the run is interrupted: a baseline needs a complete run" in refused.stderr


def test_an_older_baseline_is_refused_in_one_line(toy: Toy) -> None:
    toy.run({}, arguments=("--run-id", "first"))
    assert toy("baseline", "set", "first").exit_code == 0
    path = Path("baselines/main.jsonl")
    header, *lines = path.read_text().splitlines()
    older = {name: value for name, value in json.loads(header).items() if name != "rules"}
    path.write_text("\n".join([json.dumps({**older, "baseline": 2}), *lines]))
    for command in (("compare", "baseline", "first"), ("baseline", "list")):
        refused = toy(*command)
        assert refused.exit_code == 2
        assert refused.stderr == (
            "baselines/main.jsonl:1: baseline version 2 is not the supported version 3: set it again with"
            " 'visioneval baseline set RUN'\n"
        )
    assert toy("baseline", "set", "first").exit_code == 0
    assert toy("compare", "baseline", "first").exit_code == 0
