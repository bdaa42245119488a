"""Reads an output for a probe: its pixels, the region that damage may change, and its lines of copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from math import dist
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from visioneval.errors import ImageError
from visioneval.graders.text.copy_match import Corners
from visioneval.media import images
from visioneval.probing.damage import lettering
from visioneval.probing.damage.subject import (
    FORMATS,
    CannotPlantError,
    Mask,
    Pixels,
    PlantedFile,
    Subject,
    TextLine,
    decode,
    encode,
)
from visioneval.probing.originals import Original
from visioneval.records.model import Record

MAX_MEGAPIXELS = 16
MIN_SIDE = 32
MASK_BORDER = 16
"""Pixels around a mask that stay undamaged: graders allow an edit to reach a little beyond its mask."""
MIN_REGION = 0.005
"""The smallest share of an image outside its mask in which damage is planted."""
MAX_SLANT = 0.05
"""The largest slope of a line that can be set again."""
LINES_TO_TRY = 3


def open_subject(original: Original) -> Subject:
    """Decodes an output. Raises ``ImageError`` if it cannot be probed: damaged, too small, too large, other format."""
    data = images.read(original.path)
    if original.sha256 is not None and images.sha256(data) != original.sha256:
        raise ImageError("it was changed after it was generated")
    if (base := original.call.base) is not None and images.sha256(images.read(base.path)) != base.sha256:
        raise ImageError("the image that it edits was changed after it was generated")
    width, height = _size(data)
    if width * height > MAX_MEGAPIXELS * 1_000_000:
        raise ImageError(f"more than {MAX_MEGAPIXELS} megapixels")
    if min(width, height) < MIN_SIDE:
        raise ImageError(f"smaller than {MIN_SIDE} x {MIN_SIDE} pixels")
    mime, _, _ = images.identify(data)
    if mime not in FORMATS:
        raise ImageError(f"its format is {mime.partition('/')[2]}, which cannot be stored again unchanged")
    if images.frames(original.path) > 1:
        raise ImageError("it has several frames")
    if (space := images.color_space_of(data)).transforms is not None:
        raise ImageError(f"its color space is {space.name}, which a changed image would lose")
    image = decode(data)
    return Subject(image, data, mime, _region(image, original.call.files.masks), original.call.case.expect)


def _size(data: bytes) -> tuple[int, int]:
    with images.header(data) as handle:
        return handle.width, handle.height


def _region(image: Pixels, masks: Mapping[str, Path]) -> Mask:
    """Where damage may lie: visible pixels, not near what the editable mask allows to change."""
    height, width = image.shape[:2]
    region = np.ones((height, width), bool)
    if "editable" in masks:
        mask = np.asarray(images.load_mask(masks["editable"]).resize((width, height), 0))
        size = 2 * MASK_BORDER + 1
        region &= cv2.dilate(mask, np.ones((size, size), np.uint8)) == 0
        if region.mean() < MIN_REGION:
            region[:] = False
    if image.shape[2] == 4:
        region &= image[..., 3] >= 128
    return region


def with_lines(subject: Subject, record: Record, seed: str) -> list[Subject]:
    """The subject with each of a few lines of its copy, in random order; at least one, perhaps without a line."""
    readings = [reading for details in _ocr_details(record) for reading in details["lines"]]
    boxes = tuple(corners for reading in readings if (corners := _corners(reading)) is not None)
    lines = [line for details in _ocr_details(record) for line in _copy_lines(details)]
    if not lines:
        reason = "it has no line of required copy that runs level" if readings else "no text grader read text in it"
        return [replace(subject, lines=boxes, no_line=reason)]
    random = np.random.default_rng(int.from_bytes(sha256(f"{seed}\0line".encode()).digest()[:8]))
    chosen = [lines[int(at)] for at in random.permutation(len(lines))[:LINES_TO_TRY]]
    return [replace(subject, lines=boxes, line=line) for line in chosen]


def as_control(subject: Subject) -> PlantedFile | None:
    """The output with its line set again unchanged; ``None`` if that is not possible."""
    try:
        again = lettering.set_line(subject, subject.copy_line.text)
    except CannotPlantError:
        return None
    return PlantedFile(encode(again.image, subject.mime), subject.mime, again.box)


def _ocr_details(record: Record) -> Iterator[Mapping[str, Any]]:
    """The details of each text grader that read by OCR."""
    for grader in record.graders:
        details: Any = grader.details.get("ocr", grader.details)
        if grader.type == "text" and isinstance(details, dict) and details.get("extract") == "ocr":
            yield details


def _copy_lines(details: Mapping[str, Any]) -> Iterator[TextLine]:
    """The required lines that OCR read exactly, each in one level box."""
    for pair in details["found"]:
        if len(pair["readings"]) != 1 or pair["line"] != pair["read"]:
            continue
        corners = _corners(details["lines"][pair["readings"][0]])
        if corners is not None and sum(map(str.isalpha, pair["line"])) >= 3 and _is_level(corners):
            yield TextLine(pair["line"], corners)


def _corners(reading: Mapping[str, Any]) -> Corners | None:
    points = [(float(x), float(y)) for x, y in reading["box"]]
    return (points[0], points[1], points[2], points[3]) if len(points) == 4 else None


def _is_level(corners: Corners) -> bool:
    (left, top), (right, end), _, (_, bottom) = corners
    return abs(end - top) <= MAX_SLANT * max(1.0, right - left) and dist(corners[0], corners[1]) > bottom - top
