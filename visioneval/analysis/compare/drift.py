"""Drift: the pass rate of the last runs of an experiment together against A, with an error rate over many nights. Pure.

Each night tests the runs of a window that ends with it, as ``compare`` tests a single run: within cases, with what the
runs of A have in common. What cannot be compared is left out, and said: a run that is incomplete, not measured or no
new one, and a cell that A does not have or that was graded in another way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from itertools import pairwise
from math import fsum
from statistics import median
from typing import Literal

from visioneval.analysis.compare.differences import Difference, missed_text, points_text
from visioneval.analysis.compare.metrics import grading_changes, pass_rate, passes_of_runs
from visioneval.analysis.compare.pairing import (
    CaseKey,
    CellPair,
    ComparisonFilters,
    PairRow,
    RunVerdicts,
    cells_of_runs,
    pair_cells,
    parse_map,
    read_pairs,
    select_cells,
)
from visioneval.analysis.left_out import LeftOut
from visioneval.analysis.sides import MEASURED, Cells, Series, SeriesRun, Side
from visioneval.analysis.stats.drift import drift_limit
from visioneval.analysis.stats.tests import Counts, lowest_worse_p, within_variance, worse_p
from visioneval.analysis.stats.variance import RunNoise, detectable_within, run_noise
from visioneval.errors import UsageError, count_of
from visioneval.rules import show_beside
from visioneval.types import Verdict

MAX_NAMED = 3
"""Cases, changes and days that a remark names."""
_NIGHTLY = 1.5
"""Runs that are so many days apart are nightly, so that a day without one is a hole."""
_ROUNDING = 1e-12
"""A difference of rates below this comes from rounding."""
_NOTHING = "no cell that A has a verdict of is compared: the others are flaky, or graded in another way"
DriftState = Literal["passed", "failed", "unmeasured", "cannot_tell"]
"""What the gate ``drift`` says of the last runs:

- ``passed``: The runs up to the newest show no drift. Exit code 0.
- ``failed``: They show one. Exit code 1.
- ``unmeasured``: The newest run, or half of the last ones, are left out; or only another suite still runs. Exit code 3.
- ``cannot_tell``: No outcome of so few cases and runs could show a drift. Exit code 3; `--allow cannot-tell` makes it
  `passed`.
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the runs of a window say together. ``p`` is one-sided, for their pass rate being lower only by chance."""

    runs: int
    cases: int
    change: float
    p: float


@dataclass(frozen=True, slots=True)
class Night:
    """A run of the series. ``left_out`` is why it is not compared; then it has no numbers.

    ``difference`` is that of its own pass rate, and ``evidence`` that of the window which ends with it. ``remarks`` say
    which of its cells are not compared.
    """

    run_id: str
    started_at: str
    left_out: str = ""
    remarks: tuple[str, ...] = ()
    difference: Difference | None = None
    evidence: Evidence | None = None

    @property
    def date(self) -> str:
        """The day on which it started, in UTC."""
        return self.started_at[:10]


@dataclass(frozen=True, slots=True)
class Drift:
    """Whether the last runs of an experiment are worse than A.

    ``nights`` are the last runs, oldest first, as many as are shown; ``last`` of them decide. ``limit`` is the p below
    which they show a drift. ``missing_days`` are those without a run between the first and the last of nightly runs,
    and ``other_suites`` are the runs of the experiment that are not in the series, in words. ``detectable`` is the
    least drop of the pass rate, in 0..1, that the last runs would show with 80 % power; ``None`` if there is none.
    """

    experiment: str
    last: int
    limit: float
    nights: tuple[Night, ...]
    missing_days: tuple[str, ...]
    state: DriftState
    message: str
    other_suites: str = ""
    detectable: float | None = None

    def is_beyond(self, night: Night) -> bool:
        """Whether the runs up to a night show a drift."""
        return night.evidence is not None and night.evidence.p < self.limit


@dataclass(slots=True)
class _Read:
    """What was read of a run: the rows that are compared, each with the position of its cell in A."""

    run: SeriesRun
    left_out: str = ""
    remarks: list[str] = field(default_factory=list)
    rows: list[tuple[int, PairRow]] = field(default_factory=list)
    outputs: frozenset[str] = frozenset()


def find_drift(
    a: Side,
    series: Series,
    *,
    filters: ComparisonFilters | None = None,
    renamed: Sequence[str] = (),
    granted: float = 0.0,
) -> Drift:
    """Tests the last runs of a series. Those before them count for the earlier of its nights.

    ``granted`` is the share of the cells of a run that may lack a verdict. Raises ``RunFormatError``.
    """
    nights_read = _read_series(a, series.runs, filters or ComparisonFilters(), renamed, granted)
    noise, last = _noise(nights_read), series.last
    first = max(0, len(nights_read) - series.shown)
    windows = [_usable(nights_read[max(0, at + 1 - last) : at + 1]) for at in range(first, len(nights_read))]
    counts = [_pooled(window) for window in windows]
    limit = drift_limit(_baseline_runs(a, windows, counts), last)
    nights = []
    for night, window, of_window in zip(nights_read[first:], windows, counts, strict=True):
        result = Night(night.run.run_id, night.run.started_at, night.left_out, tuple(night.remarks))
        if not night.left_out:
            rate = pass_rate([row for _, row in night.rows], noise)
            together = _evidence(of_window, window, noise)
            result = replace(result, difference=rate, evidence=together)
        nights.append(result)
    missing = tuple(_missing_days(nights))
    drift = Drift(series.experiment, last, limit, tuple(nights), missing, "unmeasured", "", series.other_suites)
    if nights[-1].evidence is not None:
        noise = replace(noise, new_runs=nights[-1].evidence.runs)
        drift = replace(drift, detectable=_detectable(counts[-1], nights[-1].evidence.cases, noise, limit))
    state, message = _decide(drift, counts[-1], noise, is_first_shown=first == 0)
    if series.is_over and state != "failed":
        state, message = "unmeasured", f"{series.is_over}; {message}"
    return replace(drift, state=state, message=message)


def _read_series(
    a: Side, series: Sequence[SeriesRun], filters: ComparisonFilters, renamed: Sequence[str], granted: float
) -> list[_Read]:
    covered: dict[str, bool] = {}
    cells, _, _ = select_cells(a, filters, covered)
    a = replace(a, cells=cells)
    known = dict.fromkeys((key for key, _ in a.run_ids if key), "")
    outputs: dict[str, frozenset[str]] = {}
    nights = []
    for run in series:
        night = _Read(run, left_out=run.problem)
        if run.side is not None and not night.left_out:
            night.left_out = _why_no_new_run(run.side, known)
            if not night.left_out:
                _read_night(night, a, run.side, filters, dict(covered), renamed, granted)
            if not night.left_out:
                known |= {key: run.run_id for key, _ in run.side.run_ids if key}
        if not night.left_out:
            same = next((name for name, of_run in outputs.items() if night.outputs and night.outputs <= of_run), None)
            if same is not None:
                night.left_out = f"its outputs are those of {same}: nothing new was generated"
            outputs[run.run_id] = night.outputs
        nights.append(night)
    return nights


def _why_no_new_run(side: Side, known: Mapping[str, str]) -> str:
    if side.state not in (None, "complete"):
        return f"incomplete: {side.state}"
    if (same := next((known[key] for key, _ in side.run_ids if key in known), None)) is not None:
        return f"it is the same run as {same}" if same else "it is one of the runs of A"
    return ""


def _read_night(
    night: _Read,
    a: Side,
    b: Side,
    filters: ComparisonFilters,
    covered: dict[str, bool],
    renamed: Sequence[str],
    granted: float,
) -> None:
    """Reads the pairs of a run with A, and says which are not compared."""
    cells, _, _ = select_cells(b, filters, covered)
    b = replace(b, cells=cells)
    try:
        pairing = pair_cells(a, b, parse_map(renamed, a, b))
    except UsageError:
        night.left_out = "it has no cell in common with A"
        return
    if 2 * len(pairing.pairs) < len(a.cells):
        night.left_out = f"it has only {len(pairing.pairs):,} of {count_of(len(a.cells), 'cell')} of A"
        return
    changes: list[tuple[str, ...]] = []
    outputs: list[set[str]] = [set() for _ in range(1 + a.runs)]

    def also(pair: CellPair) -> None:
        changes.append(tuple(grading_changes(pair.a, pair.b)))
        for cell, known in zip((pair.b, *cells_of_runs(pair.a)), outputs, strict=False):
            if cell is not None and cell.artifact_sha256 is not None:
                known.add(cell.artifact_sha256)

    rows = read_pairs(pairing.pairs, {}, frozenset(), a.runs, also).rows
    if outputs[0] and any(outputs[0] <= of_run for of_run in outputs[1:]):
        night.left_out = "its outputs are those of A: nothing new was generated"
        return
    night.outputs = frozenset(outputs[0])
    night.remarks += _remarks(pairing.only_a, pairing.only_b)
    positions = pairing.pairs.positions[0]
    stable = [item for item in zip(positions, rows, changes, strict=True) if not item[1].flaky]
    _compare_rows(night, stable, len(stable) + len(pairing.only_a), granted)


def _compare_rows(
    night: _Read, rows: Sequence[tuple[int, PairRow, tuple[str, ...]]], cells_of_a: int, granted: float
) -> None:
    """Keeps the rows that are measured and were graded in the same way, and says which are not.

    ``cells_of_a`` are those of which the run should have a row.
    """
    if differing := [changed for _, _, changed in rows if changed]:
        what = _named([name for name, _ in Counter(name for names in differing for name in names).most_common()])
        if 2 * (len(rows) - len(differing)) < cells_of_a:
            number = "" if len(differing) == len(rows) else f" in {len(differing):,} of {count_of(cells_of_a, 'cell')}"
            night.left_out = f"it was graded in another way than A{number}: {what}"
            return
        night.remarks.append(f"{count_of(len(differing), 'cell')} graded in another way than in A: {what}")
    alike = [(at, row) for at, row, changed in rows if not changed]
    in_a = [(at, row) for at, row in alike if row.verdict_a in MEASURED]
    night.rows = [(at, row) for at, row in in_a if row.is_measured]
    of_a, of_run = LeftOut(len(alike) - len(in_a), len(alike)), LeftOut(len(in_a) - len(night.rows), len(in_a))
    for side, lost in (("of A, ", of_a), ("", of_run)):
        if lost.unmeasured:
            sentence = f"{side}{lost.sentence('cell', granted)}"
            if lost.is_too_much(granted):
                night.left_out = sentence
                return
            night.remarks.append(sentence)
    if not night.rows:
        night.left_out = _NOTHING


def _remarks(only_a: Cells, only_b: Cells) -> Iterator[str]:
    """The cases and cells that only one side has."""
    for where, cells in (("not in this run", only_a), ("not in A", only_b)):
        if cells:
            yield f"{count_of(len(cells), 'cell')} {where}: {_named(cells.columns.used_cases)}"


def _named(names: Collection[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(list(names)[:MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _usable(nights: Sequence[_Read]) -> list[_Read]:
    return [night for night in nights if not night.left_out]


def _noise(nights: Sequence[_Read]) -> RunNoise:
    """What the runs of A have in common, over the cells that any night is compared with."""
    cells: dict[int, tuple[str, RunVerdicts]] = {}
    for night in nights:
        cells |= {at: (row.case, row.run_verdicts) for at, row in night.rows}
    return run_noise(passes_of_runs(cells[at] for at in sorted(cells)))


def _pooled(nights: Sequence[_Read]) -> list[Counts]:
    """The passes of each case on each model run: those of A once, however many nights are compared with them."""
    in_a: dict[CaseKey, dict[int, RunVerdicts]] = {}
    in_b: dict[CaseKey, list[bool]] = {}
    pairs: Counter[str] = Counter()
    for night in nights:
        for at, row in night.rows:
            key = row.case, row.label
            in_a.setdefault(key, {})[at] = row.run_verdicts
            in_b.setdefault(key, []).append(row.verdict_b is Verdict.PASS)
            pairs[row.case] += 1
    counts = []
    for key, passes in in_b.items():
        verdicts = [verdict for of_cell in in_a[key].values() for verdict in of_cell]
        passed = verdicts.count(Verdict.PASS)
        weight = len(passes) / pairs[key[0]]
        counts.append(Counts(passed, passed + verdicts.count(Verdict.FAIL), sum(passes), len(passes), weight))
    return counts


def _baseline_runs(a: Side, windows: Sequence[Sequence[_Read]], counts: Sequence[Sequence[Counts]]) -> float:
    """The samples of A as a multiple of those of a night, in the last window that has any."""
    for window, of_window in zip(reversed(windows), reversed(counts), strict=True):
        if of_window:
            return sum(case.a for case in of_window) * len(window) / sum(case.b for case in of_window)
    return a.runs


def _evidence(counts: Sequence[Counts], window: Sequence[_Read], noise: RunNoise) -> Evidence:
    p = worse_p(counts, replace(noise, new_runs=len(window)))
    assert p is not None  # a night that is not left out has a row
    total = fsum(case.weight for case in counts)
    change = fsum(case.weight * case.difference for case in counts) / total
    change = 0.0 if abs(change) < _ROUNDING else change
    return Evidence(len(window), len({row.case for night in window for _, row in night.rows}), change, p)


def _missing_days(nights: Sequence[Night]) -> Iterator[str]:
    """The days without a run, of runs that are nightly."""
    try:
        days = sorted({date.fromisoformat(night.date) for night in nights})
    except ValueError:  # a time that no version wrote
        return
    gaps = [(after - before).days for before, after in pairwise(days)]
    if gaps and median(gaps) < _NIGHTLY:
        for before, gap in zip(days, gaps, strict=False):
            yield from ((before + timedelta(days=day)).isoformat() for day in range(1, gap))


def _decide(drift: Drift, counts: Sequence[Counts], noise: RunNoise, *, is_first_shown: bool) -> tuple[DriftState, str]:
    """The state, and why. A drift that was found counts however many runs are left out.

    ``is_first_shown``: no run of the series is before the nights.
    """
    nights, newest, limit = drift.nights[-drift.last :], drift.nights[-1], drift.limit
    evidence = newest.evidence
    if evidence is None:
        return "unmeasured", f"the last run, {newest.run_id}, is left out: {newest.left_out}"
    number = len(nights)
    runs = count_of(number, "run") if evidence.runs == number else f"{evidence.runs} of the last {number} runs"
    p = f"p {show_beside(evidence.p, limit, 2)}, {'below' if evidence.p < limit else 'not below'} {limit:g}"
    of_runs = f"the last {runs}" if evidence.runs == number > 1 else runs
    over = f"pass rate {points_text(evidence.change)} over {of_runs} ({p})"
    if evidence.p < limit:
        first = len(drift.nights)
        while first and (drift.is_beyond(drift.nights[first - 1]) or drift.nights[first - 1].left_out):
            first -= 1
        since = next(night for night in drift.nights[first:] if not night.left_out)
        or_before = "" if first or is_first_shown else " or before"
        return "failed", f"{over}, since {since.run_id} of {since.date}{or_before}"
    left_out = sum(bool(night.left_out) for night in nights)
    if 2 * left_out >= number:
        return "unmeasured", f"{left_out} of the last {number} runs are left out; {over}"
    lowest = lowest_worse_p(counts, noise)
    if lowest >= limit:
        size = f"{count_of(evidence.cases, 'case')} in {runs}"
        return (
            "cannot_tell",
            f"{size} cannot show a drift (p {show_beside(lowest, limit, 2)} at best, limit {limit:g})",
        )
    return "passed", f"no drift found: {over}; {missed_text(drift.detectable)}"


def _detectable(counts: Sequence[Counts], total: int, noise: RunNoise, limit: float) -> float | None:
    """The least drop that a window of so many cases shows with 80 % power; ``None`` if there is none."""
    weights = fsum(case.weight for case in counts)
    rate = fsum(case.weight * case.a_passed / case.a for case in counts) / weights
    samples = sum(case.a for case in counts) / total, sum(case.b for case in counts) / total
    return detectable_within(total, rate, within_variance(counts) or 0.0, samples, noise=noise, alpha=2 * limit)
