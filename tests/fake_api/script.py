"""Requests as tests see them, and the answers that tests define."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import images

if TYPE_CHECKING:
    from .faults import Fault


@dataclass(frozen=True, slots=True)
class SentImage:
    """An image that came with a request, decoded from its transport. ``detail`` is OpenAI's."""

    data: bytes
    mime: str
    detail: str | None = None
    filename: str | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels; (0, 0) for what is not an image, such as a video."""
        seen = images.inspect_image(self.data)
        return (seen.width, seen.height) if seen else (0, 0)


@dataclass(frozen=True, slots=True)
class SentFile:
    """Something sent by its address alone."""

    uri: str
    mime: str | None


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """An answer that asks for a tool. As a judge's answer it needs no id: the server makes one."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the client answered a tool call with: its text, and the images that came as part of it."""

    name: str
    call_id: str
    text: str
    images: tuple[SentImage, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """A question to a vision model. ``parts`` are the texts, images and files of every turn, in order.

    ``endpoint`` is ``responses``, ``chat``, ``gemini`` or ``vertex``; ``turns`` counts the model's turns so far;
    ``params`` is the body as it was sent.
    """

    provider: str
    endpoint: str
    model: str
    parts: tuple[str | SentImage | SentFile, ...]
    schema: Mapping[str, Any] | None = None
    schema_name: str | None = None
    strict: bool = False
    json_mode: bool = False
    tools: tuple[Tool, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    turns: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def images(self) -> tuple[SentImage, ...]:
        return tuple(part for part in self.parts if isinstance(part, SentImage))

    @property
    def files(self) -> tuple[SentFile, ...]:
        return tuple(part for part in self.parts if isinstance(part, SentFile))


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """An order for ``n`` images of ``width`` x ``height`` pixels in ``format`` (``png``, ``jpeg``, ``webp``).

    ``endpoint`` is ``images.generations``, ``images.edits``, ``gemini`` or ``vertex``.
    """

    provider: str
    endpoint: str
    model: str
    prompt: str
    n: int
    width: int
    height: int
    format: str
    images: tuple[SentImage, ...] = ()
    mask: SentImage | None = None
    with_text: bool = False
    params: Mapping[str, Any] = field(default_factory=dict)


class Script:
    """The answers. Both functions may return ``None`` for the default, or a ``Fault``.

    A ``dict`` is checked against a strict schema, as the real service would never break it; to answer off the
    schema return text or ``Fault("off_schema")``. Functions run in the server's thread and must not block.
    """

    def __init__(self) -> None:
        self._generate: Callable[[GenerationRequest], Any] | None = None
        self._judge: Callable[[JudgeRequest], Any] | None = None

    def generate(self, answer: bytes | Callable[[GenerationRequest], Any]) -> Script:
        """``answer(request)`` gives an image for every image asked for, or a sequence of images."""
        self._generate = answer if callable(answer) else lambda _request: answer
        return self

    def judge(self, answer: str | Mapping[str, Any] | Callable[[JudgeRequest], Any]) -> Script:
        """``answer(request)`` gives text, an object, one tool call or several."""
        self._judge = answer if callable(answer) else lambda _request: answer
        return self

    def by_default(self, generate: Callable[[GenerationRequest], Any], judge: Callable[[JudgeRequest], Any]) -> None:
        """Answers where the test has set no function of its own."""
        self._generate = self._generate or generate
        self._judge = self._judge or judge

    def generated(self, request: GenerationRequest) -> tuple[bytes, ...] | Fault:
        answer = self._generate(request) if self._generate else None
        if answer is None:
            return default_images(request)
        if isinstance(answer, bytes):
            return (answer,) * request.n
        return tuple(answer) if isinstance(answer, Sequence) else answer

    def judged(self, request: JudgeRequest) -> str | Mapping[str, Any] | tuple[ToolCall, ...] | Fault | None:
        answer = self._judge(request) if self._judge else None
        if isinstance(answer, ToolCall):
            return (answer,)
        if isinstance(answer, Sequence) and not isinstance(answer, str):
            return tuple(answer)
        result: str | Mapping[str, Any] | Fault | None = answer
        return result


def default_images(request: GenerationRequest) -> tuple[bytes, ...]:
    """Images of the size and format asked for, different among each other and between prompts.

    An image whose size nobody asked for is a quarter as wide and high as a real service's: it is decoded several times.
    """
    first = zlib.crc32(request.prompt.encode())
    config = request.params.get("generationConfig", {})
    is_asked = request.params.get("size", "auto") != "auto" or "imageConfig" in config
    width, height = (request.width, request.height) if is_asked else (request.width // 4, request.height // 4)
    return tuple(
        images.generated(width, height, request.format, (first + number) % images.VARIANTS)
        for number in range(request.n)
    )
