"""Starts ``visioneval`` in processes that are forked from one that has imported it, as its imports take most of the time
of a short run. Kills, signals, pipes, limits and exit codes are those of any process.

The server has no threads, imports but starts nothing, and gives each fork its own arguments, environment and folder.
Tests of imports, of interpreters or of shells start a process of their own.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType

COMMAND = "import runpy; runpy.run_module('visioneval', run_name='__main__', alter_sys=True)"
IMPORTS = (
    "visioneval.api.runs",
    "visioneval.cli.run",
    "visioneval.running.runner",
    "visioneval.graders.properties.grader",
    "visioneval.graders.rubric.grader",
    "visioneval.providers.gemini.generator",
    "visioneval.providers.gemini.generator",
    "visioneval.providers.openai.generator",
    "visioneval.providers.openai.judge",
)
_NUMBER = struct.Struct("i")


class ForkedProgram:
    """``python -m visioneval *arguments`` with the methods of ``subprocess.Popen``.

    ``code`` runs instead of the command, ``environment`` is added to this process's, and with ``is_merged`` errors come
    with the output.
    """

    def __init__(
        self,
        *arguments: str | Path,
        cwd: str | Path = ".",
        environment: Mapping[str, str] = MappingProxyType({}),
        code: str = COMMAND,
        is_merged: bool = False,
    ) -> None:
        self.returncode: int | None = None
        self._status, status = socket.socketpair()
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        self.stdout, self.stderr = os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8")
        request = {
            "arguments": [*map(str, arguments)],
            "cwd": str(Path(cwd).absolute()),
            "environment": {**os.environ, "PYTHONPATH": _python_path(), **environment},
            "code": code,
        }
        with status, Path(os.devnull).open("rb") as empty:
            files = [empty.fileno(), to_out, to_out if is_merged else to_err, status.fileno()]
            socket.send_fds(_server(), [json.dumps(request).encode() + b"\n"], files)
        os.close(to_out)
        os.close(to_err)
        self.pid = self._received()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            with self._status:
                self.returncode = self._received()
        return self.returncode

    def _received(self) -> int:
        """The next number from the server: the id of the process, then its exit code."""
        return int(_NUMBER.unpack(self._status.recv(_NUMBER.size))[0])

    def communicate(self, timeout: float) -> tuple[str, str]:
        """The rest of its output and errors, once it has ended."""
        with self.stdout, self.stderr, ThreadPoolExecutor(2) as threads:
            texts = [threads.submit(stream.read) for stream in (self.stdout, self.stderr)]
            if self.returncode is None and not select.select([self._status], [], [], timeout)[0]:
                self.kill()
                raise TimeoutError(f"process {self.pid} still ran after {timeout:g} s")
            self.poll()
            return texts[0].result(), texts[1].result()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _python_path() -> str:
    return os.pathsep.join(filter(None, sys.path))


@cache
def _server() -> socket.socket:
    """The connection to the server, which ends with it."""
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": _python_path(), "OPENBLAS_NUM_THREADS": "1"}
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno())]
        server = subprocess.Popen(
            command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> str | None:
    """Forks a process for each request, until there are no more; in each, returns the code to run."""
    statuses: dict[int, socket.socket] = {}
    while True:
        ready = select.select([requests], [], [], 0.01 if statuses else None)[0]
        for pid in [pid for pid in statuses if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)]:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with statuses.pop(pid) as status:
                status.sendall(_NUMBER.pack(code))
        if not ready:
            continue
        text, files, *_ = socket.recv_fds(requests, 1 << 20, 4)
        if not text:
            return None
        while not text.endswith(b"\n"):
            text += requests.recv(1 << 20)
        assert len(list(Path("/proc/self/task").glob("*"))) <= 1, "a fork copies one thread only"
        pid = os.fork()
        if not pid:
            requests.close()
            return _become(json.loads(text), files)
        for file in files[:3]:
            os.close(file)
        statuses[pid] = socket.socket(fileno=files[3])
        statuses[pid].sendall(_NUMBER.pack(pid))


def _become(request: dict[str, object], files: list[int]) -> str:
    """Takes on the streams, folder and environment of a request, as a new interpreter would; returns its code."""
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, max(files) + 1)
    sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["cwd"])
    paths = request["environment"]["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = [request["cwd"], *paths, *(path for path in sys.path if path not in paths)]
    sys.argv[:] = ["visioneval", *request["arguments"]]
    sys.modules["__main__"] = ModuleType("__main__")
    return request["code"]


if __name__ == "__main__":
    channel = socket.socket(fileno=int(sys.argv[1]))
    for name in IMPORTS:
        importlib.import_module(name)
    gc.freeze()
    code = _serve(channel)
    if code is not None:
        exec(code, sys.modules["__main__"].__dict__)
