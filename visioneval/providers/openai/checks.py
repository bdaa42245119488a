"""Checks of models against those that OpenAI has ended. Locations are relative to the entry."""

from __future__ import annotations

from collections.abc import Iterator

from visioneval.providers.ended_models import end_warnings
from visioneval.providers.openai.config import OpenAIJudge, OpenAIProvider
from visioneval.suite.findings import Loc


def warnings(entry: OpenAIProvider | OpenAIJudge) -> Iterator[tuple[Loc, str]]:
    """Yields models that OpenAI has ended or will end. Another server has models of its own."""
    if entry.is_own_host:
        yield from end_warnings(entry, "OpenAI")
