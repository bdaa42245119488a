"""The color profile is part of an image: local graders compare in sRGB by the embedded profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from broken_images import chunk
from color_profiles import SRGB_CURVE, display_p3, encoded, gray, portrait, srgb, srgb_of
from file_runner import FileRunner
from PIL import Image, ImageChops
from typer.testing import Result

from visioneval.graders.pixels import DiversityGrader
from visioneval.graders.pixels.reference import Diversity
from visioneval.judging.attachments import shown
from visioneval.media import images
from visioneval.media.color import MAX_PROFILE

BOX = (60, 50, 120, 100)
P3 = display_p3()


def edited(image: Image.Image) -> Image.Image:
    """The edit: another color inside the mask."""
    changed = image.copy()
    changed.paste((240, 220, 40), BOX)
    return changed


class Runner(FileRunner):
    """Runs a suite of one edit, whose base, output and reference are given as files."""

    def __init__(self, folder: Path) -> None:
        mask = Image.new("RGBA", portrait().size, "white")
        mask.paste((0, 0, 0, 0), BOX)
        mask.save(folder / "mask.png")
        case = {"id": "look", "prompt": "x", "images": ["base.png"], "mask": "mask.png"}
        super().__init__(folder, case, {"key": "local", "type": "locality"})

    def edit(self, base: bytes, output: bytes, *flags: str, run_id: str = "r") -> Result:
        (self.folder / "base.png").write_bytes(base)
        return self(output, *flags, run_id=run_id)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_a_redraw_is_compared_by_its_looks(runner: Runner) -> None:
    """A lost profile is another tone everywhere, which a redraw may have: it is undone, and recorded."""
    runner.graders = [{"key": "local", "type": "locality", "tolerance": "redrawn"}]
    base = encoded(portrait(), P3)
    tones = {}
    for name, output in (("same", srgb_of(edited(portrait()), P3)), ("lost", edited(portrait()))):
        assert runner.edit(base, encoded(output, None), run_id=name).exit_code == 0
        record = runner.record(name)
        assert record.graders[0].details["color_spaces"] == {"base": "Display P3", "output": "sRGB"}
        tones[name] = record.scores["local.tone"]
    assert tones["same"] < 0.5 < tones["lost"]


def test_an_srgb_output_of_the_same_look_passes_and_one_that_lost_its_profile_fails(runner: Runner) -> None:
    base = encoded(portrait(), P3)
    same_look = encoded(srgb_of(edited(portrait()), P3), None)
    result = runner.edit(base, same_look)
    assert result.exit_code == 0, result.output
    record = runner.record()
    assert record.scores["local"] is True
    assert record.scores["local.changed_outside"] < 0.002
    assert record.graders[0].details["color_spaces"] == {"base": "Display P3", "output": "sRGB"}
    assert runner.edit(base, encoded(edited(portrait()), None), run_id="lost").exit_code == 1
    lost = runner.record("lost")
    assert lost.scores["local"] is False
    assert "the output's color space is sRGB, the base image's Display P3" in lost.reasons["local"]


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "TIFF"])
def test_the_profile_is_read_in_every_format_that_has_one(runner: Runner, kind: str) -> None:
    options = {} if kind == "TIFF" else {"quality": 95}
    assert (
        runner.edit(encoded(srgb_of(portrait(), P3), None), encoded(edited(portrait()), P3, kind, **options)).exit_code
        == 0
    )
    lost = encoded(edited(portrait()), None, kind, **options)
    assert runner.edit(encoded(srgb_of(portrait(), P3), None), lost, run_id="lost").exit_code == 1


def test_srgb_by_profile_and_without_one_are_the_same(runner: Runner) -> None:
    runner.graders = [{"key": "local", "type": "locality", "tolerance": "exact"}]
    result = runner.edit(encoded(portrait(), srgb()), encoded(edited(portrait()), None))
    assert result.exit_code == 0, result.output
    assert "color_spaces" not in runner.record().graders[0].details


def test_exact_compares_stored_values_and_another_profile_is_a_difference(runner: Runner) -> None:
    runner.graders = [{"key": "local", "type": "locality", "tolerance": "exact"}]
    base = encoded(portrait(), P3)
    assert runner.edit(base, encoded(edited(portrait()), display_p3("P3 of a phone"))).exit_code == 0
    assert runner.edit(base, encoded(edited(portrait()), None), run_id="lost").exit_code == 1
    record = runner.record("lost")
    assert record.scores["local.changed_outside"] == 0  # no stored value changed
    assert record.reasons["local"] == "the output's color space is sRGB, the base image's Display P3"
    assert runner.edit(base, encoded(srgb_of(edited(portrait()), P3), None), run_id="converted").exit_code == 1
    assert "of the pixels outside the mask changed" in runner.record("converted").reasons["local"]


@pytest.mark.parametrize(("curve", "is_same"), [(SRGB_CURVE, True), ((1.8,), False)])
def test_exact_compares_the_look_of_a_gray_profile(runner: Runner, curve: tuple[float, ...], is_same: bool) -> None:
    runner.graders = [{"key": "local", "type": "locality", "tolerance": "exact"}]
    base = portrait().convert("L")
    result = runner.edit(encoded(base, gray(*curve)), encoded(edited(base.convert("RGB")), None))
    assert result.exit_code == (0 if is_same else 1), result.output


@pytest.mark.parametrize(("gamma", "is_same"), [(1.0, True), (1.8, False)])
def test_a_gray_space_and_one_of_colors_are_the_same_if_their_grays_are(gamma: float, is_same: bool) -> None:
    linear = images.color_space_of(encoded(Image.new("L", (2, 2)), gray(gamma)))
    colors = replace(linear, mode="RGB", look=images.color_space_of(encoded(Image.new("L", (2, 2)), gray())).look)
    assert linear.is_same(colors) is colors.is_same(linear) is is_same
    assert not linear.is_same(replace(linear, mode="CMYK"))


def test_reference_compares_looks(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "right.png").write_bytes(encoded(portrait(), P3))
    runner.case = {"id": "look", "prompt": "x", "reference": "right.png"}
    runner.graders = [{"key": "like", "type": "reference"}]
    assert runner.edit(b"", encoded(srgb_of(portrait(), P3), None)).exit_code == 0
    assert runner.record().scores["like.delta_e"] < 0.5
    assert runner.edit(b"", encoded(portrait(), None), run_id="lost").exit_code == 1
    assert "the output's color space is sRGB, the reference's Display P3" in runner.record("lost").reasons["like"]


def test_samples_that_look_the_same_are_not_diverse(tmp_path: Path) -> None:
    files = {
        "p3": encoded(portrait(), P3),
        "same": encoded(srgb_of(portrait(), P3), None),
        "lost": encoded(portrait(), None),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    p3, same, lost = (images.image_at(tmp_path / name, data) for name, data in files.items())
    grader = Diversity(DiversityGrader(key="spread", type="diversity"))
    assert grader.measure(p3, same).run().delta_e < 0.5
    assert grader.measure(p3, lost).run().delta_e > 3


def test_transparency_is_kept(tmp_path: Path) -> None:
    image = portrait()
    alpha = Image.linear_gradient("L").resize(image.size)
    image.putalpha(alpha)
    shown_image = images.load_image(encoded(image, P3))
    assert shown_image.mode == "RGBA"
    assert shown_image.getchannel("A").tobytes() == alpha.tobytes()
    assert _distance(shown_image.convert("RGB"), srgb_of(portrait(), P3)) <= 1


def test_a_gray_profile_is_read_with_alpha_and_at_16_bits(tmp_path: Path) -> None:
    linear = Image.new("L", (8, 8), 128)
    clear = linear.copy()
    clear.putalpha(77)
    deep = Image.new("I;16", (8, 8), 128 * 257)
    assert images.load_image(encoded(linear, gray(1.0))).getpixel((0, 0)) == (188, 188, 188)
    assert images.load_image(encoded(clear, gray(1.0))).getpixel((0, 0)) == (188, 188, 188, 77)
    assert images.load_image(encoded(deep, gray(1.0))).getpixel((0, 0)) == (188, 188, 188)


def test_colors_outside_of_srgb_become_the_nearest_inside() -> None:
    assert images.load_image(encoded(Image.new("RGB", (8, 8), (255, 0, 0)), P3)).getpixel((0, 0)) == (255, 0, 0)


def _distance(first: Image.Image, second: Image.Image) -> int:
    return max(high for _, high in ImageChops.difference(first, second).getextrema())


@pytest.mark.parametrize(
    "profile",
    [b"not a profile", P3[:200], P3 + bytes(MAX_PROFILE), gray()],
    ids=["no profile", "truncated", "too large", "of other channels"],
)
@pytest.mark.parametrize("kind", ["WEBP", "JPEG"])
def test_an_unreadable_profile_is_ignored_and_noted(runner: Runner, profile: bytes, kind: str) -> None:
    runner.graders.append({"key": "file", "type": "properties"})
    if len(profile) > MAX_PROFILE:
        kind = "WEBP"  # a JPEG has no room for it
    result = runner.edit(encoded(portrait(), None), encoded(edited(portrait()), profile, kind, quality=95))
    assert result.exit_code == 0, result.output
    local, file = runner.record().graders
    assert local.details["color_spaces"]["output"] == "an unreadable color profile, which is ignored"
    assert file.details["color_space"] == "an unreadable color profile, which is ignored"


def test_a_profile_of_a_png_that_does_not_decompress_is_ignored() -> None:
    data = encoded(portrait(), P3)
    at = data.index(b"iCCP")
    damaged = chunk(b"iCCP", b"ICC Profile\0\0damaged")
    data = data[: at - 4] + damaged + data[at + 8 + int.from_bytes(data[at - 4 : at]) :]
    images.identify(data)
    assert images.color_space_of(data).name == "an unreadable color profile, which is ignored"
    assert images.load_image(data).tobytes() == portrait().tobytes()


def test_judges_get_the_stored_file_and_srgb_where_it_is_stored_in_another_format(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded(portrait(), P3))
    assert shown(tmp_path / "a.png").data == encoded(portrait(), P3)
    (tmp_path / "a.tif").write_bytes(encoded(portrait(), P3, "TIFF"))
    converted = shown(tmp_path / "a.tif").data
    assert images.color_space_of(converted).name == "sRGB"
    assert _distance(images.load_image(converted), srgb_of(portrait(), P3)) <= 1


def test_a_changed_profile_is_measured_again(runner: Runner) -> None:
    """The same pixels with another profile are another image: nothing of the first is replayed."""
    base = encoded(portrait(), P3)
    assert runner.edit(base, encoded(edited(portrait()), P3)).exit_code == 0
    assert runner.edit(base, encoded(edited(portrait()), None), run_id="again").exit_code == 1
    assert runner.edit(base, encoded(edited(portrait()), P3), "--offline", run_id="offline").exit_code == 0


def test_stored_values_are_those_of_the_file() -> None:
    data = encoded(portrait(), P3)
    assert np.array_equal(np.asarray(images.load_image(data, as_stored=True)), np.asarray(portrait()))
