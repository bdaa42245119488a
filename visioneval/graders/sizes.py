"""Whether an image or a video has the size that a case expects."""

from __future__ import annotations

from visioneval.suite.cases.case import Expect, pixel_size

ASPECT_TOLERANCE = 0.01
"""The allowed deviation of width / height from the expected ratio, as a share."""


def check_size(
    width: int, height: int, expect: Expect, requested: str | None, medium: str = "image", pixel_aspect: float = 1.0
) -> tuple[bool | None, str | None, str | None]:
    """Whether the size is right, the failure, and the error if that is unknown (then the first is ``None``).

    ``width`` and ``height`` are pixels in display orientation; ``requested`` is the size that the model run asked for,
    and ``pixel_aspect`` the width of a pixel over its height.
    """
    failures, error = [], None
    actual = f"{width}x{height}"
    expected = requested if expect.size == "requested" else expect.size
    if expect.size == "requested" and not _is_size(requested):
        requested_text = "no size" if requested is None else f"the size {requested!r}"
        error = f"expect.size is 'requested', but the model run requests {requested_text}"
    elif expected is not None and pixel_size(expected) != (width, height):
        failures.append(f"the {medium} is {actual}, expected {expected}")
    if expect.aspect_ratio is not None:
        across, down = map(int, expect.aspect_ratio.split(":"))
        ratio = width * pixel_aspect / height / (across / down)
        if round(abs(ratio - 1), 9) > ASPECT_TOLERANCE:  # 101x100 is exactly 1 % off
            failures.append(f"the {medium} is {actual}, expected an aspect ratio of {expect.aspect_ratio}")
    if failures:
        return False, "; ".join(failures), error
    return (True, None, None) if error is None else (None, None, error)


def _is_size(text: str | None) -> bool:
    try:
        return text is not None and bool(pixel_size(text))
    except ValueError:
        return False
