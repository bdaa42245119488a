"""``python -m tests.bench.marks``: where ``find_mark`` finds Gemini's corner mark, by its opacity and the image's treatment.

Two real images of ``../shared/data`` have the mark. In all others, a mark that is found is a false alarm; one is then
drawn into each, but where it could hardly be seen, on a corner of more than 200 levels.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.images.star_mark import with_star
from visioneval.graders.pixels.marks import find_mark

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
MARKED = ("nano_pro_case32_output.jpg", "nano_dessert_out.png")
LIGHT = 200


def jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


def scaled(image: np.ndarray, factor: float) -> np.ndarray:
    height, width = image.shape[:2]
    size = (round(width * factor), round(height * factor))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS))


TREATMENTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "opacity 0.45": with_star,
    "opacity 0.3": lambda image: with_star(image, 0.3),
    "opacity 0.2": lambda image: with_star(image, 0.2),
    "JPEG 90": lambda image: jpeg(with_star(image), 90),
    "JPEG 60": lambda image: jpeg(with_star(image), 60),
    "scaled by 1.5": lambda image: scaled(with_star(image), 1.5),
    "scaled by 0.7": lambda image: scaled(with_star(image), 0.7),
    "cropped by 20 px": lambda image: with_star(image)[:-20, :-20],
}


def main() -> None:
    images = {}
    for folder in ("copy/images", "generations", "screens", "edits", "redraws"):
        for path in sorted((DATA / folder).iterdir()):
            if path.suffix in (".png", ".jpg", ".jpeg", ".tif") and "mask" not in path.name:
                images[path.name] = np.asarray(Image.open(path).convert("RGB"))
    found = {name for name, image in images.items() if find_mark(image)}
    others = [image for name, image in images.items() if name not in MARKED]
    print(
        f"real marks: {len(found & set(MARKED))} of {len(MARKED)}; false alarms: {len(found - set(MARKED))} of {len(others)}"
    )
    dark = [image for image in others if min(image.shape[:2]) >= 500 and image[-110:, -110:].mean() <= LIGHT]
    for name, treat in TREATMENTS.items():
        print(f"{name}: {sum(find_mark(treat(image)) is not None for image in dark)} of {len(dark)}", flush=True)


if __name__ == "__main__":
    main()
