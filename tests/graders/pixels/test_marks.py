"""Gemini's corner mark: where it is found, and how ``locality`` leaves it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grading
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter
from star_mark import with_star

from visioneval import CaseFiles, Grade
from visioneval.graders.pixels import LocalityGrader
from visioneval.graders.pixels.marks import find_mark

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def scene(size: tuple[int, int] = (600, 500)) -> np.ndarray:
    """A textured scene, dark enough for a light mark."""
    noise = np.random.default_rng(3).normal(0, 25, (size[1] // 8, size[0] // 8, 3))
    image = Image.fromarray(np.clip(110 + noise, 0, 255).astype(np.uint8)).resize(size, Image.Resampling.BICUBIC)
    ImageDraw.Draw(image).ellipse((60, 60, 200, 180), fill=(150, 60, 50))
    return np.asarray(image.filter(ImageFilter.GaussianBlur(1)))


def edited(image: np.ndarray) -> np.ndarray:
    """The disk in another color."""
    result = Image.fromarray(image)
    ImageDraw.Draw(result).ellipse((60, 60, 200, 180), fill=(40, 90, 160))
    return np.array(result)


@pytest.mark.parametrize("size", [(600, 500), (1500, 1100)])
def test_the_mark_is_found_with_its_box(size: tuple[int, int]) -> None:
    side, margin = (96, 64) if min(size) > 1024 else (48, 32)
    mark = find_mark(with_star(scene(size)))
    assert mark is not None
    assert mark.provider == "Gemini"
    left, top, width, height = mark.box
    assert left <= size[0] - margin - side
    assert top <= size[1] - margin - side
    assert left + width >= size[0] - margin
    assert top + height >= size[1] - margin
    assert width <= 1.5 * side


def test_a_transparent_image_a_scaled_and_a_cropped_one_show_it_too() -> None:
    marked = with_star(scene())
    assert find_mark(np.dstack([marked, np.full(marked.shape[:2], 255, np.uint8)]))
    assert find_mark(np.asarray(Image.fromarray(marked).resize((900, 750), Image.Resampling.LANCZOS)))
    assert find_mark(marked[:-15, :-15])


def test_other_images_have_none() -> None:
    page = Image.new("RGB", (600, 500), (90, 90, 90))
    pen = ImageDraw.Draw(page)
    pen.ellipse((520, 420, 568, 468), fill="white")
    assert find_mark(scene()) is None
    assert find_mark(np.asarray(page)) is None, "a disk"
    pen.rectangle((520, 420, 568, 468), fill="white")
    assert find_mark(np.asarray(page)) is None, "a square"
    assert find_mark(np.full((500, 600, 3), 255, np.uint8)) is None
    assert find_mark(np.zeros((12, 12, 3), np.uint8)) is None
    assert find_mark(with_star(scene())[::-1].copy()) is None, "another corner"


@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize(
    ("name", "has_mark"),
    [
        ("copy/images/nano_pro_case32_output.jpg", True),
        ("redraws/nano_dessert_out.png", True),
        ("redraws/nano_dessert_base.png", False),
        ("copy/images/nano_case16_output.jpg", False),
        ("copy/images/gpt2_case144.jpg", False),
    ],
)
def test_real_marks(name: str, has_mark: bool) -> None:
    assert (find_mark(np.asarray(Image.open(DATA / name).convert("RGB"))) is not None) is has_mark


@pytest.fixture
def graded(tmp_path: Path) -> Any:
    """``graded(output, **options)``: the grade of an edit of the scene, whose mask is around the disk."""
    Image.fromarray(scene()).save(tmp_path / "base.png")
    mask = Image.new("RGBA", (600, 500), (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), (50, 50, 210, 190))
    mask.save(tmp_path / "mask.png")

    def grade(output: np.ndarray, **options: Any) -> Grade:
        Image.fromarray(output).save(tmp_path / "out.png")
        files = CaseFiles(images=(("base", tmp_path / "base.png"),), masks={"editable": tmp_path / "mask.png"})
        config = LocalityGrader(type="locality", key="place", **options)
        return grading.grade(config, tmp_path / "out.png", files=files, images=["base.png"], mask="mask.png")

    return grade


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", ["reencode", "exact", "redrawn"])
def test_a_mark_is_left_out_where_that_is_asked_and_the_reason_says_so(graded: Any, tolerance: str) -> None:
    marked = with_star(edited(scene()))
    strict = graded(marked, tolerance=tolerance)
    assert strict.scores["place"] is False
    assert "Gemini's corner mark is at x " in strict.reasons["place"]
    assert "'except_marks: true' leaves it out" in strict.reasons["place"]
    excepted = graded(marked, tolerance=tolerance, except_marks=True)
    assert excepted.scores["place"] is True, excepted.reasons
    assert excepted.reasons["place"].startswith("Gemini's corner mark at x 5")
    assert excepted.reasons["place"].endswith(" was left out")
    assert excepted.details["corner_mark"]["width"] < 75
    assert excepted.details["pixels_outside"] < strict.details["pixels_outside"]


@pytest.mark.slow
def test_what_is_no_mark_is_not_left_out(graded: Any) -> None:
    clean = graded(edited(scene()), except_marks=True)
    assert (clean.scores["place"], clean.reasons, "corner_mark" in clean.details) == (True, {}, False)
    blot = edited(scene())
    blot[420:470, 520:570] = 230
    failed = graded(blot, except_marks=True)
    assert failed.scores["place"] is False
    assert "corner mark" not in failed.reasons["place"]
    both = with_star(edited(scene()))
    both[300:330, 400:430] = 230
    assert graded(both, except_marks=True).scores["place"] is False
    assert "was left out" in graded(both, except_marks=True).reasons["place"]
    elsewhere = edited(scene())
    elsewhere[300:330, 400:430] = 230
    assert "corner mark" not in graded(elsewhere).reasons["place"]
