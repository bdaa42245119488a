"""Recorded readings are those of the networks, and only those of equal questions about equal pixels."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont
from recorded_readings import Kind, RecordedReadings

from visioneval import GraderError
from visioneval.graders.text import networks

KINDS: tuple[Kind, ...] = ("boxes", "line", "likelihood")


def test_equal_questions_are_asked_once_by_all_who_share_the_folder(tmp_path: Path) -> None:
    asked: list[tuple[Kind, Image.Image, str]] = []

    def color(kind: Kind, image: Image.Image, text: str) -> Any:
        asked.append((kind, image, text))
        return [kind, str(image.getpixel((0, 0))), image.size[0], text]

    images = [Image.new("RGB", (4, 2), "red"), Image.new("RGB", (2, 4), "red"), Image.new("RGB", (4, 2), "blue")]
    questions = [*product(KINDS, images, [""]), ("likelihood", images[0], "SALE"), ("likelihood", images[0], "SAIE")]
    alone = [color(*question) for question in questions]
    asked.clear()
    first, second = RecordedReadings({}, tmp_path, color), RecordedReadings({}, tmp_path, color)
    for shared in (first, second, first):
        assert [shared(kind, image.copy(), text) for kind, image, text in questions] == alone
    assert len(asked) == len(questions)
    recorded = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    (tmp_path / "empty").mkdir()
    replayed = RecordedReadings(recorded, tmp_path / "empty", color)
    assert [replayed(*question) for question in questions] == alone
    assert len(asked) == len(questions)


def test_a_failed_reading_is_tried_again(tmp_path: Path) -> None:
    def fail(kind: Kind, image: Image.Image, text: str) -> Any:
        raise GraderError("OCR failed")

    image = Image.new("RGB", (4, 2))
    with pytest.raises(GraderError):
        RecordedReadings({}, tmp_path, fail)("boxes", image)
    assert RecordedReadings({}, tmp_path, lambda kind, image, text: [])("boxes", image) == []


@pytest.mark.slow
def test_answers_are_the_same_once_recorded(tmp_path: Path) -> None:
    pytest.importorskip("rapidocr")
    image = Image.new("RGB", (220, 90), "white")
    ImageDraw.Draw(image).text((20, 20), "ROOM", font=ImageFont.load_default(size=40), fill="black")
    (box,) = networks.detect(image)
    line = networks.crop(image, box)

    def answer(kind: Kind, image: Image.Image, text: str) -> Any:
        if kind == "boxes":
            return networks.detect(image)
        return asdict(networks.read_line(image)) if kind == "line" else networks.log_likelihood(image, text)

    replay = RecordedReadings({}, tmp_path, answer)
    for _ in range(2):
        assert [tuple(map(tuple, corners)) for corners in replay("boxes", image)] == [box]
        said = replay("line", line)
        assert networks.Line(said["text"], said["confidence"], tuple(said["columns"])) == networks.read_line(line)
        assert len(said["columns"]) == len("ROOM")
        assert replay("likelihood", line, "ROOM") == networks.log_likelihood(line, "ROOM")
