"""Reads text in images with RapidOCR and the models in its package; nothing is downloaded."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from math import dist
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from visioneval.errors import GraderError
from visioneval.graders.text.copy_match import Corners, Reading, skeleton
from visioneval.graders.text.reading.glyphs import needs_glyphs, shown_characters
from visioneval.graders.text.reading.ocr_models import MODELS, model_path, session
from visioneval.media.opencv import portable_opencv
from visioneval.stopwatch import waiting

_MAX_AREA = 4_000_000
"""The most pixels for the detector: about five seconds and one gigabyte of memory."""
_SMALL_SIDE = 640
"""Images with a longer side below this are enlarged to twice their size."""
_MIN_SIDE = 736
"""The detector enlarges images to this shorter side; thin strips are padded instead."""
_THIN = 2.5
"""An image with a larger aspect ratio is a strip."""

_RETRY_BELOW = 0.9
"""Readings below this confidence are also tried upside down."""
_MIN_GAIN = 0.1
CONFIDENCE_DIGITS = 4
"""Decimals of a confidence."""

_lock = threading.Lock()


@portable_opencv()
def read(image: Image.Image) -> list[Reading]:
    """The text segments in an RGB image, at any confidence, from top to bottom.

    Corners are pixels of ``image``. The same image gives the same readings from any thread. The pre- and
    postprocessing does not depend on the processor; the models do, so the last digits of a confidence may differ
    and are rounded off. Raises ``GraderError`` if RapidOCR or its models are not installed, or fail.
    """
    prepared, scale = _prepare(image)
    result = _run(_engine(detect=True), prepared)
    if result.boxes is None:
        return []
    readings = []
    for box, text, score in zip(result.boxes, result.txts, result.scores, strict=True):
        text, score = _upside_down(prepared, box, text, _confidence(score))
        shown = _shown(prepared, box, text) if needs_glyphs(text) else ()
        readings.append(Reading(str(text), score, _corners(box, scale, image.size), shown))
    return readings


def _shown(image: Image.Image, box: Any, text: str) -> tuple[tuple[int, str], ...]:
    """What the glyphs of a box show where the reading mixes O and 0. Nothing for a line that runs up or down."""
    line = _crop(image, box)
    if line.height >= 1.5 * line.width:
        return ()
    reread = read_line(line)
    # Of other text, as of a box that was read upside down, the columns are those of other characters.
    if skeleton(reread.text) != skeleton(text):
        return ()
    return shown_characters(line, text, reread.columns)


class Line(NamedTuple):
    """What a line says, and where each character but white space is (0 to 1 of its width)."""

    text: str
    columns: tuple[float, ...]


def read_line(line: Image.Image) -> Line:
    """Reads an upright RGB image of a line. Raises ``GraderError``."""
    reread = _run(_engine(detect=False), line)
    if not reread.txts:
        return Line("", ())
    words = reread.word_results[0]
    return Line(
        reread.txts[0], tuple((column + 0.5) / words.line_txt_len for word in words.word_cols for column in word)
    )


def crop(image: Image.Image, box: Corners) -> Image.Image:
    """The box as an upright image; a box that is half again as high as wide is turned by a quarter."""
    line = _crop(image, box)
    return line.rotate(90, expand=True) if line.height >= 1.5 * line.width else line


def _crop(image: Image.Image, box: Any) -> Image.Image:
    """The box as an upright image."""
    a, b, c, d = (tuple(float(value) for value in corner) for corner in box)
    width, height = round(max(dist(a, b), dist(d, c), 1)), round(max(dist(a, d), dist(b, c), 1))
    return image.transform((width, height), Image.Transform.QUAD, (*a, *d, *c, *b), Image.Resampling.BICUBIC)


def _run(engine: Any, image: Image.Image) -> Any:
    pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
    try:
        return engine(pixels)
    except Exception as error:
        raise GraderError(f"OCR failed: {type(error).__name__}: {error}") from error


def _upside_down(image: Image.Image, box: Any, text: str, score: float) -> tuple[str, float]:
    """The reading, or that of the rotated box if its confidence is clearly higher.

    RapidOCR's direction classifier is off: it squeezes long lines until they look upside down.
    """
    if score >= _RETRY_BELOW:
        return text, score
    crop = _crop(image, box)
    # A tall box is a line that runs up or down; RapidOCR reads it downwards.
    turned = _run(_engine(detect=False), crop.rotate(270 if crop.height >= 1.5 * crop.width else 180, expand=True))
    if turned.txts and (surer := _confidence(turned.scores[0])) > score + _MIN_GAIN:
        return turned.txts[0], surer
    return text, score


def _confidence(score: Any) -> float:
    """The confidence as recorded and as compared with ``min_confidence``."""
    return round(float(score), CONFIDENCE_DIGITS)


@cache
def tool_versions() -> Mapping[str, str]:
    """The versions of the packages, and the recognition model. Raises ``GraderError`` if they are not installed."""
    model = model_path("Rec")
    return {"rapidocr": version("rapidocr"), "onnxruntime": version("onnxruntime"), "model": model.stem}


@cache
def library_versions() -> Mapping[str, str]:
    """The versions of the packages with which RapidOCR shapes boxes, besides OpenCV and NumPy."""
    return {name: version(name) for name in ("pyclipper", "shapely") if find_spec(name)}


def _engine(*, detect: bool) -> Any:
    """The shared engine of the process that detects and reads, or the one that only reads. Thread-safe."""
    with waiting():
        _lock.acquire()
    try:
        return _load_engine(detect)
    finally:
        _lock.release()


@cache
def _load_engine(detect: bool) -> Any:
    try:
        sessions = {part: session(part) for part in MODELS}
        from omegaconf import flag_override
        from rapidocr import RapidOCR

        engine = RapidOCR(
            params={
                "Global.log_level": "critical",
                "Global.text_score": 0.0,  # the caller applies the threshold and records the rest
                "Global.use_det": detect,
                "Global.return_word_box": not detect,  # the columns of the characters
                "Global.use_cls": False,
                # A batch pads its lines alike, and the order in batches depends on the processor.
                "Rec.rec_batch_num": 1,
                "Global.max_side_len": 100_000,  # _prepare limits the area
            }
        )
        with flag_override(engine.cfg, "allow_objects", True):
            for part, loaded in sessions.items():
                engine.cfg[part].session = loaded
    except GraderError:
        raise
    except Exception as error:
        raise GraderError(f"RapidOCR failed to start: {type(error).__name__}: {error}") from error
    return engine


def _prepare(image: Image.Image) -> tuple[Image.Image, float]:
    """The image for the detector, and its scale: limited in area, enlarged if small, padded if a strip."""
    width, height = image.size
    scale = 2.0 if max(width, height) < _SMALL_SIDE else 1.0
    scale = min(scale, (_MAX_AREA / (width * height)) ** 0.5, _MAX_AREA / _MIN_SIDE / max(width, height))
    if scale != 1.0:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        image = image.resize(size, Image.Resampling.LANCZOS)
    if min(image.size) >= _MIN_SIDE or max(image.size) <= _THIN * min(image.size):
        return image, scale
    canvas = Image.new("RGB", (max(image.width, _MIN_SIDE), max(image.height, _MIN_SIDE)), border_color(image))
    canvas.paste(image, (0, 0))
    return canvas, scale


def border_color(image: Image.Image) -> tuple[int, int, int]:
    """The median color of the border, so that padding adds no edge that OCR could read as a letter."""
    pixels = np.asarray(image)
    rim = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    red, green, blue = (int(value) for value in np.median(rim, axis=0))
    return red, green, blue


def _corners(box: np.ndarray[Any, Any], scale: float, size: tuple[int, int]) -> Corners:
    a, b, c, d = ((round(min(float(x) / scale, size[0]), 1), round(min(float(y) / scale, size[1]), 1)) for x, y in box)
    return a, b, c, d
