"""The workflow that releases a version: its notes, its rights, and the page that it makes."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
CHANGELOG = """\
# Changelog

## 1.2.3 (2026-11-27)

- New [page](docs/suite.md#cases), [elsewhere](https://example.org/a), [here](#1.2.2).

## 1.2.2

- Old.

## 1.2
"""


def notes(folder: Path, tag: str, version: str) -> subprocess.CompletedProcess[str]:
    (folder / "tests").mkdir()
    script = folder / "tests" / "release_notes.py"
    script.write_bytes((ROOT / "tests" / "release_notes.py").read_bytes())
    (folder / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    environment = {"GITHUB_REPOSITORY": "someone/visioneval"}
    return subprocess.run(
        [sys.executable, str(script), tag], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (
            "1.2.3",
            "- New [page](https://github.com/someone/visioneval/blob/v1.2.3/docs/suite.md#cases),"
            " [elsewhere](https://example.org/a), [here](#1.2.2).\n",
        ),
        ("1.2.2", "- Old.\n"),
    ],
)
def test_the_notes_are_the_section_of_the_version(tmp_path: Path, version: str, text: str) -> None:
    done = notes(tmp_path, f"v{version}", version)
    assert (done.returncode, done.stdout, done.stderr) == (0, text, "")


@pytest.mark.parametrize(
    ("tag", "version", "problem"),
    [
        ("v1.2.4", "1.2.3", "tag v1.2.4: pyproject.toml has version 1.2.3: tag it as v1.2.3, or change the version\n"),
        ("1.2.3", "1.2.3", "tag 1.2.3: pyproject.toml has version 1.2.3: tag it as v1.2.3, or change the version\n"),
        ("v1.2", "1.2", "CHANGELOG.md: nothing under '## 1.2': write what a user notices in this version\n"),
        ("v2.0.0", "2.0.0", "CHANGELOG.md: nothing under '## 2.0.0': write what a user notices in this version\n"),
    ],
)
def test_a_tag_without_a_version_or_notes_is_refused(tmp_path: Path, tag: str, version: str, problem: str) -> None:
    done = notes(tmp_path, tag, version)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", problem)


def test_this_version_has_notes() -> None:
    command = [sys.executable, str(ROOT / "tests" / "release_notes.py"), f"v{VERSION}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_only_a_job_without_commands_has_rights_on_the_index() -> None:
    assert [name for name, job in JOBS.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert JOBS["publish"]["environment"]["name"] == "pypi"
    assert all("run" not in step for step in JOBS["publish"]["steps"])
    assert [(name, job.get("needs")) for name, job in JOBS.items()] == [
        ("build", None),
        ("publish", "build"),
        ("announce", "publish"),
    ]


def test_what_is_published_was_checked_and_ran() -> None:
    commands = [step["run"] for step in JOBS["build"]["steps"] if "run" in step]
    assert commands == ['python tests/release_notes.py "$GITHUB_REF_NAME" > notes.md', "make wheel"]
    kept = [step["with"]["path"] for step in JOBS["build"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert kept == ["dist/", "notes.md"]


def test_the_page_of_the_release_has_the_files_and_the_notes(tmp_path: Path) -> None:
    (command,) = (step["run"] for step in JOBS["announce"]["steps"] if "run" in step)
    (tmp_path / "dist").mkdir()
    for name in ("visioneval-1.2.3.tar.gz", "visioneval-1.2.3-py3-none-any.whl"):
        (tmp_path / "dist" / name).touch()
    gh = tmp_path / "gh"
    gh.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > words\n')
    gh.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GITHUB_REF_NAME": "v1.2.3"}
    subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "words").read_text().splitlines() == [
        "release", "create", "v1.2.3", "dist/visioneval-1.2.3-py3-none-any.whl", "dist/visioneval-1.2.3.tar.gz",
        "--verify-tag", "--title", "visioneval v1.2.3", "--notes-file", "notes.md",
    ]  # fmt: skip


def test_only_a_whole_version_is_released() -> None:
    """A tag that moves, such as v0 of the action, is none. In YAML, the key ``on`` is true."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    (pattern,) = workflow[True]["push"]["tags"]
    assert [fnmatch(tag, pattern) for tag in (f"v{VERSION}", "v0", "v1")] == [True, False, False]
