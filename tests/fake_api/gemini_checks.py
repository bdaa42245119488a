"""Checks of Gemini requests against the field tables of google-genai's types."""

from __future__ import annotations

import enum
import types as builtin
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Union, get_args, get_origin

from google.genai import types
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from . import json_schema
from .http1 import ApiError

OPAQUE: Final = frozenset(
    ["responseSchema", "responseJsonSchema", "parameters", "parametersJsonSchema", "args", "response", "labels"]
)
"""Fields whose keys are chosen by the caller, not the service."""

TOP: Final[Mapping[str, Any]] = {
    "contents": list[types.Content],
    "systemInstruction": types.Content,
    "tools": list[types.Tool],
    "toolConfig": types.ToolConfig,
    "safetySettings": list[types.SafetySetting],
    "generationConfig": None,
    "cachedContent": str,
    "labels": dict[str, str],
    "serviceTier": str,
    "store": bool,
}
VERTEX_ONLY: Final = frozenset(["routingConfig", "modelSelectionConfig", "audioTimestamp", "modelConfig"])
VERTEX_IMAGE: Final = frozenset(["personGeneration", "prominentPeople", "imageOutputOptions"])
IMAGE_CONFIG: Final = frozenset({"aspectRatio", "imageSize"})


def invalid(message: str, field: str | None = None) -> ApiError:
    """``INVALID_ARGUMENT``, with the field in a ``BadRequest`` detail."""
    details: tuple[Mapping[str, Any], ...] = ()
    if field is not None:
        violation = {"field": field, "description": message}
        details = ({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]},)
    return ApiError(400, message, code="INVALID_ARGUMENT", details=details)


def unknown_field(name: str, path: str) -> ApiError:
    where = f" at '{path}'" if path else ""
    return invalid(f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.', path)


def camel(value: Any) -> Any:
    """Proto JSON takes ``snake_case`` names too; from here on there are only the others."""
    if isinstance(value, list):
        return [camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {key: to_camel(key) if "_" in key else key for key in value}
    return {names[key]: item if names[key] in OPAQUE else camel(item) for key, item in value.items()}


def check_body(body: Mapping[str, Any], *, vertex: bool) -> None:
    """Every field known, of its type and, where it is an enum, of its values."""
    for key, value in body.items():
        if key not in TOP:
            raise unknown_field(key, "")
        if TOP[key] is not None:
            _check(value, TOP[key], key)
    config = body.get("generationConfig", {})
    if not isinstance(config, dict):
        raise invalid("Invalid value at 'generation_config'", "generation_config")
    _check_config(config, vertex=vertex)


def _check_config(config: Mapping[str, Any], *, vertex: bool) -> None:
    fields = {**_fields(types.GenerationConfig), "imageConfig": types.ImageConfig}
    for key, value in config.items():
        if key not in fields or (key in VERTEX_ONLY and not vertex):
            raise unknown_field(key, "generation_config")
        if key not in OPAQUE:
            _check(value, fields[key], f"generation_config.{_snake(key)}")
    for key in config.get("imageConfig") or {}:
        if key not in (IMAGE_CONFIG | VERTEX_IMAGE if vertex else IMAGE_CONFIG):
            raise unknown_field(key, "generation_config.image_config")


@lru_cache
def _fields(model: type[BaseModel]) -> Mapping[str, Any]:
    return {to_camel(name): info.annotation for name, info in model.model_fields.items()}


def _check(value: Any, shape: Any, path: str) -> None:
    shape = _without_none(shape)
    if get_origin(shape) is list:
        for position, item in enumerate(value if isinstance(value, list) else [value]):
            _check(item, get_args(shape)[0], f"{path}[{position}]")
    elif get_origin(shape) is dict and isinstance(value, dict):
        for key, item in value.items():
            _check(item, get_args(shape)[1], f"{path}.{key}")
    elif isinstance(shape, type) and issubclass(shape, BaseModel):
        _check_message(value, shape, path)
    elif isinstance(shape, type) and issubclass(shape, enum.Enum):
        if not isinstance(value, str) or value.upper() not in {str(member.value) for member in shape}:
            raise invalid(f"Invalid value at '{path}' (type.googleapis.com/{shape.__name__}), \"{value}\"", path)
    elif shape in _SCALARS and not isinstance(value, _SCALARS[shape]):
        raise invalid(f"Invalid value at '{path}' (TYPE_{shape.__name__.upper()}), {value!r}", path)


_SCALARS: Final[dict[Any, tuple[type, ...]]] = {
    str: (str,),
    bytes: (str,),
    bool: (bool,),
    int: (int,),
    float: (int, float),
}


def _check_message(value: Any, shape: type[BaseModel], path: str) -> None:
    if not isinstance(value, dict):
        raise invalid(f"Invalid value at '{path}' (type.googleapis.com/{shape.__name__})", path)
    fields = _fields(shape)
    for key, item in value.items():
        name = to_camel(key) if "_" in key else key
        if name not in fields:
            raise unknown_field(key, path)
        if name not in OPAQUE and item is not None:
            _check(item, fields[name], f"{path}.{_snake(name)}")


def check_parameters(parameters: Any, path: str) -> None:
    """A function's ``parameters``, in the dialect of ``types.Schema``."""
    _check_message(parameters, types.Schema, path)


def _without_none(shape: Any) -> Any:
    """The type within an ``Optional``; of several, the first that is a message."""
    if get_origin(shape) not in (Union, builtin.UnionType):
        return shape
    parts = [part for part in get_args(shape) if part is not type(None)]
    return parts[0] if len(parts) == 1 else None


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def check_schema(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of the answer, which needs a JSON ``responseMimeType`` and one of two dialects."""
    plain, full = config.get("responseSchema"), config.get("responseJsonSchema")
    mime = config.get("responseMimeType", "text/plain")
    if mime not in ("text/plain", "application/json", "text/x.enum"):
        words = (
            f"* GenerateContentRequest.generation_config.response_mime_type: allowed mimetypes are "
            f"`text/plain`, `application/json`, `application/xml`, `application/yaml` and `text/x.enum`. Got {mime}."
        )
        raise invalid(words)
    if plain is not None and full is not None:
        raise invalid("Only one of response_schema and response_json_schema may be set.")
    schema = plain if plain is not None else full
    if schema is None:
        return None
    if mime == "text/plain":
        raise invalid("Response schema with mime type: 'text/plain' is unsupported")
    try:
        if full is not None:
            json_schema.check_gemini(full, "generation_config.response_json_schema")
        else:
            _check_message(schema, types.Schema, "generation_config.response_schema")
    except json_schema.SchemaError as error:
        raise invalid(f"Invalid JSON payload received. {error}") from error
    if not isinstance(schema, Mapping):
        raise invalid("Invalid value at 'generation_config.response_schema'")
    return schema
