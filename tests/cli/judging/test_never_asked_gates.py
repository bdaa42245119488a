"""A gate that allows errors excuses outages, and no judge or model that was never asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_api import Fault
from panel_runs import CACHE, COMMANDS, is_incomplete, offline, record_of, two_models
from suite_runner import LOOK, SuiteRunner

from visioneval import load_run
from visioneval.report.markdown import report_markdown
from visioneval.report.run import run_report

pytestmark = pytest.mark.slow
pytest_plugins = ("panel_fixtures",)

Panel = Callable[..., SuiteRunner]
FILE = {"key": "file", "type": "properties"}
GATES = ("error_rate <= 0.5", "unmeasured_rate <= 0.5", "pass_rate >= 0.5")
TREE = {**LOOK, "judge": "a", "when": {"cases": ["tree"]}}
BOAT = {**LOOK, "key": "more", "judge": "b", "when": {"cases": ["boat"]},
        "metrics": {"fine": {"type": "pass_fail", "description": "it is fine"}}}  # fmt: skip


def write(panel: Panel, *graders: Any, **changes: Any) -> SuiteRunner:
    says = {"a": True, "b": Fault("server_error")}
    suite = {"graders": [*graders, FILE], "verdict": ["not file.blank"], "gates": GATES, **changes}
    return panel(says, "tree", "boat", **suite)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_judge(panel: Panel, command: str) -> None:
    runner = write(panel, TREE)
    assert runner.run(*CACHE).exit_code == 0
    write(panel, TREE, BOAT)
    result, run_id = offline(runner, command)
    assert (result.exit_code, record_of(runner, run_id, "boat").verdict) == (3, "ERROR"), result.output
    assert "never asked: more about 1 cell" in " ".join(result.output.split())
    says_so(runner, run_id)


def test_an_outage_is_excused(panel: Panel) -> None:
    runner = write(panel, TREE, BOAT)
    result = runner.run()
    assert (result.exit_code, record_of(runner, case="boat").verdict) == (0, "ERROR"), result.output


@pytest.mark.parametrize("command", ["run", "resume"])
def test_a_model(panel: Panel, command: str) -> None:
    runner, (first, second) = write(panel, TREE), two_models(panel)
    write(panel, TREE, models=[first])
    assert runner.run(*CACHE).exit_code == 0
    write(panel, TREE, models=[first, second])
    result, run_id = offline(runner, command)
    assert result.exit_code == 3, result.output
    assert "never asked: generation by n of 2 outputs; to ask: visioneval" in " ".join(result.output.split())
    says_so(runner, run_id)
    grade = runner("grade", run_id, "--runs", runner.out, "--run-id", "graded", *CACHE)
    assert grade.exit_code == 3, grade.output
    hint = f"to ask: visioneval run --resume {runner.out / run_id}, then visioneval grade {run_id}"
    assert hint in " ".join(grade.stderr.split())
    says_so(runner, "graded")
    one = (runner("show", f"{run_id}@{label}", "--runs", runner.out).output for label in ("m", "n"))
    assert ["never asked" in output for output in one] == [False, True]


def test_shards_and_merge(panel: Panel) -> None:
    runner, (first, second) = write(panel, TREE), two_models(panel)
    write(panel, TREE, models=[first])
    assert runner.run(*CACHE).exit_code == 0
    write(panel, TREE, models=[first, second])
    shards = [runner.run(*CACHE, "--offline", "--shard", f"{at}/2", run_id=f"s{at}") for at in (1, 2)]
    assert [shard.exit_code for shard in shards] == [3, 3]
    merged = runner("merge", "s1", "s2", "--runs", runner.out, "--run-id", "whole")
    assert merged.exit_code == 3, merged.output
    says_so(runner, "whole")


def says_so(runner: SuiteRunner, run_id: str) -> None:
    """Whoever reads the run: the command line, the summary, a report and Markdown."""
    is_incomplete(runner, run_id)
    sentence = "Incomplete: some judges or models were never asked"
    assert sentence in " ".join(runner("show", run_id, "--runs", runner.out).output.split())
    page = runner.folder / f"{run_id}.html"
    runner("report", run_id, "--runs", runner.out, "--single-file", "-o", page)
    markdown = report_markdown(run_report(load_run(runner.out / run_id).summary))
    assert all(sentence in text for text in (page.read_text(), markdown))
