"""docs/examples/image_server.py as a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def image_server(folder: Path, model: str) -> Iterator[str]:
    """Starts the copy in ``folder``; yields its URL, which ends in ``/v1``."""
    program = [sys.executable, str(folder / "image_server.py"), model, "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
        try:
            assert server.stdout is not None
            yield re.findall(r"http:\S+", server.stdout.readline())[0]
        finally:
            server.terminate()
