"""The package of docs/extending.md is built, installed and run as the page says, in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8").partition("\n## A package\n")[2]
FILE = re.compile(r"^`(acme_brand/[\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^\$ (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in FILE.findall(PAGE):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def command(folder: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder.parent / "site", ROOT)))}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_package_of_the_page_builds_installs_and_runs(folder: Path) -> None:
    enter, install, listing, run = COMMANDS.findall(PAGE)
    folder = folder / enter.removeprefix("cd ")
    assert install == "pip install ."
    command(folder, "build", "--wheel", "--outdir", "..", ".")
    (wheel,) = folder.parent.glob("*.whl")
    command(folder, "pip", "install", "--no-index", "--no-deps", "--target", "../site", str(wheel))
    assert f"```\n{command(folder, *listing.split())}```" in PAGE
    command(folder, *run.split())
    (results,) = (folder / "runs").glob("*/results.jsonl")
    assert '"brand.share"' in results.read_text(encoding="utf-8")
