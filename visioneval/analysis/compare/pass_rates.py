"""Verdicts and failure tags of pairs as numbers: pass rates of all pairs, by case, model run and tag. Pure.

Pairs of flaky cases do not count. A pair with a side that is neither PASS nor FAIL is unmeasured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import fsum
from typing import TYPE_CHECKING, NamedTuple

from visioneval.analysis.compare.differences import (
    CASE_ALPHA,
    PASS_RATE,
    PASSED,
    CaseSums,
    Difference,
    PairCounts,
    cases_difference,
)
from visioneval.analysis.compare.table import PASS, PairTable, is_measured
from visioneval.analysis.stats.tests import Counts, adjusted_case_ps
from visioneval.analysis.stats.variance import RunNoise, run_noise
from visioneval.types import Metric

if TYPE_CHECKING:
    from visioneval.analysis.compare.table import Flags, Rows


class CasePasses(NamedTuple):
    """The passes of a case on a model run. ``p`` is one-sided, for B being worse, and adjusted for all cases."""

    test_id: str
    model_label: str
    counts: Counts
    p: float


def noise_of_runs(table: PairTable) -> RunNoise:
    """What the passes of the runs of A have in common, over the cases that all of them measured."""
    import numpy as np

    rows = table.stable
    _, first, case = np.unique(rows["case"], return_index=True, return_inverse=True)
    in_order = np.argsort(first)
    passed, measured = (
        np.stack([np.bincount(case, of_run)[in_order] for of_run in flags.T], axis=1).astype(int).tolist()
        for flags in (rows["run_verdicts"] == PASS, is_measured(rows["run_verdicts"]))
    )
    by_case = zip(passed, measured, strict=True)
    return run_noise([list(zip(*counts, strict=True)) for counts in by_case if all(counts[1])])


def pass_counts(table: PairTable) -> Rows:
    """A row for each case, model run and tags (``case``, ``label`` and ``tags`` of the table), in order.

    It counts measured ``pairs``, the passes of A's runs in them (``a_passed`` of ``a``) and of B (``b_passed``), those
    in which B is ``higher`` or ``lower``, and ``unmeasured`` ones.
    """
    import numpy as np

    rows = table.stable
    names, number = ("case", "label", "tags"), (1, len(table.labels), len(table.tags))
    key = np.zeros(len(rows), np.int64)
    for name, values in zip(names, number, strict=True):
        key = key * values + rows[name]
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    in_order = np.argsort(first)
    measured, of_runs = _measured(rows), rows["run_verdicts"]
    a, b = rows["verdict_a"] == PASS, rows["verdict_b"] == PASS
    columns = {
        "pairs": measured,
        "a_passed": (of_runs == PASS).sum(axis=1) * measured,
        "a": is_measured(of_runs).sum(axis=1) * measured,
        "b_passed": measured & b,
        "higher": measured & b & ~a,
        "lower": measured & a & ~b,
        "unmeasured": ~measured,
    }
    counts = np.empty(len(first), [(name, "i8") for name in (*names, *columns)])
    for name in names:
        counts[name] = rows[name][first[in_order]]
    for name, numbers in columns.items():
        counts[name] = np.bincount(group, numbers)[in_order]
    return counts


def pass_rate(passes: Rows, noise: RunNoise, name: str = PASS_RATE) -> Difference:
    """The difference of the pass rate over rows of ``pass_counts``."""
    strata = _strata(passes)
    cases: dict[int, list[Counts]] = {}
    for case, _, counts in strata:
        cases.setdefault(case, []).append(counts)
    before = [fsum(item.b * item.a_passed / item.a for item in items) for items in cases.values()]
    after = [sum(item.b_passed for item in items) for items in cases.values()]
    sums = CaseSums(
        [sum(item.b for item in items) for items in cases.values()],
        before,
        [passed - expected for passed, expected in zip(after, before, strict=True)],
    )
    numbers = PairCounts(*(int(passes[column].sum()) for column in ("higher", "lower", "unmeasured")))
    return cases_difference(name, PASSED, sums, numbers, [item for _, _, item in strata], noise)


def pass_rates_by_run(table: PairTable, passes: Rows, noise: RunNoise) -> tuple[Difference, ...]:
    """The differences of the pass rates of model runs, by their labels in B."""
    return tuple(
        pass_rate(passes[passes["label"] == number], noise, label) for number, label in enumerate(table.labels)
    )


def pass_rates_by_tag(table: PairTable, passes: Rows, noise: RunNoise) -> tuple[Difference, ...]:
    """The differences of the pass rates of the tags of either side, in the order in which they appear."""
    import numpy as np

    used = [table.tags[at] for at in dict.fromkeys(passes["tags"].tolist())]
    tags = dict.fromkeys(tag for a, b in used for tag in (*b, *a))
    has_tag = {tag: np.array([tag in a or tag in b for a, b in table.tags]) for tag in tags}
    return tuple(pass_rate(passes[has_tag[tag][passes["tags"]]], noise, tag) for tag in tags)


def passes_by_case(table: PairTable, passes: Rows, noise: RunNoise) -> tuple[CasePasses, ...]:
    """The passes of each case on each model run, by the label in B. The turns of a case are one case."""
    strata = _strata(passes)
    p_values = adjusted_case_ps([counts for _, _, counts in strata], CASE_ALPHA, noise)
    return tuple(
        CasePasses(table.cases[case], table.labels[label], counts, p)
        for (case, label, counts), p in zip(strata, p_values, strict=True)
    )


def _strata(passes: Rows) -> list[tuple[int, int, Counts]]:
    """For each case and model run with measured pairs: their numbers, and the passes of both sides.

    In the mean over cases, a stratum weighs its share of the pairs of its case.
    """
    import numpy as np

    passes = passes[passes["pairs"] > 0]
    if not len(passes):
        return []
    keys, stratum = np.unique(passes[["case", "label"]], return_inverse=True)
    columns = [np.bincount(stratum, passes[name]).astype(int) for name in ("a_passed", "a", "b_passed", "pairs")]
    shares = columns[-1] / np.bincount(keys["case"], columns[-1])[keys["case"]]
    counts = map(Counts, *(column.tolist() for column in (*columns, shares)))
    return list(zip(keys["case"].tolist(), keys["label"].tolist(), counts, strict=True))


def shares_by_failure_tag(table: PairTable) -> Iterator[Difference]:
    """The differences of the shares of cells with a failure tag, most frequent tags first."""
    import numpy as np

    rows, metric = table.stable, Metric(type="bool", better="lower")
    times = np.bincount(rows["failure_tags"], minlength=len(table.failure_tags)).tolist()
    frequency: Counter[str] = Counter()
    for (a, b), number in zip(table.failure_tags, times, strict=True):
        for tag in (*a, *b):
            frequency[tag] += number
    measured = rows[_measured(rows)]
    _, case, pairs = np.unique(measured["case"], return_inverse=True, return_counts=True)
    for tag in sorted(+frequency, key=lambda tag: (-frequency[tag], tag)):
        has_tag = (np.array([tag in tags[side] for tags in table.failure_tags]) for side in (0, 1))
        a, b = (flags[measured["failure_tags"]] for flags in has_tag)
        before, after = np.bincount(case, a), np.bincount(case, b)
        sums = CaseSums(pairs.tolist(), before.tolist(), (after - before).tolist())
        counts = PairCounts(int((b & ~a).sum()), int((a & ~b).sum()), len(rows) - len(measured))
        yield cases_difference(tag, metric, sums, counts)


def _measured(rows: Rows) -> Flags:
    return is_measured(rows["verdict_a"]) & is_measured(rows["verdict_b"])
