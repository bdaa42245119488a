from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from visioneval.graders.pixels import difference
from visioneval.graders.pixels.color import NEUTRAL_CHROMA, ciede2000, ciede2000_of_bytes, to_lab
from visioneval.graders.pixels.difference import (
    changed_exactly,
    changed_visibly,
    difference_map,
    luma,
    mean_delta_e,
    mean_ssim,
    ssim_map,
    worst_window,
)

SHARMA_2005 = [  # L1, a1, b1, L2, a2, b2, difference: pairs of the paper's table 1
    (50.0, 2.6772, -79.7751, 50.0, 0.0, -82.7485, 2.0425),
    (50.0, -1.3802, -84.2814, 50.0, 0.0, -82.7485, 1.0000),
    (50.0, 0.0, 0.0, 50.0, -1.0, 2.0, 2.3669),
    (50.0, 2.49, -0.001, 50.0, -2.49, 0.0009, 7.1792),
    (50.0, 2.49, -0.001, 50.0, -2.49, 0.0011, 7.2195),
    (50.0, 2.5, 0.0, 73.0, 25.0, -18.0, 27.1492),
    (22.7233, 20.0904, -46.6940, 23.0331, 14.9730, -42.5619, 2.0373),
    (90.8027, -2.0831, 1.4410, 91.1528, -1.6435, 0.0447, 1.4441),
    (2.0776, 0.0795, -1.1350, 0.9033, -0.0636, -0.5514, 0.9082),
]


@pytest.fixture(scope="module")
def pair() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    first = rng.integers(0, 256, (90, 130, 3), dtype=np.uint8)
    first[:40] = np.linspace(0, 255, 130, dtype=np.uint8)[None, :, None]
    second = np.clip(first.astype(int) + rng.integers(-40, 41, first.shape), 0, 255).astype(np.uint8)
    second[50:60] = first[50:60]
    return first, second


def everywhere(output: np.ndarray) -> np.ndarray:
    return np.ones(output.shape[:2], bool)


def a_scene(width: int = 320, height: int = 240) -> np.ndarray:
    image = Image.new("RGB", (width, height), (190, 200, 210))
    pen = ImageDraw.Draw(image)
    pen.rectangle((20, 20, 120, 90), fill=(180, 40, 30))
    pen.ellipse((180, 30, 280, 130), fill=(30, 90, 160))
    pen.text((40, 150), "a line of small print", fill=(20, 20, 20))
    return np.asarray(image)


def with_neutral_greys(lab: np.ndarray) -> np.ndarray:
    """CIELAB without a chroma too small to be a colour: its hue, and so CIEDE2000, would follow rounding."""
    return np.where(np.hypot(lab[..., 1:2], lab[..., 2:]) < NEUTRAL_CHROMA, lab * [1, 0, 0], lab)


def test_lab_agrees_with_scikit_image(pair: tuple[np.ndarray, np.ndarray]) -> None:
    from skimage.color import rgb2lab

    for output in pair:  # scikit-image's white is not its matrix times (1, 1, 1), which tints its greys
        assert np.abs(to_lab(output) - rgb2lab(output)).max() < 6e-3


def test_ciede2000_agrees_with_scikit_image(pair: tuple[np.ndarray, np.ndarray]) -> None:
    from skimage.color import deltaE_ciede2000

    first, second = (with_neutral_greys(to_lab(output).astype(np.float64)) for output in pair)
    assert np.abs(ciede2000(first, second) - deltaE_ciede2000(first, second)).max() < 1e-4


def test_colour_differences_of_images_agree_with_scikit_image(pair: tuple[np.ndarray, np.ndarray]) -> None:
    from skimage.color import deltaE_ciede2000, rgb2lab

    expected = deltaE_ciede2000(*(with_neutral_greys(rgb2lab(output)) for output in pair))
    assert np.abs(ciede2000(*map(to_lab, pair)) - expected).max() < 1e-2
    assert mean_delta_e(*pair, everywhere(pair[0])) == pytest.approx(expected.mean(), abs=1e-3)


def test_every_grey_is_neutral() -> None:
    greys = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    assert np.abs(to_lab(greys)[..., 1:]).max() < NEUTRAL_CHROMA / 100


@pytest.mark.parametrize("tint", [(0, 0), (6e-5, 0), (-6e-5, 6e-5), (0, -6e-5), (3e-3, -3e-3)])
def test_rounding_does_not_give_a_grey_a_hue(tint: tuple[float, float]) -> None:
    """Against a strong blue the hue of the rounding would weigh 0.1."""
    blue = np.array([[40.0, 40.0, -90.0]])
    plain = ciede2000(np.array([[86.0, 0.0, 0.0]]), blue)
    assert np.abs(ciede2000(np.array([[86.0, *tint]]), blue) - plain).max() < 1e-3
    assert np.abs(ciede2000(blue, np.array([[86.0, *tint]])) - plain).max() < 1e-3


def test_opposite_hues_give_the_formula_s_value_either_way() -> None:
    """Where no way round is shorter, the paper's mean hue is halfway between two angles of 0 to 360 degrees."""
    single, other = np.array([[50.0, 0.0, 40.0]]), np.array([[50.0, 0.0, -40.0]])
    weight = 1 - 0.17 * np.cos(np.radians(150)) + 0.24 + 0.32 * np.cos(np.radians(546)) - 0.2 * np.cos(np.radians(657))
    expected = 80 / (1 + 0.015 * 40 * weight)
    assert ciede2000(single, other) == pytest.approx(expected, abs=1e-4)
    assert ciede2000(other, single) == pytest.approx(expected, abs=1e-4)


def test_luma_is_not_rounded() -> None:
    output = np.array([[[255, 0, 0], [1, 2, 3], [255, 255, 255]]], np.uint8)
    assert luma(output)[0] == pytest.approx([76.245, 1.815, 255], abs=1e-5)


@pytest.mark.parametrize("row", SHARMA_2005)
def test_ciede2000_gives_the_published_values(row: tuple[float, ...]) -> None:
    single, other = np.array([row[:3]], np.float32), np.array([row[3:6]], np.float32)
    assert ciede2000(single, other)[0] == pytest.approx(row[6], abs=2e-4)
    assert ciede2000(other, single)[0] == pytest.approx(row[6], abs=2e-4)


def test_ssim_agrees_with_scikit_image(pair: tuple[np.ndarray, np.ndarray]) -> None:
    from skimage.metrics import structural_similarity

    single, other = (luma(output) for output in pair)
    expected, full = structural_similarity(
        single.astype(np.float64),
        other.astype(np.float64),
        data_range=255,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        full=True,
    )
    result = ssim_map(single, other)
    assert np.abs(result - full).max() < 1e-4
    assert result[5:-5, 5:-5].mean() == pytest.approx(expected, abs=1e-5)
    assert mean_ssim(*pair, everywhere(pair[0])) == pytest.approx(full.mean(), abs=1e-5)


def test_ssim_is_precise_on_bright_flat_images() -> None:
    from skimage.metrics import structural_similarity

    rng = np.random.default_rng(3)
    single = (250 + rng.normal(0, 0.2, (64, 64))).astype(np.float32)
    other = (250 + rng.normal(0, 0.2, (64, 64))).astype(np.float32)
    expected = structural_similarity(
        single.astype(np.float64),
        other.astype(np.float64),
        data_range=255,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
    )
    assert ssim_map(single, other)[5:-5, 5:-5].mean() == pytest.approx(expected, abs=1e-5)


def test_measuring_in_bands_gives_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    base = a_scene()
    output = base.copy()
    output[100:140, 200:260] = (10, 200, 90)
    output[150:156, 30:90] = base[200, 10]
    region = everywhere(base)
    whole = changed_visibly(base, output, region)
    numbers = mean_ssim(base, output, region), mean_delta_e(base, output, region)
    monkeypatch.setattr(difference, "_BAND_PIXELS", 320 * 20)
    assert np.array_equal(changed_visibly(base, output, region), whole)
    assert (mean_ssim(base, output, region), mean_delta_e(base, output, region)) == pytest.approx(numbers, abs=1e-6)


def test_a_changed_patch_marks_little_beyond_itself() -> None:
    base = a_scene()
    output = base.copy()
    output[60:72, 140:152] = (0, 0, 0)
    changed = changed_visibly(base, output, everywhere(base))
    assert changed[61:71, 141:151].all()
    assert 144 <= changed.sum() <= 18 * 18


@pytest.mark.parametrize("removed", [True, False])
def test_added_or_removed_small_print_is_a_change(removed: bool) -> None:
    base = a_scene()
    output = base.copy()
    output[145:170, 30:200] = (190, 200, 210)
    images = (base, output) if removed else (output, base)
    changed = changed_visibly(*images, everywhere(base))
    assert changed[145:170, 30:200].sum() > 300
    assert worst_window(changed, everywhere(base))[0] > 0.2


@pytest.mark.parametrize(("step", "share"), [(3, 0.0), (16, 1.0)])
def test_a_tint_is_changed_where_it_can_be_seen(step: int, share: float) -> None:
    base = np.full((120, 120, 3), 120, np.uint8)
    assert changed_visibly(base, base + np.uint8(step), everywhere(base)).mean() == share


def test_added_noise_is_changed_and_lost_noise_is_not() -> None:
    rng = np.random.default_rng(2)
    clean = np.full((160, 160, 3), 128, np.uint8)
    noisy = np.clip(128 + rng.normal(0, 15, clean.shape), 0, 255).astype(np.uint8)
    assert changed_visibly(clean, noisy, everywhere(clean)).mean() > 0.9
    assert changed_visibly(noisy, clean, everywhere(clean)).mean() < 0.01
    assert changed_visibly(clean, noisy, everywhere(clean), grainy=noisy).mean() < 0.01


def test_the_difference_in_32_bits_agrees_with_that_in_64(pair: tuple[np.ndarray, np.ndarray]) -> None:
    narrow, wide = ciede2000_of_bytes(*pair), ciede2000(*map(to_lab, pair))
    assert wide.max() > 1
    assert np.abs(narrow - wide).max() < 1e-3
    assert abs(narrow.mean(dtype=np.float64) - wide.mean(dtype=np.float64)) < 1e-6


@pytest.mark.parametrize(("kind", "quality"), [("JPEG", 75), ("JPEG", 85), ("WEBP", 80)])
def test_encoding_is_no_change(kind: str, quality: int) -> None:
    base = a_scene()
    file = io.BytesIO()
    Image.fromarray(base).save(file, kind, quality=quality)
    output = np.asarray(Image.open(file).convert("RGB"))
    changed = changed_visibly(base, output, everywhere(base))
    assert changed.mean() < 0.002
    assert worst_window(changed, everywhere(base))[0] < 0.15
    assert changed_exactly(base, output, everywhere(base)).mean() > 0.05


def test_changes_outside_a_region_do_not_leak_in() -> None:
    base = a_scene()
    output = base.copy()
    output[:, 160:] = 255 - output[:, 160:]
    region = everywhere(base)
    region[:, 160:] = False
    assert not changed_visibly(base, output, region).any()


def test_exact_mode_detects_one_step_in_one_channel() -> None:
    base = a_scene()
    output = base.copy()
    output[10, 11, 2] += 1
    region = everywhere(base)
    assert np.argwhere(changed_exactly(base, output, region)).tolist() == [[10, 11]]
    region[10, 11] = False
    assert not changed_exactly(base, output, region).any()


def test_the_worst_window_has_the_most_changed_pixels() -> None:
    changed, region = np.zeros((100, 150), bool), np.ones((100, 150), bool)
    changed[70:82, 120:132] = True
    changed[5:8, 5:8] = True
    share, (left, top, width, height) = worst_window(changed, region)
    assert share == 144 / 24**2
    assert (width, height) == (24, 24)
    assert changed[top : top + height, left : left + width].sum() == 144


def test_the_worst_window_of_a_narrow_frame_is_not_diluted() -> None:
    region = np.zeros((100, 100), bool)
    region[:6] = True
    changed = region.copy()
    changed[:, 50:] = False
    assert worst_window(changed, region)[0] == 1.0


def test_the_map_shows_both_kinds_of_change_the_mask_and_the_window() -> None:
    output = np.full((100, 100, 3), 255, np.uint8)
    outside, inside, mask = (np.zeros((100, 100), bool) for _ in range(3))
    outside[10:14, 10:14], inside[60:64, 60:64], mask[50:80, 50:80] = True, True, True
    shown = np.asarray(
        Image.open(io.BytesIO(difference_map(output, outside, inside, mask, (5, 5, 24, 24)))).convert("RGB")
    )
    assert shown.shape == (100, 100, 3)
    red, green, blue = (int(value) for value in shown[12, 12])
    assert red > 2 * max(green, blue)
    red, green, blue = (int(value) for value in shown[62, 62])
    assert blue > 2 * red
    assert shown[50, 65].tolist() == [255, 255, 255]
    assert shown[90, 90].max() < 170
    yellow = shown[2:5, 15]
    assert ((yellow[:, 0] > 200) & (yellow[:, 2] < 50)).any()


def test_large_difference_maps_are_scaled_down() -> None:
    none = np.zeros((100, 4096), bool)
    shown = Image.open(io.BytesIO(difference_map(np.zeros((100, 4096, 3), np.uint8), none)))
    assert shown.size == (2048, 50)


@pytest.mark.parametrize("at", [(0, 0), (301, 203), (590, 470)])
def test_only_the_surroundings_of_pixels_that_differ_are_looked_at(at: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    base = np.repeat(np.repeat(rng.integers(60, 120, (50, 63, 3), np.uint8), 10, 0), 10, 1)
    output = base.copy()
    top, left = at[1], at[0]
    output[top : top + 60, left : left + 60] += 18  # which is seen over an area only
    region = everywhere(base)
    region[:3, :5] = False
    around = changed_visibly(base, output, region)
    assert around.any()
    assert np.array_equal(changed_visibly(base, output, region, grainy=base.copy()), around)
