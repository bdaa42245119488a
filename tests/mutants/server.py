"""Runs pytest in forks of a process that has imported the libraries, whose imports take most of the time of a short
run, and nothing of the project.

Reads a request per line (JSON: arguments, environment, the file for the output) in the folder of a copy of the project.
Answers with the id of the fork, which leads a group of processes, and then with its exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
from pathlib import Path

LIBRARIES = (
    "aiohttp",
    "cryptography.hazmat.primitives.asymmetric.rsa",
    "cv2",
    "fsspec.implementations.local",
    "genai_prices",
    "google.genai",
    "httpx2",
    "hypothesis",
    "jinja2.sandbox",
    "jsonschema",
    "numpy",
    "openai",
    "orjson",
    "PIL.Image",
    "pydantic",
    "pytest",
    "rich.console",
    "starlette",
    "typer.testing",
    "uvicorn",
    "xdist",
    "yaml",
)


def main() -> None:
    """Answers requests until there are no more."""
    for name in LIBRARIES:
        importlib.import_module(name)
    assert "visioneval" not in sys.modules
    gc.freeze()
    for line in sys.stdin:
        assert len(list(Path("/proc/self/task").glob("*"))) <= 1, "a fork copies one thread only"
        pid = os.fork()
        if not pid:
            _run(**json.loads(line))
        os.setpgid(pid, pid)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _run(arguments: list[str], environment: dict[str, str], output: str) -> None:
    """Becomes a run of pytest."""
    code: int = 3
    try:
        os.setpgid(0, 0)
        with open(os.devnull, "rb") as empty, open(output, "wb") as stream:  # noqa: PTH123
            for number, file in enumerate((empty, stream, stream)):
                os.dup2(file.fileno(), number)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[:] = ["pytest", *arguments]
        import pytest

        code = int(pytest.main(arguments))
    except BaseException:  # such as a warning of what was not closed, which pytest raises after its last line
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
