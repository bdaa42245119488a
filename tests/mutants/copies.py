"""Copies of the working tree, in which tests run with a bug planted."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.mutants.entries import Mutant
from tests.mutants.observer import REPORT

_OPTIONS = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.mutants.observer")
_WARNINGS = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""The server has imported the plugins of pytest."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """A run of pytest. ``code`` is its exit code, ``None`` after the timeout; ``report`` is the observer's."""

    __test__ = False
    code: int | None
    seconds: float
    report: dict[str, list[dict[str, str]]]
    output: str


def project_files(root: Path) -> list[str]:
    """The files of a checkout that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    return [name for name in names if name and (root / name).is_file()]


def copy_project(root: Path, folder: Path) -> None:
    """Copies the files of a checkout, as they are now, to a new folder."""
    for name in project_files(root):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, folder / name)


@contextlib.contextmanager
def planted(mutant: Mutant, folder: Path) -> Iterator[None]:
    """Plants a bug in a copy, and removes it again. Raises ``EntryError``."""
    path = folder / mutant.file
    text = path.read_bytes() if path.is_file() else b""
    broken = mutant.planted(folder).encode()
    try:
        _write(path, broken)
        yield
    finally:
        _write(path, text)


def _write(path: Path, text: bytes) -> None:
    """Replaces a file. Its compiled form goes too: Python would take it for up to date within the same second."""
    path.write_bytes(text)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


class Copy:
    """A copy of the working tree in a new folder, and the server that runs tests in it. For ``with``."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        self._report, self._output = (folder.with_name(f"{folder.name}.{suffix}") for suffix in ("json", "txt"))
        # The environment's own installation of the package lies behind what PYTHONPATH names, in child processes too.
        self._environment = {**os.environ, "PYTHONPATH": str(folder), REPORT: str(self._report)}
        copy_project(root, folder)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.server"],
            cwd=folder,
            env={**self._environment, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process that runs the tests."""
        self._server.communicate()

    def run(self, tests: Sequence[str], timeout_s: float) -> TestRun:
        """Runs tests until one fails. Neither they nor their child processes outlive the timeout."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._report.unlink(missing_ok=True)
        request = {
            "arguments": [*_OPTIONS, *_WARNINGS, *tests],
            "environment": self._environment,
            "output": str(self._output),
        }
        self._server.stdin.write(json.dumps(request).encode() + b"\n")
        group = int(self._server.stdout.readline())
        start = monotonic()
        is_over = bool(select.select([self._server.stdout], [], [], timeout_s)[0])
        seconds = monotonic() - start
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        code = int(self._server.stdout.readline())
        report = json.loads(self._report.read_text(encoding="utf-8")) if self._report.exists() else {}
        output = self._output.read_text(encoding="utf-8", errors="replace") if self._output.exists() else ""
        return TestRun(code if is_over else None, seconds, report, output)
