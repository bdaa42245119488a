from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image, ImageDraw, ImageFont

from visioneval import GraderError

pytest.importorskip("rapidocr")

from visioneval.graders.text import ocr

pytestmark = pytest.mark.slow

FLYER = ["GRAND OPENING", "BUTTER & FLOUR", "20% OFF", "Croissants $4.50", "Aug 12-14, 7:30 PM"]


def image_of(lines: list[str], size: tuple[int, int] = (640, 640), text: int = 48) -> Image.Image:
    image = Image.new("RGB", size, "#fdf6e3")
    pen = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        pen.text((30, 20 + row * text * 2), line, font=ImageFont.load_default(size=text), fill="#202040")
    return image


def texts(image: Image.Image) -> list[str]:
    return [reading.text for reading in ocr.read_flat(image)]


IMPORT = """
import os, sys
settings = []
sys.addaudithook(lambda event, args: settings.append(os.environ.get("ORT_DISABLE_TELEMETRY"))
                 if event == "import" and args[0] == "onnxruntime.capi._pybind_state" else None)
from PIL import Image
from visioneval.graders.text import ocr
ocr.read_flat(Image.linear_gradient("L").convert("RGB"))
print(settings)
"""


def test_ocr_sends_no_telemetry() -> None:
    """ONNX Runtime reads the variable when it is imported, and no later call of its API stops the first event."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ORT_")}
    result = subprocess.run([sys.executable, "-c", IMPORT], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == "['1']\n"


def test_a_flyer_is_read_line_by_line() -> None:
    assert texts(image_of(FLYER)) == FLYER


def test_places_are_pixels_of_the_image_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "MAX_AREA", 500_000)  # the larger image is reduced
    for scale in (1, 1.25):
        image = image_of(["BAKERY"]).resize((round(640 * scale), round(640 * scale)))
        (reading,) = ocr.read_flat(image)
        assert reading.corners is not None
        (left, top), _, (right, bottom), _ = reading.corners
        assert (left / scale, top / scale) == pytest.approx((30, 28), abs=20)
        assert right / scale == pytest.approx(30 + 178, abs=40)
        assert bottom / scale < 90


@pytest.mark.parametrize("degrees", [90, 180])
def test_a_turned_image_is_read(degrees: int) -> None:
    assert sorted(texts(image_of(FLYER[:2]).rotate(degrees, expand=True))) == sorted(FLYER[:2])


def test_a_long_line_in_a_strip_is_read() -> None:
    line = "BREAKING: Local bakery wins gold medal - tickets at 7:30 PM"
    assert texts(image_of([line], (1500, 50), 24)) == [line]


def test_a_tall_page_is_read() -> None:
    lines = [f"Section {number} of the page" for number in range(1, 9)]
    assert texts(image_of(lines, (320, 960), 22)) == lines


def test_a_small_image_is_read() -> None:
    assert texts(image_of(["HAPPY", "June 5, 2025"], (256, 256), 28)) == ["HAPPY", "June 5, 2025"]


@pytest.mark.parametrize("size", [(1, 1), (400, 2), (2, 400)])
def test_a_blank_image_has_no_text(size: tuple[int, int]) -> None:
    assert ocr.read_flat(Image.new("RGB", size, "white")) == []


def test_threads_share_the_networks_and_read_the_same_text() -> None:
    images = [image_of(["ONE", "TWO"], (320, 240)), image_of(["THREE"], (320, 160))]
    alone = [ocr.read_flat(image) for image in images]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ocr.read_flat, images * 2)) == alone * 2


def test_reading_prints_and_logs_nothing(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ocr.read_flat(Image.new("RGB", (64, 64)))
    assert capfd.readouterr() == ("", "")


def test_tools_are_named() -> None:
    assert ocr.tool_versions().keys() == {"rapidocr", "onnxruntime", "model"}


def test_without_rapidocr_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    monkeypatch.setattr(ocr, "find_spec", lambda name: None)
    with pytest.raises(GraderError, match=r"pip install -e '\.\[ocr\]'"):
        ocr.model_path("Rec")
