"""A stand-in that draws plain layouts from what a case expects: no model, no network, no cost.

It knows the answer, so that a suite, a grader or a gate can be seen to work before anything is paid for. The
parameter ``flaw`` makes it draw one thing wrong; ``suite.mock.SEEN_BY`` says which graders can tell.
Every file says that it is a stand-in, in its metadata and never in the image, where it would be extra copy.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageChops, ImageFilter, ImageOps, PngImagePlugin
from pydantic import ValidationError

from visioneval.errors import ImageError, ProviderError
from visioneval.media.images import FORMATS, check_size, load_mask, load_rgb, opened, room_for
from visioneval.media.pixel_budget import IN_MEMORY
from visioneval.providers.base import Generation, GenerationRequest
from visioneval.providers.mock.config import MockParams
from visioneval.providers.mock.edit import add_line, blot, drift, flat_colour, middle, repaint, spill, tinted
from visioneval.providers.mock.page import PageCopy, draw_page, flat, rounded
from visioneval.providers.mock.text import Dice, tidy, with_typo
from visioneval.suite.case import ExpectText, TestCase, pixel_size

SOFTWARE = "visioneval mock (a stand-in, not a model)"

_UNASKED = ("Limited time offer", "Terms and conditions apply", "Made with love", "Free gift inside")
_SOFTWARE_TAG = 0x0131
_OPAQUE = ("jpeg", "bmp")


@dataclass(frozen=True, slots=True)
class _Base:
    """The image that an edit starts from: as seen on white, as stored where it is transparent, and its mask."""

    rgb: Image.Image
    rgba: Image.Image | None
    format: str
    mask: Image.Image


class Mock:
    """Draws a case's copy, or paints it into a mask. The same request gives the same bytes."""

    def __init__(self, config: object) -> None:
        self.config = config

    async def generate(self, request: GenerationRequest) -> Generation:
        """Flyers of the size asked for. Raises ``ProviderError``."""
        return await asyncio.to_thread(_generate, request)

    async def edit(self, request: GenerationRequest) -> Generation:
        """The base image with its mask painted over and lettered. Raises ``ProviderError``.

        The text is the case's ``metadata.draw``, else its first required line, else there is an ellipse; without a
        mask it goes to the middle of the image. Only pixels inside the mask change, but for what a
        lossy format does to all of them.
        """
        return await asyncio.to_thread(_edit, request)


def _generate(request: GenerationRequest) -> Generation:
    params = _params(request)
    size = pixel_size(params.size)
    if params.flaw == "wrong_size":
        size = _other_size(size)
    _check_size(size)
    with IN_MEMORY.reserve(size[0] * size[1]):
        outputs = tuple(
            _encode(_generation(request, params, size, sample), request.case, "png") for sample in request.samples
        )
    return Generation(outputs=outputs, run_params=params.model_dump())


def _edit(request: GenerationRequest) -> Generation:
    params = _params(request)
    line = _line_to_draw(request.case)
    files = (request.files.base, request.files.masks.get("editable"))
    with room_for(*filter(None, files)):
        base = _load_base(request)
        outputs = tuple(
            _encode(_edited(request, params, base, line, sample), request.case, base.format)
            for sample in request.samples
        )
    size = f"{base.rgb.width}x{base.rgb.height}"
    return Generation(outputs=outputs, run_params=params.model_dump() | {"size": size})


def _generation(request: GenerationRequest, params: MockParams, size: tuple[int, int], sample: int) -> Image.Image:
    dice = Dice(params.seed, sample, request.prompt)
    copy = _page_copy(request.case.expect.text or ExpectText(extra="forbid"), params, dice)
    page, art = draw_page(size, copy, dice)
    if params.flaw == "blank":
        return _see_through(flat(size, dice), request.case.expect.alpha)
    if params.flaw == "spill":
        radius = max(1, min(art[2] - art[0], art[3] - art[1]) // 2)
        page = blot(page, (art[0] - radius, art[1] - radius, art[0] + radius, art[1] + radius))
    elif params.flaw == "drift":
        page = tinted(page)
    if request.case.expect.alpha:
        page.putalpha(_sticker(size))
    return page


def _see_through(image: Image.Image, wanted: bool | None) -> Image.Image:
    """A blank image: where transparency is wanted, there is nothing but that."""
    if wanted:
        image.putalpha(0)
    return image


def _sticker(size: tuple[int, int]) -> Image.Image:
    """Opaque but for a thin rim with round corners, in which no page has copy."""
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
        required = with_typo(required, dice, keep=small)
    elif params.flaw == "missing_line" and required:
        gone = dice.pick("missing", len(required))
        required = required[:gone] + required[gone + 1 :]
    elif params.flaw == "extra_text":
        extra = (_unasked(text),)
    return PageCopy(small=small, required=required, extra=extra)


def _unasked(text: ExpectText) -> str:
    """A line that the case does not want: one that it forbids, else one that it says nothing of."""
    wanted = [line.casefold() for line in (*text.required, *text.allowed)]
    for line in text.forbidden:
        try:
            drawable = tidy([line])
        except ProviderError:
            continue
        if drawable and drawable[0].casefold() not in wanted:
            return drawable[0]
    return next((line for line in _UNASKED if not any(line.casefold() in other for other in wanted)), _UNASKED[0])


def _edited(request: GenerationRequest, params: MockParams, base: _Base, line: str | None, sample: int) -> Image.Image:
    flaw, text = params.flaw, request.case.expect.text or ExpectText(extra="forbid")
    dice = Dice(params.seed, sample, request.prompt)
    if flaw == "blank":
        return _see_through(Image.new("RGB", base.rgb.size, flat_colour(base.rgb)), request.case.expect.alpha)
    if line is not None and flaw == "typo":
        line = with_typo([line], dice, keep=(*text.required, *text.allowed))[0]
    elif line is not None and flaw == "missing_line":
        line = ""
    image = repaint(base.rgb, base.mask, line, dice)
    changes: dict[str, Callable[[], Image.Image]] = {
        "extra_text": lambda: add_line(image, base.mask, _unasked(text)),
        "spill": lambda: spill(image, base.mask),
        "drift": lambda: drift(image),
    }
    image = changes[flaw]() if flaw in changes else image
    alpha = _edit_alpha(image, base, request.case.expect.alpha)
    if alpha is not None:
        image = _restored(image, base) if base.rgba is not None else image
        image.putalpha(alpha)
    return image if flaw != "wrong_size" else image.resize(_other_size(image.size), Image.Resampling.LANCZOS)


def _edit_alpha(image: Image.Image, base: _Base, wanted: bool | None) -> Image.Image | None:
    """The base's transparency where nothing changed; where it has none and must, a thin rim within the mask."""
    if wanted is False or (base.rgba is None and not wanted):
        return None
    if base.rgba is not None:
        return ImageChops.lighter(base.rgba.getchannel("A"), _changed(image, base))
    inner = ImageOps.expand(base.mask, 2, 0).filter(ImageFilter.MinFilter(5))
    rim = ImageChops.subtract(base.mask, inner.crop((2, 2, base.mask.width + 2, base.mask.height + 2)))
    return ImageChops.invert(rim)


def _restored(image: Image.Image, base: _Base) -> Image.Image:
    """The edit with the base's own colours, not those on white, where nothing changed."""
    assert base.rgba is not None
    return Image.composite(image, base.rgba.convert("RGB"), _changed(image, base))


def _changed(image: Image.Image, base: _Base) -> Image.Image:
    """255 where a pixel is not the base's, or lies inside the mask."""
    bands = ImageChops.difference(image, base.rgb).split()
    most = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    return ImageChops.lighter(base.mask, most.point([0] + [255] * 255))


def _load_base(request: GenerationRequest) -> _Base:
    source, mask_path = request.files.base, request.files.masks.get("editable")
    if source is None:
        raise ProviderError("mock: the case has no image to edit", kind="invalid")
    try:
        rgb = load_rgb(source)
        with opened(source) as handle:
            kind = FORMATS[handle.format or ""]
            seen = handle.has_transparency_data
            rgba = ImageOps.exif_transpose(handle).convert("RGBA") if seen else None
        mask = middle(rgb.size) if mask_path is None else load_mask(mask_path)
    except ImageError as error:
        raise ProviderError(f"mock: the base image or its mask: {error}", kind="invalid") from None
    if mask.size != rgb.size:
        raise ProviderError("mock: the mask is not of the size of the base image", kind="invalid")
    if mask.getbbox() is None:
        raise ProviderError("mock: the mask has no transparent pixel, so there is nothing to edit", kind="invalid")
    return _Base(rgb, rgba, kind, mask)


def _line_to_draw(case: TestCase) -> str | None:
    stated = case.metadata.get("draw")
    if stated is not None and not isinstance(stated, str):
        raise ProviderError("mock: metadata.draw must be a text, the one to draw in the mask", kind="invalid")
    lines = [stated] if stated else case.expect.text.required if case.expect.text else ()
    return next(iter(tidy(lines[:1])), None)


def _params(request: GenerationRequest) -> MockParams:
    try:
        return MockParams.model_validate(dict(request.params))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ProviderError(f"mock: {where}: {first['msg']}", kind="invalid") from None


def _check_size(size: tuple[int, int]) -> None:
    try:
        check_size(*size)
    except ImageError as error:
        raise ProviderError(f"mock: {error}", kind="invalid") from None


def _other_size(size: tuple[int, int]) -> tuple[int, int]:
    """Another size of another shape: the longer side is cut by a quarter (a single pixel becomes two)."""
    width, height = size
    if height >= width:
        return width, height * 3 // 4 if height > 1 else 2
    return width * 3 // 4, height


def _encode(image: Image.Image, case: TestCase, usual: str) -> bytes:
    """The file, in the format that the case expects or else the ``usual`` one. Raises ``ProviderError``."""
    kind = case.expect.format or usual
    if image.mode == "RGBA" and kind in _OPAQUE:
        if case.expect.format is not None:
            raise ProviderError(f"mock: expect.alpha asks for transparency, which {kind} cannot hold", kind="invalid")
        kind = "png"
    buffer = io.BytesIO()
    try:
        image.save(buffer, kind.upper(), **_options(kind))
    except (OSError, ValueError, SystemError) as error:
        raise ProviderError(f"mock: the image cannot be written as {kind}: {error}", kind="invalid") from None
    return buffer.getvalue()


def _options(kind: str) -> dict[str, Any]:
    """How a format is written: with the stand-in's mark, and with as little loss as it allows."""
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
