"""Contexts for unit tests of custom graders, without a run."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from visioneval.errors import GraderError
from visioneval.graders.base import GradingContext
from visioneval.media.images import image_at
from visioneval.providers.base import Question, Reply
from visioneval.suite.case import TestCase
from visioneval.types import CaseFiles


def grading_context(
    image: Path | str,
    *,
    prompt: str = "",
    metadata: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
    files: CaseFiles | None = None,
    variables: Mapping[str, Any] | None = None,
) -> GradingContext:
    """What ``grade`` gets for an image file, to test a grader without a run.

    ``prompt`` and ``metadata`` are those of the case, whose id is ``test``. ``context.ask`` returns ``answers``, which
    must match the schemas, and raises ``GraderError`` for others. ``context.save`` stores nothing and returns the name.
    Raises ``ImageError``, and ``OSError`` if the file cannot be read.
    """
    path = Path(image)
    case = TestCase(id="test", prompt=prompt or "a test", metadata=dict(metadata or {}))
    return GradingContext(
        case=case,
        task_type=case.task_type,
        prompt=prompt,
        requested_size=None,
        output=image_at(path, path.read_bytes()),
        files=files or CaseFiles(),
        save=lambda name, _: name,
        variables=variables or {},
        judge=None if answers is None else "test",
        ask_judge=_answering(answers or {}),
    )


def _answering(answers: Mapping[str, Any]) -> Callable[[str, Question], Awaitable[Reply]]:
    async def ask(judge: str, question: Question) -> Reply:
        if missing := [name for name in question.names if name not in answers]:
            raise GraderError(f"no answer for {', '.join(map(repr, missing))}: add it to 'answers' of grading_context")
        return Reply(text=json.dumps({name: answers[name] for name in question.names}), model=judge)

    return ask
