"""A question to a judge, around its calls: the rounds of one with tools, and what images the judge accepts.

A larger image is scaled down for this judge; local graders measure every image whole.
"""

from __future__ import annotations

import asyncio
import io
import math
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256

from visioneval.errors import ImageError, ProviderError
from visioneval.media import images
from visioneval.providers.base import (
    AddressPart,
    FilePart,
    ImagePart,
    Part,
    Question,
    Reply,
    Tool,
    ToolCall,
    Turn,
    VideoPart,
)
from visioneval.providers.reply_json import UnreadableReplyError, read_objects
from visioneval.suite.entries.judges import BaseJudge

SPARE_CALLS = 2
"""Calls over the limit that are answered with a warning before the judge must answer."""


async def converse(ask: Callable[[Question], Awaitable[Reply]], question: Question) -> Reply:
    """Asks until there is an answer; ``ask`` is one round. The reply has the tokens and the cost of all rounds.

    Each round is a call of its own, so that each is cached, billed, limited and logged by itself.

    Raises ``ProviderError`` if a judge never stops calling tools.
    """
    reply = await ask(question)
    rounds, call_count = [reply], 0
    while reply.raw is not None:
        if question.must_answer:
            raise ProviderError(f"the judge still called tools after {call_count} calls", kind="invalid")
        results = [(call, tuple(await asyncio.to_thread(run_tool, question.tools, call))) for call in reply.calls]
        call_count += len(results)
        question = replace(
            question,
            turns=(*question.turns, Turn(reply.raw, tuple(results))),
            must_answer=not results or call_count >= question.max_tool_calls + SPARE_CALLS,
        )
        reply = await ask(question)
        rounds.append(reply)
    if len(rounds) == 1:
        return reply
    usage = Counter[str]()
    for part in rounds:
        usage.update(part.usage or {})
    costs = [part.cost_usd for part in rounds]
    cost_usd = None if None in costs else sum(cost or 0.0 for cost in costs)
    return replace(reply, tool_calls=call_count, usage=dict(usage) or None, cost_usd=cost_usd)


def run_tool(tools: Sequence[Tool], call: ToolCall) -> Sequence[Part]:
    """The result of a tool call; bad names and bad JSON give an error message for the judge."""
    tool = next((candidate for candidate in tools if candidate.name == call.name), None)
    if tool is None:
        return [f"There is no tool {call.name!r}. There are: {', '.join(candidate.name for candidate in tools)}."]
    try:
        objects = read_objects(call.arguments or "{}")
    except UnreadableReplyError as error:
        return [f"The arguments are not JSON: {error}."]
    return tool.call(objects[0].value) if len(objects) == 1 else ["The arguments must be one JSON object."]


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """The limits of a judge. Bytes are those of base64 text, in which every image is sent.

    ``side`` is in pixels, ``crowded_side`` that of each image if a request has more than ``CROWD``.
    """

    judges: str
    """Which judges these are, for the reference."""
    request_bytes: int
    image_bytes: int | None = None
    side: int | None = None
    crowded_side: int | None = None


CROWD = 20
TEXT_BYTES = 1_000_000
"""What is left of a request for its texts."""
_MIB = 1 << 20
_LEAST_BYTES = 65_536
"""No image is made smaller than that to make room for the others, or for a video."""
JUDGES: tuple[tuple[str, ImageLimits], ...] = (
    # https://platform.claude.com/docs/en/build-with-claude/vision and .../api/overview
    ("litellm:bedrock/.*claude", ImageLimits("`claude` of LiteLLM's `bedrock/`", 20_000_000, 5 * _MIB, 8000, 2000)),
    ("litellm:vertex_ai/.*claude", ImageLimits("`claude` of LiteLLM's `vertex_ai/`", 30_000_000, 5 * _MIB, 8000, 2000)),
    ("(litellm|openai):.*claude", ImageLimits("`claude`, otherwise", 32 * _MIB, 10 * _MIB, 8000, 2000)),
    # https://ai.google.dev, page "File input methods"
    ("(gemini|litellm|openai):.*gemini", ImageLimits("`gemini`", 100_000_000)),
    # https://developers.openai.com/api/docs/guides/images-vision: 512 MB since April 2026, and 50 MB before. Calls are
    # still refused above 50 MB, which are counted in the server's own copies of the images: a little less passes.
    ("(openai|litellm):(.*/)?(gpt-|o[0-9])", ImageLimits("`gpt-`, `o3` and similar", 47_000_000)),
)
"""The judges whose limits are known, by ``provider:model``. The server is not considered: nor does a cache key."""


def limits_of(config: BaseJudge) -> ImageLimits | None:
    """The limits of a judge; ``None`` if none are known, as of a judge of the user's own."""
    return next((limits for pattern, limits in JUDGES if re.match(pattern, config.title, re.IGNORECASE)), None)


_VERSION = 2
"""Of how images are scaled: another one asks the judges again."""
_Scaled = tuple[bytes, tuple[int, int], tuple[int, int]]
"""An encoded image, its size before, and its size."""
_LATEST: OrderedDict[str, _Scaled] = OrderedDict()
_LATEST_BYTES = 100_000_000
"""The latest images, for the other questions, votes and attempts about them."""
_LATEST_LOCK = threading.Lock()


class ScaledPart(ImagePart):
    """An image that is encoded anew when it is sent, and scaled down until it is within limits.

    Its hash is of the image, the limits and ``_VERSION``: a cached answer is found without encoding, on every machine.
    """

    def __init__(self, whole: ImagePart, side: int | None, most_bytes: int) -> None:
        scaled = f"{whole.sha256} within {side} pixels and {most_bytes} bytes, version {_VERSION}"
        digest = sha256(scaled.encode()).hexdigest()
        self.__dict__.update(whole=whole, side=side, most_bytes=most_bytes, mime=whole.mime, sha256=digest)

    @property
    def data(self) -> bytes:
        """The encoded image. Raises ``ImageError``."""
        return self._scaled[0]

    @property
    def change(self) -> str:
        """What was done to the image."""
        before, after = (f"{width}x{height}" for width, height in self._scaled[1:])
        return f"encoded again at {before}" if before == after else f"scaled from {before} to {after}"

    @cached_property
    def _scaled(self) -> _Scaled:
        whole, side, most_bytes = (self.__dict__[name] for name in ("whole", "side", "most_bytes"))
        with _LATEST_LOCK:  # also while it is scaled: the questions about an image are asked at the same time
            scaled = _LATEST.pop(self.sha256, None) or _scale(whole.data, self.mime, side, most_bytes)
            _LATEST[self.sha256] = scaled
            while len(_LATEST) > 1 and sum(len(data) for data, *_ in _LATEST.values()) > _LATEST_BYTES:
                _LATEST.popitem(last=False)
        return scaled


def _scale(source: bytes, mime: str, side: int | None, most_bytes: int) -> _Scaled:
    from PIL import Image

    with images.room_for(source):
        image = images.load_image(source)
        factor = min(1.0, side / max(image.size)) if side else 1.0
        while True:
            size = max(1, math.floor(image.width * factor)), max(1, math.floor(image.height * factor))
            resized, buffer = image.resize(size, Image.Resampling.LANCZOS), io.BytesIO()
            if mime == "image/png":
                data = images.encode_png(resized)
            else:
                resized.save(buffer, mime.removeprefix("image/"), quality=95)
                data = buffer.getvalue()
            if base64_bytes(len(data)) <= most_bytes or size == (1, 1):
                return data, image.size, size
            factor *= min(0.9, 0.97 * math.sqrt(most_bytes / base64_bytes(len(data))))


def base64_bytes(size: int) -> int:
    """The length of the base64 text of ``size`` bytes."""
    return -(-size // 3) * 4


def fitted(config: BaseJudge, question: Question) -> Question:
    """The question with each image that is above the judge's limits scaled down. Reads headers of files only.

    A question with tools is not changed: its images are views of at most 1,024 pixels, whose pixels the judge names.
    """
    limits = limits_of(config)
    parts = [part for part in question.parts if isinstance(part, ImagePart) and not isinstance(part, AddressPart)]
    if limits is None or question.tools or not parts:
        return question
    side = limits.side if len(parts) <= CROWD else limits.crowded_side
    most_bytes = _most_bytes(limits, parts)

    def fit(part: Part) -> Part:
        if isinstance(part, str | AddressPart | VideoPart):
            return part
        is_within = _bytes(part) <= most_bytes and (side is None or max(_size(part)) <= side)
        return part if is_within else ScaledPart(part, side, most_bytes)

    return replace(question, parts=tuple(map(fit, question.parts)))


def _most_bytes(limits: ImageLimits, parts: Sequence[ImagePart]) -> int:
    """The most bytes of each image, so that all of them fit into one request: large ones make room for small ones."""
    most = limits.image_bytes or limits.request_bytes
    room = limits.request_bytes - TEXT_BYTES - sum(_bytes(part) for part in parts if isinstance(part, VideoPart))
    sizes = sorted(min(_bytes(part), most) for part in parts if not isinstance(part, VideoPart))
    for index, size in enumerate(sizes):
        share = room // (len(sizes) - index)
        if size > share:
            return min(most, max(share, _LEAST_BYTES))
        room -= size
    return most


def _bytes(part: ImagePart) -> int:
    if not isinstance(part, FilePart):
        return base64_bytes(len(part.data))
    try:
        return base64_bytes(part.__dict__["path"].stat().st_size)
    except OSError:
        return 0  # whoever reads the file reports it


def _size(part: ImagePart) -> tuple[int, int]:
    with (
        suppress(ImageError),
        images.header(part.__dict__["path"] if isinstance(part, FilePart) else part.data) as handle,
    ):
        return handle.size
    return 0, 0


def scaled_images(question: Question) -> tuple[str, ...]:
    """What was done to each scaled image, after the name that the judge was told: ``output: scaled from ...``."""
    notes: dict[str, None] = {}
    label = ""
    for part in question.parts:
        if isinstance(part, str):
            label = part
        elif isinstance(part, ScaledPart):
            name = label.partition(":")[0].partition("\n")[0][:80]
            notes[f"{name or 'image'}: {part.change}"] = None
    return tuple(notes)
