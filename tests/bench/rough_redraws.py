"""``python -m tests.bench.rough_redraws``: what ``tolerance: redrawn`` catches and what alarms it in rough redraws.

A program paints the images of ``../shared/data/copy`` again, reduced to 448 pixels: strokes move, flatten, and gain or
lose contrast, and the tone drifts, each from place to place. The larger windows of rough redraws were chosen on 12 of
the images; the others are counted apart. On these 12, measured without the registration, 4 of 24 clean redraws alarmed (19
with the smaller windows). CPU: about half a second for each of 520 outputs.
"""

from __future__ import annotations

from collections import defaultdict
from zlib import crc32

import cv2
import numpy as np
from PIL import Image, ImageFilter

from tests.bench.redraws import DATA, SIDE, changed, corner
from visioneval.graders.pixels import LocalityGrader
from visioneval.graders.pixels.locality import measure_locality, outside_failure
from visioneval.probing.kinds import KINDS
from visioneval.probing.subject import CannotPerturbError

STRENGTHS = (0.7, 1.2)
LEVELS = {
    "pixels.patch": ("24 px", "48 px"),
    "pixels.recolor": ("dE 40",),
    "pixels.zoom": ("5 %",),
    "pixels.erased": ("10 %", "20 %"),
    "pixels.moved": ("10 %",),
    "pixels.warped": ("4 %",),
    "pixels.letter": ("5 %",),
}
CHOSEN_ON = {
    *("any_ref13.jpg", "easy_french.jpg", "gpt2_case117.jpg", "gpt2_case157.jpg", "gpt2_case191.jpg", "gpt4o_19.png"),
    *("gpt4o_37.png", "gpt4o_49.png", "gpt4o_68.png", "nano_case16_output.jpg", "nano_case48_output.jpg"),
    "nano_pro_case32_output.jpg",
}


def images() -> dict[str, np.ndarray]:
    """By name, without cards that were drawn for tests and copies of images from other folders."""
    found = {}
    for path in sorted((DATA / "copy" / "images").iterdir()):
        if not path.name.startswith(("drawn_", "_")):
            image = Image.open(path).convert("RGB")
            image.thumbnail((SIDE, SIDE))
            found[path.name] = np.asarray(image)
    return found


def repainted(image: np.ndarray, seed: str, strength: float) -> np.ndarray:
    """The image as if painted again by hand, the more roughly the larger ``strength`` is."""
    random = np.random.default_rng(crc32(f"{seed}{strength}".encode()))
    shape = image.shape[:2]
    side = min(shape)

    def field(sigma: float) -> np.ndarray:
        values = cv2.GaussianBlur(random.normal(size=shape).astype(np.float32), (0, 0), sigma * side)
        return np.asarray(values / values.std())

    rows, columns = np.mgrid[: shape[0], : shape[1]].astype(np.float32)
    across, down = (at + side * (0.0025 * strength * field(0.025) + 0.002 * field(0.2)) for at in (columns, rows))
    moved = cv2.remap(image, across, down, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    flat = cv2.edgePreservingFilter(moved, flags=1, sigma_s=0.01 * side * strength, sigma_r=0.08 * strength)
    painted = flat.astype(np.float32)
    detail = cv2.GaussianBlur(painted, (0, 0), 0.006 * side) - cv2.GaussianBlur(painted, (0, 0), 0.04 * side)
    painted += detail * (np.clip(1 + 0.25 * strength * field(0.03), 0.2, 2) - 1)[..., None]
    painted += 1.5 * strength * (np.dstack([field(0.06) for _ in range(3)]) / 2 + field(0.06)[..., None])
    painted = np.clip(painted, 0, 255)
    painted += 8 * np.sin(np.pi * painted / 255) * np.sin(random.uniform(0, 2 * np.pi))
    result = Image.fromarray(np.clip(painted, 0, 255).astype(np.uint8))
    return np.asarray(result.filter(ImageFilter.UnsharpMask(1.5, 100, 0)))


def main() -> None:
    config = LocalityGrader(type="locality", key="k", tolerance="redrawn")
    counts: dict[tuple[str, bool], list[int]] = defaultdict(lambda: [0, 0])
    for name, image in images().items():
        mask, far = corner(image)
        outputs = {"as it is": image}
        for kind in KINDS:
            for level in kind.levels:
                if level.label in LEVELS.get(kind.name, ()):
                    try:
                        outputs[f"`{kind.name} {level.label}`"] = changed(kind, level, image, far, name)
                    except CannotPerturbError:
                        continue
        for label, output in outputs.items():
            for strength in STRENGTHS:
                shown = repainted(output, name, strength)
                finding = measure_locality(image, shown, mask, exact=False, dilate=8, redrawn=True)
                moved = finding.registration.failures(config, finding.base_size)
                count = counts[label, name in CHOSEN_ON]
                count[0] += outside_failure(finding, config) is not None or any(moved)
                count[1] += 1
        print(f"measured {name}", flush=True)
    for label in dict.fromkeys(label for label, _ in counts):
        known, other = (counts[label, is_known] for is_known in (True, False))
        print(f"| {label} | {known[0]} of {known[1]} | {other[0]} of {other[1]} |")


if __name__ == "__main__":
    main()
