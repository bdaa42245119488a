"""OpenAI as a provider: keys, paths, error bodies, and the form of each fault."""

from __future__ import annotations

import uuid
from typing import Final

from .faults import Fault, ModelRequest
from .http1 import ApiError, HttpRequest, Reply, json_reply
from .openai_chat import Chat
from .openai_checks import CHAT_MODELS, IMAGE_MODELS, RESPONSES_MODELS, unknown_model
from .openai_images import Edits, Generations
from .openai_responses import Responses
from .outcomes import Endpoint

GATEWAY_PAGE: Final = b"<html><head><title>502 Bad Gateway</title></head><body>cloudflare</body></html>"


class OpenAI:
    """The endpoints under ``/v1``. ``models`` are known in addition to the SDK's lists."""

    def __init__(
        self, key: str, models: frozenset[str], chat_formats: frozenset[str], *, chat_tools: bool = True
    ) -> None:
        self._key = key
        endpoints: tuple[tuple[str, Endpoint], ...] = (
            ("/v1/images/generations", Generations(IMAGE_MODELS | models)),
            ("/v1/images/edits", Edits(IMAGE_MODELS | models)),
            ("/v1/responses", Responses(RESPONSES_MODELS | models)),
            ("/v1/chat/completions", Chat(CHAT_MODELS | models, chat_formats, tools=chat_tools)),
        )
        self._endpoints = dict(endpoints)

    def authenticate(self, request: HttpRequest) -> None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            words = (
                "You didn't provide an API key. You need to provide your API key in an Authorization header using "
                "Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."
            )
            raise ApiError(401, words)
        if key != self._key:
            raise _wrong_key(key)

    def endpoint(self, request: HttpRequest) -> Endpoint:
        result = self._endpoints.get(request.path)
        if result is None:
            raise ApiError(404, f"Invalid URL ({request.method} {request.path})")
        if request.method != "POST":
            raise ApiError(405, f"Not allowed to {request.method} on {request.path}.", code="method_not_supported")
        return result

    def error(self, error: ApiError) -> Reply:
        headers = (("x-request-id", f"req_{uuid.uuid4().hex}"), *error.headers)
        if error.status == 502:
            return Reply(502, GATEWAY_PAGE, headers, "text/html")
        inner = {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}
        return json_reply(error.status, {"error": inner | error.extra}, headers)

    def fault(self, fault: Fault, asked: ModelRequest) -> ApiError:
        created = _STATUS[fault.kind](asked, fault)
        if fault.text is not None:
            created.message = fault.text
        return created


def _wrong_key(key: str) -> ApiError:
    shown = f"{key[:7]}{'*' * 8}{key[-4:]}"
    words = f"Incorrect API key provided: {shown}. You can find your API key at https://platform.openai.com/account/api-keys."
    return ApiError(401, words, code="invalid_api_key")


def _rate_limit(asked: ModelRequest, fault: Fault) -> ApiError:
    again = f" Please try again in {fault.retry_after:g}s." if fault.retry_after is not None else ""
    words = f"Rate limit reached for {asked.model} in organization org-fake on requests per min (RPM): Limit 5.{again}"
    headers: tuple[tuple[str, str], ...] = (
        ("x-ratelimit-limit-requests", "5"),
        ("x-ratelimit-remaining-requests", "0"),
    )
    if fault.retry_after is not None:
        seconds = max(1, round(fault.retry_after))
        headers += (("retry-after", str(seconds)), ("retry-after-ms", str(round(fault.retry_after * 1000))))
    return ApiError(429, words, kind="requests", code="rate_limit_exceeded", headers=headers)


def _quota(asked: ModelRequest, fault: Fault) -> ApiError:
    words = "You exceeded your current quota, please check your plan and billing details."
    return ApiError(429, words, kind="insufficient_quota", code="insufficient_quota")


def _bad_request(asked: ModelRequest, fault: Fault) -> ApiError:
    words = "Invalid value: 'ultra'. Supported values are: 'low', 'medium', 'high', and 'auto'."
    return ApiError(400, words, param="quality", code="invalid_value")


def _server_error(asked: ModelRequest, fault: Fault) -> ApiError:
    words = "The server had an error while processing your request. Sorry about that!"
    return ApiError(500, words, kind="server_error", code="server_error")


def _unavailable(asked: ModelRequest, fault: Fault) -> ApiError:
    words = "The engine is currently overloaded, please try again later."
    headers = () if fault.retry_after is None else (("retry-after", str(max(1, round(fault.retry_after)))),)
    return ApiError(503, words, kind="service_unavailable_error", code="server_is_overloaded", headers=headers)


def _forbidden(asked: ModelRequest, fault: Fault) -> ApiError:
    words = (
        f"Your organization must be verified to use the model `{asked.model}`. "
        "Please go to: https://platform.openai.com/settings/organization/general and click on Verify Organization."
    )
    return ApiError(403, words)


_STATUS = {
    "rate_limit": _rate_limit,
    "quota": _quota,
    "server_error": _server_error,
    "bad_gateway": lambda asked, fault: ApiError(502, "Bad gateway"),
    "unavailable": _unavailable,
    "unauthorized": lambda asked, fault: _wrong_key("sk-revoked-key-0000"),
    "forbidden": _forbidden,
    "model_not_found": lambda asked, fault: unknown_model(asked.model),
    "bad_request": _bad_request,
}
