"""What the driver, the workers and the shared limits of a run send each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from visioneval.errors import BudgetError, ClosingError, ProviderError, VisionEvalError
from visioneval.records.model import Record, RunInfo
from visioneval.records.questions import PromptQuestions
from visioneval.running.calls.budget import CostBound
from visioneval.running.calls.limiters import RateLimitKey
from visioneval.running.calls.settings import CallSettings
from visioneval.running.cells.cell import Job
from visioneval.running.plan import Plan


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A call that waits for its turn. ``bound`` is the most that it may cost; ``None`` without a budget."""

    number: int
    limit_key: RateLimitKey
    images: int
    bound: CostBound | None


@dataclass(frozen=True, slots=True)
class LeaseEnd:
    """How a call ended. ``costs`` has one entry for each time that it was paid for, ``None`` if unknown."""

    number: int
    succeeded: bool = False
    is_limited: bool = False
    """Whether it got a 429, which asks for a wait of ``retry_after`` seconds."""
    retry_after: float | None = None
    costs: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call may not start, as plain data, because exceptions lose their fields on the way."""

    kind: Literal["budget", "closing", "wait"]
    message: str
    retry_after: float | None = None

    @classmethod
    def of(cls, error: VisionEvalError) -> Refusal:
        """The refusal for what ``Throttle.turn`` raised."""
        if isinstance(error, ProviderError):
            return cls("wait", str(error), error.retry_after)
        return cls("budget" if isinstance(error, BudgetError) else "closing", str(error))

    def error(self) -> VisionEvalError:
        """The same error, to be raised by the worker."""
        if self.kind == "wait":
            return ProviderError(self.message, kind="rate_limit", retry_after=self.retry_after)
        return BudgetError(self.message) if self.kind == "budget" else ClosingError(self.message)


@dataclass(frozen=True, slots=True)
class Grant:
    """The turn of a call, with the US dollars that are reserved for it, or the refusal."""

    number: int
    usd: float = 0.0
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class LimitsStatus:
    """The state of the shared limits: lines about running and waiting calls, and the budget."""

    calls: tuple[str, ...] = ()
    spent: float = 0.0
    refused: int = 0
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """A file that the driver has written, or that belongs to the suite, and that every worker must see."""

    subject: str
    """What messages call its folder."""
    path: Path
    sha256: str
    is_written: bool
    """Whether workers write into its folder as well."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker needs to run jobs of a run, besides the jobs."""

    plan: Plan
    info: RunInfo
    folder: Path
    """The folder in which the driver writes the run."""
    runs_url: str | None
    """The URL of the store that gets the run; without one, workers share the folder."""
    has_outputs: bool
    """Whether the run had any before it was resumed."""
    settings: CallSettings
    cache_url: str | None
    """The URL of a shared cache, which each node opens by itself."""
    has_budget: bool
    working_directory: Path
    bounds: Mapping[str, int | None]
    """The flags that change a bound, by their environment variable."""
    probes: tuple[Probe, ...]
    extras: Mapping[str, tuple[str, ...]]
    """The packages of each extra that the plan uses."""
    version: str
    """Of visioneval, on the driver."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker that has started: its node, and why it cannot work, if so."""

    node: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class UnsentFile:
    """A file of a cell that a worker could not send to the store."""

    test_id: str
    label: str
    name: str
    data: bytes


FailureKind = Literal["auth", "quota", "storage", "other"]


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a worker did of a job. The driver writes it."""

    records: tuple[Record, ...] = ()
    files: tuple[UnsentFile, ...] = ()
    """Files of the records that the store has not."""
    questions: tuple[PromptQuestions, ...] = ()
    messages: tuple[str, ...] = ()
    reused_since: str | None = None
    left: int = 0
    """Failures that left cells without a record."""
    is_out_of_budget: bool = False
    failure: str | None = None
    """The message of the fault that ends the run."""
    failure_kind: FailureKind = "other"


@dataclass(slots=True)
class QueuedJob:
    """A job on its way to its records, and the number of its shard."""

    job: Job
    shard: int
    lost: int = 0
    """How many workers were lost while they did it."""
