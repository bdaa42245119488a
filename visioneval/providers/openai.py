"""Drawing and editing with OpenAI's Images API, or with a server that speaks it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import openai
from openai.types import ImagesResponse
from pydantic import BaseModel

from visioneval import images
from visioneval.errors import ProviderError, ProviderErrorKind, UsageError
from visioneval.providers.base import Drawing, DrawRequest
from visioneval.providers.masks import MaskUse, mask_use
from visioneval.suite.providers import OpenAIProvider
from visioneval.suite.remote import OpenAIOptions

BASE_URL = "https://api.openai.com/v1"
_REFUSALS = {"moderation_blocked", "content_policy_violation", "content_filter", "invalid_prompt"}
_MOST_WORDS = 1000
"""Of what a provider says in an error: a gateway's whole web page helps nobody."""
_SHORTEST_SECRET = 8
"""Local servers take any key, such as ``ollama``: a word that may well stand in what they say."""

T = TypeVar("T")


def client_for(options: OpenAIOptions) -> openai.AsyncOpenAI:
    """A client whose host, key and headers come from the suite alone. Raises ``UsageError`` without a usable key."""
    key = os.environ.get(options.key_variable)
    if not key:
        raise UsageError(f"set {options.key_variable}: the key of {options.base_url or 'OpenAI'}")
    if not (key.isascii() and key.isprintable()) or " " in key:  # the transport's own error would show all of it
        raise UsageError(f"{options.key_variable} holds a space, a line end or another character that no key has")
    with _no_settings_around():
        return openai.AsyncOpenAI(api_key=key, base_url=options.base_url or BASE_URL, max_retries=0)


@contextmanager
def _no_settings_around() -> Iterator[None]:
    """The SDK reads an organisation, a project, headers and more from the environment, and sends them to any host."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("OPENAI_")}
    try:
        yield
    finally:
        os.environ.update(kept)


@asynccontextmanager
async def told_errors(client: openai.AsyncOpenAI) -> AsyncIterator[None]:
    """Turns what the SDK raises into ``ProviderError``, in the provider's own words, less the client's key."""
    try:
        yield
    except openai.APIStatusError as error:
        raise _told(client, _words(error), _kind(error), retry_after(error.response.headers)) from None
    except openai.APIConnectionError as error:  # time-outs are among them
        cause = error.__cause__
        why = f" ({type(cause).__name__}: {cause})".replace(": )", ")") if cause else ""
        raise _told(client, f"{error.message}{why}", "transient") from None
    except (openai.OpenAIError, ValueError) as error:
        raise _told(client, f"the answer could not be read: {error}", "transient") from None


def _told(client: openai.AsyncOpenAI, words: str, kind: ProviderErrorKind, wait: float | None = None) -> ProviderError:
    if len(client.api_key) >= _SHORTEST_SECRET:
        words = words.replace(client.api_key, "***")
    return ProviderError(words[:_MOST_WORDS], kind=kind, retry_after=wait)


def whole(answer: object, wanted: type[T]) -> T:
    """The answer, where it is one: the SDK hands over a web page as text. Raises ``ProviderError``."""
    if isinstance(answer, wanted):
        return answer
    shown = " ".join(str(answer).split())[:80]
    message = f"the answer is none of this API, so base_url may be wrong; it begins with {shown!r}"
    raise ProviderError(message, kind="invalid")


def _kind(error: openai.APIStatusError) -> ProviderErrorKind:
    if str(error.code) in _REFUSALS:
        return "refused"
    if error.status_code == 401 or error.code == "insufficient_quota":
        return "auth"
    if error.status_code == 429:
        return "rate_limit"
    return "transient" if error.status_code in (408, 409) or error.status_code >= 500 else "invalid"


def _words(error: openai.APIStatusError) -> str:
    body = error.body if isinstance(error.body, Mapping) else {}
    said = body.get("message") or error.response.text.strip() or error.message
    return f"{error.status_code}: {said}"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks to wait, where it says so."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * scale
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


class Connection:
    """The client of one entry. It is closed with the event loop in which it was used first."""

    def __init__(self, options: OpenAIOptions) -> None:
        self._client = client_for(options)
        self._closing: AsyncGenerator[None, None] | None = None

    @asynccontextmanager
    async def call(self) -> AsyncIterator[openai.AsyncOpenAI]:
        """The client, for one call. Raises ``ProviderError`` for whatever the SDK raises."""
        if self._closing is None:
            self._closing = self._close_at_end()
            await anext(self._closing)  # a loop that ends closes every generator that was begun in it
        async with told_errors(self._client):
            yield self._client

    async def _close_at_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._client.close()


class OpenAI:
    """One client for a model entry; parameters are passed through as the suite wrote them."""

    def __init__(self, config: OpenAIProvider) -> None:
        self._config = config
        self._connection = Connection(config)

    async def generate(self, request: DrawRequest) -> Drawing:
        """Draws ``n`` pictures with one call."""
        async with self._connection.call() as client:
            answer = await client.images.generate(
                prompt=request.prompt, extra_body={**request.params, "prompt": request.prompt}
            )
        return _drawing(answer, request.params)

    async def edit(self, request: DrawRequest) -> Drawing:
        """Edits the first picture; the others, in order, are references."""
        use = mask_use(self._config.mask_mode, request.files)
        pictures, mask = await asyncio.to_thread(_uploads, request, use)
        prompt = use.worded(request.prompt, len(pictures))
        async with self._connection.call() as client:
            answer = await client.images.edit(
                image=pictures,
                prompt=prompt,
                mask=mask if mask is not None else openai.omit,
                extra_body={**request.params, "prompt": prompt},
            )
        masked = {"mask_mode": use.mode} if "editable" in request.files.masks else {}
        return _drawing(answer, {**request.params, **masked})


Upload = tuple[str, bytes, str]


def _uploads(request: DrawRequest, use: MaskUse) -> tuple[list[Upload], Upload | None]:
    pictures = [_upload(path) for _, path in request.files.images]
    if use.as_image is not None:
        pictures.append(("mask.png", use.picture(), "image/png"))
    return pictures, ("mask.png", use.argument(), "image/png") if use.sent is not None else None


def _upload(path: Path) -> Upload:
    data = path.read_bytes()
    mime, _, _ = images.inspect(data)
    if mime in ("image/png", "image/jpeg", "image/webp"):
        return path.name, data, mime
    return f"{path.stem}.png", images.encode_png(images.load_rgb(data)), "image/png"


def _drawing(answer: object, sent: Mapping[str, Any]) -> Drawing:
    told = whole(answer, ImagesResponse)
    pictures = tuple(_decoded(image.b64_json, image.url) for image in told.data or ())
    return Drawing(pictures=pictures, usage=flat_usage(told.usage) or None, run_params=sent)


def _decoded(text: str | None, url: str | None) -> bytes:
    """The picture's bytes; empty where it is damaged, so that only its own cell is an error."""
    if not text and url:
        raise ProviderError("the answer holds a URL: set params.response_format to b64_json", kind="invalid")
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        return b""


def flat_usage(usage: BaseModel | None) -> dict[str, int]:
    """Token counts by name: ``input_tokens``, and of its details such as ``input_image_tokens``."""
    flat: dict[str, int] = {}
    for name, told in (usage.model_dump(warnings=False) if usage is not None else {}).items():
        inner = told if isinstance(told, Mapping) else {"": told}
        side = name.removesuffix("tokens_details") if isinstance(told, Mapping) else name
        flat |= {f"{side}{part}": tokens for part, tokens in inner.items() if isinstance(tokens, int)}
    return flat
