"""The suite of videos: flaws are caught, and its run is resumed, graded again, compared, exported and shown."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from browser import wait_until
from click.testing import Result
from typer.testing import CliRunner

from visioneval import Record, read_records
from visioneval.cli import app

SUITES = Path(__file__).parents[3] / "suites"

if TYPE_CHECKING:
    from browser import OpenPage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("reduced_readings", "session_measures")]
MODELS = [f"mock,flaw={flaw}" for flaw in ("none", "typo", "frozen", "flicker", "short")]
CASES = ("opening", "hills")


def visioneval(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def succeeded(*arguments: object) -> str:
    done = visioneval(*arguments)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, reduced_readings: None) -> Path:
    """A folder with the suite, its run ``first`` of two cases and five model runs, and the cache of the run."""
    path = tmp_path_factory.mktemp("videos")
    shutil.copy(SUITES / "videos" / "suite.yaml", path)
    selected = [word for case in CASES for word in ("--case", case)]
    selected += [word for model in MODELS for word in ("--model", model)]
    arguments = ("--runs", path / "runs", "--run-id", "first", "--cache", path / "cache")
    done = visioneval("run", path / "suite.yaml", *arguments, *selected)
    assert done.exit_code == 0, done.output
    return path


def records(folder: Path, run: str = "first") -> dict[tuple[str, str], Record]:
    return {(record.test_id, record.model_label): record for record in read_records(folder / "runs" / run)}


def test_each_flaw_fails_and_a_flawless_video_passes(folder: Path) -> None:
    verdicts = {cell: record.verdict for cell, record in records(folder).items()}
    expected = {("hills", "mock,flaw=typo"), *((case, MODELS[0]) for case in CASES)}  # hills have no copy to misspell
    assert {cell for cell, verdict in verdicts.items() if verdict == "PASS"} == expected
    assert set(verdicts.values()) == {"PASS", "FAIL"}
    record = records(folder)["opening", "mock,flaw=frozen"]
    assert (record.mime, record.width, record.height, record.failed_rules) == ("video/mp4", 320, 180, ("video",))
    assert record.run_params["seconds"] == 1.5
    assert str(record.artifact_path).endswith(".mp4")
    assert {grader.key for grader in record.graders} == {"video", "copy"}


def test_a_changed_rule_and_a_changed_limit_measure_nothing_again(folder: Path) -> None:
    suite = yaml.safe_load((folder / "suite.yaml").read_text())
    suite["verdict"] = ["video.duration_s >= 1", "video.frozen_s <= 2"]
    suite["gates"] = ["pass_rate >= 0"]
    suite["graders"][0]["max_frozen_s"] = 1
    (folder / "changed.yaml").write_text(yaml.safe_dump(suite))
    arguments = ("--runs", folder / "runs", "--run-id", "again", "--cache", folder / "cache", "--offline")
    output = succeeded("grade", "first", "--suite", folder / "changed.yaml", *arguments)
    again = records(folder, "again")
    assert again["opening", "mock,flaw=frozen"].verdict == "PASS", output
    assert again["opening", "mock,flaw=short"].verdict == "FAIL"
    for record in again.values():
        assert [grader.cached for grader in record.graders if grader.key == "video"] == [True], output


def test_a_lost_cell_is_resumed(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "runs/first", tmp_path / "runs/first")
    results = tmp_path / "runs/first/results.jsonl"
    lines = results.read_text().splitlines(keepends=True)
    results.write_text("".join(lines[:-2]))
    arguments = ("--runs", tmp_path / "runs", "--resume", "first", "--cache", folder / "cache")
    succeeded("run", folder / "suite.yaml", *arguments)
    after = records(tmp_path)
    assert {cell: (r.verdict, r.scores) for cell, r in after.items()} == {
        cell: (r.verdict, r.scores) for cell, r in records(folder).items()
    }


def test_runs_are_compared_and_exported(folder: Path, tmp_path: Path) -> None:
    none, frozen = (f"first@mock,flaw={flaw}" for flaw in ("none", "frozen"))
    compared = visioneval("compare", none, frozen, "--runs", folder / "runs", "--json")
    assert "video.frozen_s" in compared.output
    succeeded("export", "first", "--runs", folder / "runs", "-o", tmp_path / "cells.csv")
    rows = list(csv.DictReader((tmp_path / "cells.csv").read_text().splitlines()))
    assert len(rows) == len(CASES) * len(MODELS)
    assert {row["video.duration_s"] for row in rows if row["model_label"] == MODELS[0]} == {"1.5"}


def test_the_single_page_embeds_small_videos(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "one.html"
    succeeded("report", "first", "--runs", folder / "runs", "--single-file", "-o", page)
    assert page.read_text().count("data:video/mp4;base64,") == len(CASES) * len(MODELS)
    monkeypatch.setattr("visioneval.report.html.images.MAX_EMBEDDED_VIDEO", 1000)
    succeeded("report", "first", "--runs", folder / "runs", "--single-file", "-o", page)
    assert "data:video/mp4" not in page.read_text()
    assert "is too large for a page of one file: write the report as a folder" in page.read_text()


def cell_page(page: Any) -> None:
    page.wait_for_selector("video")
    wait_until(page, "document.querySelector('video').readyState >= 2")


def test_the_report_plays_a_video_beside_its_measures(folder: Path, tmp_path: Path, open_page: OpenPage) -> None:
    succeeded("report", "first", "--runs", folder / "runs", "-o", tmp_path / "report")
    index = (tmp_path / "report/index.html").as_uri()
    page = open_page(f"{index}#gallery")
    page.wait_for_selector("#view-gallery .thumb img")
    assert page.evaluate("report.index.cells.thumb.every(Boolean)")
    find = "([name, label]) => report.index.cells.case.findIndex((c, at) => report.index.cases[c] === name && report.index.models[report.index.cells.model[at]] === label)"
    at = page.evaluate(find, ["opening", "mock,flaw=frozen"])
    page.evaluate("at => { location.hash = addressOfCell(report.index, at, {}); }", at)
    cell_page(page)
    assert page.locator("figure .chart").count() == 3
    assert page.locator(".chart rect.frozen").count() == 2
    box = page.locator(".chart").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
    wait_until(page, "Math.abs(document.querySelector('video').currentTime - 0.75) < 0.05")
    wait_until(page, "document.querySelector('.cursor').getAttribute('transform').startsWith('translate(300')")
    assert page.locator(".moment").inner_text() == "0.75 s"
    page.evaluate("document.querySelector('video').currentTime = 1.2")
    wait_until(page, "document.querySelector('.moment').textContent === '1.20 s'")


def test_planned_cost_is_nothing(folder: Path) -> None:
    plan = json.loads(succeeded("plan", folder / "suite.yaml", "--json"))
    assert plan["cells"] == 54
