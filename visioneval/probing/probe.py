"""A probe from its request to its findings."""

from __future__ import annotations

from dataclasses import dataclass

from visioneval.analysis.left_out import LeftOut, granted_share
from visioneval.analysis.probe import (
    HARMLESS,
    MissedDamage,
    ProbeFindings,
    check_gates,
    exit_code,
    metric_rates,
    rates_of,
    weakest_caught,
)
from visioneval.errors import count_of
from visioneval.probing.grading import measure
from visioneval.probing.prepare import ProbeRequest, cost_lines, prepare_probe
from visioneval.running.calls.settings import CallSettings
from visioneval.running.cells.services import Listener
from visioneval.running.loading import SuiteOptions
from visioneval.suite.filters import Scope
from visioneval.types import Verdict
from visioneval.version import __version__


@dataclass(frozen=True, slots=True, repr=False)
class ProbeResult:
    """What graders caught of planted damage.

    ``images`` has, for each of ``findings.missed``, both images as WebP if they were asked for.
    """

    findings: ProbeFindings
    images: tuple[tuple[bytes, bytes] | None, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 passed, 1 a gate failed, 3 nothing could be planted or something is missing, 130 interrupted."""
        return self.findings.exit_code

    def __repr__(self) -> str:
        findings = self.findings
        outputs = f"{count_of(findings.outputs, 'output')} of {count_of(findings.cases, 'case')}"
        return f"ProbeResult({findings.source}: {outputs}, {len(findings.missed):,} missed, exit code {self.exit_code})"


def run_probe(request: ProbeRequest, suite: SuiteOptions, calls: CallSettings, listener: Listener) -> ProbeResult:
    """Plants, grades and counts. Raises ``UsageError``, ``SuiteError``, ``BudgetError`` and ``StorageError``."""
    prepared = prepare_probe(request, suite)
    listener.note(prepared.announcement)
    for line in cost_lines(prepared, calls, suite.runs):
        listener.note(line)
    changes, stopped, interrupted = measure(prepared, calls, listener)
    request, metrics, notes = prepared.request, prepared.metrics, prepared.notes
    cells = [change.cell for change in changes]
    damaged = [cell for cell in cells if not cell.is_harmless]
    harmless = [cell for cell in cells if cell.is_harmless]
    detections = tuple(rates_of(damaged, metrics))
    probed = {(cell.case, cell.model, cell.sample) for cell in cells}
    originals = LeftOut(notes.unmeasured, len(probed) + notes.unmeasured)
    granted = granted_share(prepared.plan.whole_suite.declared_gates, Scope())
    gates = check_gates(cells, prepared.minimums, request.max_false_alarm, originals, granted)
    findings = ProbeFindings(
        visioneval_version=__version__,
        source=prepared.source,
        suite=prepared.plan.suite.name,
        seed=request.seed,
        outputs=len(probed),
        cases=len({cell.case for cell in cells}),
        metrics=metrics,
        detections=detections,
        false_alarms=(*metric_rates(harmless, HARMLESS, "", metrics), *rates_of(harmless, metrics)) if harmless else (),
        weakest=tuple(weakest_caught(detections)),
        missed=tuple(
            MissedDamage(**{name: getattr(cell, name) for name in MissedDamage.model_fields})
            for cell in damaged
            if cell.verdict is not Verdict.FAIL
        ),
        notes=tuple(notes.lines()),
        gates=gates,
        stopped=stopped,
        exit_code=exit_code(cells, gates, stopped, interrupted=interrupted),
    )
    return ProbeResult(findings, tuple(change.images for change in changes if change.is_missed))
