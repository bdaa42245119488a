"""The quickstart's images and the script that generates them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from make_assets import mask, storefront
from PIL import Image

SUITES = Path(__file__).parents[3] / "suites"


def test_the_quickstart_images_match_the_script():
    for name, image in (("storefront.png", storefront()), ("storefront-mask.png", mask())):
        path = SUITES / "quickstart" / "assets" / name
        assert path.stat().st_size < 100_000
        with Image.open(path) as stored:
            assert stored.mode == image.mode
            assert np.array_equal(np.asarray(stored), np.asarray(image))
