"""Recorded readings are those of the engine, and only those of equal pixels."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont
from recorded_readings import EngineResult, RecordedReadings

from visioneval.errors import GraderError
from visioneval.graders.text.reading import ocr


def test_equal_images_are_read_once_by_all_who_share_the_folder(tmp_path: Path) -> None:
    read: list[tuple[bool, Image.Image]] = []

    def read_color(detect: bool, image: Image.Image) -> EngineResult:
        read.append((detect, image))
        return EngineResult(None, [str(image.getpixel((0, 0)))], [0.9], [])

    images = [Image.new("RGB", (4, 2), "red"), Image.new("RGB", (2, 4), "red"), Image.new("RGB", (4, 2), "blue")]
    questions = [(detect, image) for image in images for detect in (True, False)]
    alone = [read_color(*question) for question in questions]
    read.clear()
    first, second = RecordedReadings({}, tmp_path, read_color), RecordedReadings({}, tmp_path, read_color)
    for shared in (first, second, first):
        assert [shared(detect, image.copy()) for detect, image in questions] == alone
    assert len(read) == len(questions)
    recorded = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    (tmp_path / "empty").mkdir()
    replayed = RecordedReadings(recorded, tmp_path / "empty", read_color)
    assert [replayed(*question) for question in questions] == alone
    assert len(read) == len(questions)


def test_a_failed_reading_is_tried_again(tmp_path: Path) -> None:
    def fail(detect: bool, image: Image.Image) -> EngineResult:
        raise GraderError("OCR failed")

    image, blank = Image.new("RGB", (4, 2)), EngineResult(None, None, None, [])
    with pytest.raises(GraderError):
        RecordedReadings({}, tmp_path, fail)(True, image)
    assert RecordedReadings({}, tmp_path, lambda detect, image: blank)(True, image) == blank


@pytest.mark.slow
def test_a_result_is_the_same_once_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rapidocr")
    image = Image.new("RGB", (220, 90), "white")
    ImageDraw.Draw(image).text((20, 20), "ROOM", font=ImageFont.load_default(size=40), fill="black")
    monkeypatch.setattr(ocr, "needs_glyphs", lambda reading: True)
    monkeypatch.setattr(ocr, "shown_characters", lambda crop, reading, columns: tuple(enumerate(columns)))
    engine, run = ocr._engine, ocr._run
    (expected,) = ocr.read(image)
    assert len(expected.shown) == len("ROOM")
    replay = RecordedReadings({}, tmp_path, lambda detect, image: EngineResult.of(run(engine(detect=detect), image)))
    monkeypatch.setattr(ocr, "_engine", lambda *, detect: detect)
    monkeypatch.setattr(ocr, "_run", replay)
    assert [ocr.read(image) for _ in range(2)] == [[expected]] * 2
