from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import grading
import numpy as np
import pytest
from PIL import Image, ImageDraw

from visioneval import Grade, GraderError, TestCase
from visioneval.graders.properties import PropertiesGrader
from visioneval.graders.properties.grader import _median, is_flat
from visioneval.media.images import OPAQUE_FROM

CONFIG = PropertiesGrader(type="properties", key="image")


def graded(path: Path, requested: str | None = None, **expect: Any) -> Grade:
    grade = grading.grade(CONFIG, path, requested=requested, expect=expect)
    assert set(grade.scores) == set(
        CONFIG.metrics(TestCase.model_validate({"id": "c", "prompt": "p", "expect": expect}))
    )
    return grade


@pytest.fixture
def photo(tmp_path: Path) -> Any:
    """``photo(name, size=(90, 60), mode="RGB", **save)`` writes an image that is not blank."""

    def make(name: str = "a.png", size: tuple[int, int] = (90, 60), mode: str = "RGB", **save: Any) -> Path:
        image = Image.new("RGB", size, "white")
        ImageDraw.Draw(image).rectangle((5, 5, size[0] // 2, size[1] // 2), fill=(200, 40, 30))
        image.convert(mode).save(tmp_path / name, **save)
        return tmp_path / name

    return make


def test_without_expectations_it_decodes_and_is_not_blank(photo: Any) -> None:
    grade = graded(photo())
    assert grade.scores == {"image": True, "image.blank": False}
    assert grade.details == {"size": "90x60", "format": "png", "mode": "RGB", "transparent": False}


@pytest.mark.parametrize(
    ("expect", "requested", "score"),
    [
        ({"size": "90x60"}, None, True),
        ({"size": "60x90"}, None, False),
        ({"size": "requested"}, "90x60", True),
        ({"size": "requested"}, "1024x1024", False),
        ({"aspect_ratio": "3:2"}, None, True),
        ({"aspect_ratio": "2:3"}, None, False),
        ({"size": "90x60", "aspect_ratio": "1:1"}, None, False),
    ],
)
def test_size(photo: Any, expect: dict[str, str], requested: str | None, score: bool) -> None:
    grade = graded(photo(), requested, **expect)
    assert grade.scores["image.size"] is score
    assert grade.scores["image"] is score
    assert ("image.size" in grade.reasons) is not score
    assert grade.error is None


@pytest.mark.parametrize(("size", "score"), [((201, 300), True), ((206, 300), False)])
def test_an_aspect_ratio_may_be_a_percent_off(photo: Any, size: tuple[int, int], score: bool) -> None:
    assert graded(photo(size=size), aspect_ratio="2:3").scores["image.size"] is score


@pytest.mark.parametrize("requested", [None, "auto"])
def test_an_unrequested_size_is_not_measured(photo: Any, requested: str | None) -> None:
    grade = graded(photo(), requested, size="requested")
    assert grade.scores["image.size"] is None
    assert grade.scores["image"] is None
    assert grade.error is not None
    assert "requested" in grade.error
    wrong = graded(photo(), requested, size="requested", format="webp")
    assert (wrong.scores["image"], wrong.scores["image.size"]) == (False, None)


@pytest.mark.parametrize("orientation", [6, 8])
def test_a_turned_image_has_the_size_that_a_viewer_shows(photo: Any, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    grade = graded(photo("a.jpg", exif=exif), size="60x90")
    assert grade.scores["image.size"] is True
    assert grade.details["exif_orientation"] == orientation


def test_the_format_is_that_of_the_bytes(photo: Any) -> None:
    path = photo("a.webp")
    assert graded(path, format="webp").scores["image.format"] is True
    assert graded(path.rename(path.with_suffix(".png")), format="png").scores["image.format"] is False
    assert graded(photo("b.jpg"), format="jpg").scores["image.format"] is True


def test_a_wrong_format_is_reported_with_the_actual_format(photo: Any) -> None:
    grade = graded(photo("a.jpg"), format="png")
    assert grade.scores["image"] is False
    assert grade.reasons == {"image.format": "the file is jpeg, expected png"}


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_is_pixels_that_are_visibly_not_opaque(tmp_path: Path, photo: Any, mode: str) -> None:
    opaque = photo("opaque.png", mode=mode)
    assert graded(opaque, alpha=False).scores["image.alpha"] is True
    assert graded(opaque, alpha=True).scores["image"] is False
    image = Image.open(opaque)
    alpha = Image.new("L", image.size, 255)
    for level in (254, OPAQUE_FROM, OPAQUE_FROM - 1, 0):
        alpha.putpixel((0, 0), level)
        image.putalpha(alpha)
        image.save(tmp_path / "one.png")
        assert graded(tmp_path / "one.png", alpha=True).scores["image.alpha"] is (level < OPAQUE_FROM)
        assert graded(tmp_path / "one.png", alpha=False).scores["image.alpha"] is (level >= OPAQUE_FROM)


def test_a_palette_can_be_transparent(tmp_path: Path, photo: Any) -> None:
    image = Image.open(photo()).convert("P")
    image.save(tmp_path / "p.png", transparency=image.getpixel((0, 0)))
    assert graded(tmp_path / "p.png", alpha=True).scores["image.alpha"] is True


def test_files_of_several_pages_report_their_number(tmp_path: Path, photo: Any) -> None:
    first = Image.open(photo())
    first.save(tmp_path / "a.tif", save_all=True, append_images=[Image.new("RGB", first.size, "blue")])
    details = graded(tmp_path / "a.tif", format="tiff").details
    assert (details["frames"], details["graded_frame"]) == (2, 1)


@pytest.mark.parametrize("colour", ["white", "black", (127, 130, 90)])
def test_flat_colour_is_blank(save_image: Any, colour: Any) -> None:
    grade = graded(save_image(size=(300, 200), color=colour))
    assert grade.scores == {"image": False, "image.blank": True}
    assert "blank" in grade.reasons["image.blank"]


def test_noise_of_a_codec_or_a_sensor_is_still_blank() -> None:
    rng = np.random.default_rng(8)
    noisy = np.clip(128 + rng.normal(0, 6, (256, 256, 3)), 0, 255).astype(np.uint8)
    assert is_flat(noisy)
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=30)
    assert is_flat(np.asarray(Image.open(file)))


@pytest.mark.parametrize("ink", [(0, 0, 0), (170, 170, 170)])
def test_a_line_of_small_text_is_not_blank(tmp_path: Path, ink: tuple[int, int, int]) -> None:
    image = Image.new("RGB", (1024, 1024), "white")
    ImageDraw.Draw(image).text((500, 900), "ok", fill=ink)
    image.save(tmp_path / "flyer.jpg")
    assert graded(tmp_path / "flyer.jpg").scores["image.blank"] is False


def test_a_gradient_is_not_blank() -> None:
    ramp = np.linspace(150, 220, 300).astype(np.uint8)
    assert not is_flat(np.broadcast_to(ramp[None, :, None], (200, 300, 3)).copy())


@pytest.mark.parametrize(
    ("ink", "blank"), [((255, 255, 255, 255), False), ((0, 0, 0, 255), False), ((9, 9, 9, 0), True)]
)
def test_a_logo_on_transparency_is_visible_on_white_or_black(tmp_path: Path, ink: tuple[int, ...], blank: bool) -> None:
    image = Image.new("RGBA", (200, 200), (0, 0, 0, 0))
    image.paste(ink, (50, 50, 120, 120))
    image.save(tmp_path / "logo.png")
    assert graded(tmp_path / "logo.png", alpha=True).scores["image.blank"] is blank


def test_a_file_that_does_not_decode_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n torn")
    with pytest.raises(GraderError, match=r"torn\.png"):
        graded(tmp_path / "torn.png")


def test_real_images_are_not_blank(shared_data: Path) -> None:
    grade = graded(shared_data / "generations" / "dogs_deepfloyd.jpg", size="1024x1024", format="jpeg", alpha=False)
    assert grade.scores == {
        "image": False,
        "image.size": False,
        "image.format": True,
        "image.alpha": True,
        "image.blank": False,
    }
    assert grade.reasons == {"image.size": "the image is 256x256, expected 1024x1024"}


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (5, 3), (64, 47)])
@pytest.mark.parametrize("levels", [2, 256])
def test_median_by_counting_is_the_median(size: tuple[int, int], levels: int) -> None:
    pixels = np.random.default_rng(7).integers(0, levels, (*size, 3)).astype(np.uint8) * (255 // (levels - 1))
    for part in (pixels, pixels[::2, ::2]):
        assert _median(part).tolist() == np.median(part, axis=(0, 1)).astype(int).tolist()
