"""Rates that must reach a minimum: one more error never looks better."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from visioneval import Verdict
from visioneval.analysis.probe import ProbedCell, rate_of
from visioneval.analysis.stats.agreement import rate_measure

Labels = list[tuple[int, bool]]
"""The case of each label, and whether the judge is right."""
labels = st.lists(st.tuples(st.integers(0, 11), st.booleans()), min_size=2, max_size=80)


def low(rows: Labels) -> float:
    measure = rate_measure([float(right) for _, right in rows], [case for case, _ in rows])
    return -1 if measure.low is None else measure.low


@given(labels, st.data())
def test_one_more_error_never_raises_the_bound_of_an_accuracy(rows: Labels, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    worse = [(case, right and number != at) for number, (case, right) in enumerate(rows)]
    assert low(worse) <= low(rows) + 1e-12
    assert low(rows) <= low([(case, True) for case, _ in rows]) + 1e-12


def probed(case: int, detected: bool) -> ProbedCell:
    verdict = Verdict.FAIL if detected else Verdict.PASS
    return ProbedCell(f"c{case}", "m", 0, "copy.letter", "1", number=1.0, level=0, verdict=verdict)


@given(labels, st.data())
def test_one_more_miss_never_raises_the_bound_of_a_detection_rate(rows: Labels, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    before = rate_of([probed(case, right) for case, right in rows], "copy.letter", "", None, None)
    missed = [(case, right and number != at) for number, (case, right) in enumerate(rows)]
    after = rate_of([probed(case, right) for case, right in missed], "copy.letter", "", None, None)
    assert after.low is not None
    assert before.low is not None
    assert after.low <= before.low + 1e-12


def test_a_perfect_judge_does_as_well_as_its_cases_allow() -> None:
    """160 labels of 20 cases count as 20: one error in them is not better than none."""
    perfect = [(case, True) for case in range(20) for _ in range(8)]
    assert 0.83 < low(perfect) < 0.84
    assert low([(0, False), *perfect[1:]]) < low(perfect)
    assert low([(case, True) for case in range(160)]) > 0.97
