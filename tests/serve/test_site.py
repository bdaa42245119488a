"""All runs as static files: links, updates, and folders that are refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest
from record_factory import generated_png
from typer.testing import CliRunner
from viewed_runs import begun_run, viewed_run

from visioneval.cli import app


def write(runs: Path, target: Path, *options: str) -> tuple[str, list[str]]:
    """The index of the site, and what was logged. Raises ``AssertionError`` with the message of a command that failed."""
    result = CliRunner().invoke(app, ["site", "--runs", str(runs), "-o", str(target), *options])
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"wrote {target / 'index.html'}\n"
    return (target / "index.html").read_text(), result.stderr.splitlines()


def missing_links(site: Path) -> list[str]:
    """Links and files of all pages that are not in the site."""
    missing = []
    for page in site.rglob("*.html"):
        for address in re.findall(r'(?:href|src)="([^"#]+)"', page.read_text()):
            if address.startswith("data:"):
                continue
            target = (page.parent / unquote(address)).resolve()
            if not target.is_file() or not target.is_relative_to(site.resolve()):
                missing.append(f"{page.name}: {address}")
    return missing


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site") / "runs"
    for run_id, passes in (("run-01", True), ("run-02", False), ("run-03", True)):
        viewed_run(root, run_id, passes=passes)
    viewed_run(root, "odd-04", experiment=None)
    return root


def test_all_links_lead_to_files_of_the_site(runs: Path, tmp_path: Path) -> None:
    index, log = write(runs, tmp_path / "site")
    assert log == []
    assert missing_links(tmp_path / "site") == []
    assert sorted(path.name for path in (tmp_path / "site" / "compare").iterdir()) == ["run-02.html", "run-03.html"]
    assert "<title>run-01 &rarr; run-02</title>" in (tmp_path / "site" / "compare" / "run-02.html").read_text()
    assert "Pass rate over 3 runs" in index
    for part in ("<form", "<script", "label/", "checkbox"):
        assert part not in index
    assert "script-src &#39;none&#39;" in index
    report = (tmp_path / "site" / "run" / "run-02" / "index.html").read_text()
    assert 'href="../../index.html"' in report
    assert "live.js" not in report
    outputs = list((tmp_path / "site" / "run" / "run-02" / "images").iterdir())
    assert len(outputs) == 2


def test_a_site_is_updated(runs: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(runs, tmp_path / "runs")
    write(copied, tmp_path / "site")
    output = next((tmp_path / "site" / "run" / "run-02" / "images").iterdir())
    written = output.stat().st_mtime_ns
    shutil.rmtree(copied / "run-01")
    viewed_run(copied, "run-05")
    index, _ = write(copied, tmp_path / "site")
    names = sorted(path.name for path in (tmp_path / "site" / "run").iterdir())
    assert names == ["odd-04", "run-02", "run-03", "run-05"]
    assert sorted(path.name for path in (tmp_path / "site" / "compare").iterdir()) == ["run-03.html", "run-05.html"]
    assert "run-01" not in index
    assert missing_links(tmp_path / "site") == []
    assert output.stat().st_mtime_ns == written


def test_runs_are_chosen(runs: Path, tmp_path: Path) -> None:
    write(runs, tmp_path / "site", "--experiment", "nightly", "--last", "2")
    assert sorted(path.name for path in (tmp_path / "site" / "run").iterdir()) == ["run-02", "run-03"]
    assert [path.name for path in (tmp_path / "site" / "compare").iterdir()] == ["run-03.html"]


def test_a_run_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    viewed_run(root, "run-01")
    broken = viewed_run(root, "run-02")
    (broken / "results.jsonl").write_text("{}\n")
    hostile = viewed_run(root, "run-03", note="<script>alert(1)</script>")
    (tmp_path / "secret.png").write_bytes(generated_png("red"))
    output = next(hostile.rglob("*.png"))
    output.unlink()
    output.symlink_to(tmp_path / "secret.png")
    index, log = write(root, tmp_path / "site")
    assert "results.jsonl:1" in index
    assert [line.partition(":")[0] for line in log] == ["skipped"]
    assert "<script" not in index
    assert len(list((tmp_path / "site" / "run" / "run-03" / "images").iterdir())) == 1
    assert missing_links(tmp_path / "site") == []


def test_a_run_that_goes_on_is_not_shown_as_passed(tmp_path: Path) -> None:
    writer = begun_run(tmp_path / "runs", "run-01")
    index, _ = write(tmp_path / "runs", tmp_path / "site")
    writer.close()
    assert "Running" in index
    assert 'class="outcome-text pass"' not in index
    report = (tmp_path / "site" / "run" / "run-01" / "index.html").read_text()
    assert "Still running" in report
    assert 'class="headline pass"' not in report


def test_other_folders_are_refused(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "full")
    for target, reason in (
        (tmp_path / "full", "not part of a site"),
        (tmp_path / "full" / "mine.txt", "is a file"),
        (tmp_path / "full" / "mine.txt" / "below", "cannot write"),
        (tmp_path / "linked", "not part of a site"),
    ):
        with pytest.raises(AssertionError, match=reason):
            write(runs, target)
    write(runs, tmp_path / "site", "--last", "1")
    shutil.rmtree(tmp_path / "site" / "compare")
    (tmp_path / "site" / "compare").symlink_to(tmp_path / "full")
    with pytest.raises(AssertionError, match="symbolic link"):
        write(runs, tmp_path / "site")
    assert (tmp_path / "full" / "mine.txt").exists()


@pytest.mark.parametrize("options", [[], ["--experiment", "other"]])
def test_no_runs_are_no_site(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(AssertionError, match="no runs here"):
        write(tmp_path / "runs", tmp_path / "site", *options)
    assert not (tmp_path / "site").exists()
