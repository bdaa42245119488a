"""Changes that nobody would call damage: other encodings, and rounding errors of usual pipelines. All are pure."""

from __future__ import annotations

import io

import cv2
import numpy as np
from PIL import Image

from visioneval.media.opencv import portable_opencv
from visioneval.probing.damage.subject import CannotPlantError, Pixels, Planted, PlantedFile, Subject, encode

_DECODING = (0xE0, 0xEE)
"""Application segments of a JPEG that change how it decodes: JFIF, and the color transform of Adobe."""


def jpeg(subject: Subject, quality: float) -> PlantedFile:
    """Encoded as JPEG of this quality, 1 to 95."""
    _check_format(subject, "jpeg")
    if subject.is_transparent:
        raise CannotPlantError("JPEG would drop its transparency")
    return PlantedFile(_saved(subject.image, "JPEG", quality=round(quality)), "image/jpeg")


def webp(subject: Subject, quality: float) -> PlantedFile:
    """Encoded as lossy WebP of this quality, 1 to 100."""
    _check_format(subject, "webp")
    return PlantedFile(_saved(subject.image, "WEBP", quality=round(quality), method=2), "image/webp")


def other_png(subject: Subject, _strength: float) -> PlantedFile:
    """The same pixels as a PNG of OpenCV's encoder."""
    _check_format(subject, "png")
    to_bgr = cv2.COLOR_RGBA2BGRA if subject.image.shape[2] == 4 else cv2.COLOR_RGB2BGR
    is_written, data = cv2.imencode(".png", cv2.cvtColor(subject.image, to_bgr), [cv2.IMWRITE_PNG_COMPRESSION, 1])
    if not is_written:
        raise CannotPlantError("OpenCV cannot encode it")
    return PlantedFile(data.tobytes(), "image/png")


def without_metadata(subject: Subject, _strength: float) -> PlantedFile:
    """The same pixels without metadata. A JPEG is not encoded again."""
    if subject.mime != "image/jpeg":
        return PlantedFile(encode(subject.image, subject.mime), subject.mime)
    with Image.open(io.BytesIO(subject.data)) as handle:
        if handle.getexif().get(0x0112, 1) != 1:
            raise CannotPlantError("its metadata rotates it")
    return PlantedFile(_without_segments(subject.data), subject.mime)


def resized_and_back(subject: Subject, share: float) -> Planted:
    """Scaled down by ``share`` of each side and back to its size."""
    height, width = subject.image.shape[:2]
    image = Image.fromarray(subject.image)
    small = image.resize((max(1, round(width * (1 - share))), max(1, round(height * (1 - share)))), _LANCZOS)
    return Planted(np.asarray(small.resize((width, height), _LANCZOS), dtype=np.uint8))


@portable_opencv()
def half_pixel_shift(subject: Subject, _strength: float) -> Planted:
    """Shifted by half a pixel to the right and down."""
    height, width = subject.image.shape[:2]
    moved = cv2.warpAffine(
        subject.image,
        np.array([[1, 0, 0.5], [0, 1, 0.5]]),
        (width, height),
        flags=cv2.INTER_CUBIC,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return Planted(np.asarray(moved, dtype=np.uint8))


def gamma(subject: Subject, exponent: float) -> Planted:
    """Every channel raised to ``exponent``, in shares of 255."""
    table = np.rint((np.arange(256) / 255) ** exponent * 255).astype(np.uint8)
    changed = subject.image.copy()
    changed[..., :3] = table[subject.image[..., :3]]
    return Planted(changed)


_LANCZOS = Image.Resampling.LANCZOS


def _check_format(subject: Subject, name: str) -> None:
    expected = subject.expect.format
    if expected is not None and expected != name:
        raise CannotPlantError(f"its case expects the format {expected}")


def _saved(image: Pixels, kind: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, **options)
    return buffer.getvalue()


def _without_segments(data: bytes) -> bytes:
    """A JPEG without its comments and application segments, except those that change how it decodes."""
    segments, at = [data[:2]], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        marker, end = data[at + 1], at + 2 + int.from_bytes(data[at + 2 : at + 4])
        if marker in _DECODING or not (0xE0 <= marker <= 0xEF or marker == 0xFE):
            segments.append(data[at:end])
        at = end
    return b"".join((*segments, data[at:]))
