"""The images of shipped suites and the scripts that generate them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import make_logos
import make_try_on
import numpy as np
import pytest
from make_assets import mask, storefront
from PIL import Image

from visioneval.media.images import load_mask

SUITES = Path(__file__).parents[3] / "suites"


@pytest.mark.parametrize(
    ("suite", "generate", "limit"),
    [
        ("quickstart", lambda: {"storefront.png": storefront(), "storefront-mask.png": mask()}, 100_000),
        pytest.param("logo_edits", make_logos.images, 60_000, marks=pytest.mark.slow),
        pytest.param("try_on", make_try_on.all_images, 450_000, marks=pytest.mark.slow),
    ],
    ids=["quickstart", "logo_edits", "try_on"],
)
def test_the_images_match_the_script(suite: str, generate: Callable[[], dict[str, Image.Image]], limit: int) -> None:
    generated, folder = generate(), SUITES / suite / "assets"
    assert {path.name for path in folder.iterdir()} == generated.keys()
    for name, image in generated.items():
        assert (folder / name).stat().st_size < limit
        with Image.open(folder / name) as stored:
            assert (stored.mode, stored.size) == (image.mode, image.size)
            assert np.array_equal(np.asarray(stored), np.asarray(image))


def test_the_garment_is_inside_the_editable_mask_and_the_foreground_is_not() -> None:
    names = ("editable", "clothing", "occluders")
    inside = {name: np.asarray(load_mask(SUITES / "try_on" / "assets" / f"mask-{name}.png")) > 0 for name in names}
    assert (inside["clothing"] & inside["editable"]).sum() > 0.95 * inside["clothing"].sum()
    assert (inside["occluders"] & inside["editable"]).sum() < 0.1 * inside["occluders"].sum()
