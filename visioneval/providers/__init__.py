"""Providers and judges by name."""

from __future__ import annotations

PROVIDERS = {
    "openai": "visioneval.providers.openai:OpenAI",
    "gemini": "visioneval.providers.gemini:Gemini",
    "files": "visioneval.providers.files:Files",
    "sketch": "visioneval.providers.sketch:Sketch",
    "command": "visioneval.providers.command:Command",
}

JUDGES = {
    "openai": "visioneval.providers.openai_judge:open_judge",
    "gemini": "visioneval.providers.gemini_judge:Gemini",
    "recorded": "visioneval.providers.recorded:Recorded",
}
