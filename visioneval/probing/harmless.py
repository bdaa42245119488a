"""Changes that nobody would call a flaw: other encodings, rounding errors of usual pipelines, and redraws."""

from __future__ import annotations

import io

import cv2
import numpy as np
from PIL import Image, ImageFilter

from visioneval.media.opencv import portable_opencv
from visioneval.probing.subject import (
    CannotPerturbError,
    Perturbed,
    PerturbedFile,
    Pixels,
    Subject,
    encode,
)

_DECODING = (0xE0, 0xEE)
"""Application segments of a JPEG that change how it decodes: JFIF, and the color transform of Adobe."""


def jpeg(subject: Subject, quality: float) -> PerturbedFile:
    """Encoded as JPEG of this quality, 1 to 95."""
    _check_format(subject, "jpeg")
    if subject.is_transparent:
        raise CannotPerturbError("JPEG would drop its transparency")
    return PerturbedFile(_saved(subject.image, "JPEG", quality=round(quality)), "image/jpeg")


def webp(subject: Subject, quality: float) -> PerturbedFile:
    """Encoded as lossy WebP of this quality, 1 to 100."""
    _check_format(subject, "webp")
    return PerturbedFile(_saved(subject.image, "WEBP", quality=round(quality), method=2), "image/webp")


def other_png(subject: Subject, _strength: float) -> PerturbedFile:
    """The same pixels as a PNG of OpenCV's encoder."""
    _check_format(subject, "png")
    to_bgr = cv2.COLOR_RGBA2BGRA if subject.image.shape[2] == 4 else cv2.COLOR_RGB2BGR
    is_written, data = cv2.imencode(".png", cv2.cvtColor(subject.image, to_bgr), [cv2.IMWRITE_PNG_COMPRESSION, 1])
    if not is_written:
        raise CannotPerturbError("OpenCV cannot encode it")
    return PerturbedFile(data.tobytes(), "image/png")


def without_metadata(subject: Subject, _strength: float) -> PerturbedFile:
    """The same pixels without metadata. A JPEG is not encoded again: it loses its comments and application segments,
    except those that change how it decodes."""
    if subject.mime != "image/jpeg":
        return PerturbedFile(encode(subject.image, subject.mime), subject.mime)
    with Image.open(io.BytesIO(subject.data)) as handle:
        if handle.getexif().get(0x0112, 1) != 1:
            raise CannotPerturbError("its metadata rotates it")
    data = subject.data
    segments, at = [data[:2]], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        marker, end = data[at + 1], at + 2 + int.from_bytes(data[at + 2 : at + 4])
        if marker in _DECODING or not (0xE0 <= marker <= 0xEF or marker == 0xFE):
            segments.append(data[at:end])
        at = end
    return PerturbedFile(b"".join((*segments, data[at:])), subject.mime)


def resized_and_back(subject: Subject, share: float) -> Perturbed:
    """Scaled down by ``share`` of each side and back to its size."""
    height, width = subject.image.shape[:2]
    image = Image.fromarray(subject.image)
    small = image.resize((max(1, round(width * (1 - share))), max(1, round(height * (1 - share)))), _LANCZOS)
    return Perturbed(np.asarray(small.resize((width, height), _LANCZOS), dtype=np.uint8))


@portable_opencv()
def half_pixel_shift(subject: Subject, _strength: float) -> Perturbed:
    """Shifted by half a pixel to the right and down."""
    height, width = subject.image.shape[:2]
    moved = cv2.warpAffine(
        subject.image,
        np.array([[1, 0, 0.5], [0, 1, 0.5]]),
        (width, height),
        flags=cv2.INTER_CUBIC,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return Perturbed(np.asarray(moved, dtype=np.uint8))


def gamma(subject: Subject, exponent: float) -> Perturbed:
    """Every channel raised to ``exponent``, in shares of 255."""
    table = np.rint((np.arange(256) / 255) ** exponent * 255).astype(np.uint8)
    changed = subject.image.copy()
    changed[..., :3] = table[subject.image[..., :3]]
    return Perturbed(changed)


def sharpened(subject: Subject, percent: float) -> Perturbed:
    """An unsharp mask with a radius of 2 pixels; its colors alone, not its transparency."""
    changed = subject.image.copy()
    colors = Image.fromarray(np.ascontiguousarray(subject.image[..., :3]))
    changed[..., :3] = np.asarray(colors.filter(ImageFilter.UnsharpMask(2, round(percent), 0)))
    return Perturbed(changed)


def grain(subject: Subject, sigma: float, random: np.random.Generator) -> Perturbed:
    """Gaussian grain of ``sigma`` levels of 255, the same in all channels."""
    changed = subject.image.copy()
    noise = random.normal(0, sigma, (*subject.image.shape[:2], 1))
    changed[..., :3] = np.clip(np.rint(subject.image[..., :3] + noise), 0, 255).astype(np.uint8)
    return Perturbed(changed)


@portable_opencv()
def redrawn(subject: Subject, share: float, random: np.random.Generator) -> Perturbed:
    """What a model that paints every pixel again leaves: moved smoothly by up to ``share`` of the shorter side, with
    another tone by up to 8 levels, and with its finest detail smoothed and sharpened."""
    height, width = subject.image.shape[:2]
    waves = random.uniform(0, 2 * np.pi, 4)
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    reach = share * min(height, width) / np.sqrt(2)
    across = columns + reach * np.sin(3 * rows / height + 2 * columns / width + waves[0])
    down = rows + reach * np.sin(2 * rows / height + 3 * columns / width + waves[1])
    moved = cv2.remap(
        subject.image,
        across.astype(np.float32),
        down.astype(np.float32),
        cv2.INTER_CUBIC,
        borderMode=cv2.BORDER_REPLICATE,
    )
    levels = np.arange(256)
    table = np.clip(np.rint(levels + 8 * np.sin(np.pi * levels / 255) * np.sin(waves[2])), 0, 255).astype(np.uint8)
    colors = cv2.GaussianBlur(table[np.ascontiguousarray(moved[..., :3])], (0, 0), 0.8)
    sharp = Image.fromarray(np.asarray(colors, np.uint8)).filter(ImageFilter.UnsharpMask(1.5, 100, 0))
    return Perturbed(np.asarray(np.dstack([np.asarray(sharp), moved[..., 3:]]), np.uint8))


_LANCZOS = Image.Resampling.LANCZOS


def _check_format(subject: Subject, name: str) -> None:
    expected = subject.expect.format
    if expected is not None and expected != name:
        raise CannotPerturbError(f"its case expects the format {expected}")


def _saved(image: Pixels, kind: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, **options)
    return buffer.getvalue()
