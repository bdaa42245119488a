"""Gemini's ``contents``: texts, media, function calls and their answers, and what must follow what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from . import images
from .gemini_checks import invalid
from .script import SentFile, SentImage, ToolResult

IMAGES: Final = {"image/png": "png", "image/jpeg": "jpeg", "image/webp": "webp"}
OTHER_IMAGES: Final = frozenset({"image/heic", "image/heif", "image/avif"})
FILES: Final = ("video/", "audio/", "image/", "text/", "application/pdf")
KINDS: Final = ("text", "inlineData", "fileData", "functionCall", "functionResponse")


class Turns:
    """Reads the system instruction and all turns. ``signed``: function calls must come back with their signature."""

    def __init__(self, *, signed: bool, vertex: bool) -> None:
        self.parts: list[str | SentImage | SentFile] = []
        self.results: list[ToolResult] = []
        self.turns = 0
        self._signed = signed
        self._vertex = vertex
        self._calls: list[Mapping[str, Any]] = []

    def read(self, body: Mapping[str, Any]) -> None:
        for part in (body.get("systemInstruction") or {}).get("parts") or ():
            self.parts.append(str(part.get("text", "")))
        contents = body.get("contents")
        if not contents or not isinstance(contents, list):
            raise invalid("* GenerateContentRequest.contents: contents is not specified")
        for position, content in enumerate(contents):
            self._turn(content, f"contents[{position}]")
        if self._calls:
            raise invalid("Please ensure that function call turn is followed by a function response turn.")
        if contents[-1].get("role") == "model":
            raise invalid("Please ensure that single turn requests end with a user role or the role field is empty.")

    def _turn(self, content: Mapping[str, Any], where: str) -> None:
        role, parts = content.get("role") or "user", content.get("parts") or []
        if role not in ("user", "model", "function"):
            raise invalid("Please use a valid role: user, model.", where)
        if role == "function" and self._vertex:
            raise invalid("Please use a valid role: user, model.", where)
        if not parts:
            raise invalid(f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.")
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if role != "model":
            self._check_answers(answers)
        calls = [part for part in parts if "functionCall" in part]
        if calls and role != "model":
            raise invalid("Please ensure that function calls come from the model role.", where)
        self._check_signature(calls, where)
        for number, part in enumerate(parts):
            self._part(part, f"{where}.parts[{number}]")
        if role == "model":
            self.turns += 1
            self._calls = [part["functionCall"] for part in calls]

    def _check_answers(self, answers: list[Mapping[str, Any]]) -> None:
        """As many answers as calls, for the same functions and ids, in the turn right after."""
        if answers and not self._calls:
            raise invalid("Please ensure that function response turn comes immediately after a function call turn.")
        if len(answers) != len(self._calls):
            raise invalid("Please ensure that the number of function response parts is equal to the number of function "
                          "call parts of the function call turn.")  # fmt: skip
        for call, answer in zip(self._calls, answers, strict=True):
            same_id = answer.get("id") is None or answer.get("id") == call.get("id")
            if answer.get("name") != call.get("name") or not same_id:
                raise invalid(
                    f"Function response {answer.get('name')} does not answer function call {call.get('name')}."
                )
            if not isinstance(answer.get("response"), dict):
                raise invalid("Function response parts need a response object.")
        self._calls = []

    def _check_signature(self, calls: list[Mapping[str, Any]], where: str) -> None:
        if self._signed and calls and not calls[0].get("thoughtSignature"):
            words = (
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `default_api:{calls[0]['functionCall'].get('name')}` , position 1."
            )
            raise invalid(words, where)

    def _part(self, part: Mapping[str, Any], where: str) -> None:
        kinds = [kind for kind in KINDS if part.get(kind) is not None]
        if len(kinds) != 1:
            raise invalid(f"* GenerateContentRequest.{where}.data: required oneof field 'data' must have one "
                          "initialized field")  # fmt: skip
        if kinds == ["text"]:
            self.parts.append(part["text"])
        elif kinds == ["inlineData"]:
            self.parts.append(inline(part["inlineData"], where))
        elif kinds == ["fileData"]:
            self.parts.append(self._file(part["fileData"], where))
        elif kinds == ["functionResponse"]:
            self._result(part["functionResponse"], where)

    def _file(self, data: Mapping[str, Any], where: str) -> SentFile:
        uri, mime = data.get("fileUri") or "", data.get("mimeType") or ""
        if not uri.startswith(("gs://", "https://", "http://")):
            raise invalid(f"Invalid or unsupported file uri: {uri}", f"{where}.file_data.file_uri")
        if not mime.startswith(FILES):
            raise invalid(f"Unable to determine a supported mime type of {uri}: got {mime!r}.",
                          f"{where}.file_data.mime_type")  # fmt: skip
        return SentFile(uri, mime)

    def _result(self, answer: Mapping[str, Any], where: str) -> None:
        images = []
        for number, part in enumerate(answer.get("parts") or ()):
            if not self._signed:
                raise invalid("Multimodal function responses are not supported by this model.", where)
            sent = inline(part.get("inlineData") or {}, f"{where}.function_response.parts[{number}]")
            images.append(sent)
        text = json.dumps(answer["response"])
        self.parts.extend((text, *images))
        self.results.append(ToolResult(answer["name"], answer.get("id") or "", text, tuple(images)))


def inline(blob: Mapping[str, Any], where: str) -> SentImage:
    """Inline media of the request, decoded; images must match their type."""
    mime = blob.get("mimeType") or ""
    data = images.decoded(blob.get("data") or "")
    if data is None:
        raise invalid(f"Invalid value at '{where}.inline_data.data' (TYPE_BYTES), Base64 decoding failed", where)
    if not data:
        raise invalid(f"* GenerateContentRequest.{where}.inline_data.data: must be non-empty", where)
    if mime not in IMAGES and mime not in OTHER_IMAGES and not mime.startswith(FILES[:2] + FILES[3:]):
        raise invalid(f"Unsupported MIME type: {mime}", where)
    seen = images.inspect_image(data) if mime in IMAGES else None
    if mime in IMAGES and (seen is None or seen.format != IMAGES[mime]):
        raise invalid("Unable to process input image. Please retry or report in the help forum.", where)
    return SentImage(data, mime)
