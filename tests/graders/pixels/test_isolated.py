"""A digit that changed outside the mask, in outputs that are identical elsewhere and in outputs that are not."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from visioneval.graders.pixels import LocalityGrader
from visioneval.graders.pixels.changes import isolated_change
from visioneval.graders.pixels.color import Mask, Pixels, premultiplied
from visioneval.graders.pixels.locality import measure_locality, outside_failure

LIMITS = LocalityGrader(type="locality", key="place")
COLORS = [((20, 20, 20), (246, 238, 220)), ((255, 255, 255), (30, 60, 120)), ((190, 30, 40), (246, 238, 220))]
BLACK_ON_CREAM = COLORS[0]


def flyer(day: str, height: int = 20, colors: tuple[tuple[int, ...], tuple[int, ...]] = BLACK_ON_CREAM) -> Pixels:
    ink, paper = colors
    image = Image.new("RGB", (300, 200), paper)
    for row, text in enumerate((f"until {day} May", "EUR 40 only")):
        font = ImageFont.load_default(height)
        ImageDraw.Draw(image).text((20, 40 + row * height * 1.5), text, font=font, fill=ink)
    return np.asarray(image)


def outside() -> Mask:
    region = np.ones((200, 300), np.bool_)
    region[:30, :60] = False
    return region


def encoded(image: Pixels, kind: str, quality: int) -> Pixels:
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


@pytest.mark.parametrize("colors", COLORS)
@pytest.mark.parametrize("height", [12, 16, 24, 48])
def test_a_changed_digit_fails_in_an_output_that_is_identical_elsewhere(
    height: int, colors: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    base, output = flyer("12", height, colors), flyer("17", height, colors).copy()
    output[5:25, 5:55] = (240, 160, 20)  # the edit
    finding = measure_locality(base, output, ~outside(), exact=False, dilate=LIMITS.dilate)
    assert finding.isolated is not None
    assert finding.isolated.pixels > LIMITS.max_isolated_change
    assert outside_failure(finding, LIMITS) is not None


def test_the_reason_names_the_place_of_the_digit() -> None:
    finding = measure_locality(flyer("12"), flyer("17"), ~outside(), exact=False, dilate=LIMITS.dilate)
    assert finding.isolated is not None
    assert finding.isolated.window is not None
    left, top, width, height = finding.isolated.window
    changed = np.argwhere((flyer("12") != flyer("17")).any(axis=2))
    assert top <= changed[:, 0].min()
    assert changed[:, 0].max() < top + height
    assert left <= changed[:, 1].min()
    assert changed[:, 1].max() < left + width
    reason = outside_failure(finding, LIMITS)
    assert reason is not None
    assert (
        f"pixels at x {left} to {left + width}, y {top} to {top + height} changed visibly, above the limit of 5"
        in reason
    )
    tolerant = LIMITS.model_copy(update={"max_isolated_change": 10_000})
    assert outside_failure(finding, tolerant) is None


@pytest.mark.parametrize(("kind", "quality"), [("JPEG", 95), ("JPEG", 60), ("WEBP", 90)])
def test_encoding_again_leaves_nothing_to_measure(kind: str, quality: int) -> None:
    assert isolated_change(flyer("12"), encoded(flyer("12"), kind, quality), outside()) is None


def test_text_that_a_codec_changed_in_a_photo_that_it_left_alone_is_no_change() -> None:
    """A JPEG photo that is saved again at the same quality stays as it was, and only what was set over it changes."""
    grain = np.random.default_rng(3).integers(0, 256, (200, 300, 3), dtype=np.uint8)
    photo = encoded(encoded(grain, "JPEG", 75), "JPEG", 75)
    base = photo.copy()
    base[120:, :] = flyer("12", 20, ((40, 60, 255), (0, 0, 0)))[20:100, :]
    output = encoded(base, "JPEG", 75)
    change = isolated_change(base, output, outside())
    assert change is None or change.pixels <= LIMITS.max_isolated_change


def test_a_repainted_surrounding_of_the_mask_is_judged_by_the_other_limits() -> None:
    base = flyer("12")
    output = base.copy()
    output[:40, :80] = 90
    change = isolated_change(base, output, outside())
    assert change is not None
    assert (change.pixels, change.window) == (0, None)


def test_a_part_that_was_generated_again_is_noise_and_not_many_changes() -> None:
    """Some tools crop the surroundings of the mask, edit the crop, and put it back."""
    base = np.tile(flyer("12"), (3, 3, 1))
    noise = np.random.default_rng(5).normal(0, 8, (160, 260, 3))
    output = base.copy()
    output[:160, :260] = np.clip(output[:160, :260] + noise, 0, 255)
    region = np.ones(base.shape[:2], np.bool_)
    region[:30, :60] = False
    change = isolated_change(base, output, region)
    assert change is not None
    assert change.pixels <= LIMITS.max_isolated_change


def test_an_identical_output_has_no_change_and_exact_does_not_look_for_one() -> None:
    base = flyer("12")
    change = isolated_change(base, base.copy(), outside())
    assert change is not None
    assert (change.pixels, change.window) == (0, None)
    assert measure_locality(base, flyer("17"), ~outside(), exact=True, dilate=0).isolated is None


def test_a_change_of_transparency_counts() -> None:
    base = np.dstack([flyer("12"), np.full((200, 300), 255, np.uint8)])
    output = base.copy()
    output[150:156, 150:156, 3] = 0
    change = isolated_change(premultiplied(base), premultiplied(output), outside())
    assert change is not None
    assert change.pixels == 36


def test_a_flat_image_has_no_detail_and_still_counts() -> None:
    base = np.full((200, 300, 3), 200, np.uint8)
    output = base.copy()
    output[100:104, 100:104] = 20
    change = isolated_change(base, output, outside())
    assert change is not None
    assert change.pixels == 16
