"""``python -m tests.bench.redraws``: what ``locality`` catches and what alarms it in redraws, with each tolerance.

It applies the weakest and strongest of some kinds of ``probe`` in the real images of ``../shared/data``, reduced to 448
pixels, and the perturbations also in images that are redrawn afterwards. No image of an edit is among them. CPU: about half a
second for each of 500 outputs.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from visioneval.graders.pixels import LocalityGrader
from visioneval.graders.pixels.locality import measure_locality, outside_failure
from visioneval.probing.kinds import KINDS, Kind, Level, perturbed
from visioneval.probing.subject import CannotPerturbError, Subject, decode, encode
from visioneval.suite.case import Expect

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SIDE = 448
TOLERANCES: tuple[Literal["exact", "reencode", "redrawn"], ...] = ("exact", "reencode", "redrawn")
HARMLESS = ("harmless.jpeg", "harmless.sharpened", "harmless.grain", "harmless.redrawn")
PERTURBATIONS = ("pixels.patch", "pixels.recolor", "pixels.zoom", "pixels.erased", "pixels.moved", "pixels.warped")
PERTURBATIONS += ("pixels.letter",)
REDRAWN = next(kind for kind in KINDS if kind.name == "harmless.redrawn")


def images() -> dict[str, np.ndarray]:
    """The images by name, without those that one of the graders' limits was read from: ``redraws`` and ``edits``."""
    found = {}
    for folder in ("generations", "tifa_sample", "screens"):
        for path in sorted((DATA / folder).iterdir()):
            if path.suffix in (".png", ".jpg"):
                image = Image.open(path).convert("RGB")
                image.thumbnail((SIDE, SIDE))
                found[path.name] = np.asarray(image)
    return found


def changed(kind: Kind, level: Level, image: np.ndarray, region: np.ndarray, seed: str) -> np.ndarray:
    subject = Subject(image, encode(image, "image/png"), "image/png", region, Expect())
    return decode(perturbed(kind, level, subject, seed).data)


def corner(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mask of an edit in the top left eighth of both sides, and what is far from it."""
    height, width = image.shape[:2]
    mask = np.zeros((height, width), bool)
    mask[: height // 8, : width // 8] = True
    far = np.ones_like(mask)
    far[: height // 8 + 16, : width // 8 + 16] = False
    return mask, far


def main() -> None:
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    configs = {name: LocalityGrader(type="locality", key="k", tolerance=name) for name in TOLERANCES}
    kinds = [kind for kind in KINDS if kind.name in HARMLESS + PERTURBATIONS]
    for name, image in images().items():
        mask, far = corner(image)
        for kind in kinds:
            for level in dict.fromkeys((kind.levels[0], kind.levels[-1])):
                try:
                    output = changed(kind, level, image, far, name)
                except CannotPerturbError:
                    continue
                outputs = {kind.name: output}
                if kind.name in PERTURBATIONS:
                    outputs[f"{kind.name}, redrawn"] = changed(REDRAWN, REDRAWN.levels[-1], output, far, name)
                for label, shown in outputs.items():
                    inexact = measure_locality(image, shown, mask, exact=False, dilate=8, redrawn=True)
                    exactly = measure_locality(image, shown, mask, exact=True, dilate=0)
                    for tolerance, config in configs.items():
                        finding = exactly if tolerance == "exact" else inexact
                        count = counts[f"{label} {level.label}", tolerance]
                        moved = finding.registration.failures(config, finding.base_size)
                        count[0] += outside_failure(finding, config) is not None or any(moved)
                        count[1] += 1
        print(f"measured {name}", flush=True)
    for label in dict.fromkeys(label for label, _ in counts):
        print(f"| `{label}` |", *(f"{counts[label, name][0]} of {counts[label, name][1]} |" for name in configs))


if __name__ == "__main__":
    main()
