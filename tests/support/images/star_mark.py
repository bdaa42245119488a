"""Gemini's corner mark, drawn from its published sizes: 48 pixels, 32 from the corner; 96 and 64 in larger images."""

from __future__ import annotations

import numpy as np
from PIL import Image

OPACITY = 0.45


def with_star(image: np.ndarray, opacity: float = OPACITY, scale: float = 1.0) -> np.ndarray:
    """A copy of an RGB image with the mark, which is a polygon of its own and not the shape that is searched for."""
    height, width = image.shape[:2]
    side, margin = (96, 64) if min(height, width) > 1024 else (48, 32)
    side, margin = round(side * scale), round(margin * scale)
    across = 1 - np.abs((np.arange(side * 4) + 0.5) / (side * 2) - 1)
    inside = np.hypot(across[None, :], across[:, None]) >= 0.915  # outside of four circles, whose arcs are its sides
    cover = np.asarray(Image.fromarray(inside.astype(np.uint8) * 255).resize((side, side), Image.Resampling.BOX)) / 255
    marked = image.astype(np.float64)
    part = marked[height - margin - side : height - margin, width - margin - side : width - margin]
    part += (255 - part) * (opacity * cover)[..., None]
    return np.asarray(np.rint(marked), np.uint8)
