"""Equal images are read once, and only equal ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from shared_readings import SharedReadings

from visioneval.errors import GraderError
from visioneval.graders.text.copy_match import Reading


def test_equal_images_are_read_once_by_all_who_share_the_folder(tmp_path: Path) -> None:
    read: list[Image.Image] = []

    def read_color(image: Image.Image) -> list[Reading]:
        read.append(image)
        return [Reading(str(image.getpixel((0, 0))), 0.9, None)]

    images = [Image.new("RGB", (4, 2), "red"), Image.new("RGB", (2, 4), "red"), Image.new("RGB", (4, 2), "blue")]
    first, second = SharedReadings(tmp_path, read_color), SharedReadings(tmp_path, read_color)
    alone = [read_color(image) for image in images]
    read.clear()
    for shared in (first, second, first):
        assert [shared(image.copy()) for image in images] == alone
    assert len(read) == len(images)


def test_a_failed_reading_is_tried_again(tmp_path: Path) -> None:
    def fail(image: Image.Image) -> list[Reading]:
        raise GraderError("OCR failed")

    image = Image.new("RGB", (4, 2))
    with pytest.raises(GraderError):
        SharedReadings(tmp_path, fail)(image)
    assert SharedReadings(tmp_path, lambda image: [])(image) == []
