"""The suites that ``init`` writes run unchanged, and the quickstart tests the graders with every flaw."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.cli.commands.suite import Template
from visioneval.records.model import read_records
from visioneval.types import Verdict

pytestmark = pytest.mark.usefixtures("reduced_readings")


@pytest.mark.parametrize("template", list(Template))
def test_init_suites_run_and_pass(template: Template, tmp_path: Path) -> None:
    runner = CliRunner()
    created = runner.invoke(app, ["init", str(tmp_path / "own"), "--template", template.value])
    assert created.exit_code == 0, created.output
    suite = str(tmp_path / "own" / "suite.yaml")
    assert runner.invoke(app, ["validate", suite]).exit_code == 0
    done = runner.invoke(app, ["run", suite, "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "runs").iterdir()
    verdicts = {record.model_label: [] for record in read_records(folder)}
    for record in read_records(folder):
        verdicts[record.model_label].append(record.verdict)
    assert all(verdict is not Verdict.ERROR for custom in verdicts.values() for verdict in custom)
    if template is Template.quickstart:
        assert set(verdicts.pop("mock,flaw=none")) == {Verdict.PASS}
        assert all(Verdict.FAIL in custom for custom in verdicts.values()), "a flaw that nobody caught"
        assert len(verdicts) == 7


def test_the_quickstart_fails_when_a_grader_misses_flaws(tmp_path: Path) -> None:
    runner = CliRunner()
    runner.invoke(app, ["init", str(tmp_path)])
    suite = tmp_path / "suite.yaml"
    suite.write_text(suite.read_text(encoding="utf-8").replace("  - place\n", "", 1), encoding="utf-8")
    done = runner.invoke(app, ["run", str(suite), "--case", "sign_word", "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 1, "spill and drift pass when nobody looks at the place"
