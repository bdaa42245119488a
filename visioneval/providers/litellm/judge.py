"""A judge with LiteLLM's chat completions."""

from __future__ import annotations

from visioneval.providers.litellm.config import LiteLLMJudge
from visioneval.providers.litellm.process import LiteLLMConnection
from visioneval.providers.openai.chat_judge import ChatJudge


def open_judge(config: LiteLLMJudge) -> ChatJudge:
    """Creates the judge of an entry. Raises ``UsageError`` without LiteLLM or a variable."""
    return ChatJudge(config, LiteLLMConnection(config))
