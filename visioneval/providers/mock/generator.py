"""A stand-in that renders plain layouts from what a case expects: no model, no network, no cost.

It knows the right answer, so that users can test a suite, a grader or a gate before paying for anything. The
parameter ``flaw`` makes it render one flaw; ``config.SEEN_BY`` lists the graders that detect it. The metadata of
each file names the stand-in; the image does not, since that would be extra copy.
"""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageChops, ImageFilter, ImageOps, PngImagePlugin
from pydantic import ValidationError

from visioneval.errors import ImageError, ProviderError
from visioneval.media.images import (
    FORMATS,
    IN_MEMORY,
    check_size,
    header,
    load_image,
    load_mask,
    on_background,
    room_for,
)
from visioneval.providers.base import Generation, GenerationRequest
from visioneval.providers.mock import VIDEO_SIZE, MockParams
from visioneval.providers.mock.edit import (
    add_line,
    blot,
    default_mask,
    drift,
    flat_colour,
    repaint_regions,
    spill,
    tinted,
)
from visioneval.providers.mock.page import PageCopy, draw_page, flat, other_size, render_video, rounded, video_size
from visioneval.providers.mock.text import Dice, tidy, with_typo
from visioneval.suite.case import ExpectText, TestCase, pixel_size
from visioneval.types import TaskType

SOFTWARE = "visioneval mock (a stand-in, not a model)"

_EXTRA_LINES = ("Limited time offer", "Terms and conditions apply", "Made with love", "Free gift inside")
_SOFTWARE_TAG = 0x0131
_OPAQUE = ("jpeg", "bmp")


@dataclass(frozen=True, slots=True)
class _Base:
    """The image to edit: composited on white, as stored if it is transparent, and its mask."""

    rgb: Image.Image
    rgba: Image.Image | None
    format: str
    mask: Image.Image


class Mock:
    """Renders a case's copy as an image or a video, or paints it into a mask. The same request gives the same bytes."""

    def __init__(self, config: object) -> None:
        self.config = config

    async def generate(self, request: GenerationRequest) -> Generation:
        """Renders flyers of the requested size, or videos of them. Raises ``ProviderError``."""
        return await asyncio.to_thread(_generate, request)

    async def edit(self, request: GenerationRequest) -> Generation:
        """Repaints the mask of the base image with text. Raises ``ProviderError``.

        The text is the case's ``metadata.text`` (of a list, one line for each separate region of the mask, from top
        to bottom; an empty list is no text), else its first required line. Without text it draws an ellipse;
        without a mask it draws in the middle of the image. Only pixels inside the mask change, except by lossy
        encoding.
        """
        return await asyncio.to_thread(_edit, request)


def _generate(request: GenerationRequest) -> Generation:
    params = _params(request)
    is_video = request.task_type is TaskType.VIDEO_GENERATION
    if is_video:
        params = params if "size" in request.params else params.model_copy(update={"size": VIDEO_SIZE})
        size = video_size(params)
    else:
        size = pixel_size(params.size)
        size = other_size(size) if params.flaw == "wrong_size" else size
    try:
        check_size(*size)
    except ImageError as error:
        raise ProviderError(f"mock: {error}", kind="invalid") from None
    render = _video if is_video else _image
    with IN_MEMORY.reserve(size[0] * size[1]):
        outputs = tuple(render(request, params, size, sample) for sample in request.samples)
    return Generation(outputs=outputs, run_params=params.model_dump() if is_video else params.of_images)


def _video(request: GenerationRequest, params: MockParams, size: tuple[int, int], sample: int) -> bytes:
    dice = Dice(params.seed, sample, request.prompt)
    if params.flaw == "blank":
        return render_video(flat(size, dice), (0, 0, *size), params, SOFTWARE)
    page, art = draw_page(size, _page_copy(request.case.expect.text or ExpectText(extra="forbid"), params, dice), dice)
    return render_video(page, art, params, SOFTWARE)


def _edit(request: GenerationRequest) -> Generation:
    params = _params(request)
    lines = _lines_to_draw(request.case)
    files = (request.files.base, request.files.masks.get("editable"))
    with room_for(*filter(None, files)):
        base = _load_base(request)
        outputs = tuple(
            _encode(_edited(request, params, base, lines, sample), request.case, base.format)
            for sample in request.samples
        )
    size = f"{base.rgb.width}x{base.rgb.height}"
    return Generation(outputs=outputs, run_params=params.of_images | {"size": size})


def _image(request: GenerationRequest, params: MockParams, size: tuple[int, int], sample: int) -> bytes:
    dice = Dice(params.seed, sample, request.prompt)
    copy = _page_copy(request.case.expect.text or ExpectText(extra="forbid"), params, dice)
    page, art = draw_page(size, copy, dice, request.case.expect.palette or ())
    is_transparent = _alpha(request.case)
    if params.flaw == "blank":
        page = _blank_image(flat(size, dice), is_transparent)
    elif params.flaw == "spill":
        radius = max(1, min(art[2] - art[0], art[3] - art[1]) // 2)
        page = blot(page, (art[0] - radius, art[1] - radius, art[0] + radius, art[1] + radius))
    elif params.flaw == "drift":
        page = tinted(page)
    if is_transparent and params.flaw != "blank":
        page.putalpha(_sticker(size))
    return _encode(page, request.case, "png")


def _alpha(case: TestCase) -> bool | None:
    """Whether the case requires or excludes transparency; ``None`` if it does neither."""
    return case.expect.alpha if isinstance(case.expect.alpha, bool) else None


def _blank_image(image: Image.Image, is_transparent: bool | None) -> Image.Image:
    """A blank image; fully transparent if the case expects transparency."""
    if is_transparent:
        image.putalpha(0)
    return image


def _sticker(size: tuple[int, int]) -> Image.Image:
    """Opaque except for a thin border with round corners, where no page has copy."""
    rim = max(1, min(size) // 50)
    alpha = Image.new("L", size, 0)
    inner = (max(1, size[0] - 2 * rim), max(1, size[1] - 2 * rim))
    if min(size) > 2:
        alpha.paste(rounded(inner, min(size) // 20), (rim, rim))
    return alpha


def _page_copy(text: ExpectText, params: MockParams, dice: Dice) -> PageCopy:
    required = tidy(text.required)
    small = tuple(line for line in tidy(text.allowed) if line not in required)
    extra: tuple[str, ...] = ()
    if params.flaw == "typo":
        required = with_typo(required, dice, excluded=small)
    elif params.flaw == "missing_line" and required:
        removed = dice.pick("missing", len(required))
        required = required[:removed] + required[removed + 1 :]
    elif params.flaw == "extra_text":
        extra = (_unexpected_line(text),)
    return PageCopy(small=small, required=required, extra=extra)


def _unexpected_line(text: ExpectText) -> str:
    """A line that the case does not expect: a forbidden one, else an unknown one."""
    expected = [line.casefold() for line in (*text.required, *text.allowed)]
    for line in text.forbidden:
        try:
            drawable = tidy([line])
        except ProviderError:
            continue
        if drawable and drawable[0].casefold() not in expected:
            return drawable[0]
    return next(
        (line for line in _EXTRA_LINES if not any(line.casefold() in other for other in expected)), _EXTRA_LINES[0]
    )


def _edited(
    request: GenerationRequest, params: MockParams, base: _Base, lines: tuple[str, ...], sample: int
) -> Image.Image:
    flaw, text = params.flaw, request.case.expect.text or ExpectText(extra="forbid")
    dice = Dice(params.seed, sample, request.prompt)
    if flaw == "blank":
        return _blank_image(Image.new("RGB", base.rgb.size, flat_colour(base.rgb)), _alpha(request.case))
    if flaw == "typo":
        lines = with_typo(lines, dice, excluded=(*text.required, *text.allowed))
    elif flaw == "missing_line" and lines:
        removed = dice.pick("missing", len(lines))
        lines = (*lines[:removed], "", *lines[removed + 1 :])
    image = repaint_regions(base.rgb, base.mask, lines, dice)
    if flaw == "extra_text":
        image = add_line(image, base.mask, _unexpected_line(text))
    elif flaw == "spill":
        image = spill(image, base.mask)
    elif flaw == "drift":
        image = drift(image)
    alpha = _edit_alpha(image, base, _alpha(request.case))
    if alpha is not None:
        if base.rgba is not None:  # the base's original colors, not those on white, where nothing changed
            image = Image.composite(image, base.rgba.convert("RGB"), _changed(image, base))
        image.putalpha(alpha)
    return image if flaw != "wrong_size" else image.resize(other_size(image.size), Image.Resampling.LANCZOS)


def _edit_alpha(image: Image.Image, base: _Base, is_transparent: bool | None) -> Image.Image | None:
    """The base's transparency where nothing changed; if it has none but must, a thin border inside the mask."""
    if is_transparent is False or (base.rgba is None and not is_transparent):
        return None
    if base.rgba is not None:
        return ImageChops.lighter(base.rgba.getchannel("A"), _changed(image, base))
    inner = ImageOps.expand(base.mask, 2, 0).filter(ImageFilter.MinFilter(5))
    rim = ImageChops.subtract(base.mask, inner.crop((2, 2, base.mask.width + 2, base.mask.height + 2)))
    return ImageChops.invert(rim)


def _changed(image: Image.Image, base: _Base) -> Image.Image:
    """255 where a pixel differs from the base or is inside the mask."""
    bands = ImageChops.difference(image, base.rgb).split()
    most = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    return ImageChops.lighter(base.mask, most.point([0] + [255] * 255))


def _load_base(request: GenerationRequest) -> _Base:
    source, mask_path = request.files.base, request.files.masks.get("editable")
    if source is None:
        raise ProviderError("mock: the case has no image to edit", kind="invalid")
    try:
        with header(source) as handle:
            kind = "png" if handle.format == "SVG" else FORMATS[handle.format or ""]
        image = load_image(source)
        rgb, rgba = on_background(image, "white"), image if image.mode == "RGBA" else None
        mask = default_mask(rgb.size) if mask_path is None else load_mask(mask_path)
    except ImageError as error:
        raise ProviderError(f"mock: the base image or its mask: {error}", kind="invalid") from None
    if mask.size != rgb.size:
        raise ProviderError("mock: the mask and the base image have different sizes", kind="invalid")
    if mask.getbbox() is None:
        raise ProviderError("mock: the mask has no transparent pixel, so there is nothing to edit", kind="invalid")
    return _Base(rgb, rgba, kind, mask)


def _lines_to_draw(case: TestCase) -> tuple[str, ...]:
    stated = case.metadata.get("text")
    if isinstance(stated, list) and all(isinstance(line, str) and line for line in stated):
        return tidy(stated)
    if stated is not None and not isinstance(stated, str):
        message = "mock: metadata.text must be a string, the text to render in the mask, or a list of strings, one for"
        raise ProviderError(f"{message} each separate region of the mask", kind="invalid")
    lines = [stated] if stated else case.expect.text.required if case.expect.text else ()
    return tidy(lines[:1])


def _params(request: GenerationRequest) -> MockParams:
    try:
        return MockParams.model_validate(dict(request.params))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ProviderError(f"mock: {where}: {first['msg']}", kind="invalid") from None


def _encode(image: Image.Image, case: TestCase, usual: str) -> bytes:
    """Encodes the file in the format that the case expects, else in ``usual``. Raises ``ProviderError``."""
    kind = case.expect.format or usual
    if image.mode == "RGBA" and kind in _OPAQUE:
        if case.expect.format is not None:
            message = f"mock: expect.alpha requires transparency, which {kind} does not support"
            raise ProviderError(message, kind="invalid")
        kind = "png"
    buffer = io.BytesIO()
    try:
        image.save(buffer, kind.upper(), **_options(kind))
    except (OSError, ValueError, KeyError, SystemError) as error:
        raise ProviderError(f"mock: the image cannot be written as {kind}: {error}", kind="invalid") from None
    return buffer.getvalue()


def _options(kind: str) -> dict[str, Any]:
    """The encoder options: the stand-in's name as metadata, and as little loss as possible."""
    if kind == "png":
        info = PngImagePlugin.PngInfo()
        info.add_text("Software", SOFTWARE)
        return {"pnginfo": info}
    exif = Image.Exif()
    exif[_SOFTWARE_TAG] = SOFTWARE
    options: dict[str, dict[str, Any]] = {
        "jpeg": {"quality": 95, "subsampling": 0, "exif": exif},
        "webp": {"lossless": True, "exif": exif},
        "tiff": {"exif": exif},
        "gif": {"comment": SOFTWARE},
    }
    return options.get(kind, {})
