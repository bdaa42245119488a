"""The server: connections, the log, latency and faults of the wire."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import socket
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from types import TracebackType
from typing import Any, ClassVar, Self

from .faults import RAW, STATUS, WIRE, Fault, Faults, ModelRequest
from .gemini_wire import Gemini
from .http1 import (
    ApiError,
    FormPart,
    HttpRequest,
    MalformedError,
    Reply,
    parse_form,
    read_request,
    reply_head,
)
from .openai_wire import OpenAI
from .outcomes import Provider, decide
from .script import GenerationRequest, Script
from .videos import Videos
from .wire import raw_reply

BACKLOG = 4096
HEAD_LIMIT = 1 << 20
PAGE = b"<!doctype html><html><head><title>Welcome</title></head><body></body></html>"
SECRET = frozenset({"authorization", "x-goog-api-key", "cookie", "api-key"})


@dataclass(slots=True)
class LoggedRequest:
    """A request as it came, less secrets, and what became of it.

    ``body`` is the parsed JSON, ``form`` the parts of a multipart body; both are left out with
    ``keep_bodies=False``. ``digest`` is the same for the same request. ``status`` is 0 where no answer was sent.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    digest: str
    endpoint: str | None = None
    body: Any = None
    form: tuple[FormPart, ...] = ()
    asked: ModelRequest | None = None
    status: int = 0
    fault: str | None = None
    paid: bool = False
    at: float = 0.0
    """When it came, in seconds of a monotonic clock."""


class FakeAPI:
    """Both providers on one port of 127.0.0.1, served from a separate thread within ``with``.

    ``latency`` maps an endpoint (``images.generations``, ``images.edits``, ``responses``, ``chat``, ``gemini``,
    ``vertex``) or a kind of call (``images``, ``judge``) to seconds, or to a (least, most) pair. ``models`` adds
    names to those that the services know; ``chat_formats`` and ``chat_tools`` restrict the chat endpoint, to imitate a
    compatible server with fewer features. ``packing`` is the content encoding of replies, ``gzip`` or ``deflate``.
    Exceptions of the script are raised again at the end of ``with``, and what ``check_requests`` says against the
    requests is an ``AssertionError`` there.
    """

    check_requests: ClassVar[Callable[[Sequence[LoggedRequest]], Iterable[str]]] = staticmethod(lambda _: ())
    """Set by the tests' configuration, for all servers."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        models: Iterable[str] = (),
        chat_formats: Iterable[str] = ("text", "json_object", "json_schema"),
        chat_tools: bool = True,
        keep_bodies: bool = True,
        key: str = "sk-fake-0123456789abcdef",
    ) -> None:
        self.script = script or Script()
        self.faults = Faults()
        self.key = key
        self.videos = Videos()
        self.latency: dict[str, float | tuple[float, float]] = {}
        self.packing: str | None = None
        self.requests: list[LoggedRequest] = []
        self.paid: Counter[str] = Counter()
        self.paid_by_digest: Counter[str] = Counter()
        self.open_connections = 0
        self.most_connections = 0
        self.errors: list[BaseException] = []
        self.port = 0
        self._keep = keep_bodies
        self._clock = random.Random(0)
        self._openai = OpenAI(key, frozenset(models), frozenset(chat_formats), chat_tools=chat_tools)
        self._gemini = Gemini(key, frozenset(models))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="fake-api", daemon=True)
        self._ready = threading.Event()
        self._stop = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def gemini_base_url(self) -> str:
        """For the Developer API and for Vertex: the SDK adds the version and the path."""
        return self.url

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self.errors:
            raise self.errors[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self.errors and error is None:
            raise self.errors[0]
        if error is None:
            problems = list(self.check_requests(self.requests))
            assert not problems, "\n".join(problems)

    def requests_to(self, endpoint: str) -> list[LoggedRequest]:
        """The requests to an endpoint, in order of arrival."""
        return [entry for entry in self.requests if entry.endpoint == endpoint]

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen())
        except OSError as error:
            self.errors.append(error)
        finally:
            self._ready.set()
            self._loop.close()

    async def _listen(self) -> None:
        server = await asyncio.start_server(
            self._connected, "127.0.0.1", 0, backlog=BACKLOG, limit=HEAD_LIMIT, family=socket.AF_INET
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)  # a closed transport is removed only in the loop's next iteration

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_connections += 1
        self.most_connections = max(self.most_connections, self.open_connections)
        try:
            while (request := await read_request(reader)) is not None:
                if not await self._exchange(request, reader, writer):
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client went away: that is its right
        except (MalformedError, ValueError, asyncio.LimitOverrunError) as error:
            self.errors.append(error)
            writer.write(reply_head(Reply(400, b""), keep_alive=False))
        except asyncio.CancelledError:
            writer.transport.abort()  # the server stops; a task that ends cancelled would be reported by asyncio
        finally:
            self.open_connections -= 1
            writer.close()

    async def _exchange(self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; returns whether the connection stays open."""
        entry = self._log(request)
        reply = await self._answer(request, entry)
        if entry.fault == "hang":
            await reader.read(1)
            return False
        if entry.fault == "reset":
            _reset(writer)
            return False
        entry.status = reply.status
        if reply.raw is not None:
            await _send_all(reply.raw, writer)
            return False
        if self.packing is not None:
            reply = _packed(reply, self.packing)
        keep = request.headers.get("connection", "").lower() != "close"
        head = reply_head(reply, keep_alive=keep)
        if entry.fault == "truncated_body":
            writer.write(head + reply.body[: len(reply.body) // 2])
            await writer.drain()
            return False
        if reply.status == 200 and entry.endpoint and entry.fault not in ("html", "bad_json", "error_in_200"):
            entry.paid = True
            self.paid[entry.endpoint] += 1
            self.paid_by_digest[entry.digest] += 1
        writer.write(head + reply.body)
        await writer.drain()
        return keep

    async def _answer(self, request: HttpRequest, entry: LoggedRequest) -> Reply:
        provider: Provider = self._gemini if self._gemini.speaks(request.path) else self._openai
        try:
            return await self._carry_out(provider, request, entry)
        except ApiError as error:
            return provider.error(error)
        except Exception as error:
            self.errors.append(error)
            return provider.error(ApiError(500, f"the fake server failed: {error!r}", kind="server_error"))

    async def _carry_out(self, provider: Provider, request: HttpRequest, entry: LoggedRequest) -> Reply:
        provider.authenticate(request)
        if (name := self.videos.endpoint(request)) is not None:
            entry.endpoint = name
            return self.videos.answer(request, name, _json_or_none(request.body))
        endpoint = provider.endpoint(request)
        entry.endpoint = endpoint.name
        asked = endpoint.read(request)
        entry.asked = asked if self._keep else None
        fault = self.faults.next(asked, entry.digest)
        if fault is None or fault.kind not in STATUS | WIRE:
            await self._wait(endpoint.name, asked)
        outcome = decide(self.script, asked, fault)
        if isinstance(outcome, Fault):
            entry.fault = outcome.kind
            if outcome.kind in STATUS:
                return _error_reply(provider, outcome, asked)
            if outcome.kind in RAW:
                return raw_reply(outcome)
            if outcome.kind == "html":
                return Reply(200, PAGE, content_type="text/html")
            whole = decide(Script(), asked, None)  # of which the wire will carry a part at most
            assert not isinstance(whole, Fault)
            reply = endpoint.write(asked, whole)
            return Reply(200, reply.body[: len(reply.body) // 2]) if outcome.kind == "bad_json" else reply
        entry.fault = fault.kind if fault else None
        return endpoint.write(asked, outcome)

    async def _wait(self, endpoint: str, asked: ModelRequest) -> None:
        kind = "images" if isinstance(asked, GenerationRequest) else "judge"
        delay = self.latency.get(endpoint, self.latency.get(kind, 0.0))
        seconds = self._clock.uniform(*delay) if isinstance(delay, tuple) else delay
        if seconds:
            await asyncio.sleep(seconds)

    def _log(self, request: HttpRequest) -> LoggedRequest:
        headers = {name: value for name, value in request.headers.items() if name not in SECRET}
        entry = LoggedRequest(request.method, request.path, headers, "", at=monotonic())
        digest = hashlib.sha256(f"{request.method} {request.path}\n".encode())
        kind = request.headers.get("content-type", "")
        form: tuple[FormPart, ...] = ()
        if kind.startswith("multipart/"):
            try:
                form = tuple(parse_form(kind, request.body))
            except MalformedError:
                digest.update(request.body)
            for part in form:  # not the raw body: its boundary is new in every request
                digest.update(f"{part.name} {part.filename} {part.content_type} {len(part.data)}\n".encode())
                digest.update(part.data)
        else:
            digest.update(request.body)
        if self._keep:
            entry.form = form
            entry.body = _json_or_none(request.body) if not form else None
        entry.digest = digest.hexdigest()
        self.requests.append(entry)
        return entry


def _json_or_none(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _error_reply(provider: Provider, fault: Fault, asked: ModelRequest) -> Reply:
    kind = (fault.reason or "server_error") if fault.kind == "error_in_200" else fault.kind
    error = provider.fault(replace(fault, kind=kind), asked)
    if fault.retry_after_header is not None:
        error.headers += (("retry-after", fault.retry_after_header),)
    error.headers += fault.headers
    reply = provider.error(error)
    if fault.body is not None:
        reply = replace(reply, status=fault.status or reply.status, body=fault.body.encode())
    return replace(reply, status=200) if fault.kind == "error_in_200" else reply


async def _send_all(parts: Iterable[bytes | float], writer: asyncio.StreamWriter) -> None:
    for part in parts:
        if isinstance(part, bytes):
            writer.write(part)
            await writer.drain()
        await asyncio.sleep(0 if isinstance(part, bytes) else part)  # drain() may not yield to the loop


def _packed(reply: Reply, coding: str) -> Reply:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16 if coding == "gzip" else zlib.MAX_WBITS)
    body = packer.compress(reply.body) + packer.flush()
    return replace(reply, body=body, headers=(*reply.headers, ("content-encoding", coding)))


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with RST instead of FIN."""
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
