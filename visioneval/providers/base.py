"""What a provider can do, in small protocols, so that "cannot edit" is known before anything is paid for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from visioneval.suite.case import TestCase
from visioneval.types import CaseFiles, TaskType


@dataclass(frozen=True, slots=True)
class DrawRequest:
    """One call: a case on a model run. ``samples`` are the sample indices that its pictures become."""

    case: TestCase
    task_type: TaskType
    prompt: str
    model_label: str
    params: Mapping[str, Any]
    files: CaseFiles
    samples: tuple[int, ...]
    folder: Path
    """The suite's folder: what relative paths in parameters are relative to."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a call gave: encoded pictures in sample order, or the words of a refusal.

    ``usage`` counts tokens by kind; ``cost_usd`` is for the whole call; ``run_params`` is what was sent, less
    secrets.
    """

    pictures: tuple[bytes, ...] = ()
    refused: str | None = None
    usage: Mapping[str, int] | None = None
    cost_usd: float | None = None
    run_params: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Generator(Protocol):
    """Draws a picture from a prompt. Raises ``ProviderError``."""

    async def generate(self, request: DrawRequest) -> Drawing: ...


@runtime_checkable
class Editor(Protocol):
    """Changes the first of a case's images as the prompt asks. Raises ``ProviderError``."""

    async def edit(self, request: DrawRequest) -> Drawing: ...
