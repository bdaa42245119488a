"""The start of the viewer: what a user can get wrong is one line."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from visioneval import UsageError
from visioneval.cli import app
from visioneval.serve.view import serve


def start(root: Path, *, host: str = "127.0.0.1", port: int | None = None) -> None:
    serve(root, metrics=(), trust=False, host=host, port=port, open_page=False, log=lambda _: None)


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(UsageError, match="use another --port"):
        start(tmp_path, port=other.getsockname()[1])


@pytest.mark.parametrize("host", ["0.0.0.0", "example.org", "10.0.0.1", ""])
def test_a_host_that_is_not_local(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError, match="the viewer is served only locally"):
        start(tmp_path, host=host)


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder of runs; name one with --runs"):
        start(tmp_path / "none")


def test_the_extra_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = CliRunner().invoke(app, ["view", "--runs", str(tmp_path)])
    problem = "the viewer needs starlette and uvicorn: run pip install '.[label]'"
    assert (result.exit_code, result.stderr.startswith(problem)) == (2, True)
