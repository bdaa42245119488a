"""Peak memory of ten times the cells."""

from __future__ import annotations

import os
from collections.abc import Callable

from toys import Toy


def peak_mb(toy: Toy, cells: int) -> float:
    """Peak memory of a run of so many cells, which must end well."""
    path = toy.write(*[{} for _ in range(cells // 10)], samples=10)
    program = toy.program("run", path, "--trust-suite", "--quiet", "--run-id", str(cells))
    _, status, used = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    _, errors = program.communicate()
    assert program.returncode == 0, errors
    assert (toy.folder / "runs" / str(cells) / "results.jsonl").read_bytes().count(b"\n") == cells
    return used.ru_maxrss / 1024


def test_ten_times_the_cells_need_a_tenth_more_memory_at_most(toy: Toy, told: Callable[[str], None]) -> None:
    few, many = peak_mb(toy, 2000), peak_mb(toy, 20_000)
    told(f"peak memory: 2,000 cells {few:.0f} MB, 20,000 cells {many:.0f} MB, {many / few:.2f} times")
    assert many / few <= 1.1
