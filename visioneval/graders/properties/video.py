"""Properties of a video: what it is, and whether it stands still, turns black or flickers.

Metrics:

- ``<key>.duration_s``: seconds from the first frame to the end of the last one. Sound that lasts longer does not count.
- ``<key>.width``, ``<key>.height``: pixels as players turn the video.
- ``<key>.frame_rate``: frames per second, on average.
- ``<key>.has_audio``: whether it has a soundtrack, silence included.
- ``<key>.frozen_s``: seconds of the longest time without change, 0 if no two frames in a row are alike;
  ``<key>.frozen_share``: the share of the duration, 0 to 1, in such times of at least 0.2 s. Frames are alike if the
  mean absolute difference of their luma is at most 1 of 255 levels in each of 144 tiles (see ``measure``).
- ``<key>.black_share``: the share of the duration, 0 to 1, in which 98 % of the pixels have at most 10 % of white's
  luma.
- ``<key>.flicker``: 0 to 1, see ``flicker``.
- ``<key>.size``: as that of ``properties``.
- ``<key>``: size, duration, frame rate and sound are as expected, and no limit of the grader is exceeded.

A measure that the video does not allow, such as flicker in a video of one frame, is ``None``, with the cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from visioneval.errors import GraderError, ImageError
from visioneval.graders.base import Grade, GradingContext, all_hold
from visioneval.graders.measures import Measure
from visioneval.graders.pixels.difference import SCORE_DIGITS
from visioneval.graders.properties import VideoGrader
from visioneval.graders.properties.frames import SHORTEST_STILL_S, Stretch, VideoFacts, measure_video, tool_versions
from visioneval.graders.properties.grader import check_size
from visioneval.types import Score

MAX_STRETCHES = 50
"""Frozen and black times in a record."""
Check = tuple[bool | None, str | None]
"""Whether an expectation is met, ``None`` if that is not known, and why not."""


class Video:
    """The grader."""

    def __init__(self, config: VideoGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Raises ``GraderError`` if the video does not decode, is cut off or is over the limits."""
        path = context.generated.path
        measure = Measure(
            "video", {"output": path}, partial(measure_video, path), VideoFacts, tool_versions=tool_versions()
        )
        try:
            facts = await context.measure(measure)
        except ImageError as error:
            raise GraderError(f"{path.name}: {error}") from error
        key, measured = self._config.key, _measured(facts)
        checks = dict(_checks(self._config, facts, measured))
        scores: dict[str, Score] = {f"{key}.{name}": value for name, value in measured.items()}
        expect = context.case.expect
        if expect.size is not None or expect.aspect_ratio is not None:
            fits, why, unknown = check_size(
                facts.width, facts.height, expect, context.requested_size, "video", facts.pixel_aspect
            )
            scores[f"{key}.size"], checks["size"] = fits, (fits, why or unknown)
        results = [result for result, _ in checks.values()]
        scores[key] = all_hold(results)
        failures = {name: why for name, (result, why) in checks.items() if result is False and why}
        reasons = {key: "; ".join(failures.values())} if failures else {}
        return Grade(
            scores=scores,
            reasons=reasons | ({f"{key}.size": failures["size"]} if "size" in failures else {}),
            details=_details(facts),
            error=_unmeasured(measured, checks, facts),
            tool_versions=tool_versions(),
        )


def _measured(facts: VideoFacts) -> dict[str, Score]:
    """The scores that need no expectation, by name."""
    duration, frozen, black = facts.duration_s, facts.frozen, facts.black
    seconds = None if frozen is None else [end - start for start, end in frozen]
    values: dict[str, float | None] = {
        "duration_s": duration,
        "frame_rate": facts.frame_rate,
        "frozen_s": None if seconds is None else max(seconds, default=0.0),
        "frozen_share": None if seconds is None else _share(sum(s for s in seconds if s >= SHORTEST_STILL_S), duration),
        "black_share": None if black is None else _share(sum(end - start for start, end in black), duration),
        "flicker": facts.flicker,
    }
    rounded: dict[str, Score] = {
        name: None if value is None else round(value, SCORE_DIGITS) for name, value in values.items()
    }
    return {**rounded, "width": facts.width, "height": facts.height, "has_audio": facts.has_audio}


def _share(seconds: float, duration: float | None) -> float | None:
    return min(seconds / duration, 1.0) if duration else None


def _checks(config: VideoGrader, facts: VideoFacts, measured: dict[str, Any]) -> Iterator[tuple[str, Check]]:
    """The checks of the grader's options."""
    if config.duration is not None:
        yield "duration", _within(measured["duration_s"], config.duration, "the video lasts {} s")
    if config.frame_rate is not None:
        yield "frame_rate", _frame_rate(facts, measured["frame_rate"], config.frame_rate)
    if config.audio is not None:
        why = "the video has no soundtrack" if config.audio else "the video has a soundtrack, expected none"
        is_right = facts.has_audio == config.audio
        yield "audio", (is_right, None if is_right else why)
    for name, limit, text in (
        ("frozen_s", config.max_frozen_s, "it stands still for {} s" + _at(facts.frozen)),
        ("black_share", config.max_black_share, "{} of its duration is black" + _at(facts.black)),
        ("flicker", config.max_flicker, "it flickers by {}"),
    ):
        value = measured[name]
        if limit is not None and value is not None:
            why = f"{text.format(f'{value:.4g}')}, at most {limit:g} expected"
            yield name, (value <= limit, None if value <= limit else why)
        elif limit is not None:
            yield name, (None, None)


def _within(value: float | None, limits: tuple[float, float], text: str) -> Check:
    if value is None:
        return None, None
    low, high = limits
    if low <= value <= high:
        return True, None
    expected = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return False, f"{text.format(f'{value:.4g}')}, expected {expected}"


def _frame_rate(facts: VideoFacts, average: float | None, limits: tuple[float, float]) -> Check:
    """Of a varying rate, both ends must be within the limits to pass, and outside on the same side to fail."""
    if facts.rates is None:
        return _within(average, limits, "it has {} frames per second")
    low, high = facts.rates
    if limits[0] <= low and high <= limits[1]:
        return True, None
    text = f"its frame rate varies from {low:.4g} to {high:.4g} frames per second"
    return (False if high < limits[0] or low > limits[1] else None), text


def _at(stretches: tuple[Stretch, ...] | None) -> str:
    """Where the longest of these times begins."""
    if not stretches:
        return ""
    start, _ = max(stretches, key=lambda stretch: stretch[1] - stretch[0])
    return f" from {start:.4g} s on"


def _unmeasured(measured: dict[str, Score], checks: dict[str, Check], facts: VideoFacts) -> str | None:
    """Why some scores are ``None``."""
    undecided = [why for result, why in checks.values() if result is None and why]
    missing = [name for name, value in measured.items() if value is None]
    if missing:
        undecided.insert(0, f"{', '.join(missing)}: {_cause(facts)}")
    return "; ".join(undecided) or None


def _cause(facts: VideoFacts) -> str:
    if facts.frames == 1:
        return "the video has only one frame"
    if facts.hdr is not None:
        return f"the video is HDR ({facts.hdr}), whose luminance is not comparable"
    if facts.frozen is None:
        return "the video has no usable timestamps"
    return "the video changes its size" if facts.over_time is None else "the video has fewer than three frames"


def _details(facts: VideoFacts) -> dict[str, object]:
    details: dict[str, object] = {
        "size": f"{facts.width}x{facts.height}",
        "frames": facts.frames,
        "codec": facts.codec,
        "pixel_format": facts.pixel_format,
    }
    if facts.rotation:
        details["rotation"] = facts.rotation
    if facts.pixel_aspect != 1:
        details["pixel_aspect"] = round(facts.pixel_aspect, 4)
    if facts.hdr is not None:
        details["hdr"] = facts.hdr
    if facts.rates is not None:
        details["frame_rates"] = [round(rate, 3) for rate in facts.rates]
    shown = [stretch for stretch in facts.frozen or () if stretch[1] - stretch[0] >= SHORTEST_STILL_S]
    for name, stretches in (("frozen", shown), ("black", facts.black or ())):
        if stretches:
            details[name] = [[round(start, 3), round(end, 3)] for start, end in stretches[:MAX_STRETCHES]]
    if facts.over_time is not None:
        details["over_time"] = {name: list(values) for name, values in asdict(facts.over_time).items()}
    return details
