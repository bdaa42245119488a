"""``make bench``: a run of the engine beside the floor, on the same fake API, in separate processes.

python -m tests.bench.engine [--repeats 3] [W1 W2 W3 growth replay start]
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent.parent
SUITE = """\
name: bench
judges:
  eye: {{provider: openai, model: gpt-5.4, base_url: "{url}", api_key_env: BENCH_KEY}}
cases:
  - {{dataset: {{path: cases.csv, fields: {{id: id, prompt: prompt}}}}}}
models:
  - {{provider: openai, base_url: "{url}", api_key_env: BENCH_KEY, params: {{model: gpt-image-2}}, grid: {{user: {users}}}}}
graders:
  - key: eye
    type: rubric
    judge: eye
    metrics: {{quality: {{type: score, scale: [0, 5], description: How good is this image?, anchors: {{5: good, 0: bad}}}}}}
verdict: [quality >= 0]
"""


@dataclass(frozen=True)
class Load:
    """So many cases and model runs, so many at once, images of so many kilobytes; seconds that an answer takes."""

    cases: int
    at_once: int
    generate_s: float
    judge_s: float
    kilobytes: int
    runs: int = 1

    @property
    def cells(self) -> int:
        """The number of their cells."""
        return self.cases * self.runs


LOADS = {
    "W1": Load(200, 64, 0.2, 0.1, 60),
    "W2": Load(2000, 64, 0.05, 0.05, 60),
    "W3": Load(300, 32, 0.2, 0.1, 1500),
}


@dataclass(frozen=True)
class Used:
    """Wall seconds, CPU seconds and peak memory in MB of a process."""

    seconds: float
    cpu: float
    memory: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu:.1f} s of CPU, {self.memory:.0f} MB"


@contextmanager
def served(load: Load) -> Iterator[tuple[str, str]]:
    """The fake API in a separate process: its URL and key."""
    command = [sys.executable, "-m", "fake_api", "--images", str(load.generate_s), "--judge", str(load.judge_s)]
    command += ["--image-kb", str(load.kilobytes)]
    with subprocess.Popen(
        command, cwd=ROOT / "tests", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        message = json.loads(server.stdout.readline())
        yield message["openai_base_url"], message["key"]
        server.communicate()


def measured(command: Sequence[str], cwd: Path, **environment: str) -> Used:
    """Runs a command to its end, which must be a good one."""
    start = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    child = subprocess.Popen(command, cwd=cwd, env={**os.environ, "PYTHONPATH": paths, **environment}, **quiet)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return Used(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def floor(load: Load, url: str, key: str, folder: Path) -> Used:
    """The plain loop."""
    words = [url, key, str(load.cells), str(load.at_once), str(folder)]
    return measured([sys.executable, "-m", "tests.bench.floor", *words], ROOT)


@contextmanager
def new_folders() -> Iterator[Iterator[Path]]:
    """Empty folders, which are deleted at the end only: for half a minute after thousands of files were deleted, ext4
    takes up to ten times as long for a new folder, as it leaves their inodes alone."""
    with tempfile.TemporaryDirectory() as top:
        yield (Path(tempfile.mkdtemp(dir=top)) for _ in count())


def engine(load: Load, url: str, key: str, folder: Path, *flags: str) -> Used:
    """A run with everything on. Judge answers are not reused: the fake API generates few different images."""
    users = [f"user{n}" for n in range(load.runs)]
    (folder / "suite.yaml").write_text(SUITE.format(url=url, users=json.dumps(users)), encoding="utf-8")
    rows = "".join(f"case{n},image number {n}\n" for n in range(load.cases))
    (folder / "cases.csv").write_text(f"id,prompt\n{rows}", encoding="utf-8")
    command = [sys.executable, "-m", "visioneval", "run", "suite.yaml", "--trust-suite", "--quiet", "--cache", "cache"]
    command += ["--max-concurrency", str(load.at_once), *(flags or ("--reuse", "none"))]
    return measured(command, folder, BENCH_KEY=key)


def beside_the_floor(name: str, repeats: int) -> None:
    """One load: medians of both, and their ratio."""
    load = LOADS[name]
    floors, engines = [], []
    with new_folders() as folders:
        for _ in range(repeats):
            with served(load) as (url, key):
                floors.append(floor(load, url, key, next(folders)))
                engines.append(engine(load, url, key, next(folders)))
    low, ours = (sorted(item, key=lambda used: used.seconds)[len(item) // 2] for item in (floors, engines))
    print(
        f"{name}: {load.cells} cells, {load.at_once} at once, {load.kilobytes} KB: floor {low}; visioneval {ours}:"
        f" {ours.seconds / low.seconds:.2f} of the time, {ours.memory - low.memory:+.0f} MB",
        flush=True,
    )


def growth() -> None:
    """CPU per cell and memory of ten times the cells: as ten times the model runs, and as ten times the cases."""
    loads = {
        "2,000 cells": Load(2000, 64, 0.0, 0.0, 60),
        "20,000 cells, ten model runs": Load(2000, 64, 0.0, 0.0, 60, runs=10),
        "20,000 cells, ten times the cases": Load(20_000, 64, 0.0, 0.0, 60),
    }
    message: list[tuple[float, float]] = []
    for name, load in loads.items():
        with served(load) as (url, key), tempfile.TemporaryDirectory() as folder:
            used = engine(load, url, key, Path(folder))
        message.append((used.cpu / load.cells, used.memory))
        cpu, memory = message[-1][0] / message[0][0], message[-1][1] / message[0][1]
        print(
            f"growth: {name}: {1000 * message[-1][0]:.2f} ms of CPU a cell ({cpu:.2f}), {used.memory:.0f} MB ({memory:.2f})",
            flush=True,
        )


def replay() -> None:
    """2,000 fully cached cells against one: the difference is the time of the cells themselves."""
    load = Load(2000, 64, 0.0, 0.0, 60)
    with served(load) as (url, key), tempfile.TemporaryDirectory() as folder:
        engine(load, url, key, Path(folder), "--reuse", "judges")
        whole = [engine(load, url, key, Path(folder), "--offline").seconds for _ in range(3)]
        single = [engine(load, url, key, Path(folder), "--offline", "--limit", "1").seconds for _ in range(3)]
    rest = median(whole) - median(single)
    print(f"replay: 2000 cells {median(whole):.2f} s, 1 cell {median(single):.2f} s: {1999 / rest:.0f} cells a second")


def start() -> None:
    """The start-up time, compared with Python's."""
    load = Load(1, 1, 0.0, 0.0, 60)
    with served(load) as (url, key), tempfile.TemporaryDirectory() as folder:
        engine(load, url, key, Path(folder), "--reuse", "judges")
        single = median(engine(load, url, key, Path(folder), "--offline").seconds for _ in range(5))
    base = median(measured([sys.executable, "-c", "pass"], ROOT).seconds for _ in range(5))
    message = median(measured([sys.executable, "-m", "visioneval", "--help"], ROOT).seconds for _ in range(5))
    print(
        f"start: python {base:.3f} s; --help {message:.2f} s ({message / base:.0f} times); a cached cell {single:.2f} s ({single / base:.0f} times)"
    )


def main() -> None:
    """Measures what is named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    compileall.compile_dir(ROOT / "visioneval", quiet=1)  # as an installed package is
    others = {"growth": growth, "replay": replay, "start": start}
    for name in options.what or [*LOADS, *others]:
        if name in LOADS:
            beside_the_floor(name, options.repeats)
        else:
            others[name]()


if __name__ == "__main__":
    main()
