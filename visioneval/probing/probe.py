"""A probe from its request to its findings."""

from __future__ import annotations

from dataclasses import dataclass

from visioneval.analysis.left_out import LeftOut, granted_share
from visioneval.analysis.probe import ProbeFindings, summarize_probe
from visioneval.errors import count_of
from visioneval.probing.costs import cost_lines
from visioneval.probing.grading import measure
from visioneval.probing.prepare import ProbeRequest, prepare_probe
from visioneval.running.calls.settings import CallSettings
from visioneval.running.cells.services import Listener
from visioneval.running.loading import SuiteOptions
from visioneval.suite.filters import Scope
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
    measured = measure(prepared, calls, listener)
    notes, whole = prepared.notes, prepared.plan.whole_suite
    probed = {(change.cell.case, change.cell.model, change.cell.sample) for change in measured.changes}
    findings = summarize_probe(
        [change.cell for change in measured.changes],
        version=__version__,
        source=prepared.source,
        suite=prepared.plan.suite.name,
        seed=request.seed,
        metrics=prepared.metrics,
        notes=notes.lines(),
        minimums=prepared.minimums,
        max_false_alarm=request.max_false_alarm,
        originals=LeftOut(notes.unmeasured, len(probed) + notes.unmeasured),
        granted=granted_share(whole.declared_gates, Scope()),
        stopped=measured.stopped,
        interrupted=measured.interrupted,
    )
    return ProbeResult(findings, tuple(change.images for change in measured.changes if change.is_missed))
