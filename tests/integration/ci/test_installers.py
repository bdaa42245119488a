"""pip, uv and pipx install the built wheel from an index and from its other sources, and a message about a missing extra
names a line that installs it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from machine import ADDRESS, ROOT, Machine

MISSING = re.compile(
    r"warning: reading text needs RapidOCR: run (?:visioneval as )?(.*?)"
    r"(?:, from the index or folder that visioneval came from|( in a checkout of visioneval))?\n"
)
FIRST = Path("first", "suite.yaml")


class _Index(SimpleHTTPRequestHandler):
    """A package index (PEP 503) with one project. The index that pip is configured with has all others."""

    def __init__(self, *arguments: object, others: str, **options: object) -> None:
        self._others = others
        super().__init__(*arguments, **options)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        project = self.path.removeprefix("/simple/").strip("/")
        if self.path.startswith("/simple/") and project.partition("/")[0] != "visioneval":
            self.send_response(302)
            self.send_header("Location", f"{self._others}/{project}/")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *arguments: object) -> None:
        """Prints nothing."""


@dataclass
class Computer:
    """A folder with a home and a suite, and commands that install from the index."""

    folder: Path
    environment: Mapping[str, str]

    def call(self, command: str, folder: Path | None = None) -> str:
        """What a line of the shell prints. Raises ``AssertionError`` if it fails."""
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder or self.folder, env=self.environment, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def _configured_index() -> str:
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (os.environ.get("PIP_INDEX_URL") or done.stdout.strip() or "https://pypi.org/simple").rstrip("/")


@pytest.fixture(scope="module")
def index(released: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("index")
    project = folder / "simple" / "visioneval"
    project.mkdir(parents=True)
    shutil.copyfile(released[1], project / released[1].name)
    handler = partial(_Index, directory=str(folder), others=_configured_index())
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """uv's cache: what one test downloads is there for the others."""
    return tmp_path_factory.mktemp("uv")


@pytest.fixture
def computer(machine: Machine, index: str, downloads: Path, tmp_path: Path) -> Computer:
    environment = {
        **machine.environment,
        "HOME": str(tmp_path / "home"),
        "PATH": f"{tmp_path / 'venv' / 'bin'}:{tmp_path / 'home/.local/bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_INDEX_URL": index,
        "UV_DEFAULT_INDEX": index,
        "UV_CACHE_DIR": str(downloads),
        "UV_PYTHON_DOWNLOADS": "never",
        "VIRTUAL_ENV": str(tmp_path / "venv"),
        "COLUMNS": "200",
    }
    return Computer(tmp_path, environment)


GIT = f"git+{ADDRESS}@COMMIT"
WITHOUT_PIP = "uv venv --quiet --clear venv && uv pip install"


@pytest.mark.parametrize(
    ("install", "visioneval", "line"),
    [
        ("python -m venv venv && uv pip install visioneval", "visioneval", "pip install 'visioneval[ocr]'"),
        (f"{WITHOUT_PIP} 'visioneval @ WHEEL'", "visioneval", "uv pip install 'visioneval[ocr] @ WHEEL'"),
        (f"{WITHOUT_PIP} -e CHECKOUT", "visioneval", "uv pip install -e '.[ocr]'"),
        ("uv tool install 'visioneval[svg]'", "visioneval", "uv tool install 'visioneval[ocr,svg]'"),
        (f"uv tool install 'visioneval @ {GIT}'", "visioneval", f"uv tool install 'visioneval[ocr] @ {GIT}'"),
        ("pipx install 'visioneval[svg]'", "visioneval", "pipx install --force 'visioneval[ocr,svg]'"),
        ("", "uvx visioneval", "uvx --from 'visioneval[ocr]' visioneval"),
    ],
)  # fmt: skip
def test_the_line_of_the_message_installs_the_extra(
    computer: Computer, machine: Machine, released: tuple[Path, Path], install: str, visioneval: str, line: str
) -> None:
    checkout = machine.folder / "checkout"
    if not checkout.exists():
        machine.clone(machine.folder / "source", checkout)
    names = {"COMMIT": machine.commit, "WHEEL": released[1].as_uri(), "CHECKOUT": str(checkout)}

    def filled(text: str) -> str:
        return re.sub("|".join(names), lambda match: names[match[0]], text)

    machine.visioneval(computer.folder, "init", str(FIRST.parent))
    if install:
        computer.call(filled(install))
    match = MISSING.search(computer.call(f"{filled(visioneval)} validate {FIRST}"))
    assert match is not None
    assert match[1] == filled(line)
    if install:
        computer.call(match[1], checkout if match[2] else None)
    checked = computer.call(f"{visioneval if install else match[1]} validate {FIRST}")
    assert f"{FIRST}: valid: " in checked
    assert "warning" not in checked


PAGE = (ROOT / "docs" / "how_to" / "install.md").read_text(encoding="utf-8")


LINES = re.findall(r"^(\S.*?) +# today$", PAGE, re.MULTILINE)
PUBLISHED = [line.replace(" @ git+https://github.com/OWNER/visioneval", "") for line in LINES]
"""What the page says about the time when the name is published."""


@pytest.mark.parametrize("line", [*LINES, *PUBLISHED])
def test_the_lines_of_the_page_work(computer: Computer, line: str) -> None:
    computer.call("uv venv --quiet venv")
    command = line.replace("https://github.com/OWNER/visioneval", ADDRESS)
    printed = computer.call(re.sub(r"^pip ", "uv pip ", command))  # uv is faster
    if line.endswith("visioneval --version"):
        assert "visioneval 0." in printed
    else:
        path, version = computer.call("command -v visioneval && visioneval --version").splitlines()
        assert path.startswith(str(computer.folder))
        assert version.startswith("visioneval 0.")


@pytest.mark.parametrize("command", ["uvx", "pipx run"])
def test_a_suite_runs_from_the_index(computer: Computer, command: str) -> None:
    computer.call(f"{command} visioneval init second")
    options = "--model '*none' --grader place --grader file"
    assert "3 PASS" in computer.call(f"{command} visioneval run second/suite.yaml {options}")
