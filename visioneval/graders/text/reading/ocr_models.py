"""The models of RapidOCR, loaded once per process without the weights that only cost time.

Training has left weights below the smallest normal number of 32 bits in the models: a tenth of the detector's. They
change no result, but processors multiply such numbers many times more slowly, and the detector spent most of its time
on them. ONNX Runtime's own switch for this acts on the thread that loads the first model of a process, and on no other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from visioneval.errors import GraderError
from visioneval.extras import has_extra, install_command, needs
from visioneval.stopwatch import waiting
from visioneval.threads import processors

MODELS = {
    "Det": "PP-OCRv6_det_small.onnx",
    "Rec": "PP-OCRv6_rec_small.onnx",
}

TINY_WEIGHT = 1e-30
"""Weights nearer to 0 than this become 0. They are lost in the rounding of any sum with other weights."""

DETECTIONS_AT_ONCE = max(1, processors() // 2)
"""How many images may be in the detector, which takes a quarter of a gigabyte for a megapixel.

With two processors, a run of eight images takes 520 MB instead of 660, and a sixth more time if it does nothing else.
"""
DETECTING = threading.BoundedSemaphore(DETECTIONS_AT_ONCE)
"""Held by each thread in the detector."""

_GRAPH, _INITIALIZER = 7, 5
_DATA_TYPE, _RAW_DATA, _FLOAT = 2, 9, 1
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


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
    for graph, _, start, end in _fields(model, 0, len(model)):
        if graph != _GRAPH:
            continue
        for initializer, _, first, last in _fields(model, start, end):
            if initializer != _INITIALIZER:
                continue
            tensor = {number: (low, high) for number, _, low, high in _fields(model, first, last)}
            if _RAW_DATA in tensor and _number(model, tensor[_DATA_TYPE][0])[0] == _FLOAT:
                yield tensor[_RAW_DATA]


def _fields(data: bytearray, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message: number, wire type, and the first and last byte of the value."""
    while start < end:
        key, start = _number(data, start)
        wire = key & 7
        if wire == _VARINT:
            after = _number(data, start)[1]
        elif wire == _LENGTH:
            length, start = _number(data, start)
            after = start + length
        elif wire in (_FOUR_BYTES, _EIGHT_BYTES):
            after = start + (4 if wire == _FOUR_BYTES else 8)
        else:
            raise ValueError(f"unknown Protocol Buffers wire type: {wire}")
        if after > end:
            raise ValueError("a field extends beyond its message")
        yield key >> 3, wire, start, after
        start = after


def _number(data: bytearray, start: int) -> tuple[int, int]:
    """A variable-length integer, and the position behind it."""
    value = shift = 0
    while True:
        if start >= len(data):
            raise ValueError("the data ends within a number")
        byte = data[start]
        start += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, start
