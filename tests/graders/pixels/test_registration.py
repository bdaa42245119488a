from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw

from visioneval import GraderError
from visioneval.graders.pixels.registration import align, read_pixels, scale_to_base


def a_scene(width: int = 480, height: int = 360) -> np.ndarray:
    rng = np.random.default_rng(11)
    image = Image.new("RGB", (width, height), (200, 205, 195))
    pen = ImageDraw.Draw(image)
    for _ in range(60):
        x, y = int(rng.integers(-20, width)), int(rng.integers(-20, height))
        size = rng.integers(12, 60, 2)
        colour = tuple(int(value) for value in rng.integers(0, 256, 3))
        pen.rectangle((x, y, x + int(size[0]), y + int(size[1])), fill=colour)
    return np.asarray(image)


def moved(output: np.ndarray, dx: float, dy: float, zoom: float = 1.0) -> np.ndarray:
    height, width = output.shape[:2]
    matrix = np.array([[zoom, 0, dx + (1 - zoom) * (width - 1) / 2], [0, zoom, dy + (1 - zoom) * (height - 1) / 2]])
    return cv2.warpAffine(output, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)


def apart(laid_image: np.ndarray, base: np.ndarray, where: np.ndarray) -> float:
    return float(np.abs(laid_image.astype(int) - base)[where].mean())


@pytest.mark.parametrize(("dx", "dy"), [(3, 2), (-7, 5), (0, -4), (1.5, 0)])
def test_a_global_shift_is_reversed(dx: float, dy: float) -> None:
    base = a_scene()
    output = moved(base, dx, dy)
    aligned = align(base, output)
    result = aligned.registration
    assert (result.shift_x, result.shift_y) == pytest.approx((dx, dy), abs=0.1)
    assert (result.zoom_x, result.zoom_y) == pytest.approx((1, 1), abs=1e-3)
    assert apart(aligned.output, base, aligned.valid) < 0.35 * apart(output, base, aligned.valid)


def test_strips_without_counterpart_are_excluded_and_reported() -> None:
    base = a_scene()
    aligned = align(base, moved(base, 6, -4))
    assert aligned.registration.skipped == {"left": 0, "top": 4, "right": 6, "bottom": 0}
    assert not aligned.valid[:4].any()
    assert not aligned.valid[:, -6:].any()
    assert aligned.valid[4:, :-6].all()


def test_a_small_zoom_is_taken_back() -> None:
    base = a_scene()
    aligned = align(base, moved(base, 0, 0, 1.01))
    assert aligned.registration.zoom_x == pytest.approx(1.01, abs=5e-4)
    assert aligned.registration.zoom_y == pytest.approx(1.01, abs=5e-4)
    assert apart(aligned.output, base, aligned.valid) < 4


def test_a_image_that_did_not_move_is_not_resampled() -> None:
    base = a_scene()
    rng = np.random.default_rng(1)
    output = np.clip(base + rng.normal(0, 6, base.shape), 0, 255).astype(np.uint8)
    aligned = align(base, output)
    assert np.array_equal(aligned.output, output)
    assert aligned.valid.all()
    assert aligned.registration.note is None


@pytest.mark.parametrize("box", [(0, 0, 480, 120), (0, 0, 240, 360), (200, 100, 360, 300)])
def test_a_part_that_moved_is_not_hidden(box: tuple[int, int, int, int]) -> None:
    base = a_scene()
    left, top, right, bottom = box
    output = base.copy()
    output[top:bottom, left:right] = np.roll(base[top:bottom, left:right], 6, axis=1)
    aligned = align(base, output)
    assert (aligned.registration.shift_x, aligned.registration.shift_y) == (0, 0)
    assert np.array_equal(aligned.output, output)


def test_a_moved_object_on_a_plain_background_is_not_aligned() -> None:
    base = np.full((480, 480, 3), 230, np.uint8)
    base[60:120, 300:380] = (20, 60, 140)
    output = np.roll(base, 5, axis=1)
    aligned = align(base, output)
    assert np.array_equal(aligned.output, output)
    assert "too little of the image" in (aligned.registration.note or "")


def test_one_moved_object_among_fixed_objects_is_not_aligned() -> None:
    base = np.full((480, 480, 3), 230, np.uint8)
    base[40:52, 40:52] = 0
    base[440:452, 430:442] = 0
    output = base.copy()
    base[100:300, 100:400] = (20, 60, 140)
    output[106:306, 106:406] = (20, 60, 140)
    aligned = align(base, output)
    assert np.array_equal(aligned.output, output)


def test_the_edited_region_does_not_affect_alignment() -> None:
    base = a_scene()
    fixed = np.ones(base.shape[:2], bool)
    fixed[80:300, 100:420] = False
    output = base.copy()
    output[80:300, 100:420] = np.roll(base[80:300, 100:420], 7, axis=1)
    aligned = align(base, output, fixed)
    assert np.array_equal(aligned.output, output)
    result = align(base, moved(output, -3, 2), fixed).registration
    assert (result.shift_x, result.shift_y) == pytest.approx((-3, 2), abs=0.1)


@pytest.mark.parametrize(("dx", "zoom"), [(20, 1.0), (40, 1.0), (0, 1.06), (0, 0.95)])
def test_a_large_move_is_not_aligned_and_measured(dx: int, zoom: float) -> None:
    base = a_scene()
    output = moved(base, dx, 0, zoom)
    aligned = align(base, output)
    result = aligned.registration
    assert np.array_equal(aligned.output, output)
    assert aligned.valid.all()
    assert "they exceed 2% of the image" in (result.note or "")
    assert result.skipped is None
    assert (result.shift_x, result.zoom_x, result.zoom_y) == pytest.approx((dx, zoom, zoom), abs=0.005 + dx / 50)
    assert result.magnification == pytest.approx(max(zoom, 1 / zoom), abs=0.005)


def test_a_large_move_of_a_part_is_not_measured_as_one_of_the_whole() -> None:
    base = a_scene()
    half = base.copy()
    half[:, :240] = moved(base, 0, 0, 1.06)[:, :240]
    for output in (half, moved(a_scene()[::-1].copy(), 20, 0, 1.06)):
        result = align(base, output).registration
        assert (result.shift_x, result.shift_y, result.magnification) == (0, 0, 1)


@pytest.mark.slow
def test_flat_and_unrelated_images_are_not_aligned() -> None:
    base, flat = a_scene(), np.full((360, 480, 3), 90, np.uint8)
    for single, other in ((base, flat), (flat, base), (flat, flat), (base, base[::-1, ::-1].copy())):
        assert np.array_equal(align(single, other).output, other)


@pytest.mark.parametrize("size", [(240, 180), (960, 720), (512, 384), (478, 360)])
def test_another_size_is_scaled(size: tuple[int, int]) -> None:
    base = a_scene()
    output = np.asarray(Image.fromarray(base).resize(size, Image.Resampling.LANCZOS))
    aligned = align(base, output)
    assert aligned.output.shape == base.shape
    assert aligned.registration.scale_x == pytest.approx(480 / size[0])
    assert aligned.registration.scale_y == pytest.approx(360 / size[1])
    assert not aligned.registration.distorted
    assert apart(aligned.output, aligned.base, aligned.valid) < 3


def test_a_smaller_image_is_compared_at_its_own_resolution() -> None:
    base = a_scene()
    aligned = scale_to_base(base, np.asarray(Image.fromarray(base).resize((160, 120), Image.Resampling.BOX)))
    assert np.array_equal(aligned.whole_base, base)
    assert apart(aligned.output, aligned.base, aligned.valid) < 0.3 * apart(aligned.output, base, aligned.valid)
    assert aligned.registration.coarseness == 3
    assert scale_to_base(base, np.zeros((720, 960, 3), np.uint8)).registration.coarseness == 1


def test_another_shape_is_distorted_and_not_registered() -> None:
    base = a_scene()
    aligned = align(base, np.asarray(Image.fromarray(base).resize((360, 360))))
    assert aligned.registration.distorted
    assert aligned.output.shape == base.shape
    assert aligned.registration.shift_x == 0


def test_details_are_plain_and_name_every_number() -> None:
    base = a_scene()
    details = align(base, moved(base, 3, 0)).registration.as_details()
    assert details["shift_x"] == pytest.approx(3, abs=0.1)
    assert details["skipped"]["right"] == 3
    assert details["scale_x"] == 1.0


@pytest.mark.slow
def test_large_images_are_registered_to_the_pixel() -> None:
    base = cv2.resize(a_scene(), (2880, 2160), interpolation=cv2.INTER_LINEAR)
    result = align(base, moved(base, 12, -9)).registration
    assert (result.shift_x, result.shift_y) == pytest.approx((12, -9), abs=0.4)


def test_a_file_that_does_not_decode_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"not an image")
    with pytest.raises(GraderError, match=r"broken\.png"):
        read_pixels(tmp_path / "broken.png")
