"""Judges that compare two images by their color."""

from __future__ import annotations

import io
from typing import Any

from fake_api import FakeAPI
from PIL import Image


def judge_of(api: FakeAPI, provider: str = "openai") -> dict[str, Any]:
    if provider == "openai":
        return {"provider": "openai", "model": "gpt-5.4", "base_url": api.openai_base_url, "api_key_env": "JUDGE_KEY"}
    return {
        "provider": "gemini",
        "model": "gemini-3.5-flash",
        "base_url": api.gemini_base_url,
        "api_key_env": "JUDGE_KEY",
    }


def colour_of(data: bytes) -> str:
    red, _, blue = Image.open(io.BytesIO(data)).convert("RGB").getpixel((0, 0))  # type: ignore[misc]
    return "red" if red > blue else "blue"
