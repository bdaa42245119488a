"""The calls of LiteLLM: images, edits and chat completions, each once and asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import litellm
from pybase64 import b64decode, b64encode_as_string

from visioneval.bounds import REPLY_MB
from visioneval.errors import ProviderError
from visioneval.providers.litellm.worker.failures import provider_error
from visioneval.providers.litellm.worker.http import TRACE, Trace, install

_TIMEOUT_S = 86_400.0
"""The engine ends calls; this is above its longest timeout."""
_ONE_IMAGE = frozenset({"azure_ai", "bedrock", "black_forest_labs", "recraft", "stability"})
"""Providers of which LiteLLM sends only the first image of an edit, without a word."""

install()


async def answer_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request: ``{"result": ...}``, or ``{"error": ...}`` with the fields of a ``ProviderError``."""
    trace = Trace(host=urlsplit(request["api_base"] or "").hostname)
    TRACE.set(trace)
    REPLY_MB.override = request["reply_mb"]
    try:
        return {"result": await CALLS[request["call"]](request)}
    except asyncio.CancelledError:
        raise
    except ProviderError as error:
        failure = error
    except Exception as error:  # each provider in LiteLLM has its own
        failure = provider_error(error, trace, request["api_key"], generates=request["call"] != "chat")
    fields = {name: getattr(failure, name) for name in ("kind", "retry_after", "may_be_billed")}
    reply = None if failure.reply is None else b64encode_as_string(failure.reply)
    return {"error": {"message": str(failure), **fields, "reply": reply}}


async def _generate(request: Mapping[str, Any]) -> dict[str, Any]:
    answer = await litellm.aimage_generation(prompt=request["prompt"], **request["params"], **_options(request))
    return _images(answer)


async def _edit(request: Mapping[str, Any]) -> dict[str, Any]:
    images = [b64decode(image) for image in request["images"]]
    provider = str(request["params"]["model"]).partition("/")[0]
    if len(images) > 1 and provider in _ONE_IMAGE:
        message = f"LiteLLM sends only the first image to {provider!r}, and this call has {len(images)}"
        raise ProviderError(message, kind="invalid")
    mask = {"mask": b64decode(request["mask"])} if request["mask"] else {}
    answer = await litellm.aimage_edit(
        image=images, prompt=request["prompt"], **request["params"], **mask, **_options(request)
    )
    return _images(answer)


async def _chat(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as OpenAI's chat API gives it, with the refusal where that has it."""
    body = request["body"]
    _check_format(body)
    answer = await litellm.acompletion(**body, **_options(request), max_retries=0, num_retries=0)
    data: dict[str, Any] = answer.model_dump(mode="json")
    for choice in data.get("choices") or ():
        message = choice.get("message") or {}
        refusal = (message.get("provider_specific_fields") or {}).get("refusal")
        if refusal:
            message["refusal"] = refusal
    return data


def _check_format(body: Mapping[str, Any]) -> None:
    """Refuses a reply format that the model lacks as a server would, so that the judge asks for a weaker one."""
    form = (body.get("response_format") or {}).get("type")
    if form is None:
        return
    model = body["model"]
    if form == "json_schema":
        is_supported = litellm.supports_response_schema(model=model)
    else:
        is_supported = "response_format" in (litellm.get_supported_openai_params(model=model) or ())
    if not is_supported:
        raise ProviderError(f"response_format {form}: not supported by {model}", kind="invalid")


def _options(request: Mapping[str, Any]) -> dict[str, Any]:
    options = {"api_key": request["api_key"], "api_base": request["api_base"], "timeout": _TIMEOUT_S}
    return {name: value for name, value in options.items() if value is not None}


def _images(answer: Any) -> dict[str, Any]:
    data: dict[str, Any] = answer.model_dump(mode="json")
    return {"data": data.get("data") or [], "usage": data.get("usage")}


CALLS: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
    "generate": _generate,
    "edit": _edit,
    "chat": _chat,
}
