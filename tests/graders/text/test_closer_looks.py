"""The second look with the networks: lone words, large canvases, likelihoods, and images that are hard to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grading
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from visioneval import Grade
from visioneval.graders.text import TextGrader

pytest.importorskip("rapidocr")

from visioneval.graders.text import networks, ocr
from visioneval.graders.text.second_look import POSSIBLE, SURE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("recorded_readings")]


def canvas(size: tuple[int, int], *lines: tuple[str, int, tuple[int, int]]) -> Image.Image:
    """An image with texts of a size, each around a place."""
    image = Image.new("RGB", size, "white")
    for text, height, place in lines:
        ImageDraw.Draw(image).text(place, text, font=ImageFont.load_default(size=height), fill="black", anchor="mm")
    return image


@pytest.fixture
def graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Grades an image; returns the grade and the sizes of the images in which text was looked for."""
    sizes: list[tuple[int, int]] = []
    detect = networks.detect
    monkeypatch.setattr(networks, "detect", lambda image: sizes.append(image.size) or detect(image))

    def grade(image: Image.Image, **expected: Any) -> tuple[Grade, list[tuple[int, int]]]:
        sizes.clear()
        path = tmp_path / "image.png"
        image.save(path)
        config = TextGrader(type="text", key="copy")
        return grading.grade(config, path, expect={"text": expected}), list(sizes)

    return grade


def test_a_lone_word_is_found_where_it_is_forbidden(graded: Any) -> None:
    image = canvas((1024, 1024), ("SALE", 24, (512, 460)))
    grade, sizes = graded(image, forbidden=["SALE"])
    assert grade.scores["copy"] is False
    assert grade.reasons["copy"] == 'forbidden "SALE" is present'
    assert len(sizes) == 2
    (place,) = [item["box"] for item in grade.details["forbidden"]]
    assert np.mean(place, axis=0) == pytest.approx([512, 460], abs=6)
    assert graded(image, extra="forbid")[0].scores["copy"] is False


def test_a_lone_word_is_found_where_it_is_required(graded: Any) -> None:
    image = canvas((1024, 1024), ("SALE", 24, (512, 460)))
    assert graded(image, required=["SALE"])[0].scores["copy"] is True
    assert graded(image, required=["SOLE"])[0].scores["copy"] is False


def test_without_text_that_may_hide_one_look_is_enough(graded: Any) -> None:
    image = canvas((1024, 1024), ("SALE", 64, (512, 460)))
    assert graded(image, required=["SALE"])[1] == [(1024, 1024)]
    grade, sizes = graded(Image.new("RGB", (1024, 1024), "white"), forbidden=["SALE"], extra="forbid")
    assert (grade.scores["copy"], sizes) == (True, [(1024, 1024)]), "nothing stands out"
    assert grade.reasons["copy"] == "nothing forbidden, nothing extra"


def test_a_word_on_a_large_canvas_is_found(graded: Any) -> None:
    image = canvas((3000, 2000), ("Fresh bread", 40, (2500, 1700)))
    assert graded(image, required=["Fresh bread"])[0].scores["copy"] is True
    assert graded(image, forbidden=["Fresh bread"])[0].scores["copy"] is False


def test_an_image_of_noise_has_no_windows(graded: Any) -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (512, 512, 3), dtype=np.uint8))
    assert ocr.read_windows(noise.resize((3000, 3000), Image.Resampling.NEAREST), []) == []
    assert graded(noise, forbidden=["SALE"])[0].scores["copy"] is True
    assert graded(noise, required=["SALE"])[0].scores["copy"] is not True


def test_a_line_in_the_middle_of_an_enlarged_image_stays_whole(graded: Any) -> None:
    image = canvas((1024, 1024), ("BUTTER & FLOUR", 48, (512, 500)), ("Grand opening today", 48, (512, 200)))
    grade, sizes = graded(image, required=["NOWHERE TO BE SEEN"], forbidden=["BUTTER & FLOUR"])
    assert sizes == [(1024, 1024), (2000, 2000)], "it was enlarged in one piece"
    assert [line["text"] for line in grade.details["lines"]] == ["Grand opening today", "BUTTER & FLOUR"]
    assert 'forbidden "BUTTER & FLOUR" is present' in grade.reasons["copy"]


@pytest.mark.parametrize("line", ["BUTTER & FLOUR", "Croissants", "$4.50"])
def test_a_line_is_likelier_than_the_line_with_a_mistake(line: str) -> None:
    image = canvas((700, 120), (line, 48, (350, 60)))
    (box,) = networks.detect(image)
    shown = networks.crop(image, box)
    right = line.replace(" ", "")
    assert networks.log_likelihood(shown, right) > SURE
    for place in range(len(right)):
        wrong = right[:place] + "q" + right[place + 1 :]
        assert networks.log_likelihood(shown, wrong) < POSSIBLE, wrong


def test_a_line_that_stands_twice_is_required_twice(graded: Any) -> None:
    once = canvas((700, 400), ("Fresh bread", 48, (350, 100)))
    twice = canvas((700, 400), ("Fresh bread", 48, (350, 100)), ("Fresh bread", 48, (350, 300)))
    required = ["Fresh bread", "Fresh bread"]
    assert graded(twice, required=required)[0].scores["copy"] is True
    grade, _ = graded(once, required=required)
    assert (grade.scores["copy"], grade.scores["copy.recall"]) == (False, 0.5)
    assert "(1 of 2 found)" in grade.reasons["copy"]


def test_sixty_lines_are_read_and_one_wrong_one_is_named(graded: Any) -> None:
    lines = [f"Line {number} of the list" for number in range(60)]
    places = [(200 + 400 * (number % 4), 30 + 40 * (number // 4)) for number in range(60)]
    image = canvas((1600, 660), *((text, 24, place) for text, place in zip(lines, places, strict=True)))
    grade, _ = graded(image, required=lines)
    assert grade.scores["copy"] is True, grade.reasons
    grade, _ = graded(image, required=[*lines[:-1], "Line 59 of the lost"])
    assert grade.scores["copy"] is False
    assert grade.reasons["copy"] == (
        'missing "Line 59 of the lost": the nearest text is "Line 59 of the list" (i instead of o at 17)'
    )
