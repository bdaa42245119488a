"""What the mock generates: a plain flyer with a small landscape, text, a card and a button; and videos of it."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from visioneval.errors import ProviderError
from visioneval.installation import needs
from visioneval.providers.mock import MockParams
from visioneval.providers.mock.text import MIN_SIZE, Color, Dice, Setting, set_line
from visioneval.suite.case import pixel_size

Box = tuple[int, int, int, int]
Pixels = NDArray[np.uint8]

_ART_SHARES = (0.14, 0.08, 0.03)
"""Shares of a page's height for the landscape above the copy, tried in order until the copy fits."""
_LARGEST_ART = 0.58
_LANDSCAPE = 1.3
_COMFORTABLE = 14
"""Pixels: letter size below which the landscape and the gaps are reduced."""
_MAX_SMOOTH_PIXELS = 8_000_000
"""Larger shapes are drawn without smooth edges, to limit memory."""
_PAN = 0.25
"""The share of the landscape's width that passes by each second."""
_DIMMED = 0.8
"""The brightness of every second frame of a video that flickers."""
_FLAWED_FROM = 0.4
"""The share of a video after which it freezes or turns black."""
_SHORT = 0.25
"""The share of the requested duration that a short video has."""
_SAMPLE_RATE = 16_000
_AUDIO_FRAME = 1024
_TONE_HZ = 440
_VOLUME = 0.05


@dataclass(frozen=True, slots=True)
class _Palette:
    paper: Color
    ink: Color
    accent: Color
    sky: Color
    sun: Color
    far_hill: Color
    near_hill: Color
    card: Color = (255, 255, 255)
    rule: Color = (226, 224, 222)


def _parse_color(digits: str) -> Color:
    red, green, blue = bytes.fromhex(digits)
    return red, green, blue


_ROOM_FOR_RULE = 6
_PALETTES = tuple(
    _Palette(*map(_parse_color, row.split()))
    for row in (
        "faf5ec 2c2420 a63d27 f7d6b2 e98046 c6603e 7c3830",
        "f0f6f8 182836 145e80 bcdeec facd6e 5c9cb2 245c7a",
        "f3f7ee 1e2e22 2e6c42 d6e8c4 f6d060 86b470 3e764c",
        "f8f2f8 2e2038 703a8c e4ceec f49884 a474ba 623c80",
        "faf6e8 28282c b05810 fce2a0 e87038 d6a048 966228",
    )
)


_LUMA = np.array([0.299, 0.587, 0.114])
_READABLE = 90
"""The difference of luma, in levels, from which copy in one color is readable on another."""


def _palette_of(colors: Sequence[str]) -> _Palette:
    """The colors of a page from those of a case, ``#RRGGBB``: paper and cards in the lightest, copy in the darkest."""
    by_light = sorted((_parse_color(color[1:]) for color in colors), key=_light, reverse=True)
    light, dark, others = by_light[0], by_light[-1], by_light[1:-1] or by_light[-1:]
    accent = next((color for color in reversed(others) if _light(light) - _light(color) >= _READABLE), dark)
    hills = (others * 2)[1], dark
    return _Palette(
        light, dark, accent, sky=others[0], sun=light, far_hill=hills[0], near_hill=hills[1], card=light, rule=accent
    )


def _light(color: Color) -> float:
    return float(_LUMA @ color)


@dataclass(frozen=True, slots=True)
class PageCopy:
    """The lines of a page: ``small`` above the title, ``required`` from title to button, ``extra`` below all."""

    small: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """Lines of one group. ``frame`` is the color of the box around them, ``pad`` pixels away."""

    lines: tuple[Setting, ...]
    colour: Color
    gap: int = 0
    pad: int = 0
    frame: Color | None = None
    rule: Color | None = None
    """The color of the lines between rows of a card; only a card has some."""
    columns: int = 1

    @property
    def rows(self) -> list[tuple[Setting, ...]]:
        """The lines by row."""
        return [self.lines[at : at + self.columns] for at in range(0, len(self.lines), self.columns)]

    @property
    def height(self) -> int:
        rows = self.rows
        return sum(max(line.height for line in row) for row in rows) + self.gap * (len(rows) - 1) + 2 * self.pad

    @property
    def width(self) -> int:
        return max(line.width for line in self.lines) + 4 * self.pad


def draw_page(size: tuple[int, int], copy: PageCopy, dice: Dice, colors: Sequence[str] = ()) -> tuple[Image.Image, Box]:
    """An RGB page of ``size`` in these colors, if any, and the box of its landscape, in which there is no text.

    Raises ``ProviderError`` if the copy does not fit at a readable size.
    """
    palette = _palette_of(colors) if colors else _PALETTES[dice.pick("palette", len(_PALETTES))]
    page = Image.new("RGB", size, palette.paper)
    if colors and not (copy.small or copy.required or copy.extra):
        _draw_art(page, (0, 0, *size), palette, dice)
        return page, (0, 0, *size)
    if not (copy.small or copy.required or copy.extra):
        _draw_art(page, (0, 0, *size), _hazy_palette(palette), dice)
        return page.filter(ImageFilter.GaussianBlur(min(size) * 0.03)), (0, 0, *size)
    art, column, parts, gap = _lay_out(size, copy, palette, dice)
    height = _height(parts, gap)
    _draw_art(page, art, palette, dice)
    centred = dice.share("align") < 0.5
    top = (column[1] + column[3] - height) // 2
    for part in parts:
        _draw_part(page, part, column, top, centred=centred)
        top += part.height + gap
    return page, art


def _hazy_palette(palette: _Palette) -> _Palette:
    """The palette with landscape colors close to the sky: without copy, OCR mistakes clear shapes for letters."""
    hazy: dict[str, Color] = {}
    for name in ("sun", "far_hill", "near_hill"):
        red, green, blue = (round(0.8 * a + 0.2 * b) for a, b in zip(palette.sky, getattr(palette, name), strict=True))
        hazy[name] = (red, green, blue)
    return replace(palette, **hazy)


def flat(size: tuple[int, int], dice: Dice) -> Image.Image:
    """An empty page."""
    return Image.new("RGB", size, _PALETTES[dice.pick("palette", len(_PALETTES))].paper)


def other_size(size: tuple[int, int]) -> tuple[int, int]:
    """A size with another aspect ratio: the longer side is reduced by a quarter (a single pixel becomes two)."""
    width, height = size
    if height >= width:
        return width, height * 3 // 4 if height > 1 else 2
    return width * 3 // 4, height


def smooth_mask(size: tuple[int, int], paint: Callable[[ImageDraw.ImageDraw, int], None]) -> Image.Image:
    """An ``L`` mask with smooth edges; ``paint`` draws with 255, every length multiplied by its second argument."""
    scale = next((scale for scale in (4, 2) if size[0] * size[1] * scale**2 <= _MAX_SMOOTH_PIXELS), 1)
    mask = Image.new("L", (size[0] * scale, size[1] * scale), 0)
    paint(ImageDraw.Draw(mask), scale)
    return mask.reduce(scale) if scale > 1 else mask


def rounded(size: tuple[int, int], radius: int) -> Image.Image:
    """A mask of a rectangle with round corners."""
    return smooth_mask(
        size,
        lambda pen, k: pen.rounded_rectangle((0, 0, size[0] * k - 1, size[1] * k - 1), radius * k, fill=255),
    )


def _lay_out(size: tuple[int, int], copy: PageCopy, palette: _Palette, dice: Dice) -> tuple[Box, Box, list[_Part], int]:
    """The landscape's box, the column's, and what stands in the column, with the gap between.

    A lot of copy on a small page shrinks the landscape. Raises ``ProviderError`` if it still does not fit.
    """
    best: tuple[Box, Box, list[_Part], int, int] | None = None
    for share in _ART_SHARES:
        art, column = _areas(size, share, dice)
        unit, parts, gap = _set_parts(copy, column[2] - column[0], column[3] - column[1], palette)
        if parts and (best is None or unit > best[4]):
            best = (art, column, parts, gap, unit)
        if best is not None and best[4] >= _COMFORTABLE:
            break
    if best is None:
        count = len(copy.small) + len(copy.required) + len(copy.extra)
        message = f"mock: {count} lines of text do not fit {size[0]}x{size[1]} at a readable size"
        raise ProviderError(message, kind="invalid")
    art, column, parts, gap, _ = best
    if art[2] - art[0] == size[0]:  # the landscape is above the column and takes the free space
        space = column[1] - art[3]
        free = min(column[3] - _height(parts, gap) - space, round(size[1] * _LARGEST_ART))
        art = (0, 0, size[0], max(art[3], free))
        column = (column[0], art[3] + space, column[2], column[3])
    return art, column, parts, gap


def _areas(size: tuple[int, int], share: float, dice: Dice) -> tuple[Box, Box]:
    """Where the landscape and the column of copy go: side by side on a wide page, else one above the other.

    ``share`` is the landscape's part of the height in the second case.
    """
    width, height = size
    margin = max(4, round(min(size) * 0.07))
    if width > _LANDSCAPE * height:
        split = round(width * 0.38)
        if dice.share("side") < 0.5:
            return (0, 0, split, height), (split + margin, margin, width - margin, height - margin)
        return (width - split, 0, width, height), (margin, margin, width - split - margin, height - margin)
    art, space = max(1, round(height * share)), margin * 2 // 3
    return (0, 0, width, art), (margin, art + space, width - margin, height - space)


def _set_parts(copy: PageCopy, width: int, height: int, palette: _Palette) -> tuple[int, list[_Part], int]:
    """The largest unit at which the copy fits, the parts (empty if it does not fit), and their gap."""
    across = 0.06 if height < 2 * width else 0.09  # on a tall page there is room to wrap lines
    unit = max(MIN_SIZE, round(min(width * across, height * 0.1)))
    columns = range(1, max(1, min(6, width // max(1, height))) + 1)
    while unit >= MIN_SIZE:
        for spacing in (1.0, 0.5) if unit >= _COMFORTABLE else (1.0, 0.5, 0.15):
            for count in columns:
                parts = _parts(copy, unit, spacing, width, count, palette)
                gap = round(unit * spacing)
                if parts is not None and _height(parts, gap) <= height:
                    return unit, parts, gap
        unit = min(unit - 1, round(unit * 0.94))
    return 0, [], 0


def _height(parts: Sequence[_Part], gap: int) -> int:
    return sum(part.height for part in parts) + gap * (len(parts) - 1)


def _parts(
    copy: PageCopy, unit: int, spacing: float, width: int, columns: int, palette: _Palette
) -> list[_Part] | None:
    lines = copy.required
    has_action = len(lines) > 1 and len(lines[-1]) <= 28
    end = len(lines) - 1 if has_action else len(lines)
    tight_unit = unit * spacing
    pad = round(tight_unit * 0.55)
    card = _Part(
        (), palette.ink, gap=round(tight_unit / 2), pad=pad, frame=palette.card, rule=palette.rule, columns=columns
    )
    groups = (  # with a title, a body and a call to action
        (copy.small, 0.85, _Part((), palette.accent, gap=round(tight_unit / 6))),
        (lines[:1], 1.1 + spacing, _Part((), palette.ink)),
        (lines[1:end], 1.0, card),
        (lines[end:], 1.1, _Part((), palette.card, pad=round(tight_unit * 0.4), frame=palette.accent)),
        (copy.extra, 0.85, _Part((), palette.ink, gap=round(tight_unit / 6))),
    )
    parts = []
    for group, scale, part in groups:
        size = max(MIN_SIZE, round(unit * scale))
        room = (width - 4 * part.pad) // part.columns - (unit if part.columns > 1 else 0)
        settings = [set_line(line, size, room) for line in group]
        fitted = tuple(setting for setting in settings if setting is not None)
        if len(fitted) < len(group):
            return None
        if fitted:
            parts.append(replace(part, lines=fitted))
    return parts


def _draw_part(page: Image.Image, part: _Part, column: Box, top: int, *, centred: bool) -> None:
    is_card = part.rule is not None
    width = column[2] - column[0] if is_card else part.width
    left = (column[0] + column[2] - width) // 2 if centred else column[0]
    if part.frame is not None:
        radius = part.pad if is_card else part.height // 2
        page.paste(part.frame, (left, top), rounded((width, part.height), min(radius, part.height // 2)))
    is_middle = centred or (part.frame is not None and not is_card)
    text_left = left + 2 * part.pad
    step = (width - 4 * part.pad) / part.columns
    top += part.pad
    for number, row in enumerate(part.rows):
        if number and is_card and part.gap >= _ROOM_FOR_RULE:
            y = top - part.gap // 2
            rule = (text_left, y, left + width - part.pad * 2, y)
            ImageDraw.Draw(page).line(rule, part.rule, max(1, part.pad // 10))
        for column_index, line in enumerate(row):
            x = text_left + step * (column_index + (0.5 if is_middle else 0))
            line.draw(page, x, top, "m" if is_middle else "l", part.colour)
        top += max(line.height for line in row) + part.gap


def _draw_art(page: Image.Image, box: Box, palette: _Palette, dice: Dice) -> None:
    """A sky, a sun in a corner and rows of low hills: OCR mistakes a whole disc for an O, and steep hills for an M."""
    width, height = box[2] - box[0], box[3] - box[1]
    page.paste(palette.sky, box)
    radius = max(1, round(min(width, height) * (0.36 + 0.14 * dice.share("sun size"))))
    x = 0 if dice.share("sun side") < 0.5 else width
    sun = smooth_mask(
        (width, height),
        lambda pen, k: pen.ellipse([k * c for c in (x - radius, -radius, x + radius, radius)], fill=255),
    )
    page.paste(palette.sun, box, sun)
    swing = min(0.07 * height, 0.05 * width)
    for number, colour in enumerate((palette.far_hill, palette.near_hill)):
        waves, phase = 0.6 + 0.5 * dice.share(f"hill {number} waves"), dice.share(f"hill {number} phase")
        level = (0.66, 0.83)[number] * height
        ridge = [
            (width * step / 64, level + swing * math.sin(math.tau * (phase + waves * step / 64))) for step in range(65)
        ]
        page.paste(colour, box, _polygon_mask((width, height), [(0, height), *ridge, (width, height)]))


def _polygon_mask(size: tuple[int, int], points: Sequence[tuple[float, float]]) -> Image.Image:
    return smooth_mask(size, lambda pen, k: pen.polygon([(k * x, k * y) for x, y in points], fill=255))


def video_size(params: MockParams) -> tuple[int, int]:
    """The size of a video in pixels. Raises ``ProviderError`` if it is odd, which its encoding does not support."""
    size = pixel_size(params.size)
    if params.flaw == "wrong_size":
        width, height = other_size(size)
        size = (width + width % 2, height + height % 2)
    if size[0] % 2 or size[1] % 2:
        raise ProviderError(f"mock: a video needs an even width and height, not {params.size}", kind="invalid")
    return size


def render_video(page: Image.Image, art: Box, params: MockParams, software: str) -> bytes:
    """An MP4 of a page whose landscape, in the box ``art``, moves. Raises ``ProviderError``."""
    try:
        import av
    except ImportError:
        raise ProviderError(f"mock: {needs('video')}", kind="invalid") from None
    target = io.BytesIO()
    try:
        with av.open(target, "w", format="mp4", container_options={"fflags": "+bitexact"}) as container:
            container.metadata["comment"] = software
            stream: Any = container.add_stream("libx264", rate=Fraction(params.frame_rate))
            stream.width, stream.height, stream.pix_fmt = *page.size, "yuv420p"
            # one thread and a fixed quantizer: else the same request would not always give the same bytes
            stream.codec_context.thread_count = 1
            stream.options = {"preset": "ultrafast", "qp": "18"}
            audio: Any = container.add_stream("aac", rate=_SAMPLE_RATE, layout="mono") if params.audio else None
            for pixels in _frames(np.asarray(page.convert("RGB")), art, params):
                container.mux(stream.encode(_video_frame(pixels)))
            container.mux(stream.encode())
            if audio is not None:
                _add_tone(container, audio, _frame_count(params) / params.frame_rate)
    except (av.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProviderError(f"mock: the video cannot be encoded: {reason}", kind="invalid") from None
    return target.getvalue()


def _video_frame(pixels: Pixels) -> Any:
    """RGB pixels as a frame, converted by OpenCV: FFmpeg's conversion does not always give the same bytes."""
    import av

    height, width, _ = pixels.shape
    frame = av.VideoFrame(width, height, "yuv420p")
    planes = cv2.cvtColor(pixels, cv2.COLOR_RGB2YUV_I420).ravel()
    sizes = [height * width, height * width // 4, height * width // 4]
    for plane, values in zip(frame.planes, np.split(planes, np.cumsum(sizes)[:-1]), strict=True):
        rows = np.zeros((plane.height, plane.line_size), np.uint8)
        rows[:, : plane.width] = values.reshape(plane.height, plane.width)
        plane.update(rows.tobytes())
    return frame


def _frame_count(params: MockParams) -> int:
    share = _SHORT if params.flaw == "short" else 1
    return max(2, round(params.seconds * params.frame_rate * share))


def _frames(page: Pixels, art: Box, params: MockParams) -> Iterator[Pixels]:
    """The frames, each ``(height, width, 3)``."""
    count = _frame_count(params)
    flawed_from = round(count * _FLAWED_FROM)
    for number in range(count):
        is_flawed = number >= flawed_from
        if params.flaw == "black" and is_flawed:
            yield np.zeros_like(page)
            continue
        moment = flawed_from if params.flaw == "frozen" and is_flawed else number
        frame = page.copy()
        shift = round((art[2] - art[0]) * _PAN * (moment / params.frame_rate))
        frame[art[1] : art[3], art[0] : art[2]] = np.roll(page[art[1] : art[3], art[0] : art[2]], shift, axis=1)
        if params.flaw == "flicker" and number % 2:
            frame = (frame * _DIMMED).astype(np.uint8)
        yield frame


def _add_tone(container: Any, stream: Any, seconds: float) -> None:
    """Adds a tone, in whole frames of the encoder: what it reads past the end of its input would differ each time."""
    import av

    count = math.ceil(seconds * _SAMPLE_RATE / _AUDIO_FRAME)
    times = np.arange(count * _AUDIO_FRAME) / _SAMPLE_RATE
    samples = (np.sin(2 * np.pi * _TONE_HZ * times) * _VOLUME).astype(np.float32)
    for number, part in enumerate(samples.reshape(count, 1, _AUDIO_FRAME)):
        frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = _SAMPLE_RATE, number * _AUDIO_FRAME, Fraction(1, _SAMPLE_RATE)
        container.mux(stream.encode(frame))
    container.mux(stream.encode())
