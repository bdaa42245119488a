"""A probe as a report: the perturbations that are caught, the false alarms, and the perturbations that are missed."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from visioneval.analysis.probe import HARMLESS, MissedPerturbation, ProbeFindings, ProbeRate
from visioneval.errors import count_of
from visioneval.report.sections import (
    STATES,
    Cell,
    Column,
    ImageStrip,
    Outcome,
    Report,
    Section,
    Tile,
    Tone,
    Value,
    numbers,
    quoted,
)
from visioneval.report.text import show_interval

MAX_IMAGES = 200
"""Missed perturbations that are shown with images; the rest are listed."""
_COUNTS = numbers("outputs", "not measured")
_Cell = tuple[str, Column, Cell]
"""A kind of change with its strength, a column, and what it shows."""
_ABOUT = (
    "Detection rate: the share of perturbed outputs that FAIL by a rule that reads the metric, with its 95% interval"
    " over cases. An output that could not be measured counts as missed."
)
_ABOUT_FALSE_ALARMS = (
    "False-alarm rate: the share of harmlessly changed outputs that FAIL, without those that could not be measured."
)
_ABOUT_WEAKEST = "The weakest strength at and above which at least 9 of 10 outputs are caught:"
_ABOUT_IMAGES = "Left: the output, which passes. Right: the same output with a perturbation that no rule caught."
_OUTCOMES: dict[int, tuple[Tone, str]] = {
    1: ("fail", "A gate failed"),
    3: ("error", "Incomplete"),
    130: ("error", "Interrupted"),
}


def probe_report(findings: ProbeFindings, images: Sequence[tuple[bytes, bytes] | None] = ()) -> Report:
    """What was caught and missed. ``images`` are both images of each of ``findings.missed`` as WebP, for a page."""
    outputs, cases = count_of(findings.outputs, "output"), count_of(findings.cases, "case")
    about = f"{outputs} of {cases} of the suite {findings.suite}, seed {findings.seed}"
    weakest = [
        (entry.kind, _column(entry.metric), "none" if entry.strength is None else entry.strength or "yes")
        for entry in findings.weakest
    ]
    detections, false_alarms = (list(_rates(rates)) for rates in (findings.detections, findings.false_alarms))
    tables = (
        _table("Weakest perturbation caught", "perturbation", _ABOUT_WEAKEST, weakest, findings),
        _table("Detection", "perturbation", _ABOUT, detections, findings),
        _table("False alarms", "harmless change", _ABOUT_FALSE_ALARMS, false_alarms, findings),
    )
    shown = list(zip(findings.missed, images, strict=bool(images)))[:MAX_IMAGES]
    sections: list[Section | ImageStrip] = [table for table in tables if table.rows]
    sections += _strips(findings, shown)
    if listed := findings.missed[len(shown) :]:
        rows = [[quoted(_missed_text(missed))] for missed in listed]
        fold = f"Missed perturbations: {len(findings.missed):,}"
        sections.append(Section("", [Column("perturbation")], rows, is_cut=True, fold=fold))
    if findings.notes:
        sections.append(Section("Skipped", notes=[quoted(note, "dim") for note in findings.notes]))
    return Report(
        title="visioneval probe",
        subject=findings.source,
        outcome=_outcome(findings),
        facts=[quoted(f"{about}, visioneval {findings.visioneval_version}")],
        lines=list(_lines(findings)),
        sections=sections,
    )


def _outcome(findings: ProbeFindings) -> Outcome:
    """What was caught of all perturbations, by any rule, and how many harmless changes failed."""
    perturbations = [rate for rate in findings.detections if rate.metric is None]
    alarms = [rate for rate in findings.false_alarms if rate.metric is None and rate.kind != HARMLESS]
    passed: tuple[Tone, str] = ("pass", "All gates passed") if findings.gates else ("plain", "")
    tone, sentence = _OUTCOMES.get(findings.exit_code, passed)
    texts = (("{} of {} perturbed outputs caught", perturbations), ("{} false alarms in {} harmless changes", alarms))
    parts = [
        text.format(f"{sum(rate.failed for rate in rates):,}", f"{sum(rate.outputs for rate in rates):,}")
        for text, rates in texts
        if rates
    ]
    return Outcome(tone, ": ".join(filter(None, (sentence, ", ".join(parts)))), findings.exit_code)


def _lines(findings: ProbeFindings) -> Iterator[Cell]:
    """The gates, and why the probe is incomplete, or has nothing to show."""
    for gate in findings.gates:
        state = STATES[gate.state]
        yield Value(f"{state.text} {gate.gate}: {gate.message}", state.tone)
    if findings.exit_code == 130:
        yield Value("interrupted: the rates are of what was graded until then", "error")
    elif findings.stopped is not None:
        yield quoted(f"incomplete: {findings.stopped}", "error")
    elif not findings.outputs:
        yield Value("no perturbation could be applied", "error")


def _table(title: str, what: str, about: str, cells: Iterable[_Cell], findings: ProbeFindings) -> Section:
    """A row for each change, and a column for each metric, with a dash where it does not apply."""
    by_change: dict[str, dict[Column, Cell]] = {}
    for change, column, cell in cells:
        by_change.setdefault(change, {})[column] = cell
    counts = [column for column in _COUNTS if any(column in row for row in by_change.values())]
    columns = [*counts, *map(_column, (None, *findings.metrics))]
    rows = [[quoted(change), *(row.get(column, "-") for column in columns)] for change, row in by_change.items()]
    return Section(title, [Column(what), *columns], rows, about=[about])


def _column(metric: str | None) -> Column:
    return Column("any rule" if metric is None else metric, is_number=True, quoted=metric is not None)


def _rates(rates: Sequence[ProbeRate]) -> Iterator[_Cell]:
    """For each kind and strength: the outputs, those that were not measured, if any, and the rate by each metric.

    A terminal has no room for the interval of each metric.
    """
    has_unmeasured = any(rate.unmeasured for rate in rates if rate.metric is None)
    for rate in rates:
        change = f"{rate.kind} {rate.strength}".strip()
        if rate.metric is None:
            counts = (rate.outputs, rate.unmeasured) if has_unmeasured else (rate.outputs,)
            yield from ((change, column, f"{count:,}") for column, count in zip(_COUNTS, counts, strict=False))
        if rate.rate is not None:
            value = f"{rate.rate:.2f}"
            shown = value + show_interval(rate.low, rate.high)
            yield change, _column(rate.metric), Value(shown, short=value if rate.metric is not None else "")


def _strips(
    findings: ProbeFindings, shown: Sequence[tuple[MissedPerturbation, tuple[bytes, bytes] | None]]
) -> Iterator[ImageStrip]:
    """The images of missed perturbations, for each kind."""
    counts = Counter(missed.kind for missed in findings.missed)
    tiles: dict[str, list[Tile]] = {}
    for missed, pair in shown:
        before, after = [f"data:image/webp;base64,{b64encode(data).decode()}" for data in pair or ()] or ("", "")
        tiles.setdefault(missed.kind, []).append(Tile(after, "", _missed_text(missed), before=before))
    for kind, tiles_of_kind in tiles.items():
        yield ImageStrip(f"{kind}: {counts[kind]:,} missed", tiles_of_kind, [_ABOUT_IMAGES])


def _missed_text(missed: MissedPerturbation) -> str:
    """What was missed, and in which output."""
    what = " ".join(filter(None, [missed.kind, missed.strength, missed.detail]))
    unmeasured = " (not measured)" if missed.verdict == "ERROR" else ""
    return f"{what}: {missed.case} on {missed.model}, sample {missed.sample}{unmeasured}"
