"""Every page in every state by axe-core: light and dark, 1280 and 390 pixels wide."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from accessibility import WIDTHS, violations
from browser import wait_until
from compared_runs import compared_run, page_of
from label_server import READY, Server, write_run
from ranked_runs import answered, judged
from record_factory import record
from report_runs import demo, png, report
from view_server import view_server
from viewed_runs import begun_run, viewed_run

from visioneval import CellError, Verdict
from visioneval.analysis.probe import MissedPerturbation, ProbeFindings, ProbeGate, ProbeRate, WeakestCaught
from visioneval.analysis.ranking import rank_runs
from visioneval.report.html.pages import sections_page
from visioneval.report.probe import probe_report
from visioneval.report.ranking import ranking_report

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from browser import OpenPage

NARROW = WIDTHS[-1:]
"""For states that differ little from others."""
SIGN = "#cell?case=sign&at=hasty%2Cquality%3Dlow&sample=0"
ERROR = CellError(stage="generate", kind="timeout", message="no answer within 60 s")


def test_report(tmp_path: Path, open_page: OpenPage, axe: str) -> None:
    folder = demo(tmp_path)
    cells = [
        record(test_id="flyer", model_label="steady", sample_index=1, verdict="ERROR", error=ERROR),
        record(test_id="sign", model_label="steady", sample_index=1, failed_rules=["look"], verdict="FAIL"),
    ]
    with (folder / "results.jsonl").open("a") as results:
        results.writelines(cell.model_dump_json() + "\n" for cell in cells)
    page = open_page(report(folder).as_uri())
    page.set_viewport_size({"width": 390, "height": 800})
    problems = [f"overview: {text}" for text in violations(page, axe)]
    for address, shown in {
        "#gallery": "#canvas .tile, #canvas .line",
        "#gallery?layout=list&verdict=ERROR%2CPASS&metric=look": "#canvas .line",
        "#gallery?q=nowhere": "#nothing:not([hidden])",
        SIGN: ".verdict-block.fail",
        "#cell?case=flyer&at=steady&sample=1": ".verdict-block.error",
    }.items():
        page.evaluate(f"location.hash = '{address}'")
        page.wait_for_selector(shown)
        widths = WIDTHS if address in ("#gallery", SIGN) else NARROW
        problems += [f"{address}: {text}" for text in violations(page, axe, widths)]
    page.keyboard.press("?")
    problems += [f"keys: {text}" for text in violations(page, axe, NARROW)]
    assert not problems, "\n".join(problems)


def test_skip_link_leads_to_the_content_of_the_view(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(f"{report(demo(tmp_path)).as_uri()}#gallery")
    page.wait_for_selector("#canvas a.cell")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.url.endswith("#gallery")


def test_comparison(tmp_path: Path, open_page: OpenPage, axe: str) -> None:
    a = compared_run(tmp_path, "before", "PPFF", "teal", tags=["edit"])
    page = open_page(
        page_of(tmp_path, a, compared_run(tmp_path, "after", "PFPF", "crimson", tags=["edit", "must_pass"]))
    )
    problems = list(violations(page, axe))
    page.click("[data-change=still_failing]")
    page.click(".pair .mode >> text=Slider")
    problems += violations(page, axe)
    assert not problems, "\n".join(problems)


def test_ranking(tmp_path: Path, open_page: OpenPage, axe: str) -> None:
    names = "a long name,quality=high", "another long name,quality=low", "short"
    lines = [line for at in range(12) for a, b in combinations(names, 2) for line in judged(f"c{at}", a, b, "a")]
    path = tmp_path / "rank.html"
    path.write_text(sections_page(ranking_report(rank_runs([answered(lines)], "judges"))), encoding="utf-8")
    problems = list(violations(open_page(path.as_uri()), axe))
    assert not problems, "\n".join(problems)


def test_probe(tmp_path: Path, open_page: OpenPage, axe: str) -> None:
    numbers = {"outputs": 4, "failed": 3, "unmeasured": 0, "cases": 4, "rate": 0.75, "low": 0.3, "high": 0.95}
    rate = ProbeRate(kind="pixels.blank", strength="", metric=None, grader=None, **numbers)
    missed = MissedPerturbation(case="c", model="m", sample=0, kind="pixels.blank", strength="", verdict=Verdict.PASS)
    findings = ProbeFindings(
        visioneval_version="1",
        source="suite.yaml",
        suite="demo",
        seed=0,
        outputs=4,
        cases=4,
        metrics={"look": "look"},
        detections=(rate,),
        false_alarms=(rate,),
        weakest=(WeakestCaught(kind="pixels.blank", metric=None, strength=None),),
        missed=(missed,),
        notes=("c: has no mask",),
        gates=(ProbeGate(gate="pixels:0.9", state="failed", value=0.75, bound=0.3, message="0.75 [0.3, 0.95]"),),
        exit_code=1,
    )
    path = tmp_path / "probe.html"
    path.write_text(sections_page(probe_report(findings, [(png("teal"), png("red"))])), encoding="utf-8")
    problems = list(violations(open_page(path.as_uri()), axe))
    assert not problems, "\n".join(problems)


def test_viewer(tmp_path: Path, open_page: OpenPage, axe: str) -> None:
    root = tmp_path / "runs"
    for run_id, passes in (("run-01", True), ("run-02", False)):
        viewed_run(root, run_id, passes=passes)
    writer = begun_run(root, "run-03")
    (root / "damaged").mkdir()
    (root / "damaged" / "run.json").write_text("{", encoding="utf-8")
    with view_server(root, tmp_path / "rendered") as server:
        page = open_page(server.url, allowed=(server.origin,))
        problems = [f"index: {text}" for text in violations(page, axe)]
        for path in ("run/run-03/", "agreement/run-02/", "compare?run=run-01&run=run-02"):
            response = page.goto(f"{server.url}{path}")
            assert response is not None
            assert response.status == 200, path
            problems += [f"{path}: {text}" for text in violations(page, axe, NARROW)]
        page.close()  # before the server, which it would miss
    writer.finish("complete", "2026-02-01T00:01:00+00:00")
    assert not problems, "\n".join(problems)


def test_labeling(tmp_path: Path, open_page: OpenPage, serve: Callable[..., Server], axe: str) -> None:
    server = serve(write_run(tmp_path, ({"id": "one"}, {"id": "two"})))
    custom = f"http://127.0.0.1:{server.port}/"
    page = open_page(server.url, allowed=(custom, f"blob:{custom}"))
    page.wait_for_selector("#start:not([hidden])")
    problems = [f"name: {text}" for text in violations(page, axe, NARROW)]
    page.fill("#name", "ann")
    page.keyboard.press("Enter")
    page.wait_for_selector(READY)
    page.keyboard.press("y")
    problems += [f"item: {text}" for text in violations(page, axe)]
    page.keyboard.press("?")
    problems += [f"keys: {text}" for text in violations(page, axe, NARROW)]
    page.keyboard.press("Escape")
    for _ in range(2):
        page.keyboard.press("s")
        page.wait_for_timeout(100)
    wait_until(page, "!document.getElementById('end').hidden")
    problems += [f"end: {text}" for text in violations(page, axe, NARROW)]
    assert not problems, "\n".join(problems)
