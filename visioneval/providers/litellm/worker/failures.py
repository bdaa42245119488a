"""From a failed call of LiteLLM to an error of ours: by the reply itself, since LiteLLM rewords it."""

from __future__ import annotations

import os
import re

import httpx

from visioneval.errors import ProviderError, ProviderErrorKind
from visioneval.media.network import refused_by_proxy
from visioneval.providers.error_replies import read_error
from visioneval.providers.litellm.process import is_setting
from visioneval.providers.litellm.worker.http import Trace
from visioneval.providers.openai.connection import kind_of_error
from visioneval.providers.refusals import is_refusal
from visioneval.providers.retry_after import retry_after
from visioneval.suite.remote import SHORTEST_ENVIRONMENT_SECRET, environment_secrets

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
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
    elif isinstance(trace.failure, httpx.ProxyError):
        result = refused_by_proxy(str(trace.failure))
    elif trace.failure is not None:
        cause = " ".join(str(trace.failure).split()) or type(trace.failure).__name__
        is_sent = not isinstance(trace.failure, _NEVER_SENT)
        result = ProviderError(f"no answer: {cause}", kind="transient", may_be_billed=is_sent)
    elif trace.status is not None:
        result = _of_answer(error, trace.body, generates=generates)
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
    error = read_error(trace.body.decode("utf-8", "replace"))
    message, kind = f"{trace.status}: {error.message or 'no message'}", kind_of_error(trace.status, error)
    return ProviderError(message, kind=kind, retry_after=retry_after(trace.status, trace.headers, error))


def _of_answer(error: BaseException, answer: bytes, *, generates: bool) -> ProviderError:
    """Of an answer with status 200 that LiteLLM could not use, and whose words it may quote."""
    message = _text(error)
    is_json = read_error(answer.decode("utf-8", "replace")).is_json
    if is_json and is_refusal(200, read_error({"message": message})):
        return ProviderError(message, kind="refused", may_be_billed=True)
    kind: ProviderErrorKind = "unusable" if generates else "invalid" if _UNLISTED in message else "transient"
    reply = answer if generates else None
    return ProviderError(f"the answer could not be read: {message}", kind=kind, may_be_billed=True, reply=reply)


def _before_sending(error: BaseException) -> ProviderError:
    """Of a call that LiteLLM did not send: it needs another parameter, or a key."""
    message = _text(error)
    kind: ProviderErrorKind = "auth" if _MISSING_KEY.search(message) else "invalid"
    hint = ": set api_key_env, or env for several variables" if kind == "auth" else ""
    return ProviderError(f"LiteLLM did not send the call: {message}{hint}", kind=kind)


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
