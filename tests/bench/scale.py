"""``make bench-scale``: OCR on two one-core workers of a Ray cluster beside one two-core process, and a run of one cell.

The time of one cell is subtracted from that of all, so the rates are without the start of workers and models; the last
line tells of that. The two take turns; medians, because machines are noisy.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from tests.bench.measured import LINES, poster
from visioneval.api.options import run_options
from visioneval.api.running import run_planned
from visioneval.running.cells.services import Listener
from visioneval.running.prepare import PreparedRun, RunOptions, plan_runs

CELLS, REPEATS, WORKERS = 80, 3, 2


def write(folder: Path) -> None:
    """A suite that reads the text of ``CELLS`` different posters."""
    base = poster()
    for number in range(CELLS):
        base.putpixel((number, 1023), (255, 0, 0))
        base.save(folder / f"poster{number}.png")
    suite: dict[str, Any] = {
        "name": "ocr",
        "cases": [
            {
                "id": f"case{number}",
                "prompt": f"poster {number}",
                "expect": {"text": {"required": list(LINES)}},
                "outputs": {"posters": [f"poster{number}.png"]},
            }
            for number in range(CELLS)
        ],
        "models": [{"provider": "files", "label": "posters"}],
        "graders": [{"key": "copy", "type": "text"}],
        "verdict": ["copy"],
    }
    (folder / "suite.yaml").write_text(json.dumps(suite), encoding="utf-8")


def timed(options: RunOptions) -> tuple[float, float]:
    """Seconds of the cells of a run, with the start of workers, and of the whole run."""
    begun: list[float] = []

    @contextmanager
    def listening(_: PreparedRun) -> Iterator[Listener]:
        begun.append(monotonic())
        yield Listener(say=lambda _: None)
        begun.append(monotonic())

    def watch(prepared: PreparedRun) -> AbstractContextManager[Listener]:
        return listening(prepared)

    start = monotonic()
    (run,) = run_planned(plan_runs([Path("suite.yaml")], options), options, watch, print)
    assert run.exit_code == 0, run
    return begun[1] - begun[0], monotonic() - start


def rate(options: RunOptions, of_one: RunOptions) -> float:
    """Cells per second, without what a run of one cell takes."""
    return (CELLS - 1) / (timed(options)[0] - timed(of_one)[0])


def main() -> None:
    if os.cpu_count() != WORKERS:
        print(
            f"this machine has {os.cpu_count()} cores: one process may use more than {WORKERS} workers", file=sys.stderr
        )
    here: list[float] = []
    there: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write(Path())
        options = run_options(reuse="none", cache="cache")
        of_one = run_options(reuse="none", cache="cache", limit=1)
        on_ray = {"cluster": run_options(ray=True, workers=WORKERS).cluster}
        for _ in range(REPEATS):
            here.append(rate(options, of_one))
            there.append(rate(replace(options, **on_ray), replace(of_one, **on_ray)))
        print(f"{CELLS} cells with OCR, {REPEATS} runs each")
        print(f"one process:  {median(here):.2f} cells/s ({', '.join(f'{value:.2f}' for value in here)})")
        print(f"{WORKERS} workers:    {median(there):.2f} cells/s ({', '.join(f'{value:.2f}' for value in there)})")
        print(f"ratio:        {median(there) / median(here):.2f}")
        print(
            f"one cell:     {timed(of_one)[1]:.1f} s in this process, {timed(replace(of_one, **on_ray))[1]:.1f} s with --ray"
        )


if __name__ == "__main__":
    main()
