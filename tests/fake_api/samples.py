"""What tests of the SDKs send again and again: schemas, images, questions."""

from __future__ import annotations

import base64
import io
from typing import Any

import openai
from google import genai
from google.genai import types
from PIL import Image

from fake_api import FakeAPI, GenerationRequest, JudgeRequest, ToolCall

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["PASS", "FAIL"]},
        "quality": {"type": "integer", "minimum": 0, "maximum": 5},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["verdict", "quality", "tags"],
    "additionalProperties": False,
}
CROP: dict[str, Any] = {
    "type": "object",
    "properties": {"image_id": {"type": "string"}, "x1": {"type": "integer"}},
    "required": ["image_id", "x1"],
    "additionalProperties": False,
}


def encode(fmt: str = "PNG", size: tuple[int, int] = (64, 48), mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, fmt)
    return out.getvalue()


def data_url(data: bytes, mime: str = "image/png") -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def open_image(text: str | None) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(text or "")))


def asked_judge(api: FakeAPI) -> JudgeRequest:
    asked = api.requests[-1].asked
    assert isinstance(asked, JudgeRequest)
    return asked


def asked_generate(api: FakeAPI) -> GenerationRequest:
    asked = api.requests[-1].asked
    assert isinstance(asked, GenerationRequest)
    return asked


def respond(client: openai.OpenAI, **params: Any) -> Any:
    content = [
        {"type": "input_text", "text": "Judge this."},
        {"type": "input_image", "image_url": data_url(encode()), "detail": "high"},
    ]
    return client.responses.create(**{"model": "gpt-5.4", "input": [{"role": "user", "content": content}], **params})


def chat(client: openai.OpenAI, **params: Any) -> Any:
    content = [
        {"type": "text", "text": "Judge this."},
        {"type": "image_url", "image_url": {"url": data_url(encode()), "detail": "low"}},
    ]
    messages = [{"role": "system", "content": "Be strict."}, {"role": "user", "content": content}]
    return client.chat.completions.create(**{"model": "gpt-5.4", "messages": messages, **params})


def response_format(schema: dict[str, Any], *, strict: bool = True) -> dict[str, Any]:
    return {"format": {"type": "json_schema", "name": "grades", "schema": schema, "strict": strict}}


def chat_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "grades", "schema": schema, "strict": True}}


def image_part(data: bytes | None = None, mime: str = "image/png") -> types.Part:
    return types.Part.from_bytes(data=data if data is not None else encode(), mime_type=mime)


def gemini_tools() -> Any:
    return [types.Tool(function_declarations=[types.FunctionDeclaration(name="crop", parameters_json_schema=CROP)])]


def crop_then_judge(request: JudgeRequest) -> Any:
    if request.turns == 0:
        return [ToolCall("crop", {"image_id": name, "x1": 3}) for name in ("output", "ref_1")]
    return {"verdict": "PASS", "quality": len(request.tool_results), "tags": []}


def gemini_client(api: FakeAPI, **options: Any) -> genai.Client:
    return genai.Client(
        http_options=types.HttpOptions(base_url=api.gemini_base_url, timeout=5000), **{"api_key": api.key, **options}
    )
