"""``make bench``: what a local grader costs for an image of a megapixel, beside a fixed load on the same machine.

CPU of a measurement as a multiple of a Gaussian blur of the same image in 32 bits by OpenCV, and peak memory as a multiple
of what the process has after its imports. Each grader in a process of its own; the median of several images.

    python -m tests.bench.local [text locality reference properties]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from tests.bench.engine import ROOT
from tests.bench.measured import VARIANTS, write

GRADERS = ("text", "locality", "reference", "properties")


def measure(grader: str, folder: Path, variant: int) -> Callable[[], object]:
    """The measurement of one output."""
    from visioneval.graders.pixels import locality, reference
    from visioneval.graders.properties import grader as properties
    from visioneval.graders.text import grader as text

    base, mask, output = folder / "base.png", folder / "mask.png", folder / f"output{variant}.png"
    measures: dict[str, Callable[[], object]] = {
        "text": partial(text._read, output),
        "locality": partial(locality._measure_files, base, mask, output, exact=False, dilate=8),
        "reference": partial(reference._measure_files, base, output),
        "properties": partial(properties.read_facts, output),
    }
    return measures[grader]


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def load(folder: Path) -> Callable[[], object]:
    """The fixed load: a Gaussian blur, 49 pixels wide, of three channels in 32 bits."""
    import cv2
    import numpy as np

    from visioneval.media.images import load_image

    pixels = np.asarray(load_image(folder / "base.png"), np.float32)

    def blur() -> None:
        for _ in range(5):
            cv2.GaussianBlur(pixels, (49, 49), 8)

    return blur


def child(grader: str, folder: Path) -> None:
    """Measures one grader, after one call that loads its models, and prints the figures as JSON."""
    measures = [measure(grader, folder, variant) for variant in range(VARIANTS)]
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    measures[0]()
    seconds = [cpu(work) for work in measures]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    unit = median(cpu(load(folder)) for _ in range(VARIANTS))
    print(json.dumps({"seconds": median(seconds), "unit": unit, "start": start, "peak": peak}))


def main() -> None:
    """Prints the figures of the named graders, or of all."""
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2], Path(sys.argv[3]))
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch))
        for grader in sys.argv[1:] or GRADERS:
            command = [sys.executable, "-m", "tests.bench.local", "--child", grader, scratch]
            used = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
            print(
                f"local: {grader}: {used['seconds']:.3f} s of CPU a megapixel,"
                f" {used['seconds'] / used['unit']:.1f} times five blurs; {used['peak']:.0f} MB at most,"
                f" {used['peak'] / used['start']:.1f} times what the imports take",
                flush=True,
            )
    return None


if __name__ == "__main__":
    main()
