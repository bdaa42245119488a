from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

pytest.importorskip("rapidocr")

from visioneval.graders.text.networks import (
    DETECTING,
    DETECTIONS_AT_ONCE,
    TINY_WEIGHT,
    _float_weights,
    clear_tiny_weights,
    model_path,
    session,
)


def field(number: int, value: bytes | int) -> bytes:
    """A field of a Protocol Buffers message."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def model(weights: list[float], kind: int = 1) -> bytearray:
    """An ONNX model that has one initializer."""
    data = np.array(weights, np.float32).tobytes()
    tensor = field(1, len(weights)) + field(2, kind) + field(8, b"weights") + field(9, data)
    return bytearray(field(1, 8) + field(7, field(2, b"graph") + field(5, tensor)) + field(2, b"name"))


def test_tiny_weights_become_zero_and_nothing_else_changes() -> None:
    data = model([1.0, 1e-39, -1e-31, 1e-29, -2.0])
    expected = model([1.0, 0.0, 0.0, 1e-29, -2.0])
    clear_tiny_weights(data)
    assert data == expected


def test_data_of_other_types_is_left_alone() -> None:
    data = model([1e-39], kind=7)
    clear_tiny_weights(data)
    assert data == model([1e-39], kind=7)


@pytest.mark.parametrize("damage", [b"\x3b", b"\xff\xff", b"\x3a\x7f\x00"])
def test_what_is_no_model_is_refused(damage: bytes) -> None:
    with pytest.raises(ValueError, match=r"wire type|ends"):
        clear_tiny_weights(bytearray(damage))


@pytest.mark.parametrize("part", ["Det", "Rec"])
def test_the_models_have_no_slow_weights_left(part: str) -> None:
    data = bytearray(model_path(part).read_bytes())
    clear_tiny_weights(data)
    values = [np.frombuffer(data, np.float32, (end - start) // 4, start) for start, end in _float_weights(data)]
    weights = np.abs(np.concatenate(values))
    assert weights.size > 2_000_000  # all of them were looked at
    assert not ((weights > 0) & (weights < TINY_WEIGHT)).any()


def test_the_detector_gives_the_same_result_without_tiny_weights() -> None:
    import onnxruntime

    image = Image.new("RGB", (320, 192), "white")
    ImageDraw.Draw(image).text((20, 60), "OPEN DAILY", font=ImageFont.load_default(size=40), fill="navy")
    pixels = (np.asarray(image, np.float32) / 127.5 - 1).transpose(2, 0, 1)[None]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    original = onnxruntime.InferenceSession(str(model_path("Det")), options, providers=["CPUExecutionProvider"])
    (before,), (after,) = (item.run(None, {item.get_inputs()[0].name: pixels}) for item in (original, session("Det")))
    assert before.max() > 0.5
    assert np.abs(before - after).max() < 1e-6


def test_the_detector_waits_for_its_turn_and_returns_it() -> None:
    detector = session("Det")
    pixels = np.zeros((1, 3, 64, 64), np.float32)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(DETECTIONS_AT_ONCE):
            DETECTING.acquire()
        try:
            waits = pool.submit(detector.run, None, {detector.get_inputs()[0].name: pixels})
            with pytest.raises(NotYet):
                waits.result(timeout=0.2)
        finally:
            DETECTING.release(DETECTIONS_AT_ONCE)
        assert waits.result()[0].shape[-2:] == (64, 64)
    with pytest.raises(Exception, match=r"missing|INVALID|Required"):
        detector.run(None, {})
    for _ in range(DETECTIONS_AT_ONCE):
        assert DETECTING.acquire(blocking=False)
    DETECTING.release(DETECTIONS_AT_ONCE)
