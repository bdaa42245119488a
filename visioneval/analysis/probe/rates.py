"""Rates of a probe by kind, strength and metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from visioneval.analysis.probe.findings import HARMLESS, MissedDamage, ProbedCell, ProbeRate, WeakestCaught
from visioneval.analysis.stats.clusters import case_sums
from visioneval.analysis.stats.rare_events import whole_case_interval
from visioneval.rules import is_true
from visioneval.suite.turns import chain_of
from visioneval.types import Verdict

CAUGHT = 0.9
"""The share of outputs in which damage counts as caught."""


def rates_of(cells: Sequence[ProbedCell], metrics: Mapping[str, str]) -> Iterator[ProbeRate]:
    """The rates of each kind and strength, in the order of the cells: by any rule first, then by each metric.

    ``metrics`` are the graders by metric.
    """
    by_strength: dict[tuple[str, str], list[ProbedCell]] = {}
    for cell in cells:
        by_strength.setdefault((cell.kind, cell.strength), []).append(cell)
    for (kind, strength), alike in by_strength.items():
        yield from metric_rates(alike, kind, strength, metrics)


def metric_rates(
    cells: Sequence[ProbedCell], kind: str, strength: str, metrics: Mapping[str, str]
) -> Iterator[ProbeRate]:
    """The rate by any rule, then by each metric that is due for any of these cells."""
    yield rate_of(cells, kind, strength, None, None)
    for metric, grader in metrics.items():
        due = [cell for cell in cells if metric in cell.measured or metric in cell.unmeasured]
        if due:
            yield rate_of(due, kind, strength, metric, grader)


def rate_of(cells: Sequence[ProbedCell], kind: str, strength: str, metric: str | None, grader: str | None) -> ProbeRate:
    """The rate of one metric over cells of one sort: all damage or all harmless. An interval needs a case.

    It counts each case once, so that no failure to detect ever looks better than none.
    """
    unmeasured = [cell for cell in cells if _is_unmeasured(cell, metric)]
    counted = [cell for cell in cells if not (cell.is_harmless and _is_unmeasured(cell, metric))]
    by_case: dict[str, list[float]] = {}
    for cell in counted:
        by_case.setdefault(chain_of(cell.case), []).append(float(has_failed(cell, metric)))
    interval = whole_case_interval(case_sums(by_case))
    failed = sum(has_failed(cell, metric) for cell in counted)
    return ProbeRate(
        kind=kind,
        strength=strength,
        metric=metric,
        grader=grader,
        outputs=len(counted),
        failed=failed,
        unmeasured=len(unmeasured),
        cases=len(by_case),
        rate=failed / len(counted) if counted else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
    )


def has_failed(cell: ProbedCell, metric: str | None) -> bool:
    """Whether the cell is a FAIL by a rule that reads the metric, or by any rule."""
    return cell.verdict is Verdict.FAIL and (metric is None or metric in cell.failed)


def _is_unmeasured(cell: ProbedCell, metric: str | None) -> bool:
    return cell.verdict is Verdict.ERROR if metric is None else metric in cell.unmeasured


def weakest_caught(rates: Iterable[ProbeRate]) -> Iterator[WeakestCaught]:
    """The weakest strength from which on damage is caught. ``rates`` are in the order of strength."""
    by_kind: dict[tuple[str, str | None], list[ProbeRate]] = {}
    for rate in rates:
        by_kind.setdefault((rate.kind, rate.metric), []).append(rate)
    for (kind, metric), strengths in by_kind.items():
        weakest = None
        for rate in reversed(strengths):
            if rate.rate is None or not is_true(rate.rate, ">=", CAUGHT):
                break
            weakest = rate.strength
        yield WeakestCaught(kind=kind, metric=metric, strength=weakest)


def false_alarm_rates(cells: Sequence[ProbedCell], metrics: Mapping[str, str]) -> Iterator[ProbeRate]:
    """The rates of all harmless changes together, then of each."""
    if cells:
        yield from metric_rates(cells, HARMLESS, "", metrics)
        yield from rates_of(cells, metrics)


def missed_damage(cells: Iterable[ProbedCell]) -> Iterator[MissedDamage]:
    """The damaged outputs that no rule failed."""
    for cell in cells:
        if not cell.is_harmless and cell.verdict is not Verdict.FAIL:
            yield MissedDamage(
                case=cell.case,
                model=cell.model,
                sample=cell.sample,
                kind=cell.kind,
                strength=cell.strength,
                verdict=cell.verdict,
                detail=cell.detail,
            )
