"""Near-duplicates: how often a copy is found, by what was done to it, and how often two different images are one.

    python -m tests.bench.duplicates --data ../shared/data

The limits were set on every other image (fit), the table is about the others (test). Known copies among the images are
left out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import combinations
from pathlib import Path

import numpy as np
from PIL import Image

from visioneval.graders.duplicates import DuplicatesGrader
from visioneval.graders.duplicates.grader import Duplicates, Likeness, thumbnail
from visioneval.graders.pixels.color import Pixels
from visioneval.graders.pixels.reference import measure_reference
from visioneval.graders.pixels.registration import read_pixels

SIDE = 640
"""The longest side of a compared image, so that the table takes minutes."""
_COPIES = re.compile(r"drawn_small")
"""Families of images that are copies of each other, but for a line of a few pixels or the file format."""
Perturb = Callable[[Pixels], Pixels]


def encoded(quality: int) -> Perturb:
    """JPEG."""

    def perturb(pixels: Pixels) -> Pixels:
        stored = BytesIO()
        Image.fromarray(pixels[..., :3]).save(stored, "JPEG", quality=quality)
        return np.asarray(Image.open(stored).convert("RGB"))

    return perturb


def resized(factor: float) -> Perturb:
    """Scaled as a whole."""

    def perturb(pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        size = max(1, round(width * factor)), max(1, round(height * factor))
        return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))

    return perturb


def cropped(share: float) -> Perturb:
    """Without a margin, which has this share of each side in all."""

    def perturb(pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        top, left = round(height * share / 2), round(width * share / 2)
        return np.ascontiguousarray(pixels[top : height - top, left : width - left])

    return perturb


def brighter(levels: int) -> Perturb:
    """All channels lighter."""
    return lambda pixels: np.asarray(np.clip(pixels.astype(np.int16) + levels, 0, 255), np.uint8)


PERTURBATIONS: dict[str, Perturb] = {
    "the same pixels": np.copy,
    "JPEG of quality 75": encoded(75),
    "JPEG of quality 40": encoded(40),
    "half the size": resized(0.5),
    "crop of 1 %": cropped(0.01),
    "crop of 2 %": cropped(0.02),
    "crop of 4 %": cropped(0.04),
    "8 levels brighter": brighter(8),
    "20 levels brighter": brighter(20),
}
GRADER = Duplicates(DuplicatesGrader(key="distinct", type="duplicates"))


def are_alike(first: Pixels, second: Pixels) -> bool:
    """Whether two images are compared in full."""
    return bool(GRADER.alike(GRADER.details([thumbnail(first), thumbnail(second)]), 0))


def are_duplicates(first: Pixels, second: Pixels) -> bool:
    """Whether the grader, with its defaults, calls two images near-duplicates."""
    if not are_alike(first, second):
        return False
    base, other = sorted((first, second), key=lambda image: -image.shape[0] * image.shape[1])
    found = measure_reference(base, other)
    return GRADER.is_duplicate(Likeness(round(1 - found.ssim, 4), found.delta_e, found.worst_window))


def images(data: Path) -> Iterator[tuple[str, Pixels]]:
    """The images of the folders, at most ``SIDE`` pixels wide and high."""
    files = [*sorted((data / "copy/images").iterdir()), *sorted((data / "generations").glob("*.*g"))]
    for path in files:
        pixels = read_pixels(path)
        yield path.stem, resized(min(1.0, SIDE / max(pixels.shape[:2])))(pixels)


def main() -> None:
    """Prints the table of one half."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--half", choices=("fit", "test"), default="test")
    options = parser.parse_args()
    every = [image for image in images(options.data) if image[1].shape[0] >= 8 and image[1].shape[1] >= 8]
    half = every[options.half == "test" :: 2]
    print(f"{options.half}: {len(half)} images\n\n| copy, changed by | found |\n|---|---|")
    for name, perturb in PERTURBATIONS.items():
        found = sum(are_duplicates(pixels, perturb(pixels)) for _, pixels in half)
        print(f"| {name} | {found} of {len(half)} |", flush=True)
    pairs = [pair for pair in combinations(half, 2) if not all(_COPIES.match(name) for name, _ in pair)]
    alike = [pair for pair in pairs if are_alike(pair[0][1], pair[1][1])]
    wrong = [pair for pair in alike if are_duplicates(pair[0][1], pair[1][1])]
    print(f"| different images | {len(wrong)} of {len(pairs)} pairs ({len(alike)} compared in full) |")
    for first, second in wrong:
        print(first[0], second[0])


if __name__ == "__main__":
    main()
