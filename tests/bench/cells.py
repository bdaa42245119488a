"""``make bench``: the price of a start and of a cell, as figures and ratios of one run.

Not a test: machines are noisy, so nothing here passes or fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

CELLS = (100, 1000)
SUITE = """\
name: bench
cases:
  - {dataset: {path: cases.csv, fields: {id: id, prompt: prompt}}}
models:
  - {provider: mock, params: {size: 512x512}}
graders:
  - {key: file, type: properties}
verdict: [file]
"""


def _seconds(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def _start_up() -> None:
    base = median(_seconds(sys.executable, "-c", "pass") for _ in range(7))
    message = median(_seconds(sys.executable, "-m", "visioneval", "--help") for _ in range(7))
    print(f"start: python -c pass {base:.3f} s, visioneval --help {message:.3f} s, {message / base:.1f} times")


def _run(cells: int, folder: Path) -> tuple[float, float]:
    """Seconds and peak memory in MB of a run in a separate process."""
    (folder / "suite.yaml").write_text(SUITE, encoding="utf-8")
    rows = "".join(f"case{n},image number {n}\n" for n in range(cells))
    (folder / "cases.csv").write_text(f"id,prompt\n{rows}", encoding="utf-8")
    command = [sys.executable, "-m", "visioneval", "run", "suite.yaml", "--quiet"]
    start = time.perf_counter()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"the run ended with status {status}")
    return time.perf_counter() - start, used.ru_maxrss / 1024


def main() -> None:
    """Prints all figures."""
    _start_up()
    before: tuple[int, float] | None = None
    for cells in CELLS:
        with tempfile.TemporaryDirectory() as scratch:
            seconds, memory = _run(cells, Path(scratch))
        growth = f", {seconds / before[1]:.1f} times the time of {before[0]} cells" if before else ""
        print(f"{cells} mock cells: {seconds:.1f} s, {cells / seconds:.0f} a second, {memory:.0f} MB{growth}")
        before = cells, seconds


if __name__ == "__main__":
    main()
