"""The protocols of providers. They are small, so that a missing ability is found before any paid call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from visioneval.suite.case import TestCase
from visioneval.types import CaseFiles, TaskType


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One call for a case of a model run. ``samples`` are the sample indices of its outputs.

    ``params`` are those of the suite's entry with one combination of its ``grid``. ``files`` has the input images of an
    edit, its masks and its reference. ``folder`` is that of the suite: relative paths in ``params`` are relative to it.
    """

    case: TestCase
    task_type: TaskType
    prompt: str
    model_label: str
    params: Mapping[str, Any]
    files: CaseFiles
    samples: tuple[int, ...]
    folder: Path
    """The suite's folder. Relative paths in parameters are relative to it."""
    scratch: Path | None = None
    """Of an operation: a folder for outputs that are too large for memory. It is deleted after the call."""


VIDEO_MS = "video_milliseconds"
"""The key of ``Generation.usage`` for the length of the generated videos together."""
MOST_VIDEO_MS = 3_600_000
"""The greatest length of a generated video that is believed: an hour."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The result of a call: encoded images or videos in sample order, or the text of a refusal.

    ``usage`` counts tokens by kind; ``cost_usd`` is for the whole call. Omit both if they are unknown, and state a cost
    of 0 for a free call, also if it is refused. ``run_params`` are the sent parameters without secrets. ``unusable``
    says what of the answer cannot be used, beside the outputs that can. ``reply`` is the raw answer, which is stored if
    something of it is not used. Outputs with ``refused``, and a negative or infinite cost, are errors of the cell.
    """

    outputs: tuple[bytes | OutputFile | Address | Download, ...] = ()
    refused: str | None = None
    usage: Mapping[str, int] | None = None
    cost_usd: float | None = None
    run_params: Mapping[str, Any] = field(default_factory=dict)
    unusable: str | None = None
    reply: bytes | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """An output that is not downloaded: its judges read it by its URI."""

    uri: str
    mime: str


@dataclass(frozen=True, slots=True)
class Download:
    """An output that the answer names by URL, and that cannot be read yet; ``problem`` says why, without the URL."""

    url: str
    problem: str


@dataclass(frozen=True, slots=True)
class OutputFile:
    """An output in a file in the ``scratch`` folder of the request, as it may be too large for memory."""

    path: Path


@runtime_checkable
class Generator(Protocol):
    """Generates from a prompt: a coroutine, or a function that is called in a thread. Raises ``ProviderError``."""

    def generate(self, request: GenerationRequest, /) -> Generation | Awaitable[Generation]: ...


@runtime_checkable
class Editor(Protocol):
    """Edits the first image of a case as the prompt requests. Raises ``ProviderError``."""

    def edit(self, request: GenerationRequest, /) -> Generation | Awaitable[Generation]: ...


@runtime_checkable
class Downloader(Protocol):
    """Reads an output again that an earlier answer named by URL, which costs nothing."""

    async def download(self, url: str, /) -> bytes | Download | str:
        """The output; or a ``Download`` if it cannot be read yet, or why it never can."""


@runtime_checkable
class OperationGenerator(Protocol):
    """Generates videos by operations, which take minutes. The engine asks for the end of each, also after a kill."""

    async def begin(self, request: GenerationRequest, /) -> str | Generation:
        """Begins an operation, which is paid. Returns its name, or the result of a call that has ended already.

        Raises ``ProviderError``.
        """

    async def poll(self, name: str, request: GenerationRequest, /) -> Generation | None:
        """The result of an operation, with its videos; ``None`` while it runs. Costs nothing.

        Raises ``OperationError`` if it has ended without a result, and another ``ProviderError`` if that is unknown.
        """


@dataclass(frozen=True)
class ImagePart:
    """An image for a judge, encoded as ``mime``. The constructor hashes it, so create large ones in a thread."""

    data: bytes
    mime: str
    sha256: str = field(init=False, compare=False)
    """The hex digest of the image."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", sha256(self._hashed()).hexdigest())

    def _hashed(self) -> bytes:
        return self.data


class FilePart(ImagePart):
    """An image in a file, read on each access, so that waiting cells keep no images in memory."""

    def __init__(self, path: Path, mime: str, digest: str) -> None:
        self.__dict__.update(path=path, mime=mime, sha256=digest)

    @property
    def data(self) -> bytes:
        """The file's bytes. Raises ``OSError``."""
        path: Path = self.__dict__["path"]
        return path.read_bytes()


@dataclass(frozen=True)
class VideoPart(ImagePart):
    """A video, for judges that can watch videos (``GradingContext.watching``); others get frames."""


@dataclass(frozen=True)
class AddressPart(ImagePart):
    """An image or video that such a judge reads from ``uri``. The hash is that of the URI; ``data`` is empty."""

    uri: str = ""

    def _hashed(self) -> bytes:
        return self.uri.encode()


Part = str | ImagePart
"""The content of a question, in order: text, and images, each directly after its label."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a judge may call before it answers.

    ``parameters`` is a strict JSON Schema; ``call`` takes the arguments as the judge wrote them and returns
    parts. For bad arguments, it returns an error message for the judge and never raises.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], Sequence[Part]]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of a judge. ``arguments`` is the JSON text that the judge wrote."""

    name: str
    arguments: str
    id: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A completed round of a question: the reply of the judge, and the result of each tool call.

    ``raw`` is the reply as plain data in the provider's format. Without results, the judge must answer next.
    """

    raw: Any
    results: tuple[tuple[ToolCall, tuple[Part, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class CellRef:
    """The cell of a question. Only for recorded answers: it is never sent to a judge."""

    test_id: str
    model_label: str
    sample_index: int


@dataclass(frozen=True, slots=True)
class Question:
    """One question to a judge. ``names`` are the answers that ``schema`` asks for, in its order.

    ``parts`` are texts (``str``) and images in the order in which a model should see them. An image has ``data``
    (encoded bytes), ``mime`` and ``url`` (a ``data:`` URL).
    """

    parts: tuple[Part, ...]
    schema: Mapping[str, Any] | None = None
    names: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    max_tool_calls: int = 0
    texts: Mapping[str, str] = field(default_factory=dict)
    """The full text of questions, by name. Recorded answers may use the name or the text."""
    detail: Literal["low", "high", "auto"] | None = None
    vote: int = 0
    """The index of a repeated question, for votes."""
    turns: tuple[Turn, ...] = ()
    """The completed rounds of a question with tools."""
    must_answer: bool = False
    """The judge must answer without further tool calls."""
    past_cache: bool = False
    """Bypass the cache, since the cached answers are unusable. Not sent to the judge."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a judge.

    ``shape`` says how the schema was requested: ``schema`` (enforced by the provider), ``json`` (a JSON object),
    ``text`` (in the prompt only) or ``recorded``. ``stopped`` is why a reply ended early, such as a token limit.
    """

    text: str
    model: str
    shape: Literal["schema", "json", "text", "recorded"] = "schema"
    usage: Mapping[str, int] | None = None
    cost_usd: float | None = None
    stopped: str | None = None
    tool_calls: int = 0
    calls: tuple[ToolCall, ...] = ()
    """The tool calls that the judge requests before it answers."""
    raw: Any = None
    """The reply as plain data in the provider's format, if another round must follow."""
    from_cache: bool = False
    """Whether the reply comes from the cache."""
    scaled: tuple[str, ...] = ()
    """What was done to the images that were above the judge's limits."""
    unreadable: str | None = None
    """Why the answer cannot be read; it is asked for once more."""


class Judge(Protocol):
    """Answers questions about images. One call is one request, so that each is limited, billed and cached separately.

    ``ask`` is a coroutine, or a function that is called in a thread. Raises ``ProviderError``; a refusal has the
    kind ``refused``.
    """

    def ask(self, question: Question, about: CellRef, /) -> Reply | Awaitable[Reply]: ...
