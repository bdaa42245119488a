"""The two networks of local OCR: one finds the text in an image, the other reads a line and weighs what it may say.

They are RapidOCR's PP-OCR models, called in parts, as a run of the whole pipeline hides where text may be, and with
what probability a line says something else. Each is loaded once per process, without the weights that only cost time:
training has left weights below the smallest normal number of 32 bits in the models, a tenth of the detector's. They
change no result, but processors multiply such numbers many times more slowly, and the detector spent most of its time
on them. ONNX Runtime's own switch for this acts on the thread that loads the first model of a process, and on no other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from visioneval.errors import GraderError
from visioneval.graders.text.alphabet import fold_character
from visioneval.graders.text.layout import Corners
from visioneval.installation import has_extra, install_command, needs
from visioneval.threads import processors, waiting

MODELS = {"Det": "PP-OCRv6_det_small.onnx", "Rec": "PP-OCRv6_rec_small.onnx"}

TINY_WEIGHT = 1e-30
"""Weights nearer to 0 than this become 0. They are lost in the rounding of any sum with other weights."""

DETECTIONS_AT_ONCE = max(1, processors() // 2)
"""How many images may be in the detector, which takes a quarter of a gigabyte for a megapixel.

With two processors, a run of eight images takes 520 MB instead of 660, and a sixth more time if it does nothing else.
"""
DETECTING = threading.BoundedSemaphore(DETECTIONS_AT_ONCE)
"""Held by each thread in the detector."""

_GRAPH, _INITIALIZER, _DATA_TYPE, _RAW_DATA, _FLOAT = 7, 5, 2, 9, 1
"""Numbers of fields in ONNX, and that of its type of 32-bit floats."""


def model_path(part: str) -> Path:
    """The file of a model, ``Det`` or ``Rec``. Raises ``GraderError`` if it is not installed."""
    package = find_spec("rapidocr")
    if package is None or package.origin is None or not has_extra("ocr"):
        raise GraderError(needs("ocr"))
    path = Path(package.origin).parent / "models" / MODELS[part]
    if not path.is_file():
        raise GraderError(f"the installed rapidocr does not include the model {path.name}: {install_command('ocr')}")
    return path


@cache
def session(part: str) -> Any:
    """The inference session of a model, ``Det`` or ``Rec``. Any number of threads may run it; in the detector, those
    beyond ``DETECTIONS_AT_ONCE`` wait for their turn.

    Not locked: a caller that needs one session per process must lock.
    """
    # ONNX Runtime sends usage data to its maker unless this is set before it is first imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    class Detector(onnxruntime.InferenceSession):  # type: ignore[misc]
        def run(self, *args: Any, **options: Any) -> Any:
            with waiting():
                DETECTING.acquire()
            try:
                return super().run(*args, **options)
            finally:
                DETECTING.release()

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # The arena hands memory from layer to layer. Without it, or with the pattern, which plans the memory of an image in
    # one block, the peak is up to twice as high, and the operating system clears every page again for each image.
    options.enable_cpu_mem_arena, options.enable_mem_pattern = True, False
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # images run in parallel instead
    model = bytearray(model_path(part).read_bytes())
    clear_tiny_weights(model)
    kind = Detector if part == "Det" else onnxruntime.InferenceSession
    return kind(bytes(model), sess_options=options, providers=["CPUExecutionProvider"])


def clear_tiny_weights(model: bytearray) -> None:
    """Sets the weights below ``TINY_WEIGHT`` in the bytes of an ONNX model to 0, in place.

    Reads the fields that it needs from the Protocol Buffers encoding, as ONNX Runtime comes without a reader. Raises
    ``ValueError`` if the bytes are no ONNX model.
    """
    for start, end in _float_weights(model):
        weights = np.frombuffer(model, np.float32, (end - start) // 4, start)
        weights[np.abs(weights) < TINY_WEIGHT] = 0


def _float_weights(model: bytearray) -> Iterator[tuple[int, int]]:
    """The first and last byte of each tensor of 32-bit floats among the initializers of the graph."""
    for graph, start, end in _fields(model, 0, len(model)):
        for initializer, first, last in _fields(model, start, end) if graph == _GRAPH else ():
            if initializer == _INITIALIZER:
                tensor = {number: (low, high) for number, low, high in _fields(model, first, last)}
                if _RAW_DATA in tensor and _number(model, tensor[_DATA_TYPE][0])[0] == _FLOAT:
                    yield tensor[_RAW_DATA]


def _fields(data: bytearray, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields of a message: number, and the first and last byte of the value."""
    while start < end:
        key, start = _number(data, start)
        wire = key & 7
        if wire == 0:
            after = _number(data, start)[1]
        elif wire == 2:
            length, start = _number(data, start)
            after = start + length
        elif wire in (1, 5):
            after = start + (8 if wire == 1 else 4)
        else:
            raise ValueError(f"unknown Protocol Buffers wire type: {wire}")
        if after > end:
            raise ValueError("a field extends beyond its message")
        yield key >> 3, start, after
        start = after


def _number(data: bytearray, start: int) -> tuple[int, int]:
    """A variable-length integer, and the position behind it."""
    value = 0
    for position in range(start, len(data)):
        value |= (data[position] & 127) << 7 * (position - start)
        if data[position] < 128:
            return value, position + 1
    raise ValueError("the data ends within a number")


_Steps = np.ndarray[Any, np.dtype[np.float32]]
"""The probability of each sign, blank first and space last, at each step from left to right."""

_BLANK = 0
"""The number of the sign that stands for no character; the last one is a space."""
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Line:
    """What a line says, with its confidence (0 to 1), and where each character but white space is (0 to 1 of its
    width)."""

    text: str
    confidence: float
    columns: tuple[float, ...]


def detect(image: Image.Image) -> list[Corners]:
    """The boxes of text in an RGB image, in pixels, from top to bottom. Raises ``GraderError``."""
    detector, _ = _networks()
    pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
    try:
        prepared = detector.get_preprocess()(pixels)
        boxes, _ = detector.postprocess_op(detector.session(prepared), pixels.shape[:2])
        corners = [[(float(x), float(y)) for x, y in box] for box in detector.sorted_boxes(boxes)]
    except Exception as error:
        raise GraderError(f"OCR failed: {type(error).__name__}: {error}") from error
    return [(a, b, c, d) for a, b, c, d in corners]


def crop(image: Image.Image, box: Corners) -> Image.Image:
    """The box as an upright image; a box that is half again as high as wide is turned by a quarter."""
    from rapidocr.utils.process_img import get_rotate_crop_image

    return Image.fromarray(get_rotate_crop_image(np.asarray(image), np.array(box, np.float32)))


def read_line(line: Image.Image) -> Line:
    """Reads an upright RGB image of a line. Raises ``GraderError``."""
    _, recognizer = _networks()
    ratio, padded = _ratios(line)
    (result,), (words,) = recognizer.postprocess_op(
        _steps(line)[np.newaxis], True, wh_ratio_list=[ratio], max_wh_ratio=padded
    )
    columns = tuple((column + 0.5) / words.line_txt_len for word in words.word_cols for column in word)
    return Line(result[0], float(result[1]), columns)


def log_likelihood(line: Image.Image, text: str) -> float:
    """The natural logarithm of the probability that an upright RGB image of a line says a text; ``-inf`` for none.

    The text is compared characters (``Copy.chars``): white space is left out, and characters that fold alike are the
    same. The sum over all alignments of the text with the steps of the recognizer, as its training maximized it: the
    forward variables of connectionist temporal classification (Graves et al. 2006). Raises ``GraderError``.
    """
    steps, signs = _steps(line), _signs()
    rows = np.empty((len(steps), 2 * len(text) + 1))
    rows[:, 0::2] = (steps[:, _BLANK] + steps[:, -1])[:, np.newaxis]
    for position, char in enumerate(text):
        rows[:, 2 * position + 1] = steps[:, signs.get(char, [])].sum(axis=1)
    # A character may follow the one before without a blank between them, unless they are the same.
    skips = np.zeros(rows.shape[1], bool)
    skips[3::2] = [char != before for before, char in pairwise(text)]
    state = np.zeros(rows.shape[1])
    state[0] = 1.0
    total = 0.0
    for number, row in enumerate(rows):
        if number == 0:
            state[1:2] = 1.0
        else:
            moved = state.copy()
            moved[1:] += state[:-1]
            moved[2:] += np.where(skips[2:], state[:-2], 0)
            state = moved
        state = state * row
        scale = state.sum()
        if scale <= 0:
            return -np.inf
        state, total = state / scale, total + float(np.log(scale))
    end = float(state[-2:].sum())
    return total + float(np.log(end)) if end > 0 else -np.inf


@cache
def _signs() -> Mapping[str, list[int]]:
    """The numbers of the recognizer's signs by the character that they fold to; those of several characters are left
    out."""
    numbers: dict[str, list[int]] = {}
    for number, sign in enumerate(_networks()[1].postprocess_op.character):
        if number != _BLANK and len(folded := fold_character(sign)) == 1 and not sign.isspace():
            numbers.setdefault(folded, []).append(number)
    return numbers


def _ratios(line: Image.Image) -> tuple[float, float]:
    """Width over height of a line, and of what the recognizer makes of it."""
    _, height, width = _networks()[1].rec_image_shape[:3]
    ratio = line.width / line.height
    return ratio, max(ratio, width / height)


def _steps(line: Image.Image) -> _Steps:
    _, recognizer = _networks()
    pixels = np.ascontiguousarray(np.asarray(line)[:, :, ::-1])
    try:
        probabilities = recognizer.session(recognizer.resize_norm_img(pixels, _ratios(line)[1])[np.newaxis])
    except Exception as error:
        raise GraderError(f"OCR failed: {type(error).__name__}: {error}") from error
    steps: _Steps = probabilities[0]
    return steps


def _networks() -> tuple[Any, Any]:
    """The detector and the recognizer of the process, for any thread."""
    with waiting():
        _lock.acquire()
    try:
        return _load()
    finally:
        _lock.release()


@cache
def _load() -> tuple[Any, Any]:
    try:
        sessions = {part: session(part) for part in MODELS}
        from omegaconf import flag_override
        from rapidocr import RapidOCR
        from rapidocr.ch_ppocr_det import TextDetector
        from rapidocr.ch_ppocr_rec import TextRecognizer

        settings = RapidOCR(params={"Global.log_level": "critical", "Global.use_cls": False}).cfg
        with flag_override(settings, "allow_objects", True):
            for part, loaded in sessions.items():
                settings[part].session = loaded
                settings[part].engine_cfg = settings.EngineConfig[settings[part].engine_type.value]
                settings[part].model_root_dir = settings.Global.model_root_dir
        settings.Rec.font_path = settings.Global.font_path
        return TextDetector(settings.Det), TextRecognizer(settings.Rec)
    except GraderError:
        raise
    except Exception as error:
        raise GraderError(f"RapidOCR failed to start: {type(error).__name__}: {error}") from error
