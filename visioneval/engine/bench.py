"""Where cells are worked on, and how code that is not ours is awaited there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from visioneval.engine.once import Once
from visioneval.engine.plain import Plain
from visioneval.engine.tools import Tools
from visioneval.plan import HashOf, Plan, needed_keys
from visioneval.question_file import QuestionsWriter
from visioneval.records import RunWriter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bench:
    """The run's tools, its writer, its file hashes, what makes plain data without secrets, and what templates need."""

    tools: Tools
    writer: RunWriter
    folder: Path
    hash_of: HashOf
    plain: Plain
    questions: QuestionsWriter
    variables: Mapping[str, Any] = field(default_factory=dict)
    template_folders: tuple[Path, ...] = ()
    once: Once = field(default_factory=Once)


class BrokenCodeError(Exception):
    """A provider or a grader that left in a way in which code must not leave."""


async def guarded(work: Awaitable[T], wanted: type[T]) -> T:
    """Awaits a provider or a grader, which must give what is wanted.

    An exit or a cancellation of its own must not end the worker that calls it.
    """
    try:
        given = await work
    except SystemExit as error:
        raise BrokenCodeError(f"it called exit({error.code})") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise BrokenCodeError("it was cancelled from within") from None
    if not isinstance(given, wanted):
        raise BrokenCodeError(f"it gave {type(given).__name__}, not {wanted.__name__}")
    return given


def described(error: BaseException) -> str:
    """An exception that nobody expected, in words."""
    if isinstance(error, BrokenCodeError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def secrets_around(plan: Plan) -> Plain:
    """Hides the keys that the plan's models use, and every environment variable that is named like a secret."""
    return Plain.around(needed_keys(plan).keys())
