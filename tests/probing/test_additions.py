"""Perturbations that add what a case does not expect: a color off its palette, and codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from visioneval.graders.palette.grader import measure_palette
from visioneval.probing.kinds import KINDS, perturbed
from visioneval.probing.subject import CannotPerturbError, Subject, decode, encode
from visioneval.suite.case import Expect

BY_NAME = {kind.name: kind for kind in KINDS}
PALETTE = ("#F5E6CC", "#3B2A1E", "#D98E4A")


def page(side: int = 400, channels: int = 3) -> Subject:
    image = np.full((side, side, channels), 255, np.uint8)
    image[..., :3] = tuple(bytes.fromhex(PALETTE[0][1:]))
    region = np.ones((side, side), bool)
    return Subject(image, encode(image, "image/png"), "image/png", region, Expect(palette=PALETTE, codes="none"))


def changed(name: str, subject: Subject, level: int = -1) -> np.ndarray:
    return decode(perturbed(BY_NAME[name], BY_NAME[name].levels[level], subject, "s").data)


@pytest.mark.parametrize("level", range(4))
def test_a_disk_off_the_palette_has_its_share_and_is_far_from_each_color(level: int) -> None:
    found = measure_palette(changed("pixels.off_palette", page(), level), PALETTE, 29)
    share = BY_NAME["pixels.off_palette"].levels[level].value
    assert found.regions[0].share == pytest.approx(share, rel=0.1)


def test_every_color_far_from_a_palette_may_be_none() -> None:
    everywhere = [f"#{red}{green}{blue}" for red in "08F" for green in "08F" for blue in "08F"]
    wide = replace(
        page(), expect=Expect.model_construct(palette=tuple(f"#{c[1] * 2}{c[2] * 2}{c[3] * 2}" for c in everywhere))
    )
    with pytest.raises(CannotPerturbError, match="leaves no other color"):
        changed("pixels.off_palette", wide)


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize(
    ("name", "content"), [("pixels.code", "https://example.com/added"), ("pixels.painted_code", None)]
)
def test_added_codes_are_seen_and_only_real_ones_are_read(name: str, content: str | None, channels: int) -> None:
    pytest.importorskip("zxingcpp")
    from visioneval.graders.codes.reading import codes_in

    for level in range(3):
        assert [code.content for code in codes_in(changed(name, page(600, channels), level))] == [content]


@pytest.mark.parametrize("name", ["pixels.off_palette", "pixels.code", "pixels.painted_code"])
def test_what_a_case_does_not_expect_is_not_added(name: str) -> None:
    with pytest.raises(CannotPerturbError, match="its case"):
        changed(name, replace(page(), expect=Expect()))


def test_a_small_image_has_no_room_for_a_code() -> None:
    with pytest.raises(CannotPerturbError, match="too small"):
        changed("pixels.code", page(100))
