"""``make bench``: how long a report of many cells takes to write, and to open and scroll in Chromium.

Not a test: machines are noisy, so nothing here passes or fails. ``python -m tests.bench.report CELLS`` only writes a
report of that many cells, and does not delete it.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image, ImageDraw

from tests.support.servers.browser import ARGS, CHROMIUM
from visioneval import Record, RunInfo
from visioneval.records.writer import RunWriter
from visioneval.suite.model import Suite

SHAPES = ((200, 25), (1_000, 5), (5_000, 1))
"""Cases and model runs: always 5,000 cells."""
OPENED = """() => new Promise((done) => {
  const shown = (cell) => cell && (cell.querySelector('.none') || cell.querySelector('img')?.naturalWidth);
  const look = () => shown(document.querySelector('#canvas a.cell')) ? done(performance.now()) : requestAnimationFrame(look);
  look();
})"""
SCROLLED = """() => new Promise((done) => {
  const scroller = document.getElementById('scroller');
  const gaps = [];
  let last = performance.now();
  let step = 240;
  const turn = (now) => {
    gaps.push(now - last);
    last = now;
    const before = scroller.scrollTop;
    scroller.scrollTop += step;
    if (scroller.scrollTop === before) step = -step;
    if (gaps.length < 180) requestAnimationFrame(turn);
    else done(gaps.slice(1).sort((a, b) => a - b));
  };
  requestAnimationFrame(turn);
})"""


def _info(cases: int, models: int) -> RunInfo:
    suite = Suite.model_validate(
        {
            "name": "many",
            "cases": [{"id": f"case{n}", "prompt": f"image number {n}", "tags": [f"t{n % 7}"]} for n in range(cases)],
            "models": [{"provider": "own:Generate", "label": f"model,quality={n}"} for n in range(models)],
            "graders": [{"key": "look", "type": "own:Look", "writes": _metrics()}],
            "verdict": ["look"],
        }
    )
    return RunInfo(
        run_id="many",
        state="running",
        started_at="2025-01-01T00:00:00+00:00",
        planned_cells=cases * models,
        visioneval_version="0",
        python_version="3",
        suite_path="suite.yaml",
        source_sha256="0" * 64,
        metrics=_metrics(),  # type: ignore[arg-type]  # pydantic makes metrics of them
        suite=suite,
    )


def _metrics() -> dict[str, dict[str, object]]:
    return {"look": {"type": "bool"}, "look.score": {"type": "number", "range": [0, 5]}}


def _record(case: int, model: int, path: str | None) -> Record:
    score = (case * 7 + model * 3) % 50 / 10
    passed = score >= 1
    details = {"lines": [{"text": f"Line {n}", "confidence": 0.9, "counted": True} for n in range(8)]}
    return Record.model_validate(
        {
            "run_id": "many",
            "test_id": f"case{case}",
            "model_label": f"model,quality={model}",
            "sample_index": 0,
            "task_type": "image_generation",
            "prompt": f"image number {case}, with words enough to be a prompt that somebody wrote",
            "provider": "own:Generate",
            "tags": [f"t{case % 7}"],
            "status": "completed",
            "verdict": "PASS" if passed else "FAIL",
            "failed_rules": [] if passed else ["look"],
            "failure_tags": [] if passed else ["blurred"],
            "scores": {"look": passed, "look.score": score},
            "reasons": {"look": f"it scores {score} of 5, since its lines are as they are"},
            "graders": [{"key": "look", "type": "own", "details": details, "fingerprint": {"config_sha256": "0" * 64}}],
            "artifact_path": path,
            "mime": "image/png" if path else None,
            "width": 512,
            "height": 512,
            "seconds": 1.0 + score,
            "generation_key": "model:1",
            "grade_key": "case:1",
        }
    )


def make_run(root: Path, cases: int, models: int, *, outputs: bool) -> Path:
    """A run of cases by model runs; with ``images``, each cell has its own image."""
    writer = RunWriter.create(root, _info(cases, models))
    for case in range(cases):
        for model in range(models):
            path = None
            if outputs:
                path = writer.save(f"case{case}", f"m{model}", "0.png", _image(case, model))
            writer.append(_record(case, model, path))
    writer.finish("complete", "2025-01-01T01:00:00+00:00")
    return writer.folder


def _image(case: int, model: int) -> bytes:
    from visioneval.media.images import encode_png

    image = Image.new("RGB", (512, 512), ((case * 37) % 256, (model * 53) % 256, (case + model) % 256))
    ImageDraw.Draw(image).text((40, 200), f"{case} / {model}", fill="white", font_size=90)
    return encode_png(image)


def write(run: Path) -> Path:
    """Writes the report twice and prints both times."""
    from visioneval import read_info
    from visioneval.report.html.report import GalleryFilters, read_slim, write_report

    for turn in ("first", "again"):
        start = time.perf_counter()
        lean = read_slim(run, read_info(run), None, GalleryFilters(max_cells=1_000_000))
        page = write_report(lean, run / "report", single_file=False, trust=False)
        seconds = time.perf_counter() - start
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"report of {len(lean.gallery)} cells, {turn}: {seconds:.1f} s, at most {memory:.0f} MB")
    return page


def scroll_gallery(page: Path) -> None:
    """Opens the gallery in Chromium and scrolls it, with everything generated by the processor."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        for layout in ("grid", "list"):
            tab = browser.new_page(viewport={"width": 1280, "height": 800})
            tab.goto(f"{page.resolve().as_uri()}#gallery?layout={layout}")
            opened = tab.evaluate(OPENED)
            gaps = tab.evaluate(SCROLLED)
            middle, slow = gaps[len(gaps) // 2], gaps[int(len(gaps) * 0.95)]
            print(f"{layout}: open in {opened / 1000:.2f} s; a frame of scrolling {middle:.0f} ms, 95th {slow:.0f} ms")
            tab.close()
        browser.close()


def main() -> None:
    """Prints all figures."""
    shapes = [tuple(map(int, shape.split("x"))) for shape in sys.argv[1:]]
    for cases, models in shapes or SHAPES:
        print(f"{cases} cases by {models} model runs")
        with tempfile.TemporaryDirectory() as scratch:
            page = write(make_run(Path(scratch), cases, models, outputs=not shapes))
            if CHROMIUM is None:
                print("no Chromium here: the report was not opened")
            else:
                scroll_gallery(page)


if __name__ == "__main__":
    main()
