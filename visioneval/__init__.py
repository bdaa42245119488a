"""An eval runner for image generation and image editing, driven by YAML suites.

The Python API and the types for custom graders, providers and judges are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from visioneval.version import __version__ as __version__

if TYPE_CHECKING:
    from visioneval.analysis.agreement.agreement import Agreement as Agreement
    from visioneval.analysis.preferences import Rankings as Rankings
    from visioneval.analysis.summary.summary import Summary as Summary
    from visioneval.api.comparisons import ComparisonResult as ComparisonResult
    from visioneval.api.comparisons import compare as compare
    from visioneval.api.comparisons import pairwise as pairwise
    from visioneval.api.comparisons import rank as rank
    from visioneval.api.graders import agreement as agreement
    from visioneval.api.graders import probe as probe
    from visioneval.api.running import FinishedRun as FinishedRun
    from visioneval.api.running import run as run
    from visioneval.api.running import run_async as run_async
    from visioneval.api.runs import Run as Run
    from visioneval.api.runs import grade as grade
    from visioneval.api.runs import load_run as load_run
    from visioneval.api.runs import merge as merge
    from visioneval.api.runs import track as track
    from visioneval.api.suites import SuitePlan as SuitePlan
    from visioneval.api.suites import ValidSuite as ValidSuite
    from visioneval.api.suites import plan as plan
    from visioneval.api.suites import validate as validate
    from visioneval.errors import AuthError as AuthError
    from visioneval.errors import BudgetError as BudgetError
    from visioneval.errors import ExitCode as ExitCode
    from visioneval.errors import GraderError as GraderError
    from visioneval.errors import ImageError as ImageError
    from visioneval.errors import Problem as Problem
    from visioneval.errors import ProviderError as ProviderError
    from visioneval.errors import QuotaError as QuotaError
    from visioneval.errors import RunFormatError as RunFormatError
    from visioneval.errors import SeriesError as SeriesError
    from visioneval.errors import StoppedError as StoppedError
    from visioneval.errors import StorageError as StorageError
    from visioneval.errors import SuiteError as SuiteError
    from visioneval.errors import TrackerError as TrackerError
    from visioneval.errors import UsageError as UsageError
    from visioneval.errors import VisionEvalError as VisionEvalError
    from visioneval.graders.base import Grade as Grade
    from visioneval.graders.base import Grader as Grader
    from visioneval.graders.base import GradingContext as GradingContext
    from visioneval.graders.testing import grading_context as grading_context
    from visioneval.probing.probe import ProbeResult as ProbeResult
    from visioneval.providers.base import CellRef as CellRef
    from visioneval.providers.base import Editor as Editor
    from visioneval.providers.base import Generation as Generation
    from visioneval.providers.base import GenerationRequest as GenerationRequest
    from visioneval.providers.base import Generator as Generator
    from visioneval.providers.base import Judge as Judge
    from visioneval.providers.base import Question as Question
    from visioneval.providers.base import Reply as Reply
    from visioneval.records.model import CellError as CellError
    from visioneval.records.model import Fingerprint as Fingerprint
    from visioneval.records.model import GraderRecord as GraderRecord
    from visioneval.records.model import Record as Record
    from visioneval.records.model import RunInfo as RunInfo
    from visioneval.records.model import read_info as read_info
    from visioneval.records.reader import read_records as read_records
    from visioneval.running.pairs import PairwiseResult as PairwiseResult
    from visioneval.suite.case import TestCase as TestCase
    from visioneval.types import CaseFiles as CaseFiles
    from visioneval.types import Metric as Metric
    from visioneval.types import Output as Output
    from visioneval.types import Status as Status
    from visioneval.types import TaskType as TaskType
    from visioneval.types import Verdict as Verdict

_MODULE_OF = {
    name: module
    for module, names in {
        "visioneval.analysis.agreement.agreement": "Agreement",
        "visioneval.analysis.preferences": "Rankings",
        "visioneval.analysis.summary.summary": "Summary",
        "visioneval.api.comparisons": "ComparisonResult compare pairwise rank",
        "visioneval.api.graders": "agreement probe",
        "visioneval.api.running": "FinishedRun run run_async",
        "visioneval.api.runs": "Run grade load_run merge track",
        "visioneval.api.suites": "SuitePlan ValidSuite plan validate",
        "visioneval.errors": (
            "AuthError BudgetError ExitCode GraderError ImageError Problem ProviderError QuotaError "
            "RunFormatError SeriesError StoppedError StorageError SuiteError TrackerError UsageError VisionEvalError"
        ),
        "visioneval.graders.base": "Grade Grader GradingContext",
        "visioneval.graders.testing": "grading_context",
        "visioneval.probing.probe": "ProbeResult",
        "visioneval.providers.base": "CellRef Editor Generation GenerationRequest Generator Judge Question Reply",
        "visioneval.records.model": "CellError Fingerprint GraderRecord Record RunInfo read_info",
        "visioneval.records.reader": "read_records",
        "visioneval.running.pairs": "PairwiseResult",
        "visioneval.suite.case": "TestCase",
        "visioneval.types": "CaseFiles Metric Output Status TaskType Verdict",
    }.items()
    for name in names.split()
}
"""The module of each public name. Type checkers read the imports above."""
__all__ = sorted(_MODULE_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'visioneval' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
