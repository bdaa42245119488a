"""Answers of judges that are shared: their cache keys, what is stored of them, and the end of one without an answer."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from visioneval.errors import ProviderError
from visioneval.providers.base import Part, Question, Reply
from visioneval.records.keys import digest
from visioneval.suite.entries.judges import BaseJudge


class AbandonedError(ProviderError):
    """A concurrent call with the same question ended without an answer."""

    def __init__(self) -> None:
        super().__init__("the call was abandoned", kind="transient")


def question_key(config: BaseJudge, question: Question) -> str:
    """The cache key of a question. Contains neither host nor cell, so identical images share one answer."""
    parts = {
        "judge": config.answering_options,
        "parts": [_part_key(part) for part in question.parts],
        "schema": question.schema,
        "tools": [[tool.name, tool.description, tool.parameters] for tool in question.tools],
        "detail": question.detail,
        "vote": question.vote,
        "turns": [
            [turn.raw, [[call.id, [_part_key(part) for part in parts]] for call, parts in turn.results]]
            for turn in question.turns
        ],
        "must_answer": question.must_answer,
    }
    return f"judge:{digest(parts)}"


def cached_fields(reply: Reply) -> dict[str, Any]:
    """What the cache stores of a reply. Not by ``asdict``, which copies all values one by one."""
    scaled = {"scaled": list(reply.scaled)} if reply.scaled else {}
    calls = {"calls": [asdict(call) for call in reply.calls]}
    return {name: getattr(reply, name) for name in _CACHED_FIELDS} | calls | scaled


_CACHED_FIELDS = tuple(item.name for item in fields(Reply) if item.name not in ("calls", "from_cache", "scaled"))


def _part_key(part: Part) -> Any:
    return part if isinstance(part, str) else [part.sha256, part.mime]
