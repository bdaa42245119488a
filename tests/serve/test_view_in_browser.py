"""All runs in a real browser: comparing, following a run, and a site from disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import PHONE, wait_until
from series_runs import baseline_of, failing, night
from typer.testing import CliRunner
from view_server import view_server
from viewed_runs import append_cell, begun_run, viewed_run

from visioneval.cli import app

if TYPE_CHECKING:
    from browser import OpenPage

pytestmark = pytest.mark.slow

MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_two_ticks_compare_two_runs(tmp_path: Path, open_page: OpenPage) -> None:
    root = tmp_path / "runs"
    for run_id, passes in (("run-01", True), ("run-02", False), ("run-03", True)):
        viewed_run(root, run_id, passes=passes)
    viewed_run(root, "run-04", experiment=MARKUP, note=MARKUP)
    with view_server(root, tmp_path / "rendered") as server:
        page = open_page(server.url, allowed=(server.origin,), viewport=PHONE)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.title().startswith("Runs in")
        assert page.locator("svg[role=img]").count() == 4
        assert page.is_disabled("#compare")
        page.check("input[value=run-01]")
        page.focus("input[value=run-02]")
        page.keyboard.press("Space")
        assert page.inner_text("#chosen") == "Compares the later run with the earlier one."
        page.check("input[value=run-03]")
        assert page.is_disabled("#compare")
        page.uncheck("input[value=run-03]")
        with page.expect_navigation():
            page.click("#compare")
        assert page.title() == "run-01 \u2192 run-02"
        page.click("text=All runs")
        with page.expect_navigation():
            page.click("th a:text('run-02')")
        page.click("nav[aria-label=Views] a:text('Gallery')")
        wait_until(
            page,
            "[...document.querySelectorAll('#view-gallery img')].filter((image) => image.naturalWidth > 0).length === 2",
        )
        page.click("text=All runs")
        page.click("[aria-label='Label run-02']")
        page.fill("#name", "ann")
        page.keyboard.press("Enter")
        for _ in range(2):
            page.wait_for_selector("#work:not([hidden]) .frame img")
            page.keyboard.press("s")
            page.wait_for_timeout(200)
        with page.expect_navigation():
            page.click("#after-link a")
        assert page.url.endswith("/agreement/run-02/")
        page.close()  # before the server, which it would miss


def test_search_shows_the_runs_with_all_words(tmp_path: Path, open_page: OpenPage) -> None:
    root = tmp_path / "runs"
    for number in range(1, 5):
        viewed_run(root, f"run-0{number}", passes=number != 2)
    viewed_run(root, "run-05", experiment="weekly", note="Sharper prompts")
    with view_server(root, tmp_path / "rendered") as server:
        page = open_page(server.url, allowed=(server.origin,))
        shown = page.locator("tbody tr:visible th a")
        assert shown.count() == 5
        for words, runs in {
            "weekly": ["run-05"],
            "SHARPER weekly": ["run-05"],
            "nightly failed": ["run-02"],
            "demo run-03": ["run-03"],
            "nightly sharper": [],
        }.items():
            page.fill("#search", words)
            assert shown.all_inner_texts() == runs
            assert page.locator("#nothing").is_visible() is (not runs)
        page.fill("#search", "weekly")
        assert page.locator(".trend:visible").count() == 0
        page.keyboard.press("Enter")
        page.reload()
        assert (page.input_value("#search"), shown.all_inner_texts()) == ("weekly", ["run-05"])
        page.fill("#search", "")
        assert shown.count() == 5
        assert page.locator(".trend:visible").count() > 0
        assert page.url == server.url
        page.close()  # before the server, which it would miss


def test_a_report_follows_its_run(tmp_path: Path, open_page: OpenPage) -> None:
    root = tmp_path / "runs"
    writer = begun_run(root, "run-01")
    with view_server(root, tmp_path / "rendered") as server:
        page = open_page(f"{server.url}run/run-01/", allowed=(server.origin,))
        assert page.inner_text("#live") == "Running: 1 of 2 cells so far. This page follows the run."
        assert page.inner_text("h1") == "Still running"
        append_cell(writer, "two", passes=False)
        page.wait_for_selector("#live:has-text('Running: 2 of 2 cells')")
        page.click("nav[aria-label=Views] a:text('Gallery')")
        writer.finish("complete", "2026-02-01T00:01:00+00:00")
        page.click("#live:has-text('This run has changed: complete, 2 of 2 cells') a")
        page.wait_for_selector("#live[hidden]", state="attached")
        assert page.url.endswith("#gallery")
        page.close()


def test_a_site_works_from_disk(tmp_path: Path, open_page: OpenPage) -> None:
    for run_id, passes in (("run-01", True), ("run-02", False)):
        viewed_run(tmp_path / "runs", run_id, passes=passes)
    index = tmp_path / "site" / "index.html"
    words = ["site", "--runs", str(tmp_path / "runs"), "-o", str(index.parent)]
    assert CliRunner().invoke(app, words).exit_code == 0
    page = open_page(index.as_uri(), color_scheme="dark")
    with page.expect_navigation():
        page.click("text=with the run before")
    assert page.title() == "run-01 \u2192 run-02"
    with page.expect_navigation():
        page.click("nav a:text('run-02')")
    page.click("nav[aria-label=Views] a:text('Gallery')")
    wait_until(
        page,
        "[...document.querySelectorAll('#view-gallery img')].filter((image) => image.naturalWidth > 0).length === 2",
    )
    with page.expect_navigation():
        page.click("text=All runs")
    assert page.title().startswith("Runs in")


def test_a_baseline_is_behind_the_line_and_a_drift_is_marked(
    tmp_path: Path, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    baseline_of(*(night(Path("old"), -at, name=f"base-{at}", failed=failing(0.2, at)) for at in range(3)))
    for number in range(1, 8):
        night(Path("runs"), number, failed=failing(0.2 if number < 4 else 0.7, number), drift=3)
    with view_server(Path("runs"), tmp_path / "rendered") as server:
        page = open_page(server.url, allowed=(server.origin,), viewport=PHONE)
        figure = page.locator("figure.trend").first
        assert "band: baseline:main 80 % [" in figure.inner_text()
        assert figure.locator("circle.drift").count() > 0
        plot, band = (figure.locator(name).bounding_box() for name in ("svg", ".band"))
        assert plot is not None
        assert band is not None
        assert plot["y"] <= band["y"] < band["y"] + band["height"] <= plot["y"] + plot["height"]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
