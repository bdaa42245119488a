"""``/v1/images/generations`` and ``/v1/images/edits``, for the gpt-image family."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from openai.types.image_edit_params import ImageEditParamsNonStreaming
from openai.types.image_generate_params import ImageGenerateParamsNonStreaming

from . import images
from .faults import ModelRequest
from .http1 import ApiError, FormPart, HttpRequest, MalformedError, Reply, parse_form
from .openai_checks import bad, check_keys, check_model, check_values, json_body
from .outcomes import Images, Outcome, Refused
from .script import GenerationRequest, SentImage

PLAIN_SIZES: Final = ("1024x1024", "1024x1536", "1536x1024")
FREE_SIZE: Final = re.compile(r"gpt-image-2")
"""The models that take any size within limits."""

MOST_PIXELS: Final = 3840 * 2160
LEAST_PIXELS: Final = 655_360
FORMATS: Final = ("png", "webp", "jpeg")
MOST_IMAGES: Final = 16
MOST_IMAGE_BYTES: Final = 50 * 1024 * 1024
MOST_MASK_BYTES: Final = 4 * 1024 * 1024
_FILES = frozenset({"image", "mask", "markup"})
_INTEGERS = frozenset({"n", "output_compression", "partial_images", "frame_count", "frame_duration_ms"})
_TOKENS = {"low": 272, "medium": 1056, "high": 4160, "xhigh": 6208, "max": 8320, "auto": 1056}
"""Output tokens of an image of 1024 x 1024 pixels; other sizes in proportion."""


class Generations:
    name = "images.generations"

    def __init__(self, models: frozenset[str]) -> None:
        self._models = models

    def read(self, request: HttpRequest) -> GenerationRequest:
        body = json_body(request.body)
        _check_common(body, ImageGenerateParamsNonStreaming, self._models)
        return _generation(self.name, body)

    def write(self, asked: ModelRequest, outcome: Outcome) -> Reply:
        assert isinstance(asked, GenerationRequest)
        return _write(asked, outcome)


class Edits:
    name = "images.edits"

    def __init__(self, models: frozenset[str]) -> None:
        self._models = models

    def read(self, request: HttpRequest) -> GenerationRequest:
        body, files = _form(request)
        _check_common(body, ImageEditParamsNonStreaming, self._models, skip=_FILES)
        images = [_sent(part) for part in files if part.name in ("image", "image[]")]
        if not images:
            raise bad("Missing required parameter: 'image'.", "image", "missing_required_parameter")
        if len(images) > MOST_IMAGES:
            words = f"Invalid 'image': array too long. Expected an array with maximum length {MOST_IMAGES}."
            raise bad(words, "image", "array_above_max_length")
        mask, markup = _overlay(files, "mask", images[0]), _overlay(files, "markup", images[0])
        if mask and markup:
            raise bad("'markup' cannot be combined with 'mask'.", "markup", "invalid_value")
        _check_fidelity(body)
        return _generation(self.name, body, tuple(images), mask)

    def write(self, asked: ModelRequest, outcome: Outcome) -> Reply:
        assert isinstance(asked, GenerationRequest)
        return _write(asked, outcome)


def _check_common(
    body: dict[str, Any], shape: type, models: frozenset[str], skip: frozenset[str] = frozenset()
) -> None:
    for legacy in ("response_format", "style"):
        if body.get(legacy) is not None:  # in the SDK's types for retired models only
            raise bad(f"Unknown parameter: '{legacy}'.", legacy, "unknown_parameter")
    check_keys(body, shape, "", () if skip else ("prompt",))
    if not body.get("prompt"):
        raise bad("Missing required parameter: 'prompt'.", "prompt", "missing_required_parameter")
    check_values(body, shape, skip)
    if len(body["prompt"]) > 32_000:
        words = f"Invalid 'prompt': string too long. Expected a string with maximum length 32000, but got a string with length {len(body['prompt'])} instead."
        raise bad(words, "prompt", "string_above_max_length")
    model = check_model(body.get("model"), models)
    for check in _CHECKS:
        check(body, model)


def _check_stream(body: Mapping[str, Any], model: str) -> None:
    if body.get("stream") or body.get("partial_images"):
        raise bad("This server does not stream images.", "stream", "unsupported_value")


def _check_quality(body: Mapping[str, Any], model: str) -> None:
    quality = body.get("quality")
    allowed: tuple[str, ...] = ("low", "medium", "high", "auto")
    if model.startswith(("gpt-image-2.5", "gpt-image-2.6")):
        allowed = ("low", "medium", "high", "xhigh", "max", "auto")
    if quality is not None and quality not in allowed:
        raise _one_of(quality, allowed, "quality")


def _check_format(body: Mapping[str, Any], model: str) -> None:
    fmt = body.get("output_format") or "png"
    if fmt not in FORMATS:
        raise _one_of(fmt, FORMATS, "output_format")
    if body.get("background") == "transparent" and fmt == "jpeg":
        words = "Transparent background is not supported for JPEG output format."
        raise bad(words, "background", "invalid_value")
    if body.get("output_compression") not in (None, 100) and fmt == "png":
        words = "Compression less than 100 is not supported for PNG output format."
        raise bad(words, "output_compression", "invalid_value")
    for key in ("frame_count", "frame_duration_ms", "svg"):
        if body.get(key) is not None:
            raise bad(f"'{key}' is not supported with output_format '{fmt}'.", key, "invalid_value")


def _check_size(body: Mapping[str, Any], model: str) -> None:
    size = body.get("size") or "auto"
    if size == "auto" or size in PLAIN_SIZES:
        return
    if not FREE_SIZE.match(model):
        raise _one_of(size, (*PLAIN_SIZES, "auto"), "size")
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", size)
    if not match:
        words = f"Invalid size '{size}'. Expected 'auto' or 'WIDTHxHEIGHT', for example '1536x864'."
        raise bad(words, "size", "invalid_value")
    width, height = int(match[1]), int(match[2])
    problem = _size_problem(width, height)
    if problem:
        raise bad(f"Invalid size '{size}'. {problem}", "size", "invalid_value")


def _size_problem(width: int, height: int) -> str | None:
    if width % 16 or height % 16:
        return "Width and height must both be divisible by 16."
    if max(width, height) > 3 * min(width, height):
        return "The requested aspect ratio must be between 1:3 and 3:1."
    if max(width, height) > 3840 or width * height > MOST_PIXELS:
        return "Requested resolution exceeds the current pixel budget: the maximum is 3840x2160."
    if width * height < LEAST_PIXELS:
        return f"Requested resolution is below the current minimum pixel budget of {LEAST_PIXELS}."
    return None


_CHECKS: tuple[Callable[[Mapping[str, Any], str], None], ...] = (
    _check_stream,
    _check_quality,
    _check_format,
    _check_size,
)


def _check_fidelity(body: Mapping[str, Any]) -> None:
    fidelity, model = body.get("input_fidelity"), body["model"]
    if fidelity is None:
        return
    if model.startswith("gpt-image-2"):
        words = f"The model '{model}' does not support the 'input_fidelity' parameter."
        raise bad(words, "input_fidelity", "invalid_input_fidelity_model")
    if model == "gpt-image-1-mini" and fidelity != "low":
        raise _one_of(fidelity, ("low",), "input_fidelity")


def _one_of(value: object, allowed: tuple[str, ...], param: str) -> ApiError:
    names = ", ".join(f"'{name}'" for name in allowed[:-1])
    listed = f"{names}, and '{allowed[-1]}'" if names else f"'{allowed[-1]}'"
    return bad(f"Invalid value: '{value}'. Supported values are: {listed}.", param, "invalid_value")


def _form(request: HttpRequest) -> tuple[dict[str, Any], list[FormPart]]:
    """The fields of an edit, integers read as such, and its files."""
    try:
        parts = parse_form(request.headers.get("content-type", ""), request.body)
    except MalformedError as error:
        words = f"Could not parse multipart form: {error}."
        raise bad(words, None, "invalid_multipart_form") from error
    body: dict[str, Any] = {}
    files: list[FormPart] = []
    for part in parts:
        if part.filename is not None:
            files.append(part)
            body[part.name.removesuffix("[]")] = ...
        elif part.name in body:
            raise bad(f"Duplicate parameter: '{part.name}'.", part.name, "duplicate_parameter")
        else:
            body[part.name] = _field(part)
    for name in _FILES & set(body):
        if body[name] is not ...:
            words = f"Invalid type for '{name}': expected a file, but got a string instead."
            raise bad(words, name, "invalid_type")
    if any(part.name not in ("image", "image[]", "mask", "markup") for part in files):
        stray = next(part.name for part in files if part.name not in ("image", "image[]", "mask", "markup"))
        raise bad(f"Unknown parameter: '{stray}'.", stray, "unknown_parameter")
    return body, files


def _field(part: FormPart) -> object:
    text = part.data.decode()
    if part.name in _INTEGERS and re.fullmatch(r"-?\d+", text):
        return int(text)
    return text == "true" if part.name == "stream" else text


def _sent(part: FormPart) -> SentImage:
    mime, name = part.content_type, part.name.removesuffix("[]")
    if mime not in ("image/png", "image/jpeg", "image/webp"):
        words = (
            f"Invalid file '{name}': unsupported mimetype ('{mime}'). "
            "Supported file formats are 'image/jpeg', 'image/png', and 'image/webp'."
        )
        raise bad(words, name, "unsupported_file_mimetype")
    seen = images.inspect_image(part.data)
    if seen is None or f"image/{seen.format}" != mime or len(part.data) > MOST_IMAGE_BYTES:
        raise bad("Invalid image file or mode for image 1, please check your image file.", name, "invalid_image_file")
    return SentImage(part.data, mime, filename=part.filename)


def _overlay(files: list[FormPart], name: str, first: SentImage) -> SentImage | None:
    """The mask or markup: one PNG of the first image's size, with an alpha channel."""
    result = [part for part in files if part.name == name]
    if not result:
        return None
    if len(result) > 1:
        raise bad(f"Duplicate parameter: '{name}'.", name, "duplicate_parameter")
    sent = _sent(result[0])
    seen = images.inspect_image(sent.data)
    assert seen is not None
    if seen.format != "png" or len(sent.data) > MOST_MASK_BYTES:
        raise bad(
            f"Invalid {name} image format - {name} must be a PNG of less than 4MB.", name, "invalid_mask_image_format"
        )
    if (seen.width, seen.height) != first.size:
        words = f"Invalid {name} image format - {name} size does not match image size"
        raise bad(words, None, "invalid_mask_image_format")
    if not seen.alpha or (name == "markup" and not seen.transparent):
        words = f"Invalid {name} image format - {name} image missing alpha channel"
        raise bad(words, None, "invalid_mask_image_format")
    return sent


def _generation(
    endpoint: str, body: Mapping[str, Any], images: tuple[SentImage, ...] = (), mask: SentImage | None = None
) -> GenerationRequest:
    size = body.get("size") or "auto"
    width, height = (1024, 1024) if size == "auto" else map(int, size.split("x"))
    fmt, n = body.get("output_format") or "png", body.get("n") or 1
    params = {key: value for key, value in body.items() if key not in _FILES}
    return GenerationRequest("openai", endpoint, body["model"], body["prompt"], n, width, height, fmt, images, mask,
                       params=params)  # fmt: skip


def _write(asked: GenerationRequest, outcome: Outcome) -> Reply:
    if isinstance(outcome, Refused):
        raise _blocked()
    assert isinstance(outcome, Images)
    asked_for = asked.params.get("quality") or "auto"
    body = {
        "created": int(time.time()),
        "background": "transparent" if asked.params.get("background") == "transparent" else "opaque",
        "data": [{"b64_json": text} for text in outcome.base64],
        "output_format": asked.format,
        "quality": "medium" if asked_for == "auto" else asked_for,
        "size": f"{asked.width}x{asked.height}",
        "usage": _usage(asked, asked_for),
    }
    # the server must not be what a benchmark waits for: json takes ten times as long for an image of 1.5 MB
    return Reply(200, orjson.dumps(body), (("x-request-id", f"req_{uuid.uuid4().hex}"),))


def _usage(asked: GenerationRequest, quality: str) -> dict[str, Any]:
    text = len(asked.prompt) // 4 + 1
    image = 323 * (len(asked.images) + (asked.mask is not None))
    out = round(_TOKENS[quality] * asked.width * asked.height / 1024**2) * asked.n
    return {
        "input_tokens": text + image,
        "input_tokens_details": {"image_tokens": image, "text_tokens": text},
        "output_tokens": out,
        "output_tokens_details": {"image_tokens": out, "text_tokens": 0},
        "total_tokens": text + image + out,
    }


def _blocked() -> ApiError:
    request = uuid.uuid4()
    words = (
        "Your request was rejected by the safety system. If you believe this is an error, contact us at "
        f"help.openai.com and include the request ID {request}. safety_violations=[violence]."
    )
    details = {"moderation_details": {"moderation_stage": "input", "categories": ["violence"]}}
    return ApiError(400, words, kind="image_generation_user_error", code="moderation_blocked", extra=details)
