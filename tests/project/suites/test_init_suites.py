"""The suites that ``init`` writes run unchanged, and the quickstart tests the graders with every flaw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from visioneval import Verdict, read_records
from visioneval.cli import app
from visioneval.cli.start import MODELINE, SCHEMA_FILE
from visioneval.installation import suite_folders
from visioneval.settings import SUITE_FILE
from visioneval.suite.model import json_schema

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("reduced_readings", "session_measures")]


NEEDS_NO_KEY = ("editing", "gecko_offline", "generation", "quickstart", "videos")


@pytest.mark.parametrize("template", NEEDS_NO_KEY[:-1])  # test_video_suite runs the last one
def test_init_suites_run_and_pass(template: str, tmp_path: Path) -> None:
    runner = CliRunner()
    created = runner.invoke(app, ["init", str(tmp_path / "own"), "--template", template])
    assert created.exit_code == 0, created.output
    suite = str(tmp_path / "own" / "suite.yaml")
    assert runner.invoke(app, ["validate", suite]).exit_code == 0
    done = runner.invoke(app, ["run", suite, "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "runs").iterdir()
    verdicts: dict[str, list[Verdict]] = {}
    for record in read_records(folder):
        verdicts.setdefault(record.model_label, []).append(record.verdict)
    assert not any(Verdict.ERROR in of_run for of_run in verdicts.values())
    if template == "quickstart":
        assert set(verdicts.pop("mock,flaw=none")) == {Verdict.PASS}
        assert all(Verdict.FAIL in of_run for of_run in verdicts.values()), "a flaw that nobody caught"
        assert len(verdicts) == 7


def test_the_quickstart_fails_when_a_grader_misses_flaws(tmp_path: Path) -> None:
    runner = CliRunner()
    runner.invoke(app, ["init", str(tmp_path)])
    suite = tmp_path / "suite.yaml"
    suite.write_text(suite.read_text(encoding="utf-8").replace("  - place\n", "", 1), encoding="utf-8")
    done = runner.invoke(app, ["run", str(suite), "--case", "sign_word", "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 1, "spill and drift pass when nobody looks at the place"


@pytest.mark.parametrize("template", suite_folders())
def test_init_writes_any_shipped_suite_whole(template: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", str(tmp_path / "own"), "--template", template])
    assert done.exit_code == 0, done.output
    source, target = suite_folders()[template], tmp_path / "own"
    names = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    assert {path.relative_to(target) for path in target.rglob("*") if path.is_file()} == {*names, SCHEMA_FILE}
    others = names - {SUITE_FILE}
    assert all((target / name).read_bytes() == (source / name).read_bytes() for name in others)
    assert (target / SUITE_FILE).read_bytes() == MODELINE + (source / SUITE_FILE).read_bytes()
    assert json.loads((target / SCHEMA_FILE).read_bytes()) == json_schema()
    checked = CliRunner().invoke(app, ["validate", str(target / "suite.yaml")])
    assert checked.exit_code == 0 or "outputs that do not exist: videos/" in checked.output, checked.output


def test_the_list_has_a_line_for_each_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["init", "--list"])
    assert done.exit_code == 0
    lines = {line.split()[0]: line for line in done.output.splitlines()}
    assert lines.keys() == suite_folders().keys()
    assert {name for name, line in lines.items() if line.endswith("Needs no key.")} == set(NEEDS_NO_KEY)
    assert "Masked logo edits" in lines["logo_edits"]
    assert lines["logo_edits"].endswith("Needs GEMINI_API_KEY and OPENAI_API_KEY.")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x", "--template", "markting"], "--template markting: there is no such template (did you mean 'marketing'?)"),
        (["x", "--template", "gecko_images/../quickstart"], "there is no such template"),
        (["x", "--template", ""], "there is no such template"),
        (["--list", "--template", "editing"], "--list writes nothing: leave out --template and --ci"),
        (["--list", "--ci", "github"], "--list writes nothing: leave out --template and --ci"),
        (["file/own"], "file/own: cannot write: Not a directory; nothing was written"),
        (["file"], "file: cannot write: Not a directory; nothing was written"),
    ],
)
def test_invalid_requests_end_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    done = CliRunner().invoke(app, ["init", *arguments])
    assert done.exit_code == 2
    assert message in done.output
    assert len(done.output.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "word.png").write_text("mine")
    done = CliRunner().invoke(app, ["init", str(tmp_path), "--template", "logo_edits"])
    assert done.exit_code == 2
    assert "assets/word.png: already exists; nothing was written" in done.output
    assert [path.name for path in tmp_path.rglob("*")] == ["assets", "word.png"]


def test_a_failed_write_leaves_no_part_of_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def disk_full(target: Path, data: bytes) -> int:
        if target.name == "suite.yaml":
            raise OSError(28, "No space left on device")
        return write(target, data)

    monkeypatch.setattr(Path, "write_bytes", disk_full)
    done = CliRunner().invoke(app, ["init", str(tmp_path / "own"), "--template", "editing"])
    assert done.exit_code == 2
    assert "cannot write: No space left on device; nothing was written" in done.output
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
