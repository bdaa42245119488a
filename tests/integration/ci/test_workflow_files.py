"""The action and every workflow, written by ``init --ci`` or of this project, is valid by its schema and passes zizmor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from visioneval.cli.workflows import WORKFLOWS, Ci

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".github" / "workflows"
ACTION = ROOT / "action.yml"
GITHUB = [WORKFLOWS[Ci.github][0], *sorted(FOLDER.glob("*.yml"))]


def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a tool of this environment. Skips the test without it: ``make integration`` installs it."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        pytest.skip(f"{name} is not installed: make integration")
    return subprocess.run([str(path), *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_this_project_has_workflows() -> None:
    assert {path.name for path in GITHUB} == {"github.yml", "ci.yml", "monthly.yml", "release.yml"}


def test_workflows_of_github_match_its_schema() -> None:
    done = tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, GITHUB))
    assert done.returncode == 0, done.stdout


def test_the_action_matches_the_schema_of_actions() -> None:
    done = tool("check-jsonschema", "--builtin-schema", "vendor.github-actions", str(ACTION))
    assert done.returncode == 0, done.stdout


def test_zizmor_finds_nothing_in_the_action() -> None:
    done = tool("zizmor", "--offline", "--no-progress", str(ACTION))
    assert done.returncode == 0, done.stdout
    assert "No findings to report" in done.stdout


def test_the_tools_find_mistakes_in_an_action(tmp_path: Path) -> None:
    copy = tmp_path / "action.yml"
    text = ACTION.read_text(encoding="utf-8")
    copy.write_text(text.replace('"$GITHUB_ACTION_PATH${EXTRAS:+[$EXTRAS]}"', "visioneval[${{ inputs.extras }}]"))
    assert "template-injection" in tool("zizmor", "--offline", "--no-progress", str(copy)).stdout
    copy.write_text(text.replace("using: composite", "using: composit"))
    assert tool("check-jsonschema", "--builtin-schema", "vendor.github-actions", str(copy)).returncode == 1


def test_the_pipeline_of_gitlab_matches_its_schema() -> None:
    options = ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci")
    done = tool("check-jsonschema", *options, str(WORKFLOWS[Ci.gitlab][0]))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_zizmor_finds_nothing(path: Path, tmp_path: Path) -> None:
    """A copy where GitHub reads it, as zizmor takes other files for actions."""
    copy = tmp_path / ".github" / "workflows" / path.name
    copy.parent.mkdir(parents=True)
    text = path.read_text(encoding="utf-8")
    copy.write_text(text.replace("OWNER/visioneval@v0", f"owner/visioneval@{'0123456789' * 4}"), encoding="utf-8")
    done = tool("zizmor", "--offline", "--no-progress", str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "No findings to report" in done.stdout


def test_the_tools_find_mistakes(tmp_path: Path) -> None:
    copy = tmp_path / ".github" / "workflows" / "visioneval.yml"
    copy.parent.mkdir(parents=True)
    text = WORKFLOWS[Ci.github][0].read_text(encoding="utf-8")
    copy.write_text(text.replace("{persist-credentials: false}", "{}").replace("concurrency", "concurency"))
    assert tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(copy)).returncode == 1
    assert "artipacked" in tool("zizmor", "--offline", "--no-progress", str(tmp_path)).stdout
