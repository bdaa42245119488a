"""What a provider can do, in small protocols, so that "cannot edit" is known before anything is paid for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from pybase64 import b64encode

from visioneval.suite.case import TestCase
from visioneval.types import CaseFiles, TaskType


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One call: a case on a model run. ``samples`` are the sample indices that its images become."""

    case: TestCase
    task_type: TaskType
    prompt: str
    model_label: str
    params: Mapping[str, Any]
    files: CaseFiles
    samples: tuple[int, ...]
    folder: Path
    """The suite's folder: what relative paths in parameters are relative to."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What a call gave: encoded images or videos in sample order, or the words of a refusal.

    ``usage`` counts tokens by kind; ``cost_usd`` is for the whole call; ``run_params`` is what was sent, less
    secrets.
    """

    outputs: tuple[bytes | Address, ...] = ()
    refused: str | None = None
    usage: Mapping[str, int] | None = None
    cost_usd: float | None = None
    run_params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Address:
    """Among a generation's images: one that stays where it is, as its judges read it by its address."""

    uri: str
    mime: str


@runtime_checkable
class Generator(Protocol):
    """Generates an image from a prompt: a coroutine, or a function, called in a thread. Raises ``ProviderError``."""

    def generate(self, request: GenerationRequest, /) -> Generation | Awaitable[Generation]: ...


@runtime_checkable
class Editor(Protocol):
    """Changes the first of a case's images as the prompt asks. Raises ``ProviderError``."""

    def edit(self, request: GenerationRequest, /) -> Generation | Awaitable[Generation]: ...


@dataclass(frozen=True)
class ImagePart:
    """An image that a judge is shown, encoded as ``mime``. It is hashed when it is made, which belongs in a thread."""

    data: bytes
    mime: str
    sha256: str = field(init=False, compare=False)
    """The hex digest of the image's bytes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", sha256(self._hashed()).hexdigest())

    def _hashed(self) -> bytes:
        return self.data

    @property
    def url(self) -> str:
        """The image as a ``data:`` URL. It is made again each time: keeping it costs more than making it."""
        return f"data:{self.mime};base64,{b64encode(self.data).decode()}"


class FilePart(ImagePart):
    """An image in a file, which is read each time: cells that wait for their turn hold no images in memory."""

    def __init__(self, path: Path, mime: str, digest: str) -> None:
        self.__dict__.update(path=path, mime=mime, sha256=digest)

    @property
    def data(self) -> bytes:
        """The file's bytes. Raises ``OSError``."""
        path: Path = self.__dict__["path"]
        return path.read_bytes()


@dataclass(frozen=True)
class VideoPart(ImagePart):
    """A video, for judges that watch videos themselves (``GradingContext.watching``); others are sent frames."""


@dataclass(frozen=True)
class AddressPart(ImagePart):
    """An image or a video that such a judge reads from ``uri``, whose hash stands for its own; ``data`` is empty."""

    uri: str = ""

    def _hashed(self) -> bytes:
        return self.uri.encode()


Part = str | ImagePart
"""What a judge is sent, in order: words, and images each right after the words that label it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that a judge may ask for while it looks.

    ``parameters`` is a strict JSON Schema; ``call`` takes the arguments as the judge wrote them and answers with
    parts, an error that the judge can act on included. It never raises for bad arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], Sequence[Part]]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A judge's call of a tool. ``arguments`` are JSON text, as the judge wrote it."""

    name: str
    arguments: str
    id: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A round of a question that is behind us: what the judge said, and what each of its calls was answered.

    ``raw`` is plain data in the judge's own form. No results: it called nothing, and is to give its answer now.
    """

    raw: Any
    results: tuple[tuple[ToolCall, tuple[Part, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class CellRef:
    """Which cell is asked about. For recorded answers alone: no judge is ever sent it."""

    test_id: str
    model_label: str
    sample_index: int


@dataclass(frozen=True, slots=True)
class Question:
    """One question to a judge. ``names`` are the answers that ``schema`` asks for, in its order."""

    parts: tuple[Part, ...]
    schema: Mapping[str, Any] | None = None
    names: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    max_tool_calls: int = 0
    texts: Mapping[str, str] = field(default_factory=dict)
    """For names that stand for questions in words: those words. Recorded answers may be filed under either."""
    detail: Literal["low", "high", "auto"] | None = None
    vote: int = 0
    """Counts the times that the same question is asked on purpose."""
    turns: tuple[Turn, ...] = ()
    """The rounds so far, of a question with tools."""
    must_answer: bool = False
    """No tool may be called any more."""
    past_cache: bool = False
    """The judge itself is to be asked: the answers in the cache could not be used. No part of what is asked."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a judge answered, word for word.

    ``shape`` says how the schema was asked for: ``schema`` (enforced by the provider), ``json`` (a JSON object),
    ``text`` (in words alone) or ``recorded``. ``stopped`` is why an answer ended early, such as a token limit.
    """

    text: str
    model: str
    shape: Literal["schema", "json", "text", "recorded"] = "schema"
    usage: Mapping[str, int] | None = None
    cost_usd: float | None = None
    stopped: str | None = None
    tool_calls: int = 0
    calls: tuple[ToolCall, ...] = ()
    """What it wants to see before it answers."""
    raw: Any = None
    """This round in the judge's own form, as plain data, where there must be another one."""
    from_cache: bool = False
    """Whether an earlier call was answered so, and the judge itself could be asked."""


class Judge(Protocol):
    """Looks at images and answers: one request a call, so that each is paced, paid and kept by itself.

    ``ask`` is a coroutine, or a function, which is called in a thread. Raises ``ProviderError``; a refusal to judge is
    of the kind ``refused``.
    """

    def ask(self, question: Question, about: CellRef, /) -> Reply | Awaitable[Reply]: ...
