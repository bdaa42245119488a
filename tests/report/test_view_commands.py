"""The commands ``view`` and ``site``, as far as they differ from the API below them."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner
from viewed_runs import viewed_run

from visioneval.cli import app


def test_site_writes_all_runs(tmp_path: Path) -> None:
    for run_id in ("run-01", "run-02"):
        viewed_run(tmp_path / "runs", run_id)
    words = ["site", "-o", str(tmp_path / "site"), "--runs", str(tmp_path / "runs"), "--last", "1", "--metric", "look*"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote {tmp_path / 'site' / 'index.html'}\n"
    assert [path.name for path in (tmp_path / "site" / "run").iterdir()] == ["run-02"]
