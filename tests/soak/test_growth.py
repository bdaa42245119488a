"""Peak memory of ten times the cells."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from toys import Toy

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")


def peak_mb(process: int) -> float:
    """What a process used at most so far; 0 for one that has ended."""
    try:
        result = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0.0
    return int(result[1]) / 1024 if result else 0.0


def peaks(toy: Toy, cells: int) -> tuple[float, float]:
    """Peak memory in MB of a run of so many cells: until its last record is written, and of the whole command."""
    path = toy.write(*[{} for _ in range(cells // 10)], samples=10)
    program = toy.program("run", path, "--trust-suite", "--quiet", "--run-id", str(cells))
    results = toy.folder / "runs" / str(cells) / "results.jsonl"
    seen: list[tuple[float, int]] = []
    while program.poll() is None:
        seen.append((peak_mb(program.pid), results.stat().st_size if results.exists() else 0))
        time.sleep(0.01)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
    data = results.read_bytes()
    assert data.count(b"\n") == cells
    return max(peak for peak, size in seen if size < len(data)), max(peak for peak, _ in seen)


def test_ten_times_the_cells_need_a_tenth_more_memory_at_most(toy: Toy, report: Callable[[str], None]) -> None:
    (few, few_in_all), (many, many_in_all) = peaks(toy, 2000), peaks(toy, 20_000)
    report(
        f"peak memory: generation and grading 2,000 cells {few:.0f} MB, 20,000 cells {many:.0f} MB, {many / few:.2f} times;"
        f" with the summary {few_in_all:.0f} MB and {many_in_all:.0f} MB, {many_in_all / few_in_all:.2f} times"
    )
    assert many / few <= 1.1
    assert many_in_all / few_in_all <= 1.1
