"""Runs of suites with palettes and codes: rules, reasons, re-grading, the cache, comparisons and the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browser import wait_until
from codes import on_page, qr
from PIL import Image, ImageDraw
from report_runs import report
from toys import Toy

from visioneval import Record, Verdict, read_records
from visioneval.graders.codes import grader as codes
from visioneval.graders.palette import grader as palette

pytest.importorskip("zxingcpp")

if TYPE_CHECKING:
    from browser import OpenPage

CREAM, BROWN, BLUE = "#F5E6CC", "#3B2A1E", "#1E50C8"
GRADERS = [{"key": "colors", "type": "palette"}, {"key": "codes", "type": "codes"}]
RULES = ["colors >= 0.95", "colors.off <= 0.01", "codes"]
MODEL = {"provider": "files", "label": "m", "path": "out/{case}.png"}
ADDRESS = "https://example.com/menu"


@pytest.fixture
def brand(toy: Toy) -> Toy:
    """A flyer as asked, one with a blue box, and one with a code."""
    (toy.folder / "out").mkdir()
    plain = Image.new("RGB", (400, 400), CREAM)
    ImageDraw.Draw(plain).rectangle((40, 300, 359, 359), fill=BROWN)
    boxed = plain.copy()
    ImageDraw.Draw(boxed).rectangle((100, 80, 179, 159), fill=BLUE)
    plain.save(toy.folder / "out/plain.png")
    boxed.save(toy.folder / "out/boxed.png")
    coded = on_page(qr(ADDRESS, 5), np.asarray(plain), 90, 60)
    Image.fromarray(coded).save(toy.folder / "out/coded.png")
    write(toy)
    return toy


def write(toy: Toy, **changes: Any) -> None:
    expect = {"palette": [CREAM, BROWN, "#FFFFFF", "#000000"], "codes": "none"}
    cases = [{"id": name, "prompt": "p", "expect": expect} for name in ("plain", "boxed", "coded")]
    settings: dict[str, Any] = {"cases": cases, "models": [MODEL], "graders": GRADERS, "verdict": RULES, **changes}
    toy.write(*settings.pop("cases"), **settings)


def records(toy: Toy, run: str) -> dict[str, Record]:
    return {record.test_id: record for record in read_records(toy.folder / "runs" / run)}


def run(toy: Toy, name: str, *words: str, code: int = 1) -> dict[str, Record]:
    done = toy("run", "suite.yaml", "--run-id", name, *words)
    assert done.exit_code == code, done.output
    return records(toy, name)


def never(*_: Any) -> Any:
    raise AssertionError("it is measured again")


def test_each_flaw_fails_its_rule_with_a_reason(brand: Toy) -> None:
    found = run(brand, "r")
    assert {name: record.failed_rules for name, record in found.items()} == {
        "plain": (),
        "boxed": ("colors.off <= 0.01",),
        "coded": ("codes",),
    }
    shown = brand("show", "r", "boxed").output
    assert "the largest region off the palette is 4% at x 100 to 180, y 80 to 160, is #1E50C8" in " ".join(
        shown.split()
    )
    shown = brand("show", "r", "coded").output
    assert f"there is a code at x 110, y 80 with '{ADDRESS}'" in " ".join(shown.split())


def test_what_is_expected_of_codes_is_graded_again_without_a_measurement(
    brand: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(brand, "r")
    monkeypatch.setattr(codes, "measure_file", never)
    monkeypatch.setattr(palette, "_measure_file", never)
    expect = {"palette": [CREAM, BROWN, "#FFFFFF", "#000000"], "codes": [ADDRESS]}
    write(brand, cases=[{"id": "coded", "prompt": "p", "expect": expect}], verdict=["colors >= 0.5", "codes"])
    done = brand("grade", "r", "--suite", "suite.yaml", "--case", "coded", "--run-id", "again", "--offline")
    assert done.exit_code == 0, done.output
    assert records(brand, "again")["coded"].verdict is Verdict.PASS
    assert run(brand, "replay", "--offline", code=0)["coded"].scores["codes"] is True


def test_other_colors_or_another_tolerance_are_measured_again(brand: Toy) -> None:
    run(brand, "r")
    write(brand, graders=[{**GRADERS[0], "tolerance": 50}, GRADERS[1]])
    assert run(brand, "wider")["boxed"].scores["colors.off"] == 0
    write(brand, cases=[{"id": "boxed", "prompt": "p", "expect": {"palette": [CREAM, BROWN, BLUE]}}], verdict=RULES[:2])
    assert run(brand, "blue", code=0)["boxed"].scores["colors"] == 1


def test_a_comparison_reports_a_lower_score(brand: Toy) -> None:
    run(brand, "a")
    Image.open(brand.folder / "out/boxed.png").save(brand.folder / "out/plain.png")
    run(brand, "b")
    done = brand("compare", "a", "b")
    assert done.exit_code == 3, "one of three cases cannot show a regression"
    assert "plain colors.off 0.04 > 0.01: the largest region off the palette is 4%" in " ".join(done.output.split())


def test_a_code_that_cannot_be_read_leaves_its_case_undecided(brand: Toy) -> None:
    page = np.asarray(Image.new("RGB", (400, 400), CREAM))
    Image.fromarray(on_page(qr(ADDRESS, 5)[:, :110], page, 90, 60)).save(brand.folder / "out/cut.png")
    write(brand, cases=[{"id": "cut", "prompt": "p", "expect": {"codes": [ADDRESS]}}], verdict=["codes"])
    record = run(brand, "r", code=3)["cut"]
    assert record.verdict is Verdict.ERROR
    assert record.scores == {"codes": None, "codes.count": 1}


def test_a_missing_extra_stops_the_run_and_names_what_to_install(brand: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visioneval.running.prepare.has_extra", lambda extra: extra != "codes")
    done = brand("run", "suite.yaml")
    assert done.exit_code == 2
    assert "grader 'codes': reading QR codes and bar codes needs an extra: run " in " ".join(done.output.split())
    write(brand, cases=[{"id": "plain", "prompt": "p", "expect": {"palette": [CREAM, BROWN]}}], verdict=RULES[:2])
    assert run(brand, "colors", code=0)["plain"].verdict is Verdict.PASS


@pytest.mark.slow
def test_the_report_shows_swatches_and_outlines_what_failed(brand: Toy, open_page: OpenPage, tmp_path: Path) -> None:
    run(brand, "r")
    address = report(brand.folder / "runs" / "r").as_uri()
    page = open_page(f"{address}#cell?case=boxed&at=m&sample=0")
    page.wait_for_selector(".cell-body")
    assert page.inner_text(".mode[aria-pressed=true]") == "Places (colors)"
    assert page.locator(".frame polygon.spot").get_attribute("points") == "100,80 180,80 180,160 100,160"
    assert page.locator(".frame polygon.spot title").text_content() == "off palette: #1E50C8"
    shown = page.locator(".grader .swatch").evaluate_all("(all) => all.map((one) => one.style.background)")
    assert shown == ["rgb(245, 230, 204)", "rgb(59, 42, 30)", "rgb(255, 255, 255)", "rgb(0, 0, 0)", "rgb(30, 80, 200)"]
    page.goto(f"{address}#cell?case=coded&at=m&sample=0")
    wait_until(page, "document.querySelector('.mode[aria-pressed=true]')?.textContent === 'Places (codes)'")
    assert page.locator(".frame polygon.spot title").text_content() == f"codes: {ADDRESS}"
    page.goto(f"{address}#cell?case=plain&at=m&sample=0")
    wait_until(page, "document.querySelector('.mode[aria-pressed=true]')?.textContent === 'Output'")
