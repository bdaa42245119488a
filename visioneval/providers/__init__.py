"""What generates, edits and judges: one folder or file for each provider, behind the protocols in ``base``.

``config`` modules import the suite and below only.
"""

from __future__ import annotations

PROVIDERS = {
    "openai": "visioneval.providers.openai.generator:OpenAI",
    "gemini": "visioneval.providers.gemini.generator:Gemini",
    "files": "visioneval.providers.files:Files",
    "sketch": "visioneval.providers.mock.generator:Sketch",
    "command": "visioneval.providers.command:Command",
}

JUDGES = {
    "openai": "visioneval.providers.openai.judge:open_judge",
    "gemini": "visioneval.providers.gemini.judge:Gemini",
    "recorded": "visioneval.providers.recorded:Recorded",
}
