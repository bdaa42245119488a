"""The images of ``suites/logo_edits`` and the script that generates them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from make_logos import SIZE, images
from PIL import Image

ASSETS = Path(__file__).parents[3] / "suites" / "logo_edits" / "assets"


@pytest.mark.slow
def test_the_images_match_the_script() -> None:
    generated = images()
    assert {path.name for path in ASSETS.iterdir()} == generated.keys()
    for name, image in generated.items():
        assert (ASSETS / name).stat().st_size < 60_000
        with Image.open(ASSETS / name) as stored:
            assert stored.mode == image.mode
            assert stored.size == SIZE
            assert np.array_equal(np.asarray(stored), np.asarray(image))
