"""The trends beside a baseline: its interval behind the line of the pass rate, and marks where a drift is declared."""

from __future__ import annotations

from pathlib import Path

import pytest
from series_runs import baseline_of, failing, night
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.serve.baseline_line import references
from visioneval.serve.index import HEIGHT, PAD, Reference, RunListing, Trend, index_page, trends

RUNS, KEY = Path("runs"), ("nightly", "demo")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def stored(name: str = "main", share: float = 0.2) -> None:
    baseline_of(*(night(Path(name), -at, name=f"base-{at}", failed=failing(share, at)) for at in range(3)), name=name)


def series(drift: int | None = 3) -> None:
    for number in range(1, 8):
        night(RUNS, number, failed=failing(0.2 if number < 4 else 0.7, number), drift=drift)


def found() -> dict[tuple[str, str], Reference]:
    return dict(references(RunListing(RUNS).rows(), RUNS))


def pass_rate() -> Trend:
    rows = RunListing(RUNS).rows()
    return next(line for line in trends(rows, (), references(rows, RUNS).get(KEY)) if line.name == "Pass rate")


def test_the_interval_of_the_baseline_is_on_the_scale_of_the_line() -> None:
    stored()
    series()
    line = pass_rate()
    rate = found()[KEY].rate
    assert rate.low is not None
    assert rate.high is not None
    assert rate.value == pytest.approx(0.8)
    assert line.band is not None
    assert line.band.y == pytest.approx(HEIGHT - PAD - rate.high * (HEIGHT - 2 * PAD), abs=0.1)
    assert line.band.y + line.band.height == pytest.approx(HEIGHT - PAD - rate.low * (HEIGHT - 2 * PAD), abs=0.2)
    assert line.band.text.startswith("baseline:main 80 % [")
    assert line.band.text in line.text


def test_runs_with_a_drift_are_those_of_the_comparison() -> None:
    stored()
    series()
    drifted = found()[KEY].drifted
    result = CliRunner().invoke(app, ["compare", "baseline", "--experiment", "nightly", "--json"])
    assert result.exit_code == 1
    assert drifted
    assert all(f'"run_id": "{run}"' in result.stdout for run in drifted)
    assert result.stdout.count('"is_drift": true') == len(drifted)
    line = pass_rate()
    assert {point.run_id for point in line.points if point.is_drift} == drifted
    assert line.text.endswith(f"; drift in {', '.join(sorted(drifted))}")
    assert any(point.text.endswith(", DRIFT") for point in line.points)


def test_without_a_number_in_the_suite_there_is_a_band_and_no_mark() -> None:
    stored()
    series(drift=None)
    line = pass_rate()
    assert line.band is not None
    assert not any(point.is_drift for point in line.points)


def test_without_a_baseline_of_the_suite_there_is_no_band() -> None:
    series()
    assert found() == {}
    assert pass_rate().band is None
    Path("baselines").mkdir()
    Path("baselines/main.jsonl").write_text("damaged\n")
    assert found() == {}


def test_of_several_baselines_main_is_shown() -> None:
    stored("early", 0.5)
    series()
    assert found()[KEY].name == "baseline:early"
    stored()
    assert found()[KEY].name == "baseline:main"


def test_a_changed_run_is_tested_again() -> None:
    stored()
    series()
    before = found()[KEY].drifted
    night(RUNS, 8, failed=failing(0.7, 8), drift=3)
    assert found()[KEY].drifted == before | {"night-08"}


def test_pages_of_the_viewer_and_of_a_site_show_both() -> None:
    stored()
    series()
    rows = RunListing(RUNS).rows()
    served = index_page(rows, "runs", poll_seconds=3, baselines=references(rows, RUNS))
    assert CliRunner().invoke(app, ["site", "--output", "site"]).exit_code == 0
    for page in (served, Path("site/index.html").read_text()):
        assert page.count('class="band"') == 1
        assert page.count('class="drift"') == len(found()[KEY].drifted)
        assert "band: baseline:main 80 % [" in page
