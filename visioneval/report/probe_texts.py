"""The tables of a probe as texts, which terminal, Markdown and pages share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visioneval.analysis.probe import HARMLESS, MissedDamage, ProbeFindings, ProbeRate
from visioneval.report.numbers import show_interval

ANY = "any rule"
ABOUT = (
    "Detection is the share of damaged outputs that FAIL by a rule that reads the metric, with its 95% interval over"
    " cases. An output that could not be measured is not caught."
)
ABOUT_FALSE_ALARMS = (
    "False alarms are the share of harmlessly changed outputs that FAIL, excluding those that could not be measured."
)
ABOUT_WEAKEST = "The weakest strength at and above which at least 9 of 10 outputs are caught:"


def title(findings: ProbeFindings) -> str:
    """What was probed."""
    outputs, cases = findings.outputs, findings.cases
    return (
        f"{findings.source}: {outputs} output{'s' * (outputs != 1)} of {cases} case{'s' * (cases != 1)}"
        f" of the suite {findings.suite}, seed {findings.seed}, visioneval {findings.visioneval_version}"
    )


def result_text(findings: ProbeFindings) -> str:
    """What was caught of all damage, by any rule, and how many harmless changes failed."""
    damage = [rate for rate in findings.detections if rate.metric is None]
    alarms = [rate for rate in findings.false_alarms if rate.metric is None and rate.kind != HARMLESS]
    parts = (
        ("{} of {} damaged outputs caught", damage),
        ("{} false alarms in {} harmless changes", alarms),
    )
    texts = (
        text.format(f"{sum(rate.failed for rate in rates):,}", f"{sum(rate.outputs for rate in rates):,}")
        for text, rates in parts
        if rates
    )
    return ", ".join(texts)


def metrics_of(findings: ProbeFindings) -> list[str]:
    """The column of all rules, then the metrics."""
    return [ANY, *findings.metrics]


def rate_columns(what: str, findings: ProbeFindings) -> list[str]:
    """The heads of ``rate_rows``."""
    return [what, "outputs", "not measured", *metrics_of(findings)]


def rate_rows(rates: Sequence[ProbeRate], findings: ProbeFindings, *, brief: bool = False) -> Iterator[list[str]]:
    """For each kind and strength: both, the outputs, those that were not measured, and the rate by each column.

    If it is to be ``brief``, only the rate by any rule has its interval.
    """
    by_change: dict[tuple[str, str], dict[str, ProbeRate]] = {}
    for rate in rates:
        by_change.setdefault((rate.kind, rate.strength), {})[rate.metric or ANY] = rate
    for (kind, strength), by_metric in by_change.items():
        total = by_metric[ANY]
        counts = (f"{total.outputs:,}", f"{total.unmeasured:,}" if total.unmeasured else "")
        by_column = ((name, by_metric.get(name)) for name in metrics_of(findings))
        yield [
            f"{kind} {strength}".strip(),
            *counts,
            *(show_rate(rate, brief=brief and name != ANY) for name, rate in by_column),
        ]


def show_rate(rate: ProbeRate | None, *, brief: bool) -> str:
    """``0.92 [0.80, 0.97]``; a dash where a metric does not apply or nothing was measured."""
    if rate is None or rate.rate is None:
        return "-"
    return f"{rate.rate:.2f}" + ("" if brief else show_interval(rate.low, rate.high))


def weakest_rows(findings: ProbeFindings) -> Iterator[list[str]]:
    """For each kind of damage: the weakest strength that each column catches."""
    by_kind: dict[str, dict[str, str]] = {}
    for weakest in findings.weakest:
        shown = "none" if weakest.strength is None else weakest.strength or "yes"
        by_kind.setdefault(weakest.kind, {})[weakest.metric or ANY] = shown
    for kind, by_metric in by_kind.items():
        yield [kind, *(by_metric.get(name, "-") for name in metrics_of(findings))]


def missed_text(missed: MissedDamage) -> str:
    """One missed damage: what, and in which output."""
    what = " ".join(filter(None, [missed.kind, missed.strength, missed.detail]))
    unmeasured = " (not measured)" if missed.verdict == "ERROR" else ""
    return f"{what}: {missed.case} on {missed.model}, sample {missed.sample}{unmeasured}"


def stopped_text(findings: ProbeFindings) -> str | None:
    """Why the probe is incomplete, or has nothing to show."""
    if findings.exit_code == 130:
        return "interrupted: the rates are of what was graded until then"
    if findings.stopped is not None:
        return f"incomplete: {findings.stopped}"
    return None if findings.outputs else "nothing could be planted"
