"""The same scores and verdicts on every processor: by command line, with vector code taken away from OpenCV and NumPy."""

from __future__ import annotations

import itertools
import os
import platform
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__  # the names NumPy's variable takes
from PIL import Image, ImageDraw, ImageFont
from typer.testing import CliRunner

from visioneval import Record, read_records
from visioneval.cli import app
from visioneval.graders.pixels.reference import measure_reference
from visioneval.media.opencv import portable_opencv

pytestmark = pytest.mark.slow

X86 = platform.machine().lower() in ("x86_64", "amd64")
COMMAND = "from visioneval.cli import app; app()"
EDITS = Path(__file__).resolve().parents[4] / "shared" / "data" / "edits"
Case = tuple[Image.Image, Image.Image, Mapping[str, Image.Image]]
"""An input image, its mask, and outputs by their label."""
MEASURES = ("{key: image, type: properties}", "{key: place, type: locality}", "{key: like, type: reference}")


@dataclass(frozen=True)
class Processor:
    """Disables vector instructions of this machine in a child process."""

    environment: Mapping[str, str]
    code: str = COMMAND


def processors() -> dict[str, Processor]:
    """Older processors than this one, as far as OpenCV, NumPy, OpenBLAS, the JPEG decoder and libm can pretend."""
    opencv = re.findall(r"\*([\w.-]+)", cv2.getCPUFeaturesLine())
    numpy = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
    wide = re.compile("AVX-?512|X86_V4")
    result = {
        "without AVX-512": {
            "OPENCV_CPU_DISABLE": ",".join(filter(wide.search, opencv)),
            "NPY_DISABLE_CPU_FEATURES": " ".join(filter(wide.search, numpy)),
            "OPENCV_IPP": "avx2",
            "OPENCV_FOR_THREADS_NUM": "1",
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F",
        },
        "without vector code": {
            "OPENCV_CPU_DISABLE": ",".join(opencv),
            "NPY_DISABLE_CPU_FEATURES": " ".join(numpy),
            "OPENCV_IPP": "disabled",
            "OPENBLAS_CORETYPE": "Prescott" if X86 else "",
            "JSIMD_FORCENONE": "1",
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX,-FMA,-FMA4" if X86 else "",
        },
        "switched off, many threads": {"OPENCV_FOR_THREADS_NUM": "5"},
    }
    stated = {name: {key: value for key, value in item.items() if value} for name, item in result.items()}
    codes = {"switched off, many threads": f"import cv2; cv2.setUseOptimized(False); {COMMAND}"}
    return {name: Processor(item, codes.get(name, COMMAND)) for name, item in stated.items()}


PROCESSORS = processors()


def run(suite: Path, processor: Processor | None = None) -> list[dict[str, Any]]:
    """What a run on a processor, else on this one, leaves: all of a record that does not name the run or its times."""
    out = suite.parent / f"runs{len(list(suite.parent.glob('runs*')))}"
    arguments = ["run", str(suite), "--runs", str(out)]
    if processor is None:
        code = CliRunner().invoke(app, arguments).exit_code
    else:
        command, environment = (
            [sys.executable, "-c", processor.code, *arguments],
            {**os.environ, **processor.environment},
        )
        code = subprocess.run(command, env=environment, timeout=300, check=False).returncode
    assert code in (0, 1)
    (folder,) = out.iterdir()
    return [summary_of(record, folder) for record in sorted(read_records(folder), key=lambda record: record.cell)]


def summary_of(record: Record, folder: Path) -> dict[str, Any]:
    shown = record.model_dump(include={"test_id", "model_label", "verdict", "failed_rules", "scores", "reasons"})
    details = [grader.details for grader in record.graders]
    maps = [str(item["difference_map"]) for item in details if "difference_map" in item]
    return {**shown, "details": details, "maps": [(folder / path).read_bytes() for path in maps]}


def a_scene(size: tuple[int, int] = (260, 180)) -> Image.Image:
    """Greys, flat colours, a soft shade, grain and print."""
    width, height = size
    rng = np.random.default_rng(5)
    shade = np.linspace(40, 230, width)[None, :, None] * np.ones((height, 1, 3))
    shade[: height // 2] += rng.normal(0, 6, (height // 2, width, 3))
    image = Image.fromarray(shade.clip(0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for _ in range(25):
        x, y = int(rng.integers(0, width - 60)), int(rng.integers(0, height - 60))
        colour = tuple(int(value) for value in rng.integers(0, 256, 3))
        pen.ellipse((x, y, x + int(rng.integers(10, 60)), y + int(rng.integers(10, 60))), fill=colour)
    pen.rectangle((20, 20, 230, 74), fill=(215, 215, 215))
    pen.text((30, 26), "OPEN DAILY", font=ImageFont.load_default(size=34), fill=(20, 20, 60))
    return image


def outputs_of(image: Image.Image) -> dict[str, Image.Image]:
    """Typical changes by models: another size, a small shift, a tint, a patch."""
    width, height = image.size
    move = (1.004, 0, -1.7, 0, 0.998, 2.3)
    moved = image.transform(image.size, Image.Transform.AFFINE, move, Image.Resampling.BICUBIC)
    tint = np.asarray(image).astype(int) + np.array([5, 1, -6])
    patched = image.copy()
    patched.paste((187, 179, 233), (width - 60, height - 60, width - 48, height - 48))
    return {
        "smaller": patched.resize((width * 5 // 8, height * 5 // 8), Image.Resampling.BICUBIC),
        "moved_and_larger": moved.resize((width * 5 // 4, height * 5 // 4), Image.Resampling.BICUBIC),
        "tinted": Image.fromarray(tint.clip(0, 255).astype(np.uint8)),
    }


def write_suite(folder: Path, cases: Mapping[str, Case], graders: tuple[str, ...]) -> Path:
    """A suite over JPEGs of the cases' outputs."""
    labels = dict.fromkeys(itertools.chain.from_iterable(outputs for _, _, outputs in cases.values()))
    text = ["name: processors", "task: image_editing", "cases:"]
    for case, (base, mask, outputs) in cases.items():
        base.save(folder / f"{case}.png")
        mask.save(folder / f"{case}_mask.png")
        for label, output in outputs.items():
            output.save(folder / f"{label}-{case}.jpg", quality=90)
        text += [f"  - id: {case}", "    prompt: p", f"    images: [{case}.png]", f"    mask: {case}_mask.png"]
        text += [f"    reference: {case}.png", "    expect: {text: {forbidden: [CLOSED], extra: forbid}}"]
    text += ["models:", *(f'  - {{provider: files, label: {label}, path: "{label}-{{case}}.jpg"}}' for label in labels)]
    text += ["graders:", *(f"  - {grader}" for grader in graders)]
    text += ["verdict: [place, like, not image.blank]"]
    (folder / "suite.yaml").write_text("\n".join(text) + "\n", encoding="utf-8")
    return folder / "suite.yaml"


def a_mask(size: tuple[int, int], box: tuple[int, int, int, int]) -> Image.Image:
    mask = Image.new("RGBA", size, (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), box)
    return mask


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    scene = a_scene()
    cases = {"scene": (scene, a_mask(scene.size, (120, 90, 220, 160)), outputs_of(scene))}
    suite = write_suite(tmp_path_factory.mktemp("synthetic"), cases, MEASURES)
    return suite, run(suite)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A real edit, cropped around its mask, at the original and another size."""
    if not EDITS.is_dir():
        pytest.skip("../shared/data is not here")
    base, mask, output = (Image.open(EDITS / f"poster_{part}") for part in ("input.jpg", "mask.png", "output.jpg"))
    box = (300, 950, 660, 1250)
    base, mask, output = base.crop(box), mask.convert("RGBA").crop(box), output.crop(box)
    outputs = {"as_made": output, "smaller": output.resize((225, 188), Image.Resampling.LANCZOS)}
    suite = write_suite(tmp_path_factory.mktemp("real"), {"poster": (base, mask, outputs)}, MEASURES)
    return suite, run(suite)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_synthetic_edits_score_alike(synthetic: tuple[Path, list[dict[str, Any]]], processor: str) -> None:
    suite, expected = synthetic
    assert len(expected) == 3
    assert run(suite, PROCESSORS[processor]) == expected


def test_real_edits_score_alike(real: tuple[Path, list[dict[str, Any]]]) -> None:
    suite, expected = real
    assert len(expected) == 2
    assert run(suite, PROCESSORS["without vector code"]) == expected


def test_reading_lines_of_equal_length_is_deterministic(tmp_path: Path) -> None:
    """Readings that went through the model together, padded to the longest, depended on how their sort broke ties."""
    pytest.importorskip("rapidocr")
    page = Image.new("RGB", (320, 280), "white")
    for row, words in enumerate(["Total 30,000.00", "Total 38,000.80", "Sum of all these"] * 2):
        ImageDraw.Draw(page).text((20, 15 + row * 40), words, font=ImageFont.load_default(size=22), fill="#404040")
    cases = {"page": (page, a_mask(page.size, (0, 0, 20, 20)), {"same": page})}
    suite = write_suite(tmp_path, cases, ("{key: copy, type: text}", MEASURES[1], MEASURES[2], MEASURES[0]))
    expected = run(suite)
    assert len(expected[0]["details"][0]["lines"]) > 4
    assert run(suite, PROCESSORS["without vector code"]) == expected


def test_limits_apply_to_the_recorded_rounded_values() -> None:
    finding = measure_reference(np.asarray(a_scene()), np.asarray(outputs_of(a_scene())["tinted"]))
    assert finding.ssim == round(finding.ssim, 4) < 1
    assert finding.delta_e == round(finding.delta_e, 4) > 0


def test_opencv_is_given_back_as_it_was() -> None:
    before = cv2.useOptimized(), cv2.ipp.useIPP()
    inside, leave = threading.Event(), threading.Event()
    seen = []

    def elsewhere() -> None:
        with portable_opencv():
            inside.set()
            leave.wait(10)
            seen.append((cv2.useOptimized(), cv2.ipp.useIPP()))

    other = threading.Thread(target=elsewhere)
    other.start()
    assert inside.wait(10)
    with portable_opencv(), portable_opencv():
        assert (cv2.useOptimized(), cv2.ipp.useIPP()) == (False, False)
    assert not cv2.useOptimized()  # the other thread still measures
    leave.set()
    other.join()
    assert seen == [(False, False)]
    assert (cv2.useOptimized(), cv2.ipp.useIPP()) == before
