"""The graders ``layout`` and ``contrast`` in runs: verdicts, reports, grading again, caches and probes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from visioneval import Verdict, read_records
from visioneval.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("recorded_readings")]

LINES = ["Harbor Market", "Fresh fish daily", "Open now"]


def suite(folder: Path, *relations: Any, **changes: Any) -> Path:
    """A suite of one page of the mock: a headline, a line and a button."""
    expect = {"text": {"required": LINES}, "layout": list(relations) or [{"order": LINES}]}
    data = {
        "name": "market",
        "cases": [{"id": "page", "prompt": "A market", "expect": expect}],
        "models": [{"provider": "mock", "params": {"size": "640x640"}}],
        "graders": [
            {"key": "copy", "type": "text"},
            {"key": "place", "type": "layout"},
            {"key": "seen", "type": "contrast", "min_ratio": 3},
        ],
        "verdict": ["copy", "place", "seen"],
        **changes,
    }
    path = folder / "suite.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def command(folder: Path, *words: str) -> tuple[int, str]:
    """Runs a command with the runs and the cache of a folder: its exit code and its output in one line."""
    done = CliRunner().invoke(app, [*words, "--runs", str(folder / "runs")])
    return done.exit_code, " ".join(done.output.split())


def run(folder: Path, path: Path, *flags: str) -> tuple[int, Any]:
    """Exit code and record of a run."""
    code, output = command(folder, "run", str(path), "--cache", str(folder / "cache"), *flags)
    newest = max((folder / "runs").iterdir(), key=lambda run: run.stat().st_mtime_ns)
    records = list(read_records(newest))
    assert len(records) == 1, output
    return code, records[0]


def test_a_page_passes_and_the_reverse_fails_with_its_places(tmp_path: Path) -> None:
    code, record = run(tmp_path, suite(tmp_path))
    assert (code, record.verdict) == (0, Verdict.PASS)
    assert record.scores["place.share"] == 1
    assert record.scores["seen.lowest"] > 3
    wrong = suite(
        tmp_path, {"above": ["Open now", "Harbor Market"]}, {"larger_than": ["Harbor Market", "Fresh fish daily"]}
    )
    code, record = run(tmp_path, wrong)
    assert (code, record.verdict, record.failed_rules) == (1, Verdict.FAIL, ("place",))
    assert record.scores["place.share"] == 0.5
    _, shown = command(tmp_path, "show", "latest", "page")
    assert '"Open now" above "Harbor Market": "Open now" is below "Harbor Market"' in shown


def test_other_relations_and_limits_need_no_second_ocr(tmp_path: Path) -> None:
    run(tmp_path, suite(tmp_path))
    wrong = suite(tmp_path, {"order": LINES[::-1]})
    code, record = run(tmp_path, wrong, "--offline")
    assert (code, record.verdict) == (1, Verdict.FAIL)
    assert all(grader.cached for grader in record.graders), "offline, nothing could be read again"


def test_an_old_run_is_graded_again_by_other_relations(tmp_path: Path) -> None:
    run(tmp_path, suite(tmp_path))
    path = suite(tmp_path, {"above": ["Open now", "Harbor Market"]})
    code, output = command(tmp_path, "grade", "latest", "--suite", str(path), "--cache", str(tmp_path / "cache"))
    assert code == 1, output


def test_a_probe_finds_that_both_catch_what_they_should(tmp_path: Path) -> None:
    run(tmp_path, suite(tmp_path))
    flags = ("--kinds", "copy.faded", "--kinds", "copy.swapped", "--kinds", "harmless.jpeg", "--json")
    done = CliRunner().invoke(app, ["probe", "latest", *flags, "--runs", str(tmp_path / "runs")])
    data = json.loads(done.stdout)
    caught = {(item["kind"], item["strength"], item["metric"]): item["failed"] for item in data["detections"]}
    assert caught["copy.faded", "1.5:1", "seen"] == 1
    assert caught["copy.swapped", "", "place"] == 1
    assert all(item["failed"] == 0 for item in data["false_alarms"])
