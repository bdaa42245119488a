"""From a failed call of LiteLLM to an error of ours: by the reply itself, since LiteLLM rewords it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from visioneval.errors import ProviderError, ProviderErrorKind
from visioneval.providers.litellm.process import is_setting
from visioneval.providers.litellm.worker.http import Trace
from visioneval.providers.openai.connection import kind_of_status
from visioneval.providers.retry_after import retry_after
from visioneval.suite.secrets import SHORTEST_ENVIRONMENT_SECRET, environment_secrets

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_REFUSAL = re.compile(
    r"content[ _]?(was[ _])?(policy|filter|moderat)|moderation|moderated|safety (system|filter)|nsfw"
    r"|responsible ai|flagged", re.IGNORECASE
)  # fmt: skip
_MISSING_KEY = re.compile(
    r"api[_ ]?key|credential|(?:is|are) not set|authenticat|unauthori[sz]ed|access token", re.IGNORECASE
)
_UNLISTED = "This model isn't mapped yet"
"""LiteLLM reads some answers only for models of its list: the next one would be paid in vain too."""
_PREFIX = re.compile(r"^(?:litellm\.)?\w+(?:Error|Exception|Violation): ")
_MAX_MESSAGE = 1000


def provider_error(error: BaseException, trace: Trace, key: str | None, *, generates: bool) -> ProviderError:
    """The error of a call, without keys. What answers a call that ``generates`` may be paid."""
    if trace.problem is not None:
        result = trace.problem
    elif trace.status is not None and trace.status >= 400:
        result = _of_reply(trace)
    elif trace.failure is not None:
        cause = " ".join(str(trace.failure).split()) or type(trace.failure).__name__
        is_sent = not isinstance(trace.failure, _NEVER_SENT)
        result = ProviderError(f"no answer: {cause}", kind="transient", may_be_billed=is_sent)
    elif trace.status is not None:
        result = _of_answer(error, trace.body if generates else None)
    else:
        result = _before_sending(error)
    message = _without_secrets(str(result), key)[:_MAX_MESSAGE]
    return ProviderError(
        message,
        kind=result.kind,
        retry_after=result.retry_after,
        may_be_billed=result.may_be_billed,
        reply=result.reply,
    )


def _of_reply(trace: Trace) -> ProviderError:
    assert trace.status is not None
    message, code = _reason(trace.body)
    kind = kind_of_status(trace.status, code)
    if kind == "invalid" and _REFUSAL.search(f"{code} {message}"):
        kind = "refused"
    return ProviderError(f"{trace.status}: {message}", kind=kind, retry_after=retry_after(trace.headers))


def _of_answer(error: BaseException, generated: bytes | None) -> ProviderError:
    """Of an answer with status 200 that LiteLLM could not use; ``generated`` is that of a generation."""
    message = _text(error)
    if _REFUSAL.search(message):
        return ProviderError(message, kind="refused", may_be_billed=True)
    kind: ProviderErrorKind = "invalid" if _UNLISTED in message else "transient"
    if generated is not None:
        kind = "unusable"
    return ProviderError(f"the answer could not be read: {message}", kind=kind, may_be_billed=True, reply=generated)


def _before_sending(error: BaseException) -> ProviderError:
    """Of a call that LiteLLM did not send: it needs another parameter, or a key."""
    message = _text(error)
    kind: ProviderErrorKind = "auth" if _MISSING_KEY.search(message) else "invalid"
    hint = ": set api_key_env, or env for several variables" if kind == "auth" else ""
    return ProviderError(f"LiteLLM did not send the call: {message}{hint}", kind=kind)


def _reason(body: bytes) -> tuple[str, str]:
    """The message and the code of an error reply, in the forms of several providers."""
    try:
        data = orjson.loads(body)
    except ValueError:
        return " ".join(body.decode("utf-8", "replace").split()) or "no message", ""
    fields: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    inner = fields.get("error", fields.get("detail", fields.get("errors", data)))
    first = inner[0] if isinstance(inner, list) and inner else inner
    details: Mapping[str, Any] = first if isinstance(first, Mapping) else fields
    message = next((details[name] for name in ("message", "msg", "detail") if details.get(name)), None)
    if message is None:
        message = first if isinstance(first, str) else orjson.dumps(data).decode()
    code = next((details[name] for name in ("code", "type", "name") if details.get(name)), fields.get("name"))
    return " ".join(str(message).split()), str(code or "")


def _text(error: BaseException) -> str:
    """The message of an exception, without the names of LiteLLM's classes before it."""
    text = " ".join(str(error).partition("Traceback (most recent")[0].split()) or type(error).__name__
    while (shorter := _PREFIX.sub("", text)) != text:
        text = shorter
    return text


def _without_secrets(message: str, key: str | None) -> str:
    """Hides the key and the values of the variables that the entry names."""
    named = [name for name in os.environ if not is_setting(name)]
    secrets = {*environment_secrets(named), *([key] if key and len(key) >= SHORTEST_ENVIRONMENT_SECRET else ())}
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, "***")
    return message
