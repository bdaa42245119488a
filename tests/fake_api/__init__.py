"""A local HTTP server that speaks OpenAI's and Gemini's wire formats, for tests through the real SDKs.

    script = Script()
    script.judge(lambda request: {"quality": 4})
    with FakeAPI(script) as api:
        client = openai.AsyncOpenAI(base_url=api.openai_base_url, api_key=api.key, max_retries=0)

Invalid requests get the error of the real service; valid ones are answered by the script, unless a ``Fault`` applies.
``python -m fake_api`` runs only the server, for benchmarks.
"""

from __future__ import annotations

from .faults import KINDS, Fault, Faults
from .script import GenerationRequest, JudgeRequest, Script, SentFile, SentImage, Tool, ToolCall, ToolResult
from .server import FakeAPI, LoggedRequest
from .videos import VideoJob, Videos

__all__ = [
    "KINDS",
    "FakeAPI",
    "Fault",
    "Faults",
    "GenerationRequest",
    "JudgeRequest",
    "LoggedRequest",
    "Script",
    "SentFile",
    "SentImage",
    "Tool",
    "ToolCall",
    "ToolResult",
    "VideoJob",
    "Videos",
]
