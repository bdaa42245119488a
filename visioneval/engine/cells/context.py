"""The state that the workers of a run share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from visioneval.engine.calls.calls import Calls
from visioneval.engine.cells.image_cache import ImageCache
from visioneval.engine.cells.measurements import Measurements
from visioneval.engine.cells.single_flight import SingleFlight
from visioneval.engine.components import Components
from visioneval.engine.sanitize import Sanitizer
from visioneval.expansion.file_hashes import FileHashes
from visioneval.expansion.plan import Plan, needed_keys
from visioneval.records.questions import QuestionsWriter
from visioneval.records.writer import OutputWriter


@dataclass(frozen=True, slots=True)
class RunContext:
    """The components, calls, writer and file hashes of a run, and the inputs of templates."""

    plan: Plan
    components: Components
    calls: Calls
    writer: OutputWriter
    hash_of: FileHashes
    sanitizer: Sanitizer
    questions: QuestionsWriter
    image_cache: ImageCache = field(default_factory=ImageCache)
    once: SingleFlight = field(default_factory=SingleFlight)
    measurements: Measurements = field(default_factory=Measurements)
    turns: Iterator[int] = field(default_factory=lambda: count(1))
    """The turns of cells: the work of the one whose grading began first goes first."""
    debug: Callable[[BaseException], None] = lambda _: None
    """Called with every unexpected exception."""

    @property
    def folder(self) -> Path:
        """The suite's folder."""
        return self.plan.folder

    @property
    def variables(self) -> Mapping[str, Any]:
        """The suite's ``vars``."""
        return self.plan.suite.vars


def sanitizer_for(plan: Plan) -> Sanitizer:
    """Hides API keys of the plan, environment variables with secret-like names, and secret suite variables.

    Variables are hidden both as typed and as templates render them.
    """
    displayed = (str(plan.suite.vars.get(name, "")) for name in plan.secrets)
    return Sanitizer.around(needed_keys(plan).keys(), (*plan.secrets.values(), *displayed))
