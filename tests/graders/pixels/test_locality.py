from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import grading
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter
from pydantic import ValidationError

from visioneval import CaseFiles, Grade, GraderError, TestCase
from visioneval.graders.measures import Measure
from visioneval.graders.pixels import LocalityGrader
from visioneval.graders.pixels.locality import LocalityFinding, measure_locality, outside_failure
from visioneval.graders.pixels.sharpening import amplification
from visioneval.media.images import size_of
from visioneval.report.text import cut_middle

pytestmark = pytest.mark.slow

DEFAULTS = LocalityGrader(type="locality", key="local")
Edit = tuple[np.ndarray, np.ndarray, np.ndarray]
BOX = (150, 110, 270, 200)


def encoded(output: np.ndarray, kind: str, quality: int) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(output).save(file, kind, quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def resized(output: np.ndarray, factor: float) -> np.ndarray:
    size = (round(output.shape[1] * factor), round(output.shape[0] * factor))
    return np.asarray(Image.fromarray(output).resize(size, Image.Resampling.LANCZOS))


def shifted(output: np.ndarray, right: int, down: int) -> np.ndarray:
    padded = np.pad(output, ((20, 20), (20, 20), (0, 0)), mode="edge")
    return np.roll(padded, (down, right), (0, 1))[20:-20, 20:-20]


def brightened(output: np.ndarray, by: int) -> np.ndarray:
    return np.clip(output.astype(int) + by, 0, 255).astype(np.uint8)


def patched(output: np.ndarray, x: int, y: int) -> np.ndarray:
    patch = output.copy()
    patch[y : y + 12, x : x + 12] = 0 if output[y : y + 12, x : x + 12].mean() > 127 else 255
    return patch


def with_part_moved(output: np.ndarray, by: int) -> np.ndarray:
    part = output.copy()
    rows = output.shape[0] // 3
    part[:rows] = np.roll(output[:rows], by, axis=1)
    return part


def noisy(output: np.ndarray, sigma: float) -> np.ndarray:
    noise = np.random.default_rng(5).normal(0, sigma, output.shape)
    return np.clip(output + noise, 0, 255).astype(np.uint8)


def unsharp(output: np.ndarray, radius: float, percent: int) -> np.ndarray:
    return np.asarray(Image.fromarray(output).filter(ImageFilter.UnsharpMask(radius, percent, 0)))


def resampled(output: np.ndarray) -> np.ndarray:
    size = output.shape[1::-1]
    return np.asarray(Image.fromarray(resized(output, 0.7)).resize(size, Image.Resampling.LANCZOS))


def through_lab(output: np.ndarray) -> np.ndarray:
    return np.asarray(cv2.cvtColor(cv2.cvtColor(output, cv2.COLOR_RGB2LAB), cv2.COLOR_LAB2RGB), np.uint8)


HARMLESS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as it is": lambda o: o,
    "jpeg 75": lambda o: encoded(o, "JPEG", 75),
    "webp 80": lambda o: encoded(o, "WEBP", 80),
    "half the size": lambda o: resized(o, 0.5),
    "half the size, jpeg 85": lambda o: encoded(resized(o, 0.5), "JPEG", 85),
    "14 % larger": lambda o: resized(o, 1024 / 900),
    "twice the size": lambda o: resized(o, 2),
    "sharpened": lambda o: unsharp(o, 1, 50),
    "sharpened, wide": lambda o: unsharp(o, 2, 50),
    "sharpened, jpeg 85": lambda o: encoded(unsharp(o, 2, 50), "JPEG", 85),
    "jpeg 85, sharpened": lambda o: unsharp(encoded(o, "JPEG", 85), 1, 100),
    "resampled, sharpened": lambda o: unsharp(resampled(o), 2, 50),
    "resampled, sharpened, jpeg 85": lambda o: encoded(unsharp(resampled(o), 1, 100), "JPEG", 85),
    "through LAB": through_lab,
    "whole shifted": lambda o: shifted(o, 3, -2),
    "whole shifted, jpeg 75": lambda o: encoded(shifted(o, -5, 4), "JPEG", 75),
}
HARMFUL: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "background repainted": lambda o, m: np.where(m[..., None], o, np.array([60, 140, 70], np.uint8)),
    "background brightened": lambda o, m: np.where(m[..., None], o, brightened(o, 16)),
    "background grey": lambda o, m: np.where(m[..., None], o, o.mean(axis=2, keepdims=True).astype(np.uint8)),
    "all tinted": lambda o, m: np.dstack([brightened(o[..., 0], 20), o[..., 1:]]),
    "patch": lambda o, m: patched(o, o.shape[1] - 60, 40),
    "patch in the corner": lambda o, m: patched(o, 0, o.shape[0] - 12),
    "patch, jpeg 75": lambda o, m: encoded(patched(o, o.shape[1] - 60, 40), "JPEG", 75),
    "patch, whole shifted": lambda o, m: shifted(patched(o, o.shape[1] - 60, 40), 3, 2),
    "patch, sharpened": lambda o, m: unsharp(patched(o, o.shape[1] - 60, 40), 2, 100),
    "patch, jpeg 85, sharpened": lambda o, m: unsharp(encoded(patched(o, o.shape[1] - 60, 40), "JPEG", 85), 1, 100),
    "patch, resampled, sharpened": lambda o, m: unsharp(resampled(patched(o, o.shape[1] - 60, 40)), 2, 50),
    "sharpened far too much": lambda o, m: unsharp(o, 2, 300),
    "half of it sharpened": lambda o, m: np.hstack([unsharp(o, 2, 100)[:, :210], o[:, 210:]]),
    "part moved 6": lambda o, m: with_part_moved(o, 6),
    "part moved 12": lambda o, m: with_part_moved(o, 12),
    "noise": lambda o, m: noisy(o, 15),
    "mirrored": lambda o, m: o[:, ::-1].copy(),
}


# What the generation does not already show: real texture, and what a model's re-encoding leaves of it. Around the masks,
# as test_real_data.py measures the complete images.
CROPS = {"poster": (60, 1023, 860, 1383), "pendant": (250, 450, 850, 1000)}
REAL_HARMLESS = ["as it is", "jpeg 75", "half the size, jpeg 85", "14 % larger", "whole shifted, jpeg 75"]
REAL_HARMFUL = [
    "background repainted",
    "background brightened",
    "patch",
    "patch, sharpened",
    "patch, resampled, sharpened",
    "patch, whole shifted",
    "part moved 6",
    "noise",
]


_FINDINGS: dict[tuple[Any, ...], LocalityFinding] = {}


def measured(edit: Edit, output: np.ndarray, **options: Any) -> LocalityFinding:
    """The measures of an output; once for all tests of equal pixels."""
    base, _, mask = edit
    pixels = ((array.shape, hashlib.sha256(array.tobytes()).digest()) for array in (base, output, mask))
    key = (*pixels, *options.items())
    if key not in _FINDINGS:
        options = {"exact": False, "dilate": DEFAULTS.dilate, **options}
        _FINDINGS[key] = measure_locality(base, output, mask, **options)
    return _FINDINGS[key]


def passes_outside(result: LocalityFinding) -> bool:
    assert result.changed_outside is not None
    assert result.worst_window is not None
    return result.changed_outside <= DEFAULTS.max_changed_outside and result.worst_window <= DEFAULTS.max_worst_window


def passes_inside(result: LocalityFinding) -> bool:
    return result.changed_inside is not None and result.changed_inside >= DEFAULTS.min_changed_inside


@pytest.fixture(scope="module")
def synthetic_edit() -> Edit:
    """A generation with shapes, small print and a little grain; the edit recolours a disc inside the mask."""
    rng = np.random.default_rng(21)
    image = Image.new("RGB", (420, 330), (205, 210, 190))
    pen = ImageDraw.Draw(image)
    for _ in range(70):
        x, y = int(rng.integers(0, 400)), int(rng.integers(0, 310))
        colour = tuple(int(value) for value in rng.integers(0, 256, 3))
        pen.rectangle((x, y, x + int(rng.integers(8, 50)), y + int(rng.integers(8, 50))), fill=colour)
    pen.rectangle((290, 230, 410, 260), fill="white")
    pen.text((295, 238), "small print here", fill="black")
    edited = image.copy()
    ImageDraw.Draw(edited).ellipse((170, 120, 250, 190), fill=(220, 30, 60))
    mask = np.zeros((330, 420), bool)
    mask[BOX[1] : BOX[3], BOX[0] : BOX[2]] = True
    return noisy(np.asarray(image), 2), np.asarray(edited), mask


@pytest.fixture(scope="module", params=["poster", "pendant"])
def real(request: pytest.FixtureRequest) -> Edit:
    folder = Path(__file__).resolve().parents[4] / "shared" / "data" / "edits"
    if not folder.is_dir():
        pytest.skip("../shared/data is not here")
    name = request.param
    box = CROPS[name]
    base, output = (
        np.asarray(Image.open(folder / f"{name}_{kind}.jpg").convert("RGB").crop(box)) for kind in ("input", "output")
    )
    return base, output, np.asarray(Image.open(folder / f"{name}_mask.png").convert("RGBA").crop(box))[..., 3] == 0


@pytest.mark.parametrize("name", HARMLESS)
def test_a_synthetic_edit_passes(synthetic_edit: Edit, name: str) -> None:
    result = measured(synthetic_edit, HARMLESS[name](synthetic_edit[1]))
    assert passes_outside(result)
    assert passes_inside(result)
    assert result.sharpness_outside is not None
    assert result.sharpness_outside > DEFAULTS.min_sharpness_outside


@pytest.mark.parametrize("name", REAL_HARMLESS)
def test_the_real_edits_pass(real: Edit, name: str) -> None:
    result = measured(real, HARMLESS[name](real[1]))
    assert passes_outside(result)
    assert passes_inside(result)


@pytest.mark.parametrize("name", ["sharpened", "sharpened, wide", "resampled, sharpened", "through LAB"])
def test_a_real_image_that_was_only_sharpened_passes(real: Edit, name: str) -> None:
    assert passes_outside(measured(real, HARMLESS[name](real[0])))


@pytest.mark.parametrize("name", HARMFUL)
def test_a_synthetic_edit_that_spills_fails(synthetic_edit: Edit, name: str) -> None:
    assert not passes_outside(measured(synthetic_edit, HARMFUL[name](synthetic_edit[1], synthetic_edit[2])))


@pytest.mark.parametrize("name", REAL_HARMFUL)
def test_the_real_edits_fail_when_they_spill(real: Edit, name: str) -> None:
    assert not passes_outside(measured(real, HARMFUL[name](real[1], real[2])))


def test_removed_small_print_fails(synthetic_edit: Edit) -> None:
    output = synthetic_edit[1].copy()
    output[232:258, 292:408] = 255
    result = measured(synthetic_edit, output)
    assert not passes_outside(result)
    assert result.window is not None
    left, top, width, height = result.window
    assert 280 <= left <= left + width <= 420
    assert 215 <= top <= top + height <= 275


@pytest.mark.parametrize("remade", [lambda b: b, lambda b: encoded(b, "JPEG", 85), lambda b: encoded(b, "WEBP", 80)])
def test_an_unedited_output_is_distinguished_from_an_edit(
    synthetic_edit: Edit, remade: Callable[[np.ndarray], np.ndarray]
) -> None:
    result = measured(synthetic_edit, remade(synthetic_edit[0]))
    assert passes_outside(result)
    assert not passes_inside(result)


@pytest.mark.parametrize("remade", [lambda b: b, lambda b: encoded(b, "JPEG", 85)])
def test_an_unedited_output_is_distinguished_from_real_edits(
    real: Edit, remade: Callable[[np.ndarray], np.ndarray]
) -> None:
    result = measured(real, remade(real[0]))
    assert passes_outside(result)
    assert result.changed_inside == pytest.approx(0, abs=0.001)


def test_the_worst_window_is_where_the_patch_is(real: Edit) -> None:
    x, y = real[0].shape[1] - 60, 40
    result = measured(real, patched(real[1], x, y))
    assert result.window is not None
    left, top, width, height = result.window
    assert left - 2 <= x <= x + 12 <= left + width + 2
    assert top - 2 <= y <= y + 12 <= top + height + 2


def test_the_real_edits_measure_as_documented(real: Edit) -> None:
    result = measured(real, real[1])
    assert result.changed_outside == pytest.approx(0, abs=0.0005)
    assert result.worst_window == pytest.approx(0.03, abs=0.04)
    assert result.ssim_outside == pytest.approx(0.89, abs=0.06)
    assert result.changed_inside is not None
    assert result.changed_inside > 0.1


def test_blur_shows_in_the_similarity(synthetic_edit: Edit) -> None:
    blurred = np.asarray(Image.fromarray(synthetic_edit[1]).filter(ImageFilter.GaussianBlur(2)))
    before, after = (
        measured(synthetic_edit, synthetic_edit[1]).ssim_outside,
        measured(synthetic_edit, blurred).ssim_outside,
    )
    assert before is not None
    assert after is not None
    assert after < before - 0.1


def test_the_edit_does_not_affect_the_measures_outside(synthetic_edit: Edit) -> None:
    base, output, mask = synthetic_edit
    assert measured((base, output, mask), np.where(mask[..., None], output, base)).changed_outside == 0
    result = measured((base, output, mask), np.where(mask[..., None], 255 - base, base))
    assert (result.changed_outside, result.worst_window) == (0, 0)
    assert result.ssim_outside == pytest.approx(1)
    assert result.window is None


def test_dilate_grants_a_margin(synthetic_edit: Edit) -> None:
    base, _, mask = synthetic_edit
    output = base.copy()
    output[BOX[1] - 6 : BOX[3] + 6, BOX[0] - 6 : BOX[2] + 6] = (255, 0, 255)
    edit = (base, output, mask)
    assert measured(edit, output, dilate=9).changed_outside == 0
    assert not passes_outside(measured(edit, output, dilate=0))
    assert measured(edit, output, dilate=0).pixels_outside > measured(edit, output, dilate=9).pixels_outside


def test_exact_counts_every_pixel(synthetic_edit: Edit) -> None:
    base, _, mask = synthetic_edit
    output = base.copy()
    output[5, 7, 0] ^= 1
    output[150, 200, 1] ^= 1
    result = measured((base, output, mask), output, exact=True, dilate=0)
    assert result.changed_outside == 1 / (~mask).sum()
    assert result.changed_inside == 1 / mask.sum()
    assert result.worst_window == 1 / 24**2
    assert measured((base, output, mask), output).changed_outside == 0


def test_exact_takes_no_shift_back(synthetic_edit: Edit) -> None:
    result = measured(synthetic_edit, shifted(synthetic_edit[0], 2, 0), exact=True)
    assert result.registration.shift_x == 0
    assert result.changed_outside is not None
    assert result.changed_outside > 0.5


def test_exact_has_limits_of_zero_unless_stated() -> None:
    strict = LocalityGrader(type="locality", key="k", tolerance="exact")
    assert (strict.max_changed_outside, strict.max_worst_window, strict.dilate) == (0, 0, 0)
    assert strict.min_changed_inside == DEFAULTS.min_changed_inside
    assert "k.shift" not in strict.metrics(TestCase(id="c", prompt="p", images=["a.png"], mask="m.png"))
    custom = LocalityGrader(type="locality", key="k", tolerance="exact", max_changed_outside=0.1, dilate=3)
    assert (custom.max_changed_outside, custom.dilate) == (0.1, 3)
    assert LocalityGrader.model_validate(custom.model_dump()) == custom
    with pytest.raises(ValidationError):
        LocalityGrader(type="locality", key="k", max_worst_window=1.5)


def test_a_full_or_empty_mask_leaves_one_side_unmeasured(synthetic_edit: Edit) -> None:
    base, output, mask = synthetic_edit
    everything = measured((base, output, np.ones_like(mask)), output)
    assert (everything.changed_outside, everything.worst_window, everything.ssim_outside) == (None, None, None)
    assert everything.changed_inside is not None
    nothing = measured((base, output, np.zeros_like(mask)), output)
    assert nothing.changed_inside is None
    assert nothing.pixels_outside == mask.size


@pytest.fixture
def grade(tmp_path: Path, synthetic_edit: Edit) -> Callable[..., Grade]:
    """``grade(output, mask=None, **options)`` grades an output of the generated edit from files."""

    def run(output: np.ndarray | Path, mask: np.ndarray | None = None, **options: Any) -> Grade:
        files = CaseFiles((("base", tmp_path / "base.png"),), {"editable": tmp_path / "mask.png"})
        Image.fromarray(synthetic_edit[0]).save(tmp_path / "base.png")
        inside = synthetic_edit[2] if mask is None else mask
        alpha = np.where(inside, 0, 255).astype(np.uint8)
        Image.fromarray(np.dstack([np.zeros((*alpha.shape, 3), np.uint8), alpha])).save(tmp_path / "mask.png")
        path = output if isinstance(output, Path) else tmp_path / "out.png"
        if not isinstance(output, Path):
            Image.fromarray(output).save(path)

        def save(name: str, data: bytes) -> str:
            (tmp_path / name).write_bytes(data)
            return f"artifacts/{name}"

        config = LocalityGrader(type="locality", key="local", **options)
        return grading.grade(config, path, files=files, save=save, measure=_measured_once)

    return run


async def _measured_once(measure: Measure[Any]) -> Any:
    """The measures of equal files with equal options, once for all tests."""
    files = ((role, hashlib.sha256(path.read_bytes()).digest()) for role, path in measure.files.items())
    key = (*files, *measure.options.items())
    if key not in _FINDINGS:
        _FINDINGS[key] = measure.run()
    return _FINDINGS[key]


def test_sharpening_of_the_whole_image_is_undone_and_recorded(
    grade: Callable[..., Grade], synthetic_edit: Edit
) -> None:
    passed = grade(unsharp(synthetic_edit[1], 2, 50))
    assert passed.scores["local"] is True
    assert passed.details["sharpening"] == pytest.approx(0.5, abs=0.1)
    assert passed.scores["local.sharpness_outside"] > 1.2  # as it is, compared with the input
    assert grade(synthetic_edit[1]).details["sharpening"] == 0
    unedited = grade(unsharp(synthetic_edit[0], 2, 100))
    assert "the edit is missing" in unedited.reasons["local"]


@pytest.mark.parametrize(("percent", "is_undone"), [(100, True), (400, False)])
def test_only_mild_sharpening_is_undone(synthetic_edit: Edit, percent: int, is_undone: bool) -> None:
    base = synthetic_edit[1] // 2 + 64  # without clipping, which hides how strong it is
    gains = amplification(base, unsharp(base, 1, percent), np.ones(base.shape[:2], bool))
    assert bool(gains) is is_undone


def test_sharpening_is_undone_in_what_is_opaque(synthetic_edit: Edit) -> None:
    base, output, mask = synthetic_edit
    alpha = np.full(mask.shape, 255, np.uint8)
    alpha[:40] = 0
    clear = [np.dstack([image, alpha]) for image in (base, unsharp(output, 2, 50))]
    result = measured((clear[0], output, mask), clear[1])
    assert result.sharpening == pytest.approx(0.5, abs=0.1)
    assert passes_outside(result)
    spilled = np.dstack([unsharp(patched(output, output.shape[1] - 60, 60), 2, 50), alpha])
    assert not passes_outside(measured((clear[0], output, mask), spilled))


def test_a_pass_carries_its_numbers_and_a_map(
    grade: Callable[..., Grade], synthetic_edit: Edit, tmp_path: Path
) -> None:
    result = grade(shifted(synthetic_edit[1], 4, 0))
    assert result.scores["local"] is True
    names = ("changed_outside", "worst_window", "ssim_outside", "changed_inside")
    names += ("sharpness_outside", "shift", "magnification")
    assert set(result.scores) == {"local", *(f"local.{name}" for name in names)}
    assert result.scores["local.shift"] == pytest.approx(4 / 330, abs=2e-4)
    assert all(isinstance(result.scores[f"local.{name}"], (int, float)) for name in names)
    assert result.details["encoded_again"] is True  # so nothing is claimed about a change that stands alone
    assert result.reasons == {}
    assert result.error is None
    assert result.details["difference_map"] == "artifacts/local.difference.png"
    assert size_of(tmp_path / "local.difference.png") == (420, 330)
    assert result.details["registration"]["shift_x"] == pytest.approx(4, abs=0.1)
    assert result.details["registration"]["skipped"]["right"] == 4
    assert result.tool_versions["opencv"]


def test_a_spill_is_reported_with_size_and_position(grade: Callable[..., Grade], synthetic_edit: Edit) -> None:
    result = grade(patched(synthetic_edit[1], 360, 40))
    assert result.scores["local"] is False
    window = result.details["window"]
    assert (
        f"x {window['left']} to {window['left'] + 24}, y {window['top']} to {window['top'] + 24}"
        in result.reasons["local"]
    )
    assert "%" in result.reasons["local"]


def test_a_missing_edit_is_reported(grade: Callable[..., Grade], synthetic_edit: Edit) -> None:
    result = grade(synthetic_edit[0])
    assert result.scores["local"] is False
    assert (
        result.reasons["local"]
        == "0% of the pixels inside the mask changed, below the limit of 0.2%: the edit is missing"
    )


def test_a_small_edit_in_a_large_mask_passes_and_a_smaller_one_names_the_option(
    grade: Callable[..., Grade], synthetic_edit: Edit
) -> None:
    output = synthetic_edit[0].copy()
    output[140:150, 190:200] = (255, 0, 255)  # about 1 % of the mask
    assert grade(output).scores["local"] is True
    strict = grade(output, min_changed_inside=0.05)
    assert strict.scores["local"] is False
    assert "set 'min_changed_inside' lower, or draw it closer" in strict.reasons["local"]


@pytest.mark.parametrize("tolerance", ["reencode", "redrawn"])
def test_another_shape_fails_as_distorted(grade: Callable[..., Grade], synthetic_edit: Edit, tolerance: str) -> None:
    result = grade(np.asarray(Image.fromarray(synthetic_edit[1]).resize((330, 330))), tolerance=tolerance)
    assert result.scores["local"] is False
    assert result.details["registration"]["distorted"] is True
    assert "330x330" in result.reasons["local"]
    assert "420x330" in result.reasons["local"]


def test_exact_mode_rejects_another_size(grade: Callable[..., Grade], synthetic_edit: Edit) -> None:
    result = grade(resized(synthetic_edit[1], 0.5), tolerance="exact", max_changed_outside=1, max_worst_window=1)
    assert result.scores["local"] is False
    assert "210x165" in result.reasons["local"]


def test_measures_without_a_mask_area_are_null_with_a_cause(grade: Callable[..., Grade], synthetic_edit: Edit) -> None:
    result = grade(synthetic_edit[1], np.ones_like(synthetic_edit[2]))
    assert result.scores["local"] is None
    assert result.scores["local.changed_outside"] is None
    assert result.scores["local.worst_window"] is None
    assert result.scores["local.ssim_outside"] is None
    assert result.scores["local.isolated_change"] is None
    assert result.error == "no pixel is outside the mask"
    unedited = grade(synthetic_edit[0], np.ones_like(synthetic_edit[2]))
    assert unedited.scores["local"] is False
    empty = grade(synthetic_edit[1], np.zeros_like(synthetic_edit[2]), max_changed_outside=1, max_worst_window=1)
    assert (empty.scores["local"], empty.scores["local.changed_inside"]) == (None, None)
    assert empty.error == "no pixel is inside the mask"


def test_a_change_under_the_soft_edge_of_a_mask_is_allowed(tmp_path: Path) -> None:
    """A blend of the edit with its surroundings changes the pixels that the mask shows partly. Beyond the margin, and
    where a mask is opaque but for an encoder's noise, a change still fails."""
    base = np.full((128, 128, 3), 200, np.uint8)
    alpha = np.full((128, 128), 255, np.uint8)
    alpha[32:96, 8:120] = 0
    alpha[32:96, 40:120] = 100  # as wide as no margin is
    alpha[:24] = 254
    verdicts = []
    for left in (12, 60, 100):
        output = base.copy()
        output[40:88, left : left + 16] = (20, 90, 20)
        verdicts.append(_graded(tmp_path, base, alpha, output).scores["local"])
    output = base.copy()
    output[40:88, 12:28] = (20, 90, 20)
    output[2:18, 40:60] = (20, 90, 20)
    verdicts.append(_graded(tmp_path, base, alpha, output).scores["local"])
    assert verdicts == [True, True, True, False]


def _graded(folder: Path, base: np.ndarray, alpha: np.ndarray, output: np.ndarray) -> Grade:
    names = ("base", "mask", "out")
    for name, pixels in zip(names, (base, np.dstack([base, alpha]), output), strict=True):
        Image.fromarray(pixels).save(folder / f"{name}.png")
    files = CaseFiles((("base", folder / "base.png"),), {"editable": folder / "mask.png"})
    return grading.grade(DEFAULTS, folder / "out.png", files=files)


def test_a_mask_of_another_size_is_an_error(grade: Callable[..., Grade], synthetic_edit: Edit) -> None:
    with pytest.raises(GraderError, match=r"210x165.*420x330"):
        grade(synthetic_edit[1], synthetic_edit[2][::2, ::2])


@pytest.mark.parametrize("change", [lambda o: o, lambda o: encoded(o, "JPEG", 60), lambda o: encoded(o, "WEBP", 60)])
def test_real_encodings_keep_their_detail(real: Edit, change: Callable[[np.ndarray], np.ndarray]) -> None:
    sharpness = measured(real, change(real[1])).sharpness_outside
    assert sharpness is not None
    assert sharpness > DEFAULTS.min_sharpness_outside


def test_a_blur_of_the_real_edits_fails(real: Edit) -> None:
    blurred = np.asarray(Image.fromarray(real[1]).filter(ImageFilter.GaussianBlur(2)))
    sharpness = measured(real, blurred).sharpness_outside
    assert sharpness is not None
    assert sharpness < 0.3


def test_a_blur_is_reported(grade: Callable[..., Grade], synthetic_edit: Edit) -> None:
    result = grade(np.asarray(Image.fromarray(synthetic_edit[1]).filter(ImageFilter.GaussianBlur(2))))
    assert result.scores["local"] is False
    assert result.scores["local.sharpness_outside"] < 0.4
    assert "of the fine detail is left, below the limit of 0.4: the output is blurred" in result.reasons["local"]


def test_shift_and_magnification_have_limits(grade: Callable[..., Grade], synthetic_edit: Edit) -> None:
    moved = shifted(synthetic_edit[1], 3, 4)
    assert grade(moved).scores["local"] is True
    strict = grade(moved, max_shift=0.01)
    assert strict.scores["local"] is False
    assert strict.scores["local.shift"] == pytest.approx(5 / 330, abs=2e-4)
    assert "the whole image moved by 1.5% of its shorter side" in strict.reasons["local"]
    height, width = synthetic_edit[1].shape[:2]
    larger = resized(synthetic_edit[1], 1.015)
    top, left = (larger.shape[0] - height) // 2, (larger.shape[1] - width) // 2
    zoomed = larger[top : top + height, left : left + width]
    for output, limit, passed in ((zoomed, 1.02, True), (zoomed, 1.01, False)):
        result = grade(output, max_magnification=limit)
        assert result.scores["local.magnification"] == pytest.approx(1.015, abs=2e-3)
        assert result.scores["local"] is passed
        assert ("enlarged or reduced by a factor of 1.01" in result.reasons.get("local", "")) is not passed
    assert grade(synthetic_edit[1]).scores["local.magnification"] == 1


def test_a_base_without_detail_has_no_sharpness(grade: Callable[..., Grade]) -> None:
    """Metrics that do not apply are left out, not null."""
    flat = np.full((60, 60, 3), 90, np.uint8)
    assert measure_locality(flat, flat, np.zeros((60, 60), bool), exact=False, dilate=0).sharpness_outside is None
    result = grade(np.full((330, 330, 3), 90, np.uint8))
    assert result.details["registration"]["distorted"] is True
    assert "local.shift" not in result.scores


def test_identical_pixels_have_not_changed(synthetic_edit: Edit) -> None:
    """Of an area that changed on average, as by anti-aliased text, the share counts only the pixels that differ."""
    base = np.full((240, 240, 3), 240, np.uint8)
    output = base.copy()
    output[::8, ::2] = 90
    result = measure_locality(base, output, np.zeros(base.shape[:2], bool), exact=False, dilate=0)
    assert result.changed_outside is not None
    differs = (base != output).any(axis=-1).mean()
    assert 0 < result.changed_outside <= differs
    assert result.worst_window is not None
    assert result.worst_window > 0.9


def redrawn(output: np.ndarray) -> np.ndarray:
    """What a model that paints every pixel again leaves: all moved a little, toned, smoothed, sharpened and encoded."""
    height, width = output.shape[:2]
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    across = columns + np.sin(rows / height * 4).astype(np.float32) * 1.5
    down = rows + np.cos(columns / width * 3).astype(np.float32) * 1.2
    moved = cv2.remap(output, across, down, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE).astype(float)
    toned = np.clip(moved + 8 * np.sin(moved / 255 * 3), 0, 255).astype(np.uint8)
    return encoded(unsharp(np.asarray(cv2.GaussianBlur(toned, (0, 0), 0.8), np.uint8), 1.5, 100), "JPEG", 88)


REDRAWN_HARMFUL: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "patch": lambda o: patched(o, o.shape[1] - 60, 40),
    "part moved": lambda o: with_part_moved(o, 12),
    "zoomed": lambda o: resized(o, 1.1)[: o.shape[0], : o.shape[1]],
    "mirrored": lambda o: o[:, ::-1].copy(),
    "another image": lambda o: np.rot90(o, 2).copy(),
}


def test_a_redraw_passes_as_redrawn_only(grade: Callable[..., Grade], synthetic_edit: Edit) -> None:
    output = redrawn(synthetic_edit[1])
    assert grade(output).scores["local"] is False
    result = grade(output, tolerance="redrawn")
    assert result.scores["local"] is True, result.reasons
    names = ("content_change", "redraw", "tone", "displacement")
    assert all(result.scores[f"local.{name}"] > 0 for name in names[1:])
    assert result.scores["local.displacement"] <= 0.006
    assert not any(f"local.{name}" in grade(synthetic_edit[1]).scores for name in names)
    assert "local.isolated_change" not in result.scores


@pytest.mark.parametrize("name", REDRAWN_HARMFUL)
def test_damage_in_a_redraw_fails(grade: Callable[..., Grade], synthetic_edit: Edit, name: str) -> None:
    result = grade(redrawn(REDRAWN_HARMFUL[name](synthetic_edit[1])), tolerance="redrawn")
    assert result.scores["local"] is False
    assert "were undone" in result.reasons["local"]


def test_the_reason_of_a_redraw_names_what_changed_and_what_was_undone(
    grade: Callable[..., Grade], synthetic_edit: Edit
) -> None:
    base = synthetic_edit[0]
    blurred, tinted = base.copy(), base.copy()
    blurred[220:320, 280:415] = cv2.GaussianBlur(base, (0, 0), 4)[220:320, 280:415]
    tinted[225:275, 285:410, 0] //= 4
    for changed, cause in ((blurred, "sharpness"), (tinted, "color")):
        grade_of_change = grade(changed, tolerance="redrawn")
        reason, value = grade_of_change.reasons["local"], grade_of_change.scores["local.content_change"]
        limit = grade_of_change.details["limits"]["max_content_change"]
        first = f"outside the mask, the {cause} changed by {value:g}, above the limit of {limit:g}, "
        assert cut_middle(f"{reason} {reason}", 200).startswith(first), "also where a table cuts the reason"
        assert ("; detail lost" in reason) == (cause == "sharpness")
        assert "no change of sharpness were undone" in reason or "loss of sharpness" in reason
    sharp = grade(unsharp(tinted, 2, 100), tolerance="redrawn")
    assert sharp.details["redraw_sharpness"] > 0.1
    assert f"a gain of sharpness of {sharp.details['redraw_sharpness']:.0%}" in sharp.reasons["local"]


@pytest.mark.parametrize("name", ["max_content_change", "max_redraw"])
def test_a_redraw_at_a_limit_passes_and_one_above_it_fails(
    grade: Callable[..., Grade], synthetic_edit: Edit, name: str
) -> None:
    output = redrawn(REDRAWN_HARMFUL["patch"](synthetic_edit[1]))
    others = {"max_content_change": 300, "max_redraw": 300, "tolerance": "redrawn"}
    value = grade(output, **others).scores[f"local.{name.removeprefix('max_')}"]
    assert value > 0.1
    assert grade(output, **others | {name: value}).scores["local"] is True
    assert grade(output, **others | {name: value - 0.01}).scores["local"] is False


def test_a_change_in_a_redraw_is_located(grade: Callable[..., Grade], synthetic_edit: Edit) -> None:
    output = synthetic_edit[1].copy()
    output[280:310, 30:60] = 255 - output[280:310, 30:60]
    result = grade(redrawn(output), tolerance="redrawn")
    window = result.details["redraw_window"]
    assert 20 <= window["left"] <= 65
    assert 270 <= window["top"] <= 315
    assert f"x {window['left']} to {window['left'] + window['width']}" in result.reasons["local"]
    assert grade(redrawn(output), tolerance="redrawn", max_content_change=300, max_redraw=300).scores["local"] is True


@pytest.mark.parametrize(
    ("tolerance", "limit"),
    [("redrawn", {"max_worst_window": 0.5}), ("redrawn", {"max_isolated_change": 9}), ("reencode", {"max_redraw": 4})],
)
def test_a_limit_that_is_not_read_is_refused(tolerance: str, limit: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=rf"'{next(iter(limit))}' is no limit of 'tolerance: {tolerance}'"):
        LocalityGrader.model_validate({"type": "locality", "key": "k", "tolerance": tolerance, **limit})


def test_a_redraw_without_anything_outside_the_mask_is_not_measured(
    grade: Callable[..., Grade], synthetic_edit: Edit
) -> None:
    result = grade(synthetic_edit[1], np.ones_like(synthetic_edit[2]), tolerance="redrawn")
    assert (result.scores["local"], result.scores["local.content_change"]) == (None, None)
    assert result.error == "no pixel is outside the mask"
    frame = np.ones_like(synthetic_edit[2])
    frame[:1] = False
    thin = grade(synthetic_edit[1], frame, tolerance="redrawn", dilate=0)
    assert (thin.scores["local"], thin.scores["local.redraw"]) == (None, None)
    assert thin.error == "too little is outside the mask to tell a redraw from a change"


def test_a_redraw_of_another_size_or_transparency_is_measured(
    grade: Callable[..., Grade], synthetic_edit: Edit
) -> None:
    assert grade(resized(redrawn(synthetic_edit[1]), 1.5), tolerance="redrawn").scores["local"] is True
    clear = np.dstack([synthetic_edit[1], np.full(synthetic_edit[2].shape, 255, np.uint8)])
    assert grade(clear, tolerance="redrawn").scores["local"] is True
    clear[270:320, 20:80, 3] = 0
    gone = grade(clear, tolerance="redrawn")
    assert gone.scores["local"] is False
    assert "became more transparent" in gone.reasons["local"]


REDRAWS = {
    "step_pendant_cn": True,
    "step_poster_cn": True,
    "nano_camera_glass": True,
    "step_cry_cn": True,
    "step_jacket_cn": False,
    "nano_scribbles": False,
    "nano_dessert": False,
}
"""Whether nothing changed outside the mask, to the eye."""


@pytest.mark.parametrize("name", REDRAWS)
def test_redraws_by_real_models(shared_data: Path, name: str) -> None:
    folder = shared_data / "redraws"
    base, output = (np.asarray(Image.open(folder / f"{name}_{kind}.png").convert("RGB")) for kind in ("base", "out"))
    mask = np.asarray(Image.open(folder / f"{name}_mask.png").convert("RGBA"))[..., 3] == 0
    config = LocalityGrader(type="locality", key="k", tolerance="redrawn")
    result = measure_locality(base, output, mask, exact=False, dilate=8, redrawn=True)
    assert (outside_failure(result, config) is None) is REDRAWS[name]
    assert not (REDRAWS[name] and list(result.registration.failures(config, result.base_size)))


@pytest.mark.parametrize("moved", [{"zoom": 1.05}, {"zoom": 0.95}, {"right": 20}])
def test_a_redraw_that_was_zoomed_or_moved_as_a_whole_fails(
    grade: Callable[..., Grade], synthetic_edit: Edit, moved: dict[str, float]
) -> None:
    """Most of the image differs then, so that no place stands out."""
    base, output, _ = synthetic_edit
    height, width = base.shape[:2]
    zoom, right = moved.get("zoom", 1), moved.get("right", 0)
    matrix = np.array([[zoom, 0, (1 - zoom) * width / 2 + right], [0, zoom, (1 - zoom) * height / 2]])
    image = cv2.warpAffine(output, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
    unlimited = {"tolerance": "redrawn", "max_content_change": 300, "max_redraw": 300}
    result = grade(redrawn(np.asarray(image)), **unlimited)
    assert result.scores["local"] is False
    assert ("the whole image was enlarged or reduced" if "zoom" in moved else "the whole image moved") in str(
        result.reasons
    )
    if "zoom" in moved:
        assert result.scores["local.magnification"] == pytest.approx(1.05, abs=0.01)
    assert grade(redrawn(np.asarray(image)), max_magnification=1.1, max_shift=0.1, **unlimited).scores["local"] is True
