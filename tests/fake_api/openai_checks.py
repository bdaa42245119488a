"""Checks that OpenAI's endpoints share: parameters against the SDK's types, images, tools, models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, get_args, get_type_hints

from openai.types.image_model import ImageModel
from openai.types.responses.image_detail import ImageDetail
from openai.types.shared.chat_model import ChatModel
from openai.types.shared.responses_model import ResponsesModel
from pydantic import TypeAdapter, ValidationError

from . import images, json_schema
from .http1 import ApiError
from .script import SentFile, SentImage, Tool

SHUT_DOWN: Final = frozenset({"gpt-image-1", "dall-e-2", "dall-e-3"})
"""Image models that the SDK still lists as deprecated values, with the day they were shut down."""

IMAGE_MODELS: Final = frozenset(get_args(ImageModel)) - SHUT_DOWN
CHAT_MODELS: Final = frozenset(get_args(ChatModel))
RESPONSES_MODELS: Final = CHAT_MODELS | frozenset(
    name for part in get_args(ResponsesModel) for name in get_args(part) if isinstance(name, str)
)
DETAILS: Final = frozenset(get_args(ImageDetail))
INPUT_FORMATS: Final = {"image/png": "png", "image/jpeg": "jpeg", "image/webp": "webp", "image/gif": "gif"}
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NO_SAMPLING: Final = re.compile(r"(o\d|gpt-5(-mini|-nano|-pro)?(-\d{4}.*)?$)")
REASONING: Final = re.compile(r"(o\d|gpt-[5-9])")
_TYPE_WORDS = {bool: "a boolean", int: "an integer", float: "a decimal", str: "a string", dict: "an object"}
_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "n": (1, 10),
    "output_compression": (0, 100),
    "partial_images": (0, 3),
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_logprobs": (0, 20),
    "max_output_tokens": (16, 1_000_000),
    "max_completion_tokens": (1, 1_000_000),
    "max_tokens": (1, 1_000_000),
}


def bad(message: str, param: str | None, code: str | None, kind: str = "invalid_request_error") -> ApiError:
    return ApiError(400, message, param=param, code=code, kind=kind)


def json_body(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise bad("We could not parse the JSON body of your request.", None, None)
    return parsed


@lru_cache
def keys_of(shape: type) -> frozenset[str]:
    """The fields of one of the SDK's ``TypedDict`` parameter types."""
    return frozenset(shape.__annotations__) | frozenset(get_type_hints(shape))


def check_keys(value: object, shape: type, where: str, required: Iterable[str] = ()) -> dict[str, Any]:
    """An object with no field that the SDK's type does not have, and with the required ones."""
    if not isinstance(value, dict):
        raise bad(f"Invalid type for '{where}': expected an object, but got {_words(value)} instead.", where,
                  "invalid_type")  # fmt: skip
    prefix = f"{where}." if where else ""
    for key in value:
        if key not in keys_of(shape):
            raise bad(f"Unknown parameter: '{prefix}{key}'.", f"{prefix}{key}", "unknown_parameter")
    for key in required:
        if value.get(key) is None:
            message = f"Missing required parameter: '{prefix}{key}'."
            raise bad(message, f"{prefix}{key}", "missing_required_parameter")
    return value


@lru_cache(maxsize=256)
def _adapter(shape: type, key: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(shape)[key])


def check_values(body: Mapping[str, Any], shape: type, skip: Iterable[str] = ()) -> None:
    """Every parameter against its type in the SDK, and within its range."""
    for key, value in body.items():
        if key in skip:
            continue
        try:
            _adapter(shape, key).validate_python(value, strict=True)
        except ValidationError as error:
            raise _value_error(key, value, error) from error
        if key in _RANGES and value is not None:
            _check_range(key, value)


def _value_error(key: str, value: object, error: ValidationError) -> ApiError:
    first = error.errors()[0]
    path = ".".join([key, *(str(step) for step in first["loc"] if re.fullmatch(r"[a-z_]+|\d+", str(step)))])
    if first["type"] == "literal_error" and isinstance(first["input"], str):
        allowed = first["ctx"]["expected"].replace(" or ", ", and ")
        return bad(f"Invalid value: '{first['input']}'. Supported values are: {allowed}.", path, "invalid_value")
    expected = {"bool_type": "a boolean", "int_type": "an integer", "float_type": "a decimal"}.get(first["type"])
    expected = expected or {"string_type": "a string", "dict_type": "an object"}.get(first["type"], "another type")
    words = f"Invalid type for '{path}': expected {expected}, but got {_words(first['input'])} instead."
    return bad(words, path, "invalid_type")


def _words(value: object) -> str:
    return "an array" if isinstance(value, list) else _TYPE_WORDS.get(type(value), "null")


def _check_range(key: str, value: float) -> None:
    least, most = _RANGES[key]
    if not least <= value <= most:
        side, sign, bound = ("above_max", "<=", most) if value > most else ("below_min", ">=", least)
        kind = "integer" if isinstance(value, int) else "decimal"
        words = f"{kind} {'above maximum' if value > most else 'below minimum'} value"
        message = f"Invalid '{key}': {words}. Expected a value {sign} {bound:g}, but got {value} instead."
        raise bad(message, key, f"{kind}_{side}_value")


def check_model(model: object, known: frozenset[str], param: str = "model") -> str:
    if not isinstance(model, str) or not model:
        raise bad(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")
    if model not in known:
        raise unknown_model(model)
    return model


def unknown_model(model: str) -> ApiError:
    words = f"The model `{model}` does not exist or you do not have access to it."
    return ApiError(404, words, code="model_not_found")


def check_sampling(body: Mapping[str, Any], effort: str | None) -> None:
    """Reasoning models take no ``temperature`` and ``top_p``; from gpt-5.1 on they do without reasoning."""
    model = body["model"]
    fixed = NO_SAMPLING.match(model) or (REASONING.match(model) and effort not in (None, "none"))
    for key in ("temperature", "top_p"):
        if fixed and body.get(key) not in (None, 1, 1.0):
            words = f"Unsupported parameter: '{key}' is not supported with this model."
            raise bad(words, key, "unsupported_parameter")


def image_from_url(url: object, where: str, detail: object) -> SentImage | SentFile:
    """A data URL that decodes to an image of a supported format, or a web address that is left unread."""
    if detail is not None and detail not in DETAILS:
        allowed = ", ".join(f"'{name}'" for name in get_args(ImageDetail))
        raise bad(f"Invalid value: '{detail}'. Supported values are: {allowed}.", f"{where}.detail", "invalid_value")
    if not isinstance(url, str):
        raise bad(f"Invalid type for '{where}': expected a string, but got {_words(url)} instead.", where,
                  "invalid_type")  # fmt: skip
    if url.startswith(("https://", "http://")):
        return SentFile(url, None)
    head, comma, text = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        words = f"Invalid '{where}'. Expected a valid URL, but got a value with an invalid format."
        raise bad(words, where, "invalid_value")
    mime = head[len("data:") : -len(";base64")]
    data = images.decoded(text)
    if not data:
        words = f"Invalid '{where}'. Expected a base64-encoded data URL with an image MIME type."
        raise bad(words, where, "invalid_base64_image")
    seen = images.inspect_image(data)
    if mime not in INPUT_FORMATS or seen is None or seen.format != INPUT_FORMATS[mime] or seen.frames > 1:
        words = (
            "You uploaded an unsupported image. Please make sure your image has of one the following formats: "
            "['png', 'jpeg', 'gif', 'webp']."
        )
        raise bad(words, where, "invalid_image_format" if mime not in INPUT_FORMATS else "image_parse_error")
    return SentImage(data, mime, str(detail) if detail is not None else None)


def check_schema_format(spec: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], str, bool]:
    """A ``json_schema`` format's schema, name and strictness. ``where`` is the parameter, for the error."""
    name = spec.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        words = f"Invalid '{where}.name': string does not match pattern. Expected '^[a-zA-Z0-9_-]+$'."
        raise bad(words, f"{where}.name", "invalid_value")
    schema = spec.get("schema")
    if not isinstance(schema, dict):
        raise bad(f"Missing required parameter: '{where}.schema'.", f"{where}.schema", "missing_required_parameter")
    strict = spec.get("strict") is True
    if strict:
        _strict(schema, f"Invalid schema for response_format '{name}': ", f"{where}.schema")
    return schema, name, strict


def _strict(schema: Mapping[str, Any], words: str, where: str) -> None:
    try:
        json_schema.check_strict(schema)
    except json_schema.SchemaError as error:
        raise bad(words + str(error), where, "invalid_json_schema") from error


def check_tool(spec: Mapping[str, Any], where: str) -> Tool:
    """A function's declaration, its parameters under the strict rules where ``strict`` is set."""
    name, parameters = spec.get("name"), spec.get("parameters") or {}
    if not isinstance(name, str) or not NAME.fullmatch(name):
        words = f"Invalid '{where}.name': string does not match pattern. Expected '^[a-zA-Z0-9_-]+$'."
        raise bad(words, f"{where}.name", "invalid_value")
    if spec.get("strict") is True:
        words = f"Invalid schema for function '{name}': "
        try:
            json_schema.check_strict(parameters)
        except json_schema.SchemaError as error:
            raise bad(words + str(error), f"{where}.parameters", "invalid_function_parameters") from error
    return Tool(name, str(spec.get("description") or ""), parameters)


def check_tool_choice(choice: object, name: object, tools: Iterable[Tool]) -> None:
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        words = f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'."
        raise bad(words, "tool_choice", "invalid_value")
    names = {tool.name for tool in tools}
    if choice is not None and not names:
        raise bad("'tool_choice' is only allowed when 'tools' are specified.", "tool_choice", "invalid_value")
    if isinstance(choice, dict) and name not in names:
        raise bad(f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice", "invalid_value")


def check_arguments(arguments: object, where: str) -> None:
    if not isinstance(arguments, str):
        raise bad(f"Invalid type for '{where}': expected a string, but got {_words(arguments)} instead.", where,
                  "invalid_type")  # fmt: skip
    try:
        json.loads(arguments)
    except ValueError as error:
        raise bad(f"Invalid '{where}': expected a JSON string.", where, "invalid_value") from error


def judge_usage(text: str, images: int, answer: str, *, reasoning: bool) -> tuple[int, int, int]:
    """Input tokens, output tokens, and reasoning tokens: synthetic, but the same for the same call."""
    thought = 64 if reasoning else 0
    return len(text) // 4 + 1 + 765 * images, len(answer) // 4 + 1 + thought, thought
