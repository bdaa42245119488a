"""Lines in scripts that OCR's models do not know, read by the installed program ``tesseract``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grading
import pytest
from PIL import Image, ImageDraw, ImageFont

from visioneval import Grade, GraderError
from visioneval.graders.text import TextGrader, alphabet

pytest.importorskip("rapidocr")


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("recorded_readings")]
needs_tesseract = pytest.mark.skipif(alphabet.missing(["rus", "eng"]) is not None, reason="needs tesseract-ocr-rus")


def graded(path: Path, **expected: Any) -> Grade:
    config = TextGrader(type="text", key="copy", other_scripts="tesseract")
    return grading.grade(config, path, expect={"text": expected})


@pytest.fixture
def sign(tmp_path: Path) -> Path:
    try:
        font = ImageFont.truetype("DejaVuSans.ttf", 40)
    except OSError:
        pytest.skip("needs the typeface DejaVu Sans")
    image = Image.new("RGB", (600, 220), "white")
    pen = ImageDraw.Draw(image)
    pen.text((40, 30), "Привет, мир!", font=font, fill="black")
    pen.text((40, 120), "SALE 50%", font=font, fill="black")
    image.save(tmp_path / "sign.png")
    return tmp_path / "sign.png"


@needs_tesseract
def test_a_line_passes_only_if_tesseract_reads_it_exactly(sign: Path) -> None:
    grade = graded(sign, required=["Привет, мир!", "SALE 50%"], extra="forbid")
    assert grade.scores["copy"] is True
    assert {"tesseract", "tesseract_rus", "tesseract_eng", "rapidocr"} <= set(grade.tool_versions)
    misspelled = graded(sign, required=["Привет, кир!"])
    assert misspelled.scores["copy"] is False
    assert misspelled.reasons["copy"].endswith('the nearest text is "Привет, мир!" (м instead of к at 9)')
    other = graded(sign, required=["Добрый день"])
    assert (other.scores["copy"], other.reasons["copy"][:30]) == (None, '"Добрый день" may be there: lo')


@needs_tesseract
def test_a_forbidden_line_fails_where_it_is_read(sign: Path) -> None:
    assert graded(sign, forbidden=["Привет, мир!"]).scores["copy"] is False
    assert graded(sign, forbidden=["Привет, кир!"]).scores["copy"] is True
    assert graded(sign, forbidden=["Добрый день"]).scores["copy"] is None


def test_without_tesseract_the_error_says_what_to_install(sign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alphabet, "which", lambda name: None)
    monkeypatch.setattr(alphabet, "_data", dict)
    with pytest.raises(GraderError, match=r"run apt install tesseract-ocr tesseract-ocr-eng tesseract-ocr-rus$"):
        graded(sign, required=["Привет, мир!"])
    assert graded(sign, required=["SALE 50%"]).scores["copy"] is True
