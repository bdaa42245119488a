"""The wheel contains the suites and the prompts, and runs outside the tree. ``make wheel`` tests it with pip only."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel, and nothing of the checkout."""
    scratch = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(scratch), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch / "site")
    return scratch / "site"


def visioneval(installed: Path, folder: Path, *arguments: str) -> str:
    # what the first command compiles is there for the others
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-m", "visioneval", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_the_package_and_its_files_are_in_it(installed: Path) -> None:
    tops = {path.name for path in installed.iterdir()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"visioneval"}
    assert (installed / "visioneval" / "_builtin" / "suites" / "quickstart" / "assets" / "storefront.png").is_file()
    assert (installed / "visioneval" / "cli" / "github.yml").is_file()
    assert (installed / "visioneval" / "_builtin" / "prompts" / "judge" / "rubric.md.j2").is_file()
    assert (installed / "visioneval" / "report" / "html" / "page" / "page.css").is_file()
    assert list(installed.glob("*.dist-info/licenses/LICENSE"))


def test_it_runs_outside_the_tree(installed: Path, tmp_path: Path) -> None:
    where = [sys.executable, "-c", "import visioneval; print(visioneval.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    result = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert Path(result.stdout.strip()).is_relative_to(installed)
    names = [line.split()[0] for line in visioneval(installed, tmp_path, "init", "--list").splitlines()]
    assert names == sorted(path.parent.name for path in ROOT.glob("suites/*/suite.yaml"))
    assert "shop/assets/person.png" in visioneval(installed, tmp_path, "init", "shop", "--template", "try_on")
    assert "wrote" in visioneval(installed, tmp_path, "init", "first", "--template", "editing")
    message = visioneval(installed, tmp_path, "run", "first/suite.yaml", "--model", "*none", "--grader", "place")
    assert "3 PASS" in message
    assert "index.html" in visioneval(installed, tmp_path, "report", "latest")
