"""Flicker: luminance that jumps and jumps back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

REVERTS_WITHIN_S = 0.1
"""A change that comes back later is motion or light of the scene."""
WINDOW_S = 0.5
FLICKERING_AREA = 0.25
"""The share of the image that must change together, as for flashes in Rec. ITU-R BT.1702-3 and WCAG 2.2."""


def flicker(means: NDArray[np.float64], frame_rate: float) -> float | None:
    """How much the luminance jumps and jumps back, from 0 (not at all) to 1 (black and white in turns).

    ``means`` is the luminance of each frame's tiles, ``(frames, tiles)``, 0 to 1. A frame's tile stands out by the
    smaller of its differences to the frames before and after it, at most 0.1 s away, if it is brighter or darker
    than both; so neither a cut nor a fade stands out. A frame stands out by as much as a quarter of its area does at
    least, in the same direction: in an image that moves, parts get brighter while others get darker. The flicker is
    the mean over the half second in which that is largest. ``None`` for fewer than three frames.

    Source: pairs of opposing changes in luminance over a quarter of the image are the flashes of Rec. ITU-R BT.1702-3
    (2023) and of WCAG 2.2 (general flash). Those count flashes from 10 % on; this measures smaller ones too.
    """
    if len(means) < 3:
        return None
    brighter, darker = np.zeros(means.shape), np.zeros(means.shape)
    for step in range(1, max(1, int(REVERTS_WITHIN_S * frame_rate + 1e-9)) + 1):
        if 2 * step >= len(means):
            break
        middle = means[step:-step]
        to_before, to_after = middle - means[: -2 * step], middle - means[2 * step :]
        for standing_out, reverted in (
            (brighter, np.minimum(to_before, to_after)),
            (darker, np.minimum(-to_before, -to_after)),
        ):
            np.maximum(standing_out[step:-step], reverted, out=standing_out[step:-step])
    by_frame = np.maximum(
        *(np.quantile(part, 1 - FLICKERING_AREA, axis=1, method="lower") for part in (brighter, darker))
    )
    by_frame = by_frame[1:-1]
    window = min(len(by_frame), max(1, round(WINDOW_S * frame_rate)))
    sums = np.cumsum([0.0, *by_frame])
    return float((sums[window:] - sums[:-window]).max() / window)
