"""The images of ``suites/try_on`` and the script that generates them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from make_try_on import SIDE, all_images
from PIL import Image

from visioneval.media.images import load_mask

ASSETS = Path(__file__).parents[3] / "suites" / "try_on" / "assets"


@pytest.mark.slow
def test_the_images_match_the_script() -> None:
    generated = all_images()
    assert {path.name for path in ASSETS.iterdir()} == generated.keys()
    for name, image in generated.items():
        assert (ASSETS / name).stat().st_size < 450_000
        with Image.open(ASSETS / name) as stored:
            assert stored.mode == image.mode
            assert stored.size == (SIDE, SIDE)
            assert np.array_equal(np.asarray(stored), np.asarray(image))


def test_the_garment_is_inside_the_editable_mask_and_the_foreground_is_not() -> None:
    inside = {
        name: np.asarray(load_mask(ASSETS / f"mask-{name}.png")) > 0 for name in ("editable", "clothing", "occluders")
    }
    assert (inside["clothing"] & inside["editable"]).sum() > 0.95 * inside["clothing"].sum()
    assert (inside["occluders"] & inside["editable"]).sum() < 0.1 * inside["occluders"].sum()
