"""Gemini as a provider: keys and paths of the Developer API and Vertex, error bodies, faults, ``generateContent``."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

from google.genai import types

from .faults import Fault, ModelRequest
from .gemini_checks import camel, check_body, check_parameters, check_schema, invalid
from .gemini_turns import Turns
from .http1 import ApiError, HttpRequest, Reply, json_reply
from .images import generated
from .openai_checks import judge_usage
from .openai_wire import GATEWAY_PAGE
from .outcomes import Answer, Endpoint, Images, Outcome, Refused
from .script import GenerationRequest, JudgeRequest, SentImage, Tool

DEVELOPER: Final = re.compile(r"/(v1|v1beta|v1alpha)/models/(?P<model>[^/:]+):(?P<method>\w+)")
VERTEX: Final = re.compile(
    r"/(v1|v1beta1)/(projects/(?P<project>[^/]+)/locations/(?P<location>[^/]+)/)?"
    r"publishers/google/models/(?P<model>[^/:]+):(?P<method>\w+)"
)
VERTEX_PATH: Final = re.compile(r"/(v1|v1beta1)/(projects/|publishers/)")
KNOWN: Final = re.compile(
    r"gemini-([2-9](\.\d)?-)?(pro|flash|flash-lite)(-image)?(-preview|-latest)?(-\d{2,3}(-\d{4})?)?"
    r"|gemini-nano-banana-\d\.\d"
)
"""google-genai has no list of models: these are the names that its documentation uses."""
GENERATES: Final = re.compile(r"gemini-(.*-image|nano-banana)")
SIGNS: Final = re.compile(r"gemini-([3-9]|nano-banana)")
"""Models that sign their thoughts, and take an answer's schema and tools at the same time."""

SIZES: Final[Mapping[str, tuple[int, int]]] = {
    "1:1": (1024, 1024), "2:3": (832, 1248), "3:2": (1248, 832), "3:4": (864, 1184), "4:3": (1184, 864),
    "4:5": (896, 1152), "5:4": (1152, 896), "9:16": (768, 1344), "16:9": (1344, 768), "21:9": (1536, 672),
}  # fmt: skip
"""Aspect ratios and their pixels at ``1K``, from the Gemini image generation guide."""

SCALES: Final = {"1K": 1, "2K": 2, "4K": 4}
DRAFT: Final = base64.b64encode(generated(32, 32, "png", 0)).decode()
"""The image that a model thinks about, before the one that it answers with."""
SIGNATURE: Final = base64.b64encode(b"a signed thought").decode()
FUNCTION: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")


class GenerateContent:
    """``name`` is ``gemini`` for the Developer API and ``vertex`` for the other."""

    def __init__(self, name: str, models: frozenset[str]) -> None:
        self.name = name
        self._models = models

    def read(self, request: HttpRequest) -> ModelRequest:
        match = (VERTEX if self.name == "vertex" else DEVELOPER).fullmatch(request.path)
        assert match is not None
        if match["method"] != "generateContent":
            raise ApiError(404, f"This server does not support {match['method']}.", code="NOT_FOUND")
        model = match["model"]
        if model not in self._models and not KNOWN.fullmatch(model):
            raise self.unknown_model(model, match)
        body = _json(request.body)
        check_body(body, vertex=self.name == "vertex")
        turns = Turns(signed=bool(SIGNS.match(model)), vertex=self.name == "vertex")
        turns.read(body)
        config = body.get("generationConfig") or {}
        modalities = [str(name).upper() for name in config.get("responseModalities") or ()]
        if "IMAGE" in modalities or (GENERATES.match(model) and not modalities):
            return self._generation(model, body, turns, modalities)
        return self._question(model, body, turns)

    def _generation(
        self, model: str, body: Mapping[str, Any], turns: Turns, modalities: list[str]
    ) -> GenerationRequest:
        config = body.get("generationConfig") or {}
        if not GENERATES.match(model) and model not in self._models:
            words = "Model does not support the requested response modalities: image"
            raise invalid(f"{words}{',text' if 'TEXT' in modalities else ''}")
        if config.get("candidateCount") not in (None, 1):
            raise invalid("Multiple candidates is not enabled for this model")
        if config.get("responseMimeType") not in (None, "text/plain"):
            raise invalid("JSON mode is not enabled for this model")
        if body.get("tools") and any("functionDeclarations" in tool for tool in body["tools"]):
            raise invalid("Function calling is not enabled for this model")
        width, height = _size(config.get("imageConfig") or {}, model)
        mime = ((config.get("imageConfig") or {}).get("imageOutputOptions") or {}).get("mimeType", "image/png")
        if mime not in ("image/png", "image/jpeg"):
            raise invalid(f"Unsupported output mime type: {mime}")
        images = tuple(part for part in turns.parts if isinstance(part, SentImage))
        prompt = "\n".join(part for part in turns.parts if isinstance(part, str))
        both = not modalities or "TEXT" in modalities
        return GenerationRequest("gemini", self.name, model, prompt, 1, width, height, mime.removeprefix("image/"), images,
                           with_text=both, params=body)  # fmt: skip

    def _question(self, model: str, body: Mapping[str, Any], turns: Turns) -> JudgeRequest:
        config = body.get("generationConfig") or {}
        schema = check_schema(config)
        tools = _tools(body)
        as_json = config.get("responseMimeType") == "application/json"
        if tools and as_json and not SIGNS.match(model):
            raise invalid("Function calling with a response mime type: 'application/json' is unsupported")
        strict = config.get("responseJsonSchema") is not None
        return JudgeRequest("gemini", self.name, model, tuple(turns.parts), schema, None, strict, as_json, tools,
                            tuple(turns.results), turns.turns, body)  # fmt: skip

    def unknown_model(self, model: str, match: re.Match[str] | None = None) -> ApiError:
        if self.name == "vertex":
            result = match.groupdict() if match else {}
            where = f"projects/{result.get('project')}/locations/{result.get('location')}/publishers/google"
            words = (
                f"Publisher Model `{where}/models/{model}` was not found or your project does not have access to it."
            )
        else:
            words = (
                f"models/{model} is not found for API version v1beta, or is not supported for generateContent. "
                "Call ModelService.ListModels to see the list of available models and their supported methods."
            )
        return ApiError(404, words, code="NOT_FOUND")

    def write(self, asked: ModelRequest, outcome: Outcome) -> Reply:
        body: dict[str, Any] = {"modelVersion": asked.model, "responseId": uuid.uuid4().hex[:22]}
        output = ""
        if isinstance(outcome, Refused):
            body |= _refusal(outcome)
        else:
            parts, finish = _parts(asked, outcome)
            output = "".join(str(part.get("text", "")) for part in parts)
            content = {"parts": parts, "role": "model"} if parts else {"role": "model"}
            count = ((asked.params.get("generationConfig") or {}).get("candidateCount")) or 1
            body["candidates"] = [{"content": content, "finishReason": finish, "index": number}
                                  for number in range(count)]  # fmt: skip
        body["usageMetadata"] = _usage(asked, output, outcome)
        return json_reply(200, body)


class Gemini:
    """The Developer API, and Vertex by project or in express mode by key alone."""

    def __init__(self, key: str, models: frozenset[str]) -> None:
        self._key = key
        self._developer = GenerateContent("gemini", models)
        self._vertex = GenerateContent("vertex", models)

    def speaks(self, path: str) -> bool:
        return bool(re.match(r"/(v1beta1?|v1alpha)/|/v1/(models/[^/]+:|projects/|publishers/)", path))

    def authenticate(self, request: HttpRequest) -> None:
        key = request.headers.get("x-goog-api-key") or request.query.get("key")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if key is None and scheme == "Bearer" and VERTEX_PATH.match(request.path):
            if token != self._key:
                raise _unauthenticated()
        elif key is None:
            words = (
                "Method doesn't allow unregistered callers (callers without established identity). Please use API "
                "Key or other form of API consumer identity to call this API."
            )
            raise ApiError(403, words, code="PERMISSION_DENIED")
        elif key != self._key:
            raise _wrong_key()

    def endpoint(self, request: HttpRequest) -> Endpoint:
        if request.method == "POST" and VERTEX.fullmatch(request.path):
            return self._vertex
        if request.method == "POST" and DEVELOPER.fullmatch(request.path):
            return self._developer
        raise ApiError(404, f"The requested URL {request.path} was not found on this server.", code="NOT_FOUND")

    def error(self, error: ApiError) -> Reply:
        if error.status == 502:
            return Reply(502, GATEWAY_PAGE, error.headers, "text/html")
        body: dict[str, Any] = {"code": error.status, "message": error.message, "status": error.code or "INTERNAL"}
        if error.details:
            body["details"] = list(error.details)
        return json_reply(error.status, {"error": body}, error.headers)

    def fault(self, fault: Fault, asked: ModelRequest) -> ApiError:
        endpoint = self._vertex if asked.endpoint == "vertex" else self._developer
        if fault.kind in ("rate_limit", "quota"):
            created = _exhausted(fault)
        elif fault.kind == "unauthorized":
            created = _unauthenticated() if asked.endpoint == "vertex" else _wrong_key()
        elif fault.kind == "model_not_found":
            created = endpoint.unknown_model(asked.model)
        else:
            status, code, words = _STATUS[fault.kind]
            created = ApiError(status, words, code=code)
        if fault.text is not None:
            created.message = fault.text
        return created


_STATUS: Final = {
    "server_error": (500, "INTERNAL", "An internal error has occurred. Please retry or report in the help forum."),
    "bad_gateway": (502, "UNAVAILABLE", "Bad gateway"),
    "unavailable": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "forbidden": (403, "PERMISSION_DENIED", "The caller does not have permission"),
    "bad_request": (400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
}


def _wrong_key() -> ApiError:
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
        "metadata": {"service": "generativelanguage.googleapis.com"},
    }
    words = "API key not valid. Please pass a valid API key."
    return ApiError(400, words, code="INVALID_ARGUMENT", details=(detail,))


def _unauthenticated() -> ApiError:
    words = "Request had invalid authentication credentials. Expected OAuth 2 access token."
    return ApiError(401, words, code="UNAUTHENTICATED")


def _exhausted(fault: Fault) -> ApiError:
    words = "You exceeded your current quota, please check your plan and billing details."
    violation = {
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
        "quotaId": "GenerateRequestsPerDayPerProjectPerModel"
        if fault.kind == "quota"
        else "GenerateRequestsPerMinutePerProjectPerModel",
    }
    details: tuple[Mapping[str, Any], ...] = (
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]},
    )
    if fault.retry_after is not None:
        words += f" Please retry in {fault.retry_after:g}s."
        details += ({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{fault.retry_after:g}s"},)
    return ApiError(429, words, code="RESOURCE_EXHAUSTED", details=details)


def _json(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise invalid("Invalid JSON payload received. Unexpected token.")
    cased: dict[str, Any] = camel(parsed)
    return cased


def _size(config: Mapping[str, Any], model: str) -> tuple[int, int]:
    ratio, size = config.get("aspectRatio", "1:1"), config.get("imageSize", "1K")
    if ratio not in SIZES:
        raise invalid(f"Invalid aspect ratio: {ratio}. Supported values are {', '.join(SIZES)}.",
                      "generation_config.image_config.aspect_ratio")  # fmt: skip
    if size not in SCALES or (size != "1K" and model.startswith("gemini-2.5")):
        raise invalid(f"Invalid image size: {size}.", "generation_config.image_config.image_size")
    width, height = SIZES[ratio]
    return width * SCALES[size], height * SCALES[size]


def _tools(body: Mapping[str, Any]) -> tuple[Tool, ...]:
    tools = []
    for spec in (single for tool in body.get("tools") or () for single in tool.get("functionDeclarations") or ()):
        name = spec.get("name") or ""
        if not FUNCTION.fullmatch(name):
            raise invalid(f"Invalid function name {name!r}. Must start with a letter or an underscore.")
        if spec.get("parameters") is not None and spec.get("parametersJsonSchema") is not None:
            raise invalid("Only one of parameters and parameters_json_schema may be set.")
        check_parameters(spec.get("parameters") or {}, "tools.function_declarations.parameters")
        parameters = spec.get("parameters") or spec.get("parametersJsonSchema") or {}
        tools.append(Tool(name, spec.get("description") or "", parameters))
    chosen = ((body.get("toolConfig") or {}).get("functionCallingConfig") or {}).get("allowedFunctionNames") or ()
    for name in chosen:
        if name not in {tool.name for tool in tools}:
            raise invalid(f"Allowed function name {name} is not among the function declarations.")
    return tuple(tools)


def _refusal(outcome: Refused) -> dict[str, Any]:
    """A blocked prompt has no candidate; a stopped one has a candidate without content."""
    reason = outcome.reason or "prompt:PROHIBITED_CONTENT"
    if reason.startswith("prompt:"):
        blocked = types.BlockedReason[reason.removeprefix("prompt:")]
        return {"promptFeedback": {"blockReason": blocked.value}}
    finish = types.FinishReason[reason]
    candidate: dict[str, Any] = {"finishReason": finish.value, "index": 0}
    if finish.value.startswith("IMAGE_") or finish.value == "NO_IMAGE":
        candidate |= {"content": {}, "finishMessage": outcome.message}
    return {"candidates": [candidate]}


def _parts(asked: ModelRequest, outcome: Outcome) -> tuple[list[dict[str, Any]], str]:
    parts: list[dict[str, Any]] = []
    thinking = (asked.params.get("generationConfig") or {}).get("thinkingConfig") or {}
    if thinking.get("includeThoughts"):
        parts.append({"text": "**Looking closely**", "thought": True})
    if isinstance(outcome, Images):
        assert isinstance(asked, GenerationRequest)
        if parts:
            parts.append({"inlineData": {"mimeType": "image/png", "data": DRAFT}, "thought": True})
        if outcome.words or asked.with_text:
            parts.append({"text": outcome.words or "Here is your image."})
        parts.extend({"inlineData": {"mimeType": f"image/{asked.format}", "data": text}} for text in outcome.base64)
        return parts, "STOP"
    assert isinstance(outcome, Answer)
    signed = SIGNS.match(asked.model)
    for number, call in enumerate(outcome.calls):
        part: dict[str, Any] = {"functionCall": {"name": call.name, "args": dict(call.arguments)}}
        if signed:
            part["functionCall"]["id"] = uuid.uuid4().hex[:8]
        if signed and number == 0:
            part["thoughtSignature"] = SIGNATURE
        parts.append(part)
    if outcome.text:
        parts.append({"text": outcome.text})
    return parts, "MAX_TOKENS" if outcome.cut else "STOP"


def _usage(asked: ModelRequest, output: str, outcome: Outcome) -> dict[str, Any]:
    if isinstance(asked, GenerationRequest):
        text, images = asked.prompt, len(asked.images)
    else:
        text, images = asked.text, len(asked.images)
    came, went, thought = judge_usage(text, 0, output, reasoning=bool(SIGNS.match(asked.model)))
    usage: dict[str, Any] = {"promptTokenCount": came + 258 * images}
    usage["promptTokensDetails"] = [{"modality": "TEXT", "tokenCount": came}]
    if images:
        usage["promptTokensDetails"].append({"modality": "IMAGE", "tokenCount": 258 * images})
    if isinstance(outcome, Refused):
        return usage | {"totalTokenCount": usage["promptTokenCount"]}
    usage["candidatesTokenCount"] = went - thought
    if isinstance(outcome, Images):
        generated = 1290 * len(outcome.base64)
        usage["candidatesTokenCount"] += generated
        usage["candidatesTokensDetails"] = [{"modality": "IMAGE", "tokenCount": generated}]
    if thought:
        usage["thoughtsTokenCount"] = thought
    usage["totalTokenCount"] = usage["promptTokenCount"] + usage["candidatesTokenCount"] + thought
    return usage
