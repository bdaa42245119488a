"""An eval runner for image generation and image editing, driven by YAML suites.

The Python API and the types for custom graders, providers and judges are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from visioneval.version import __version__ as __version__

if TYPE_CHECKING:
    from visioneval.analysis.agreement.agreement import Agreement
    from visioneval.analysis.preferences import Rankings
    from visioneval.analysis.summary.summary import Summary
    from visioneval.api.comparisons import ComparisonResult, compare, pairwise, rank
    from visioneval.api.graders import agreement, probe
    from visioneval.api.runs import Run, SuitePlan, grade, load_run, merge, plan, run, run_async
    from visioneval.api.suites import ValidSuite, validate
    from visioneval.api.trackers import track
    from visioneval.errors import (
        AuthError,
        BudgetError,
        ExitCode,
        GraderError,
        ImageError,
        Problem,
        ProviderError,
        QuotaError,
        RunFormatError,
        StoppedError,
        StorageError,
        SuiteError,
        TrackerError,
        UsageError,
        VisionEvalError,
    )
    from visioneval.graders.base import Grade, Grader, GradingContext, grading_context
    from visioneval.probing.probe import ProbeResult
    from visioneval.providers.base import (
        CellRef,
        Editor,
        Generation,
        GenerationRequest,
        Generator,
        Judge,
        Question,
        Reply,
    )
    from visioneval.records.model import CellError, Fingerprint, GraderRecord, Record, RunInfo, read_info
    from visioneval.records.reader import read_records
    from visioneval.running.pairs import PairwiseResult
    from visioneval.suite.case import TestCase
    from visioneval.types import CaseFiles, Metric, Output, Status, TaskType, Verdict

_MODULES = {
    "visioneval.analysis.agreement.agreement": ("Agreement",),
    "visioneval.analysis.summary.summary": ("Summary",),
    "visioneval.analysis.preferences": ("Rankings",),
    "visioneval.api.comparisons": ("ComparisonResult", "compare", "pairwise", "rank"),
    "visioneval.api.graders": ("agreement", "probe"),
    "visioneval.api.runs": ("Run", "SuitePlan", "grade", "load_run", "merge", "plan", "run", "run_async"),
    "visioneval.api.suites": ("ValidSuite", "validate"),
    "visioneval.api.trackers": ("track",),
    "visioneval.running.pairs": ("PairwiseResult",),
    "visioneval.errors": (
        "AuthError",
        "BudgetError",
        "ExitCode",
        "GraderError",
        "ImageError",
        "Problem",
        "ProviderError",
        "QuotaError",
        "RunFormatError",
        "StoppedError",
        "StorageError",
        "SuiteError",
        "TrackerError",
        "UsageError",
        "VisionEvalError",
    ),
    "visioneval.graders.base": ("Grade", "Grader", "GradingContext", "grading_context"),
    "visioneval.probing.probe": ("ProbeResult",),
    "visioneval.providers.base": (
        "CellRef",
        "Editor",
        "Generation",
        "GenerationRequest",
        "Generator",
        "Judge",
        "Question",
        "Reply",
    ),
    "visioneval.records.model": (
        "CellError",
        "Fingerprint",
        "GraderRecord",
        "Record",
        "RunInfo",
        "read_info",
    ),
    "visioneval.records.reader": ("read_records",),
    "visioneval.suite.case": ("TestCase",),
    "visioneval.types": (
        "CaseFiles",
        "Metric",
        "Output",
        "Status",
        "TaskType",
        "Verdict",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Agreement",
    "AuthError",
    "BudgetError",
    "CaseFiles",
    "CellError",
    "CellRef",
    "ComparisonResult",
    "Editor",
    "ExitCode",
    "Fingerprint",
    "Generation",
    "GenerationRequest",
    "Generator",
    "Grade",
    "Grader",
    "GraderError",
    "GraderRecord",
    "GradingContext",
    "ImageError",
    "Judge",
    "Metric",
    "Output",
    "PairwiseResult",
    "ProbeResult",
    "Problem",
    "ProviderError",
    "Question",
    "QuotaError",
    "Rankings",
    "Record",
    "Reply",
    "Run",
    "RunFormatError",
    "RunInfo",
    "Status",
    "StoppedError",
    "StorageError",
    "SuiteError",
    "SuitePlan",
    "Summary",
    "TaskType",
    "TestCase",
    "TrackerError",
    "UsageError",
    "ValidSuite",
    "Verdict",
    "VisionEvalError",
    "agreement",
    "compare",
    "grade",
    "grading_context",
    "load_run",
    "merge",
    "pairwise",
    "plan",
    "probe",
    "rank",
    "read_info",
    "read_records",
    "run",
    "run_async",
    "track",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'visioneval' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
