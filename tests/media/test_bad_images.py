"""What does not decode, or is too large, is an error of its cell: no judge is asked about it."""

from __future__ import annotations

import json
import shutil
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from broken_images import BROKEN, chunk, encoded, flat_png, short_png
from caches import rewrite
from fake_api import FakeAPI, Script
from PIL import Image
from suite_runner import SuiteRunner

from visioneval import ImageError, Record
from visioneval.media import images
from visioneval.running.calls.cache_files import CacheEntry


@pytest.fixture
def runner(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> SuiteRunner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCAL_KEY", api.key)
    monkeypatch.setenv("VISIONEVAL_CACHE", str(tmp_path / "cache"))
    return SuiteRunner(tmp_path / "suite", api)


def record_of_run(runner: SuiteRunner, *arguments: str, run_id: str = "r", code: int = 3) -> Record:
    """The record of a run of one cell without judge calls."""
    result = runner.run("--trust-suite", *arguments, run_id=run_id)
    assert result.exit_code == code, result.output
    assert runner.called[1] == 0
    (record,) = runner.records(run_id).values()
    return record


def is_bad_image(record: Record, message: str = "cannot be decoded", kind: str = "bad_image") -> None:
    assert record.error is not None
    assert (record.status, record.error.stage, record.error.kind) == ("error", "generate", kind)
    assert message in record.error.message


@pytest.mark.parametrize("name", BROKEN)
def test_a_finished_image_that_does_not_decode(runner: SuiteRunner, name: str) -> None:
    runner.write("tree", prices={}, models=[{"provider": "files", "path": name}])
    (runner.folder / name).write_bytes(BROKEN[name])
    is_bad_image(record_of_run(runner))


@pytest.mark.parametrize("case", [{"prompt": "a tree"}, {"prompt": "an edit", "images": ["base.png"]}])
def test_a_generated_image_with_too_few_pixels(runner: SuiteRunner, script: Script, case: dict[str, Any]) -> None:
    script.generate(lambda _: [short_png()])
    runner.write(cases=[{"id": "tree", **case}])
    (runner.folder / "base.png").write_bytes(encoded())
    is_bad_image(record_of_run(runner), kind="unusable")


def test_an_image_of_a_command_with_too_few_pixels(runner: SuiteRunner) -> None:
    code = "import json, sys; open(json.load(sys.stdin)['output'], 'wb').write(open('short.png', 'rb').read())"
    runner.write("tree", prices={}, models=[{"provider": "command", "argv": [sys.executable, "-c", code]}])
    (runner.folder / "short.png").write_bytes(short_png())
    is_bad_image(record_of_run(runner), kind="unusable")


def test_an_image_of_a_class_with_too_few_pixels(runner: SuiteRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.write("tree", prices={}, models=[{"provider": "short_class:Generate"}])
    (runner.folder / "short_class.py").write_text(
        "from pathlib import Path\nfrom visioneval.providers.base import Generation\n"
        "class Generate:\n    def __init__(self, config): pass\n"
        "    async def generate(self, request):\n"
        "        return Generation(outputs=((Path(__file__).parent / 'short.png').read_bytes(),))\n"
    )
    (runner.folder / "short.png").write_bytes(short_png())
    monkeypatch.syspath_prepend(str(runner.folder))
    is_bad_image(record_of_run(runner), kind="unusable")


def test_an_imported_run_is_graded_only_where_its_images_decode(runner: SuiteRunner) -> None:
    runner.write("tree", prices={}, models=[{"provider": "files", "path": "a.png"}])
    (runner.folder / "a.png").write_bytes(encoded())
    assert runner.run("--trust-suite").exit_code == 0
    asked = runner.called[1]
    run = runner.out / "r"
    (record,) = runner.records().values()
    (run / str(record.artifact_path)).write_bytes(short_png())
    line = json.loads((run / "results.jsonl").read_text())
    (run / "results.jsonl").write_text(json.dumps({**line, "artifact_sha256": images.sha256(short_png())}) + "\n")
    result = runner("grade", run, "--runs", runner.out, "--run-id", "g", "--trust-suite", "--reuse", "none")
    assert (result.exit_code, runner.called[1]) == (3, asked)
    is_bad_image(next(iter(runner.records("g").values())))


@pytest.mark.parametrize("key", ["images", "mask", "reference"])
def test_an_input_that_does_not_decode_is_a_problem_of_the_suite(runner: SuiteRunner, key: str) -> None:
    case = {"id": "tree", "prompt": "an edit", "images": ["base.png"], "mask": "mask.png", "reference": "right.png"}
    if key == "images":
        del case["mask"]
    path = runner.write(cases=[case])
    for name in ("base.png", "right.png"):
        (runner.folder / name).write_bytes(encoded())
    Image.new("LA", (64, 48)).save(runner.folder / "mask.png")
    broken = {"images": "base.png", "mask": "mask.png", "reference": "right.png"}[key]
    (runner.folder / broken).write_bytes(short_png())
    for arguments in (("validate", path), ("run", path, "--runs", runner.out)):
        result = runner(*arguments, "--trust-suite")
        assert result.exit_code == 2
        assert f"{broken}: the image cannot be decoded: " in result.output
    assert runner.called == (0, 0)


def test_an_image_of_more_pixels_than_the_limit(runner: SuiteRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.write("tree", prices={}, models=[{"provider": "files", "path": "large.png"}])
    (runner.folder / "large.png").write_bytes(flat_png(1100, 1000))
    message = "it declares 1100 x 1000 pixels, over the limit of 1 million pixels"
    message += " (to raise it: --max-megapixels N or VISIONEVAL_MAX_MEGAPIXELS=N)"
    is_bad_image(record_of_run(runner, "--max-megapixels", "1", run_id="flag"), message, "over_limit")
    monkeypatch.setenv("VISIONEVAL_MAX_MEGAPIXELS", "1")
    is_bad_image(record_of_run(runner, run_id="environment"), message, "over_limit")
    assert runner.run("--trust-suite", "--max-megapixels", "2", run_id="raised").exit_code == 0
    shutil.rmtree(runner.out)


def test_an_input_over_the_limit_is_a_problem_of_the_suite(runner: SuiteRunner) -> None:
    path = runner.write(cases=[{"id": "tree", "prompt": "an edit", "images": ["base.png"]}])
    (runner.folder / "base.png").write_bytes(flat_png(1100, 1000))
    result = runner("validate", path, "--trust-suite", "--max-megapixels", "1")
    assert result.exit_code == 2
    assert "base.png: it declares 1100 x 1000 pixels, over the limit of 1 million pixels" in result.output


PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def interlaced(width: int, height: int) -> tuple[bytes, bytes]:
    """The header and the pixel data of a black RGB image in Adam7 order."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1))
    sizes = [(len(range(x, width, dx)), len(range(y, height, dy))) for x, y, dx, dy in PASSES]
    return head, b"".join(bytes(1 + 3 * across) * down for across, down in sizes if across)


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (8, 8), (33, 17)])
def test_an_interlaced_png_needs_all_its_passes(size: tuple[int, int]) -> None:
    head, rows = interlaced(*size)

    def png(data: bytes) -> bytes:
        return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")

    assert images.identify(png(rows)) == ("image/png", *size)
    assert images.identify(png(rows + b"more")) == ("image/png", *size)
    with pytest.raises(ImageError):
        images.identify(png(rows[:-1]))


def test_a_cached_image_is_decoded_before_use(runner: SuiteRunner) -> None:
    """An older version stored images without decoding them."""
    runner.write("tree")
    cache = runner.folder / "cache"
    assert runner.run("--trust-suite", "--cache", cache, "--reuse", "none").exit_code == 0
    digest = images.sha256(short_png())
    (cache / "files" / digest[:2]).mkdir(exist_ok=True)
    (cache / "files" / digest[:2] / digest).write_bytes(short_png())

    def undecoded(entry: CacheEntry) -> dict[str, Any]:
        if entry.kind != "generate":
            return {}
        (known,) = entry.answer["outputs"]
        del known["decoded"]
        return {"answer": {**entry.answer, "outputs": [{**known, "sha256": digest}]}, "files": (digest,)}

    rewrite(cache, undecoded)
    asked = runner.called
    again = runner.run("--trust-suite", "--cache", cache, "--offline", run_id="offline")
    assert (again.exit_code, runner.called) == (3, asked)
    is_bad_image(next(iter(runner.records("offline").values())), kind="unusable")
