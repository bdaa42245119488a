"""The commands ``view`` and ``site``, as far as they differ from the API below them."""

from __future__ import annotations

from pathlib import Path

import pytest
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


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["view", "--runs", "none"], "none: there is no such folder of runs; name one with --runs\n"),
        (["view", "--host", "0.0.0.0"], "--host 0.0.0.0: the viewer is served only locally; "),
        (["view", "--runs", "https://host/runs"], "https://host/runs: runs and caches can be in a local folder"),
        (["site", "-o", "s3://bucket/site"], "s3://bucket/site: is a URL, but this must be a path on this machine\n"),
        (["site"], "visioneval site: Missing option '--output'"),
        (["site", "-o", "x", "--last", "0"], "visioneval site: --last: 0 is less than 1"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert result.output.startswith(line)
    assert result.output.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
