"""From graded changes to the findings of a probe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from visioneval.analysis.left_out import NOTHING, LeftOut
from visioneval.analysis.probe.findings import ProbedCell, ProbeFindings
from visioneval.analysis.probe.gates import MinDetection, check_gates, exit_code
from visioneval.analysis.probe.rates import false_alarm_rates, missed_damage, rates_of, weakest_caught


def summarize_probe(
    cells: Sequence[ProbedCell],
    *,
    version: str,
    source: str,
    suite: str,
    seed: int,
    metrics: Mapping[str, str],
    notes: Sequence[str] = (),
    minimums: Iterable[MinDetection] = (),
    max_false_alarm: float | None = None,
    originals: LeftOut = NOTHING,
    granted: float = 0.0,
    stopped: str | None = None,
    interrupted: bool = False,
) -> ProbeFindings:
    """The findings over ``cells``, which are in the order of outputs, kinds and strengths.

    ``originals`` are the outputs that could not be probed, ``granted`` is the share that may be unmeasured.
    """
    damaged = [cell for cell in cells if not cell.is_harmless]
    harmless = [cell for cell in cells if cell.is_harmless]
    detections = tuple(rates_of(damaged, metrics))
    gates = check_gates(cells, minimums, max_false_alarm, originals, granted)
    return ProbeFindings(
        visioneval_version=version,
        source=source,
        suite=suite,
        seed=seed,
        outputs=len({(cell.case, cell.model, cell.sample) for cell in cells}),
        cases=len({cell.case for cell in cells}),
        metrics=dict(metrics),
        detections=detections,
        false_alarms=tuple(false_alarm_rates(harmless, metrics)),
        weakest=tuple(weakest_caught(detections)),
        missed=tuple(missed_damage(cells)),
        notes=tuple(notes),
        gates=gates,
        stopped=stopped,
        exit_code=exit_code(cells, gates, stopped, interrupted=interrupted),
    )
