"""Checks of suites."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from visioneval.api.options import run_options
from visioneval.errors import Problem, SuiteError, count_of
from visioneval.running.estimate import size_notes
from visioneval.running.loading import SuiteOptions, load_plan, missing_outputs
from visioneval.running.plan import unset_keys
from visioneval.settings import RUNS
from visioneval.suite.messages import WARNING


@dataclass(frozen=True, slots=True, repr=False)
class ValidSuite:
    """A suite without errors: its size, its warnings and notes, and the key variables that are not set, with their
    users."""

    path: str
    cases: int
    model_runs: int
    cells: int
    warnings: tuple[Problem, ...]
    missing_keys: Mapping[str, Collection[str]]

    @property
    def sizes(self) -> str:
        """Its size in words."""
        sizes = ((self.cases, "case"), (self.model_runs, "model run"), (self.cells, "cell"))
        return ", ".join(count_of(number, name) for number, name in sizes)

    def __repr__(self) -> str:
        return f"ValidSuite({self.path}: {self.sizes}, {count_of(len(self.warnings), 'warning')})"


def validate(
    suite: Path | str,
    *,
    strict: bool = False,
    variables: Mapping[str, Any] | None = None,
    judges: Mapping[str, str] | None = None,
    runs: Path | str = RUNS,
    trust_suite: bool = False,
) -> ValidSuite:
    """Checks a suite without calling a provider.

    With ``strict``, warnings are errors; notes are not. Raises ``SuiteError`` with all problems, and ``UsageError``.
    """
    options = run_options(variables=variables or {}, judges=judges or {}, runs=runs, trust_suite=trust_suite)
    return check_suite(Path(suite), options.suite, strict=strict)


def check_suite(path: Path, options: SuiteOptions, *, strict: bool) -> ValidSuite:
    """The size of a suite, its warnings and missing keys. Raises ``SuiteError``, with ``strict`` also for warnings."""
    plan = load_plan(path, options)
    missing = missing_outputs(plan, options)
    warnings = (*plan.loaded.warnings, *missing.warnings, *plan.loaded.notes, *size_notes(plan))
    refused = [warning for warning in warnings if strict and warning.message.startswith(WARNING)]
    if errors := [
        *missing.errors,
        *(replace(warning, message=warning.message.removeprefix(WARNING)) for warning in refused),
    ]:
        raise SuiteError(errors)
    sizes = (len(plan.suite.cases), len(plan.runs), plan.cells)
    return ValidSuite(plan.loaded.name, *sizes, warnings, unset_keys(plan))
