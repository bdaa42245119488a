"""All runs of a store in a browser on another machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stores import Machines
from suite_runner import SuiteRunner
from view_server import view_server

from visioneval.records.stores.lookup import runs_folder
from visioneval.serve.site import SiteOptions, write_site

pytestmark = pytest.mark.slow


def test_runs_in_a_store_are_shown_through_copies(
    runner: SuiteRunner, runs: str, machines: Machines, tmp_path: Path
) -> None:
    runner.write("a", experiment="nightly")

    def run(run_id: str) -> None:
        result = runner("run", runner.folder / "suite.yaml", "--runs", runs, "--run-id", run_id)
        assert result.exit_code == 0, result.output

    run("first")
    machines.use("b")
    with view_server(runs_folder(runs), tmp_path / "rendered") as server:
        page = server.ask("")[2]
        assert runs in page
        assert "All gates passed" in page
        path, report = server.report("first")
        assert "All gates passed" in report
        output = re.findall(r'"\.\./(output/[^"]+)"', server.ask(f"{path}data/details-0.js")[2])[0]
        assert server.ask(f"run/first/{output}")[0] == 200
        run("second")
        page = server.ask("")[2]
        assert "2 runs" in page
        assert 'value="second"' in page
        assert server.ask("compare?run=first&run=second")[0] == 200
        assert server.ask("run/third/")[0] == 404
    index = write_site(runs_folder(runs), tmp_path / "site", SiteOptions(), print)
    assert runs in index.read_text()
    assert len(list((tmp_path / "site" / "run" / "second" / "images").iterdir())) == 1


def test_the_last_runs_of_a_store_are_tested_together(runner: SuiteRunner, runs: str, machines: Machines) -> None:
    runner.write("a", experiment="nightly")
    for run_id in ("first", "second"):
        result = runner("run", runner.folder / "suite.yaml", "--runs", runs, "--run-id", run_id)
        assert result.exit_code == 0, result.output
    machines.use("b")
    compared = runner("compare", f"{runs}/first", "--experiment", "nightly", "--last", "5", "--runs", runs)
    assert compared.exit_code == 3
    text = " ".join(compared.stdout.split())
    assert "first is left out: it is one of the runs of A" in text
    assert "second is left out: its outputs are those of A: nothing new was generated" in text
