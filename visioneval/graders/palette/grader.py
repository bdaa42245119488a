"""Palette: how much of an image has the colors that its case names.

Every pixel counts by its opacity, with its own color: what is fully transparent has none. A pixel is on the palette if
its color is within ``tolerance`` (CIEDE2000) of one of its colors, in sRGB whatever the file's profile. Colors are
compared with 7 bits a channel, an error of 0.5 at most.

Smooth edges between two colors of the palette are on it: a pixel near both whose color is a mixture of them. A wide
gradient between them is not.

- ``<key>``, 0..1: the share of the image on the palette.
- ``<key>.off``, 0..1: the share of the image that the largest connected region off the palette takes.
- ``<key>.unused``, 0 and up: the number of colors of the palette of which less than ``min_used`` of the image is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.measures import Measure
from visioneval.graders.palette import PaletteGrader, levels
from visioneval.graders.pixels.color import Floats, Mask, Pixels, ciede2000, percent, to_lab
from visioneval.graders.pixels.difference import SCORE_DIGITS, TOOL_VERSIONS, Box, place
from visioneval.graders.pixels.registration import read_pixels
from visioneval.media.images import room_for
from visioneval.media.opencv import portable_opencv

EDGE_PX = 2
"""How far from both of its colors a smooth edge may lie, in an image of ``EDGE_SIDE`` pixels or less."""
EDGE_SIDE = 1024
REGIONS = 3
"""How many regions off the palette are recorded, from the largest."""
SMALLEST_REGION = 0.0005
"""The share of the image from which a region beside the largest one is recorded."""


@dataclass(frozen=True, slots=True)
class Region:
    """A connected region off the palette: its share of the image, its mean color and its box."""

    share: float
    color: str
    box: Box


@dataclass(frozen=True, slots=True)
class PaletteFinding:
    """The shares of the image that have each color of the palette, that are smooth edges, and the regions off it.

    ``visible`` is the share of the image that is not transparent; if it is 0, there is nothing to measure.
    """

    visible: float
    colors: tuple[float, ...]
    edges: float
    off: float
    regions: tuple[Region, ...]


@portable_opencv()
def measure_palette(output: Pixels, palette: Sequence[str], tolerance: float) -> PaletteFinding:
    """Measures RGB or straight RGBA pixels."""
    opacity: Floats = np.ones(output.shape[:2], np.float32)
    if output.shape[2] == 4:
        opacity = output[..., 3].astype(np.float32) / np.float32(255)
    colors = np.ascontiguousarray(output[..., :3])
    total = float(opacity.sum(dtype=np.float64))
    if not total:
        return PaletteFinding(0.0, (0.0,) * len(palette), 0.0, 0.0, ())

    def share(mask: Mask) -> float:
        return round(float(opacity[mask].sum(dtype=np.float64)) / total, SCORE_DIGITS)

    lab = to_lab(np.array([[levels(color) for color in palette]], np.uint8))[0]
    visible = opacity > 0
    nearest = np.where(visible, _nearest(colors, lab, tolerance), np.int8(-1))
    edges = _edges(colors, palette, nearest, tolerance) & visible
    off = (nearest < 0) & ~edges & visible
    return PaletteFinding(
        visible=round(total / opacity.size, SCORE_DIGITS),
        colors=tuple(share(nearest == index) for index in range(len(palette))),
        edges=share(edges),
        off=share(off),
        regions=_regions(off, colors, opacity, total),
    )


def _nearest(colors: Pixels, palette: Floats, tolerance: float) -> NDArray[np.int8]:
    """The index of each pixel's nearest color of the palette; -1 where none is within the tolerance."""
    coarse = (colors >> 1).astype(np.int32)
    codes = (coarse[..., 0] << 14) | (coarse[..., 1] << 7) | coarse[..., 2]
    present = np.flatnonzero(np.bincount(codes.ravel(), minlength=1 << 21))
    sevens = np.stack([present >> 14, (present >> 7) & 127, present & 127], axis=1)
    lab = to_lab(((sevens << 1) | (sevens >> 6)).astype(np.uint8)[None])[0]
    index, least = np.full(len(present), -1, np.int8), np.full(len(present), np.float32(tolerance))
    for number, color in enumerate(palette):
        distance = ciede2000(lab, np.broadcast_to(color, lab.shape))
        is_nearer = distance <= least if number == 0 else (distance < least) | ((index < 0) & (distance <= least))
        index[is_nearer], least[is_nearer] = number, distance[is_nearer]
    table = np.full(1 << 21, -1, np.int8)
    table[present] = index
    nearest: NDArray[np.int8] = table[codes]
    return nearest


def _edges(colors: Pixels, palette: Sequence[str], nearest: NDArray[np.int8], tolerance: float) -> Mask:
    """Pixels off the palette that are mixtures of two of its colors, both of which are near."""
    edges = np.zeros(nearest.shape, np.bool_)
    reach = EDGE_PX * max(1, round(min(nearest.shape) / EDGE_SIDE))
    kernel = np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)
    beside = {
        index: cv2.dilate((nearest == index).astype(np.uint8), kernel).astype(np.bool_)
        for index in range(len(palette))
        if (nearest == index).any()
    }
    off = nearest < 0
    for first, second in combinations(beside, 2):
        rows, columns = np.nonzero(off & ~edges & beside[first] & beside[second])
        if rows.size:
            pixels = colors[rows, columns]
            is_mixed = _is_mixture(pixels, levels(palette[first]), levels(palette[second]), tolerance)
            edges[rows[is_mixed], columns[is_mixed]] = True
    return edges


def _is_mixture(pixels: Pixels, first: tuple[int, ...], second: tuple[int, ...], tolerance: float) -> Mask:
    """Which pixels are within the tolerance of a color between two others, in levels of sRGB as renderers mix them."""
    start, way = np.array(first, np.float32), np.array(second, np.float32) - np.array(first, np.float32)
    part = ((pixels - start) @ way / max(1.0, float(way @ way))).clip(0, 1)
    mixed = np.rint(start + part[:, None] * way).astype(np.uint8)
    mixture: Mask = ciede2000(to_lab(pixels[None])[0], to_lab(mixed[None])[0]) <= tolerance
    return mixture


def _regions(off: Mask, colors: Pixels, opacity: Floats, total: float) -> tuple[Region, ...]:
    """The largest connected regions of a mask, each pixel by its opacity."""
    count, labels, boxes, _ = cv2.connectedComponentsWithStats(off.astype(np.uint8), connectivity=8)
    sizes = np.bincount(labels.ravel(), weights=(opacity * off).ravel(), minlength=count) / total
    regions: list[Region] = []
    for label in np.argsort(-sizes, kind="stable")[:REGIONS]:
        if label and sizes[label] and (sizes[label] >= SMALLEST_REGION or not regions):
            left, top, width, height = (int(side) for side in boxes[label][:4])
            inside = labels[top : top + height, left : left + width] == label
            red, green, blue = np.rint(colors[top : top + height, left : left + width][inside].mean(axis=0)).astype(int)
            share = round(float(sizes[label]), SCORE_DIGITS)
            regions.append(Region(share, f"#{red:02X}{green:02X}{blue:02X}", (left, top, width, height)))
    return tuple(regions)


class Palette:
    """The grader. Stateless, so that cells can be graded concurrently."""

    def __init__(self, config: PaletteGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Raises ``GraderError`` if the file does not decode."""
        config, path, palette = self._config, context.generated.path, context.case.expect.palette or ()
        measure = Measure(
            "palette",
            {"output": path},
            partial(_measure_file, path, palette, config.tolerance),
            PaletteFinding,
            options={"palette": list(palette), "tolerance": config.tolerance},
            tool_versions=TOOL_VERSIONS,
            code=("palette",),
        )
        finding = await context.measure(measure)
        key, details = config.key, _details(finding, palette, config)
        if not finding.visible:
            scores = dict.fromkeys((key, f"{key}.off", f"{key}.unused"))
            error = "every pixel of the image is transparent, so it has no color"
            return Grade(scores=scores, details=details, error=error, tool_versions=TOOL_VERSIONS)
        unused = [color for color, used in zip(palette, finding.colors, strict=True) if used < config.min_used]
        largest = finding.regions[0] if finding.regions else None
        reasons = {}
        if finding.off:
            reasons[key] = f"{percent(finding.off)} of the image has other colors than the palette's"
            if largest:
                reasons[key] += f"; the largest region, {_region(largest)}"
        if largest:
            reasons[f"{key}.off"] = f"the largest region off the palette is {_region(largest)}"
        if unused:
            reasons[f"{key}.unused"] = f"less than {percent(config.min_used)} of the image has {', '.join(unused)}"
        return Grade(
            scores={
                key: round(1 - finding.off, SCORE_DIGITS),
                f"{key}.off": largest.share if largest else 0.0,
                f"{key}.unused": len(unused),
            },
            reasons=reasons,
            details=details,
            tool_versions=TOOL_VERSIONS,
        )


def _measure_file(path: Path, palette: Sequence[str], tolerance: float) -> PaletteFinding:
    with room_for(path):
        return measure_palette(read_pixels(path), palette, tolerance)


def _region(region: Region) -> str:
    return f"{percent(region.share)} {place(region.box)}, is {region.color}"


def _details(finding: PaletteFinding, palette: Sequence[str], config: PaletteGrader) -> dict[str, object]:
    return {
        "palette": [{"color": color, "share": used} for color, used in zip(palette, finding.colors, strict=True)],
        "edges": finding.edges,
        "off_palette": [
            {"box": corners(region.box), "color": region.color, "share": region.share} for region in finding.regions
        ],
        "tolerance": config.tolerance,
        **({"visible": finding.visible} if finding.visible < 1 else {}),
    }


def corners(box: Box) -> list[list[int]]:
    """The four corners of a box, as a report outlines them."""
    left, top, width, height = box
    right, bottom = left + width, top + height
    return [[left, top], [right, top], [right, bottom], [left, bottom]]
