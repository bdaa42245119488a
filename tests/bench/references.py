"""``python -m tests.bench.references``: what ``reference`` catches and what alarms it, with its default limits.

It applies kinds of ``probe`` in the images of ``tests.bench.redraws``, each of which is the reference. CPU: about half a
second for each of 200 outputs.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from PIL import Image

from tests.bench.redraws import changed, images
from visioneval.graders.pixels import ReferenceGrader
from visioneval.graders.pixels.reference import ReferenceFinding, failures, measure_reference
from visioneval.probing.kinds import KINDS
from visioneval.probing.subject import CannotPerturbError

LEVELS = {
    "pixels.patch": ("12 px", "48 px"),
    "pixels.recolor": ("dE 20",),
    "pixels.zoom": ("5 %",),
    "pixels.erased": ("10 %",),
    "pixels.moved": ("5 %",),
    "pixels.warped": ("4 %",),
    "pixels.letter": ("5 %",),
    "harmless.jpeg": ("q75", "q60"),
    "harmless.webp": ("q75",),
    "harmless.resized": ("-25 %",),
    "harmless.sharpened": ("100 %",),
}


def main() -> None:
    config = ReferenceGrader(type="reference", key="k")
    findings: dict[str, list[ReferenceFinding]] = defaultdict(list)
    shown = images()
    following = [*list(shown.values())[1:], next(iter(shown.values()))]
    for (name, image), other in zip(shown.items(), following, strict=True):
        for kind in KINDS:
            for level in kind.levels:
                if level.label in LEVELS.get(kind.name, ()):
                    try:
                        output = changed(kind, level, image, np.ones(image.shape[:2], bool), name)
                    except CannotPerturbError:
                        continue
                    findings[f"`{kind.name} {level.label}`"].append(measure_reference(image, output))
        another = np.asarray(Image.fromarray(other).resize(image.shape[1::-1]))
        findings["another image"].append(measure_reference(image, another))
        print(f"measured {name}", flush=True)
    for label, group in findings.items():
        failed = sum(bool(failures(finding, config)) for finding in group)
        similar, colors = sorted(finding.ssim for finding in group), max(finding.delta_e for finding in group)
        print(f"| {label} | {failed} of {len(group)} | {similar[0]:.2f} to {similar[-1]:.2f} | {colors:.1f} |")


if __name__ == "__main__":
    main()
