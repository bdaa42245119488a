from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import grading
import numpy as np
import pytest
from color_profiles import display_p3, encoded, srgb_of
from PIL import Image, ImageDraw, ImageFilter

from visioneval import CaseFiles, Grade, GraderError
from visioneval.graders.pixels import ReferenceGrader
from visioneval.graders.pixels.reference import measure_reference
from visioneval.media.images import size_of


@pytest.fixture(scope="module")
def scene() -> np.ndarray:
    rng = np.random.default_rng(4)
    image = Image.new("RGB", (360, 300), (120, 160, 200))
    pen = ImageDraw.Draw(image)
    for _ in range(60):
        x, y = int(rng.integers(0, 340)), int(rng.integers(0, 280))
        colour = tuple(int(value) for value in rng.integers(0, 256, 3))
        pen.ellipse((x, y, x + int(rng.integers(10, 60)), y + int(rng.integers(10, 60))), fill=colour)
    return np.asarray(image)


def graded(tmp_path: Path, reference: np.ndarray | bytes, output: np.ndarray | bytes, **options: Any) -> Grade:
    for name, image in (("reference.png", reference), ("out.png", output)):
        data = image if isinstance(image, bytes) else encoded(Image.fromarray(image), None)
        (tmp_path / name).write_bytes(data)

    def save(name: str, data: bytes) -> str:
        (tmp_path / name).write_bytes(data)
        return name

    files = CaseFiles(reference=tmp_path / "reference.png")
    config = ReferenceGrader(type="reference", key="ref", **options)
    return grading.grade(config, tmp_path / "out.png", files=files, save=save)


def jpeg(output: np.ndarray, quality: int) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(output).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


def with_patch(scene: np.ndarray) -> np.ndarray:
    """A change of 12 pixels, which the averages hide."""
    output = scene.copy()
    output[40:52, 300:312] = 0 if scene[40:52, 300:312].mean() > 127 else 255
    return output


def test_the_reference_itself_is_perfect(tmp_path: Path, scene: np.ndarray) -> None:
    grade = graded(tmp_path, scene, scene)
    assert grade.scores == {
        "ref": True,
        "ref.ssim": pytest.approx(1),
        "ref.delta_e": 0,
        "ref.worst_window": 0,
        "ref.shift": 0,
        "ref.magnification": 1,
    }
    assert grade.reasons == {}
    assert grade.details["changed"] == 0
    assert size_of(tmp_path / grade.details["difference_map"]) == (360, 300)


def test_encoding_size_and_a_small_shift_are_tolerated(tmp_path: Path, scene: np.ndarray) -> None:
    half = np.asarray(Image.fromarray(scene).resize((180, 150), Image.Resampling.LANCZOS))
    shifted = np.pad(scene, ((3, 0), (0, 4), (0, 0)), mode="edge")[:300, 4:]
    for output in (jpeg(scene, 75), half, shifted):
        grade = graded(tmp_path, scene, output)
        assert grade.scores["ref"] is True, grade.reasons
    assert grade.details["registration"]["shift_x"] == pytest.approx(-4, abs=0.1)
    assert grade.scores["ref.shift"] == pytest.approx(5 / 300, abs=5e-4)
    strict = graded(tmp_path, scene, shifted, max_shift=0.01)
    assert strict.scores["ref"] is False
    assert "the whole image moved by 1.7% of its shorter side" in strict.reasons["ref"]


def test_another_image_fails_on_both(tmp_path: Path, scene: np.ndarray) -> None:
    grade = graded(tmp_path, scene, scene[::-1].copy())
    assert grade.scores["ref"] is False
    assert grade.scores["ref.ssim"] < 0.8
    assert grade.scores["ref.delta_e"] > 10
    assert "structural similarity" in grade.reasons["ref"]
    assert "CIEDE2000" in grade.reasons["ref"]


def test_a_tint_fails_only_on_colour(tmp_path: Path, scene: np.ndarray) -> None:
    grade = graded(tmp_path, scene, np.clip(scene.astype(int) + np.array([25, 0, -25]), 0, 255).astype(np.uint8))
    assert grade.scores["ref"] is False
    assert "CIEDE2000" in grade.reasons["ref"]
    assert "structural" not in grade.reasons["ref"]


def test_a_small_change_fails_by_its_window(tmp_path: Path, scene: np.ndarray) -> None:
    output = with_patch(scene)
    for changed in (output, jpeg(output, 75)):
        grade = graded(tmp_path, scene, changed)
        assert grade.scores["ref"] is False
        assert grade.scores["ref.ssim"] > 0.85
        assert "of the window at x" in grade.reasons["ref"]
        assert "structural" not in grade.reasons["ref"]
        window = grade.details["window"]
        assert window["left"] - 2 <= 300 <= 312 <= window["left"] + 26
        assert graded(tmp_path, scene, changed, max_worst_window=1).scores["ref"] is True


def with_hole(scene: np.ndarray) -> np.ndarray:
    """On transparency around a frame, and with a hole."""
    alpha = np.zeros(scene.shape[:2], np.uint8)
    alpha[20:280, 20:340] = 255
    alpha[200:230, 100:140] = 90
    return np.dstack([scene, alpha])


@pytest.mark.parametrize(
    ("size", "is_encoded"),
    [((180, 150), False), ((270, 225), False), ((270, 225), True), ((410, 342), True), ((720, 600), True)],
)
def test_a_small_change_fails_at_another_size_and_the_size_alone_passes(
    tmp_path: Path, scene: np.ndarray, size: tuple[int, int], is_encoded: bool
) -> None:
    for image, passes in ((scene, True), (with_patch(scene), False)):
        output = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS))
        grade = graded(tmp_path, scene, jpeg(output, 85) if is_encoded else output)
        assert grade.scores["ref"] is passes, grade.reasons
        assert passes or "of the window at x" in grade.reasons["ref"]
        assert grade.details["output_size"] == f"{size[0]}x{size[1]}"


def test_a_small_change_fails_in_another_color_space_and_the_space_alone_passes(
    tmp_path: Path, scene: np.ndarray
) -> None:
    profile = display_p3()
    wide = encoded(Image.fromarray(scene), profile)
    for image, passes in ((scene, True), (with_patch(scene), False)):
        grade = graded(tmp_path, wide, encoded(srgb_of(Image.fromarray(image), profile), None))
        assert grade.scores["ref"] is passes, grade.reasons
        assert grade.details["color_spaces"] == {"base": "Display P3", "output": "sRGB"}
        assert passes or "the output's color space is sRGB, the reference's Display P3" in grade.reasons["ref"]
        same = graded(tmp_path, wide, encoded(Image.fromarray(image), profile))
        assert same.scores["ref"] is passes
        assert passes or "color space" not in same.reasons["ref"]


@pytest.mark.parametrize("size", [(360, 300), (180, 150), (720, 600)])
def test_a_small_change_fails_on_transparency_and_transparency_alone_passes(
    tmp_path: Path, scene: np.ndarray, size: tuple[int, int]
) -> None:
    reference = with_hole(scene)
    closed = reference.copy()
    closed[200:230, 100:140, 3] = 255
    reasons = {"as it is": None, "patch": "of the window at x", "closed": "of the pixels became more opaque"}
    images = {"as it is": reference, "patch": with_hole(with_patch(scene)), "closed": closed}
    for name, image in images.items():
        output = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS))
        grade = graded(tmp_path, reference, output)
        assert grade.scores["ref"] is (reasons[name] is None), grade.reasons
        assert (reasons[name] or "") in grade.reasons.get("ref", "")
    hidden = reference.copy()
    hidden[reference[..., 3] == 0] = (250, 0, 250, 0)
    assert graded(tmp_path, reference, hidden).scores["ref"] is True


@pytest.mark.parametrize(("zoom", "passes"), [(1.015, True), (1.05, False)])
def test_a_zoom_is_undone_up_to_the_limit_and_measured_beyond_it(
    tmp_path: Path, scene: np.ndarray, zoom: float, passes: bool
) -> None:
    larger = Image.fromarray(scene).resize((round(360 * zoom), round(300 * zoom)), Image.Resampling.LANCZOS)
    left, top = (larger.width - 360) // 2, (larger.height - 300) // 2
    grade = graded(tmp_path, scene, np.asarray(larger)[top : top + 300, left : left + 360])
    assert grade.scores["ref.magnification"] == pytest.approx(zoom, abs=0.003)
    assert grade.scores["ref"] is passes, grade.reasons
    assert ("the whole image was enlarged" in grade.reasons.get("ref", "")) is not passes


def test_sharpening_of_the_whole_image_is_no_change_of_a_window(tmp_path: Path, scene: np.ndarray) -> None:
    sharp = np.asarray(Image.fromarray(scene).filter(ImageFilter.UnsharpMask(1, 50, 0)))
    grade = graded(tmp_path, scene, sharp)
    assert grade.scores["ref"] is True, grade.reasons
    assert grade.details["sharpening"] > 0.2


def test_limits_are_the_suites(tmp_path: Path, scene: np.ndarray) -> None:
    assert (
        graded(tmp_path, scene, scene[::-1].copy(), min_ssim=-1, max_delta_e=200, max_worst_window=1).scores["ref"]
        is True
    )
    assert graded(tmp_path, scene, jpeg(scene, 75), min_ssim=0.999).scores["ref"] is False


@pytest.mark.parametrize(
    ("name", "metric", "step"),
    [("min_ssim", "ssim", 1e-4), ("max_delta_e", "delta_e", -1e-4), ("max_worst_window", "worst_window", -1e-4)],
)
def test_an_output_at_a_limit_passes_and_one_beyond_it_fails(
    tmp_path: Path, scene: np.ndarray, name: str, metric: str, step: float
) -> None:
    output = scene.copy()
    output[40:52, 300:312] = 255 - scene[40:52, 300:312]
    output = jpeg(output, 75)
    others = {"min_ssim": -1, "max_delta_e": 200, "max_worst_window": 1}
    value = graded(tmp_path, scene, output, **others).scores[f"ref.{metric}"]
    assert graded(tmp_path, scene, output, **others | {name: value}).scores["ref"] is True
    assert graded(tmp_path, scene, output, **others | {name: value + step}).scores["ref"] is False


def test_an_encoded_or_resampled_output_that_was_sharpened_passes_and_a_patch_in_it_fails(
    tmp_path: Path, scene: np.ndarray
) -> None:
    for image, passes in ((scene, True), (with_patch(scene), False)):
        small = Image.fromarray(image).resize((252, 210), Image.Resampling.LANCZOS)
        resampled = np.asarray(small.resize((360, 300), Image.Resampling.LANCZOS))
        for drifted in (jpeg(image, 85), resampled):
            sharp = np.asarray(Image.fromarray(drifted).filter(ImageFilter.UnsharpMask(1, 100, 0)))
            assert graded(tmp_path, scene, sharp).scores["ref"] is passes


def test_another_shape_fails(tmp_path: Path) -> None:
    flat = np.full((200, 200, 3), 90, np.uint8)
    grade = graded(tmp_path, flat, flat[:150])
    assert grade.scores["ref"] is False
    assert grade.scores["ref.ssim"] == pytest.approx(1)
    assert "ref.shift" not in grade.scores
    assert grade.reasons["ref"] == "the output is 200x150; its aspect ratio differs from the reference's 200x200"


def test_a_broken_reference_is_an_error_that_names_it(tmp_path: Path, scene: np.ndarray) -> None:
    with pytest.raises(GraderError, match=r"reference\.png"):
        graded(tmp_path, b"no image", scene)


@pytest.mark.slow
def test_a_real_edit_is_distinguished_from_its_input_and_other_images(shared_data: Path) -> None:
    defaults = ReferenceGrader(type="reference", key="ref")
    folder = shared_data / "edits"
    before, after = (
        np.asarray(Image.open(folder / f"poster_{kind}.jpg").convert("RGB").crop((100, 850, 800, 1383)))
        for kind in ("input", "output")
    )
    good = measure_reference(after, jpeg(after, 60))
    assert good.ssim >= defaults.min_ssim
    assert good.delta_e <= defaults.max_delta_e
    unedited = measure_reference(after, before)
    assert unedited.ssim == pytest.approx(0.793, abs=0.005)
    assert unedited.delta_e == pytest.approx(9.97, abs=0.05)
    drawn = [
        np.asarray(Image.open(shared_data / "generations" / name).convert("RGB").resize((512, 512)))
        for name in ("cats_dalle3.png", "cats_sdxl.jpg")
    ]
    other = measure_reference(*drawn)
    assert other.ssim < 0.5
    assert other.delta_e > 15
