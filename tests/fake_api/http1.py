"""HTTP/1.1 as much as the SDKs speak it: requests in, replies out, multipart forms."""

from __future__ import annotations

import asyncio
import email.message
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


class MalformedError(Exception):
    """The request is not valid HTTP or not a valid form."""


class ApiError(Exception):
    """An error answer. Each provider has its own error format.

    ``code`` is OpenAI's error code or Gemini's status name; ``details`` are Gemini's typed details.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        kind: str = "invalid_request_error",
        details: tuple[Mapping[str, Any], ...] = (),
        headers: tuple[tuple[str, str], ...] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.kind = kind
        self.details = details
        self.headers = headers
        self.extra = dict(extra or {})


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """``raw`` is sent instead of all else, head included, and then the connection is closed; a number is a pause."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"
    raw: Iterable[bytes | float] | None = None


@dataclass(frozen=True, slots=True)
class FormPart:
    name: str
    filename: str | None
    content_type: str | None
    data: bytes


def json_reply(status: int, body: object, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    return Reply(status, json.dumps(body, separators=(",", ":")).encode(), headers)


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The next request of a connection, ``None`` when the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise MalformedError("the connection ended within the head of a request") from error
        return None
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise MalformedError(f"not a request line: {lines[0]!r}")
    headers: dict[str, str] = {}
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        if not colon:
            raise MalformedError(f"not a header: {line!r}")
        headers[name.lower()] = value.strip()
    target = urlsplit(words[1])
    body = await _read_body(reader, headers)
    return HttpRequest(words[0], unquote(target.path), dict(parse_qsl(target.query)), headers, body)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunks(reader)
    return await reader.readexactly(int(headers.get("content-length", "0")))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        continue
    return b"".join(chunks)


def reply_head(reply: Reply, *, keep_alive: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {REASONS.get(reply.status, 'Status')}",
        f"content-type: {reply.content_type}",
        f"content-length: {len(reply.body)}",
        f"connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    lines.extend(f"{name}: {value}" for name, value in reply.headers)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def parse_form(content_type: str, body: bytes) -> list[FormPart]:
    """The parts of a ``multipart/form-data`` body, in order; ``MalformedError`` where it is not well formed."""
    header = email.message.Message()
    header["content-type"] = content_type
    boundary = header.get_param("boundary")
    if header.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        raise MalformedError("the content type is not multipart/form-data with a boundary")
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary.encode())
    if pieces[0] or pieces[-1] not in (b"--", b"--\r\n"):
        raise MalformedError("the form does not begin and end with its boundary")
    return [_form_part(piece) for piece in pieces[1:-1]]


def _form_part(piece: bytes) -> FormPart:
    head, blank, data = piece.partition(b"\r\n\r\n")
    if not head.startswith(b"\r\n") or not blank:
        raise MalformedError("a part of the form has no header")
    header = email.message.Message()
    for line in head[2:].decode().split("\r\n"):
        field, _, value = line.partition(":")
        header[field] = value.strip()
    name = header.get_param("name", header="content-disposition")
    if header.get_content_disposition() != "form-data" or not isinstance(name, str):
        raise MalformedError("a part of the form has no name")
    kind = header.get_content_type() if "content-type" in header else None
    return FormPart(name, header.get_filename(), kind, data)
