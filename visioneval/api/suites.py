"""Suites before they are run: their checks, and the plan of a run with its cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Unpack

from visioneval.analysis.planning import GateRates, read_past_costs
from visioneval.analysis.run_lookup import Warn, read_side
from visioneval.api.options import checked_keywords, run_options
from visioneval.api.runs import LOG, Run, check_path
from visioneval.errors import Problem, SuiteError, UsageError, count_of
from visioneval.running.estimate import (
    CostEstimate,
    DetectOptions,
    MustDetect,
    SampleSizes,
    estimate,
    must_detect,
    planned_gate,
    sample_sizes,
    size_notes,
)
from visioneval.running.loading import SuiteOptions, load_plan, load_plans, missing_outputs
from visioneval.running.plan import Plan, unset_keys
from visioneval.running.prepare import RunOptions, describe_run
from visioneval.running.until import check_until
from visioneval.running.until_cost import UntilEstimate, estimate_until
from visioneval.settings import RUNS, PlanKeywords
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


@dataclass(frozen=True, slots=True, repr=False)
class SuitePlan:
    """What a run of a suite would do and cost."""

    plan: Plan
    estimate: CostEstimate
    sizes: SampleSizes | None = None
    """What it takes to detect a difference, if one is given."""
    gate: GateRates | None = None
    """How often a gate fails by true rate, if one is given."""
    must_detect: MustDetect | None = None
    """Whether two runs would show the drop that the suite requires, if it requires one."""
    until: UntilEstimate | None = None
    """What it may cost until its gates are decided."""

    def __repr__(self) -> str:
        suite, work = self.plan.suite, self.estimate
        counts = ((len(suite.cases), "case"), (len(self.plan.runs), "model run"), (work.cells, "cell"))
        listed = ", ".join(count_of(number, name) for number, name in counts)
        cost = f"at least {work.usd:.4g} USD" if work.unpriced else f"{work.usd:.4g} USD"
        return f"SuitePlan({suite.name}: {listed}, {cost})"


def plan(
    suite: Path | str,
    *,
    detect: float | str | None = None,
    gate: str | None = None,
    like: Sequence[Run | Path | str] | Run | Path | str = (),
    pass_rate: float | None = None,
    case_correlation: float | None = None,
    **settings: Unpack[PlanKeywords],
) -> SuitePlan:
    """Loads and expands a suite, and estimates its cost, without calling a provider.

    ``detect`` asks how many cases show a difference between two runs: points of the pass rate, or ``METRIC:VALUE``.
    ``gate`` asks how often a gate over a rate fails by chance, such as ``pass_rate >= 0.9``. The variance comes from
    one or two earlier runs, ``like``, or from the stated ``pass_rate`` and ``case_correlation``. Raises ``SuiteError``
    and ``UsageError``.
    """
    check_path(plan, suite)
    options = run_options(**checked_keywords(plan, settings, PlanKeywords))
    names = [like] if isinstance(like, (str, Path, Run)) else like
    wish = detect_options(
        detect, gate, [str(name) for name in names], pass_rate, case_correlation, options.suite.runs, LOG.warning
    )
    (planned,) = load_plans([Path(suite)], options.suite)
    return estimate_plan(planned, options, wish)


def estimate_plan(planned: Plan, options: RunOptions, detect: DetectOptions | None = None) -> SuitePlan:
    """The work and the cost of a plan, from its prices and from earlier runs, and what ``detect`` asks for.

    Shards are merged before their gates are evaluated and before they are compared: what a gate and a comparison can
    show is that of all shards.
    """
    past_costs = cache(lambda: read_past_costs(options.suite.runs))  # read only if prices are unknown
    work = estimate(planned, past_costs, options.calls.budget_usd)
    merged = planned.of_all_shards
    sizes = None if detect is None else sample_sizes(merged, detect, past_costs)
    gate = None if detect is None else planned_gate(merged, detect)
    until = None
    if options.until is not None:
        info = describe_run(planned, run_id=None, note=None, command_line=())
        check_until(planned, options.until, info, is_on_cluster=options.cluster is not None)
        until = estimate_until(planned, options.until, info, work, past_costs)
    return SuitePlan(planned, work, sizes, gate, must_detect(merged, sizes), until)


def detect_options(
    difference: float | str | None,
    gate: str | None,
    like: Sequence[str],
    pass_rate: float | None,
    case_correlation: float | None,
    runs: Path,
    warn: Warn,
) -> DetectOptions | None:
    """Reads the earlier runs that a difference or a gate is planned with; ``None`` without both.

    Raises ``UsageError``, also for options that need a difference or a gate.
    """
    if difference is None and pass_rate is not None:
        raise UsageError("--pass-rate: needs --detect, the difference that two runs are to show")
    if difference is None and gate is None:
        for flag, value in (("--like", like or None), ("--case-correlation", case_correlation)):
            if value is not None:
                raise UsageError(f"{flag}: needs --detect, the difference that two runs are to show, or --gate")
        return None
    sides = [read_side(name, runs, warn) for name in like]
    return DetectOptions(difference, sides, pass_rate, case_correlation, gate)
