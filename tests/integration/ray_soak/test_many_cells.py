"""Long runs on a Ray cluster of two nodes; ``make soak`` runs and prints them."""

from __future__ import annotations

import io
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_runs import ApiRun, case_id
from fake_api import FakeAPI, Script
from PIL import Image, ImageDraw, ImageFont
from ray.cluster_utils import Cluster
from ray_clusters import flags, running_cluster

from visioneval import read_info, read_records
from visioneval.running.calls.throttle import BURST_S

CELLS = 400
PER_MINUTE = 600
WINDOW_S = 10.0


def sign(prompt: str) -> bytes:
    """A small image with the word OPEN, of a color that the prompt decides."""
    shade = zlib.crc32(prompt.encode()) & 127
    image = Image.new("RGB", (320, 200), (shade, 255 - shade, 255))
    ImageDraw.Draw(image).text((60, 60), "OPEN", font=ImageFont.load_default(size=64), fill="black")
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


@pytest.fixture(scope="module")
def api() -> Iterator[FakeAPI]:
    script = Script()
    script.generate(lambda asked: [sign(asked.prompt)] * asked.n)
    with FakeAPI(script) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(api: FakeAPI) -> Iterator[Cluster]:
    with running_cluster(api, nodes=2) as (nodes, _):
        yield nodes


def test_many_cells_with_ocr_within_a_rate_limit(
    cluster: Cluster,
    api: FakeAPI,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every cell is read and recorded once; by the server's log, both workers together keep to the limit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    cases = [
        {"id": case_id(at), "prompt": f"sign {at}", "expect": {"text": {"required": ["OPEN"]}}} for at in range(CELLS)
    ]
    run = ApiRun(
        tmp_path,
        api,
        CELLS,
        cases=cases,
        judges={},
        graders=[{"key": "copy", "type": "text"}],
        verdict=["copy"],
        limits={"openai:gpt-image-2": {"requests_per_minute": PER_MINUTE}},
    )
    result = run.run(*flags(cluster))
    assert result.exit_code == 0, result.output
    assert len((run.run_folder / "results.jsonl").read_bytes().splitlines()) == CELLS
    assert sorted(record.test_id for record in read_records(run.run_folder)) == [case_id(at) for at in range(CELLS)]
    assert read_info(run.run_folder).state == "complete"
    assert (run.generated, run.repeated_calls) == (CELLS, 0)
    times = sorted(entry.at for entry in api.requests)
    most = max(bisect_left(times, start + WINDOW_S) - index for index, start in enumerate(times))
    with capsys.disabled():
        print(
            f"\n{CELLS} cells with OCR in {times[-1] - times[0]:.0f} s: at most {most} requests in {WINDOW_S:g} s,"
            f" of {PER_MINUTE} per minute"
        )
    # a burst at once, then evenly; a request may take a moment longer to arrive than the one after it
    assert most <= PER_MINUTE / 60 * (WINDOW_S + BURST_S) + 2
