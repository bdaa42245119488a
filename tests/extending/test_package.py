"""The package of docs/how_to/write_a_grader.md is built, installed and run as the page says, in processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_page import DOCS, EXAMPLE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SECTION = DOCS.partition("\n## Install it as a plug-in\n")[2]
COMMANDS = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)[0].splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, and beside it a folder for suites of others."""
    folder = tmp_path_factory.mktemp("page") / "acme_circles"
    shutil.copytree(EXAMPLE, folder)
    (folder.parent / "suites").mkdir()
    return folder


def command(folder: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder.parent / "site", ROOT)))}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_package_of_the_page_builds_installs_and_runs_without_trust(folder: Path) -> None:
    install, listing = COMMANDS
    assert install == "pip install ."
    command(folder, "build", "--wheel", "--outdir", "..", ".")
    (wheel,) = folder.parent.glob("*.whl")
    command(folder, "pip", "install", "--no-index", "--no-deps", "--target", "../site", str(wheel))
    suites = folder.parent / "suites"
    assert f"```text\n{command(suites, *listing.split())}```" in SECTION
    text = (folder / "suite.yaml").read_text(encoding="utf-8")
    project = (folder / "pyproject.toml").read_text(encoding="utf-8")
    for kind, name in re.findall(r'^(\w+) = "acme_circles:(\w+)"$', project, re.MULTILINE):
        assert f'"acme_circles:{name}"' in text
        text = text.replace(f'"acme_circles:{name}"', kind)
    (suites / "suite.yaml").write_text(text, encoding="utf-8")
    command(suites, "visioneval", "run", "suite.yaml")
    (results,) = (suites / "runs").glob("*/results.jsonl")
    assert '"count.counted":3' in results.read_text(encoding="utf-8").replace(" ", "")
