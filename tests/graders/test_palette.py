"""The grader of colors: shares of the palette, edges, regions off it, transparency, profiles and CMYK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import color_profiles
import grading
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from visioneval import Grade
from visioneval.graders.palette import PaletteGrader
from visioneval.graders.palette.grader import measure_palette

CREAM, BROWN, ORANGE, BLUE = "#F5E6CC", "#3B2A1E", "#D98E4A", "#1E50C8"
PALETTE = [CREAM, BROWN, ORANGE]


def card(size: int = 200, ground: str = CREAM, mode: str = "RGB") -> Image.Image:
    """Three quarters of the ground, and an eighth of each of two other colors of the palette."""
    image = Image.new(mode, (size, size), ground)
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 0, size // 2 - 1, size // 4 - 1), fill=BROWN)
    pen.rectangle((size // 2, 0, size - 1, size // 4 - 1), fill=ORANGE)
    return image


def graded(path: Path, palette: Any = PALETTE, **options: Any) -> Grade:
    return grading.grade(PaletteGrader(type="palette", key="colors", **options), path, expect={"palette": palette})


def saved(image: Image.Image, folder: Path, name: str = "a.png", **save: Any) -> Path:
    image.save(folder / name, **save)
    return folder / name


def test_each_color_has_its_share(tmp_path: Path) -> None:
    grade = graded(saved(card(), tmp_path))
    assert grade.scores == {"colors": 1.0, "colors.off": 0.0, "colors.unused": 0}
    assert grade.reasons == {}
    assert grade.details["palette"] == [
        {"color": CREAM, "share": 0.75},
        {"color": BROWN, "share": 0.125},
        {"color": ORANGE, "share": 0.125},
    ]


def test_the_largest_region_off_the_palette_is_named_with_its_place_and_color(tmp_path: Path) -> None:
    image = card()
    pen = ImageDraw.Draw(image)
    pen.rectangle((20, 100, 59, 149), fill=BLUE)
    pen.rectangle((150, 150, 169, 169), fill="#00A000")
    grade = graded(saved(image, tmp_path))
    assert grade.scores == {"colors": 0.94, "colors.off": 0.05, "colors.unused": 0}
    assert grade.reasons == {
        "colors": "6% of the image has other colors than the palette's; the largest region, 5% at x 20 to 60, y 100 to 150,"
        " is #1E50C8",
        "colors.off": "the largest region off the palette is 5% at x 20 to 60, y 100 to 150, is #1E50C8",
    }
    assert [(row["color"], row["share"]) for row in grade.details["off_palette"]] == [(BLUE, 0.05), ("#00A000", 0.01)]
    assert grade.details["off_palette"][0]["box"] == [[20, 100], [60, 100], [60, 150], [20, 150]]


def test_many_small_regions_lower_the_score_and_not_the_largest_region(tmp_path: Path) -> None:
    image = card()
    pen = ImageDraw.Draw(image)
    for x in range(10, 200, 20):
        for y in range(60, 200, 20):
            pen.rectangle((x, y, x + 3, y + 3), fill=BLUE)
    scores = graded(saved(image, tmp_path)).scores
    assert scores["colors"] == pytest.approx(1 - 70 * 16 / 40000)
    assert scores["colors.off"] == 0.0004


@pytest.mark.parametrize(("side", "unused"), [(6, 1), (7, 0)])
def test_a_color_counts_as_used_from_a_thousandth_on(tmp_path: Path, side: int, unused: int) -> None:
    image = card()
    image.paste("#00A0A0", (0, 100, side, 100 + side))
    grade = graded(saved(image, tmp_path), [*PALETTE, "#00A0A0"])
    assert grade.scores["colors.unused"] == unused
    assert ("colors.unused" in grade.reasons) == bool(unused)
    assert graded(saved(image, tmp_path), [*PALETTE, "#00A0A0"], min_used=0).scores["colors.unused"] == 0


def test_a_palette_of_one_color_and_one_of_none_of_the_image(tmp_path: Path) -> None:
    path = saved(card(), tmp_path)
    assert graded(path, [CREAM]).scores == {"colors": 0.75, "colors.off": 0.25, "colors.unused": 0}
    assert graded(path, ["#0000FF"]).scores == {"colors": 0.0, "colors.off": 1.0, "colors.unused": 1}


def test_the_tolerance_decides_which_color_is_near(tmp_path: Path) -> None:
    path = saved(card(ground="#E8D4B0"), tmp_path)  # about 5 from cream
    assert graded(path, tolerance=3).scores["colors"] == 0.25
    assert graded(path, tolerance=8).scores["colors"] == 1


def test_smooth_edges_between_two_colors_of_the_palette_are_on_it() -> None:
    pixels = np.asarray(card(800).resize((200, 200), Image.Resampling.BOX).filter(ImageFilter.GaussianBlur(0.6)))
    assert measure_palette(pixels, PALETTE, 3).off <= 0.0002, "but for where three colors meet"
    assert measure_palette(pixels, PALETTE, 3).edges > 0.005


def test_a_wide_gradient_between_two_colors_and_an_edge_to_another_color_are_off_it() -> None:
    blend = np.linspace(0, 1, 200)[None, :, None]
    ends = (np.array(tuple(bytes.fromhex(color[1:]))) for color in (CREAM, BROWN))
    first, second = ends
    gradient = np.rint(np.broadcast_to(first * (1 - blend) + second * blend, (200, 200, 3))).astype(np.uint8)
    assert measure_palette(gradient, PALETTE, 6).off > 0.5
    blurred = np.asarray(card(ground=BLUE).filter(ImageFilter.GaussianBlur(1)))
    found = measure_palette(blurred, PALETTE, 6)
    assert found.regions[0].share > 0.74
    assert found.edges < 0.01, "only those between brown and orange"


def test_what_is_transparent_has_no_color(tmp_path: Path) -> None:
    image = card(mode="RGBA")
    image.paste((30, 80, 200, 0), (0, 100, 200, 200))  # hidden blue
    grade = graded(saved(image, tmp_path))
    assert grade.scores == {"colors": 1.0, "colors.off": 0.0, "colors.unused": 0}
    assert grade.details["palette"][0]["share"] == 0.5
    assert grade.details["visible"] == 0.5


def test_a_translucent_region_counts_by_its_opacity(tmp_path: Path) -> None:
    image = card(mode="RGBA")
    image.paste((30, 80, 200, 51), (0, 100, 200, 200))
    scores = graded(saved(image, tmp_path)).scores
    assert scores["colors.off"] == pytest.approx(0.1 / 0.6, abs=1e-4)


def test_an_image_that_is_all_transparent_has_no_score(tmp_path: Path) -> None:
    grade = graded(saved(Image.new("RGBA", (20, 20), (245, 230, 204, 0)), tmp_path))
    assert grade.scores == {"colors": None, "colors.off": None, "colors.unused": None}
    assert grade.error == "every pixel of the image is transparent, so it has no color"


def test_colors_are_compared_in_srgb_whatever_the_profile(tmp_path: Path) -> None:
    green = Image.new("RGB", (40, 40), "#64C832")
    tagged = saved(green, tmp_path, "p3.png", icc_profile=color_profiles.display_p3())
    red, middle, blue = color_profiles.srgb_of(green, color_profiles.display_p3()).getpixel((0, 0))
    shown = f"#{red:02X}{middle:02X}{blue:02X}"
    for path, palette, score in (
        (tagged, [shown], 1),
        (tagged, ["#64C832"], 0),
        (saved(green, tmp_path), ["#64C832"], 1),
        (saved(green, tmp_path), [shown], 0),
    ):
        assert graded(path, palette, tolerance=2).scores["colors"] == score


def test_cmyk_is_compared_as_it_is_shown(tmp_path: Path) -> None:
    image = Image.new("CMYK", (40, 40), (0, 0, 0, 0))
    assert graded(saved(image, tmp_path, "a.tif"), ["#FFFFFF"]).scores["colors"] == 1


def test_lossy_encoding_leaves_a_flat_card_on_its_palette(tmp_path: Path) -> None:
    assert graded(saved(card(), tmp_path, "a.jpg", quality=60)).scores["colors"] > 0.99
