"""What a comparison finds, by hand-made cells whose answers are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scipy.optimize import brentq
from scipy.stats import binom, binomtest, wilcoxon
from sides import METRICS, cell, mark, scored, side, verdicts

from visioneval.analysis.cells import Cell, Side
from visioneval.analysis.compare.compare import Comparison, ComparisonFilters, compare
from visioneval.analysis.compare.differences import Difference
from visioneval.errors import UsageError
from visioneval.types import Metric


def compared(before: list[Cell], after: list[Cell], **changes: Any) -> Comparison:
    return compare(side(before), side(after, "b"), **changes)


def metric(found: Comparison, name: str) -> Difference:
    return next(one for one in (*found.metrics, *found.by_type) if one.name == name)


def test_flips_are_counted_and_the_pass_rate_tested() -> None:
    found = compared(verdicts("PPPPPPPPFFPP!"), verdicts("FFFFFFFPPFPPP"))
    assert found.counts["broken"] == 7
    assert found.counts["fixed"] == 1
    assert found.counts["error_before"] == 1
    rate = found.pass_rate
    assert (rate.a, rate.b) == pytest.approx((10 / 12, 4 / 12))
    assert rate.difference == pytest.approx(-0.5)
    assert (rate.test, rate.lower, rate.higher, rate.unmeasured) == ("mcnemar", 7, 1, 1)
    assert rate.p == pytest.approx(binomtest(7, 8).pvalue)
    assert rate.interval is not None
    assert rate.interval.low < -0.5 < rate.interval.high < 0
    assert rate.worse_by == pytest.approx(0.5)


def test_numbers_are_tested_by_signed_ranks_of_cases() -> None:
    before, after = [5, 4, 4, 3, 5, 2, 4, 5, 3, 4, 1, 2], [4, 2, 3, 3, 1, 1, 3, 4, 4, 2, 0, 1]
    looks = metric(compared(scored("look", before), scored("look", after)), "look")
    differences = [b - a for a, b in zip(before, after, strict=True)]
    assert looks.difference == pytest.approx(sum(differences) / 12)
    assert looks.p is not None
    assert looks.p == pytest.approx(wilcoxon(differences, method="approx").pvalue, abs=0.01)
    assert looks.worse_by == pytest.approx(-sum(differences) / 12)
    assert looks.few
    assert looks.detectable is not None


def test_lower_may_be_better_and_then_less_is_no_loss() -> None:
    found = metric(compared(scored("copy.cer", [0.5] * 9), scored("copy.cer", [0.1] * 9)), "copy.cer")
    assert found.difference == pytest.approx(-0.4)
    assert found.worse_by == pytest.approx(-0.4)
    neither = replace(found, metric=Metric(type="number", better="none"))
    assert neither.worse_by is None


def test_samples_of_a_case_are_one_witness() -> None:
    """Twelve flips in three cases are not twelve flips in twelve cases."""
    before = [cell(f"c{at}", "PASS", sample_index=k) for at in range(3) for k in range(4)]
    after = [cell(f"c{at}", "FAIL", sample_index=k) for at in range(3) for k in range(4)]
    rate = compared(before, after).pass_rate
    assert (rate.n_pairs, rate.n_cases, rate.test) == (12, 3, "signed_rank")
    assert rate.p == pytest.approx(0.25)
    assert rate.detectable is None


def test_what_one_side_did_not_measure_is_left_out_and_counted() -> None:
    found = metric(compared(scored("look", [3, None, 5, 2]), scored("look", [3, 4, None, 4])), "look")
    assert (found.n_pairs, found.unmeasured, found.a, found.b) == (2, 2, 2.5, 3.5)
    lost = metric(compared(scored("look", [3, 2]), scored("look", [None, None])), "look")
    assert (lost.n_pairs, lost.unmeasured, lost.p, lost.difference) == (0, 2, None, None)


def test_a_metric_that_a_grader_did_not_write_is_no_gap() -> None:
    found = compared([cell("x", scores={"look": 3}), cell("y")], [cell("x", scores={"look": 3}), cell("y")])
    assert metric(found, "look").unmeasured == 0


def test_no_difference_claims_no_interval_and_tells_its_power() -> None:
    rate = compared(verdicts("PPPPPPPPPP"), verdicts("PPPPPPPPPP")).pass_rate
    assert (rate.difference, rate.interval, rate.p) == (0, None, 1)
    assert rate.detectable == pytest.approx(brentq(lambda d: binom.sf(5, 10, d) - 0.8, 0, 1))
    many = compared(verdicts("P" * 48), verdicts("P" * 48)).pass_rate
    assert (many.detectable, many.few) == (None, False)


def test_holm_covers_the_pass_rate_and_every_metric() -> None:
    before = [replace(one, scores={"look": 3, "copy": True}) for one in verdicts("P" * 12)]
    after = [replace(one, scores={"look": 2, "copy": True}) for one in verdicts("F" * 8 + "P" * 4)]
    found = compared(before, after)
    assert found.pass_rate.p == pytest.approx(2 / 2**8)
    assert metric(found, "look").p == pytest.approx(2 / 2**12)
    assert metric(found, "look").p_holm == pytest.approx(2 * 2 / 2**12)
    assert found.pass_rate.p_holm == pytest.approx(2 / 2**8)
    assert metric(found, "copy").p_holm == 1  # it differs nowhere, so it makes nothing else less certain
    assert found.pass_rate.significant


def test_an_interval_needs_cases_that_differ_among_themselves() -> None:
    assert compared(verdicts("PPPPP"), verdicts("PFFFF")).pass_rate.interval is None
    assert compared(verdicts("PPPPPP"), verdicts("FFFFFF")).pass_rate.interval is None
    assert compared(verdicts("PPPPPP"), verdicts("PFFFFF")).pass_rate.interval is not None


def test_tags_and_gecko_types_are_told_apart_and_not_adjusted() -> None:
    marks = (mark("gecko", "gecko"),)
    scores = {"gecko": 0.5, "gecko.counting": 0.0}
    before = [cell(f"c{at}", tags=("text",) if at < 6 else ("edit",), scores=scores, graders=marks) for at in range(9)]
    after = [replace(one, scores={"gecko": 1.0, "gecko.counting": 1.0}) for one in before]
    known = {"gecko": Metric(type="number"), "gecko.counting": Metric(type="number")}
    found = compare(side(before, metrics=known), side(after, "b", metrics=known))
    assert [(one.name, one.n_pairs) for one in found.by_tag] == [("text", 6), ("edit", 3)]
    assert [one.name for one in found.metrics] == ["gecko"]
    assert [(one.name, one.difference, one.p_holm) for one in found.by_type] == [("gecko.counting", 1, None)]


def test_several_model_runs_have_pass_rates_of_their_own() -> None:
    before = [cell(f"c{at}", model_label=label) for at in range(4) for label in "xy"]
    after = [replace(one, verdict="FAIL") if one.model_label == "y" else one for one in before]
    assert [(one.name, one.difference, one.p_holm) for one in compared(before, after).by_run] == [
        ("x", 0, None),
        ("y", -1, None),
    ]
    assert compared(before[:1], before[:1]).by_run == ()


def test_flaky_cases_are_paired_and_leave_the_numbers() -> None:
    before = [*verdicts("PP"), cell("unsure", flaky=True)]
    after = [*verdicts("PP"), cell("unsure", "FAIL")]
    found = compared(before, after)
    assert [pair.b.test_id for pair in found.changed("broken")] == ["unsure"]
    assert (found.pass_rate.n_pairs, found.pass_rate.difference) == (2, 0)
    assert len(found.stable_pairs) == 2


def test_what_must_pass_is_told_first_and_flaky_last() -> None:
    before = [cell("a", flaky=True), cell("b"), cell("c", tags=("must_pass",))]
    after = [replace(one, verdict="FAIL") for one in before]
    assert [pair.b.test_id for pair in compared(before, after).changed("broken")] == ["c", "b", "a"]


def test_money_and_time_are_of_pairs_that_know_both() -> None:
    before = [cell("a", cost_usd=0.5, seconds=2), cell("b", cost_usd=None, seconds=4)]
    after = [cell("a", cost_usd=0.25, seconds=1), cell("b", cost_usd=9.0, seconds=3)]
    found = compared(before, after)
    assert (found.cost_usd.a, found.cost_usd.b, found.cost_usd.pairs) == (0.5, 0.25, 1)
    assert (found.seconds.a, found.seconds.b, found.seconds.pairs) == (3, 2, 2)


def test_choosing() -> None:
    before = [cell("a", tags=("text",), scores={"look": 1, "copy": True}), cell("b", scores={"look": 1})]
    found = compared(before, before, filters=ComparisonFilters(metrics=("co*",), tags=("text",)))
    assert [one.name for one in found.metrics] == ["copy"]
    assert [pair.b.test_id for pair in found.pairs] == ["a"]
    assert [pair.b.test_id for pair in compared(before, before, filters=ComparisonFilters(cases=("b",))).pairs] == ["b"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (ComparisonFilters(metrics=("lok",)), r"--metric 'lok': there is none in either run \(did you mean 'look'\?\)"),
        (ComparisonFilters(cases=("zzz",)), r"--case 'zzz': there is none in either run \(known: one\)"),
        (ComparisonFilters(tags=("x",)), "--tag 'x': there is none in either run"),
    ],
)
def test_choosing_what_is_not_there(chosen: ComparisonFilters, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compared([cell()], [cell()], chosen=chosen)


def test_a_direction_that_one_side_does_not_know_is_the_others() -> None:
    unknown = {"copy.cer": Metric(type="number", better="none")}
    cells = scored("copy.cer", [0.5])
    for a, b in ((unknown, METRICS), (METRICS, unknown)):
        found = compare(side(cells, metrics=a), side(cells, "b", metrics=b))
        assert metric(found, "copy.cer").metric.better == "lower"


def _graded(name: str, **changes: Any) -> Side:
    marks = (mark("rubric", **changes), mark("copy", "text", judge_model=None, tool_versions={"rapidocr": "3.10"}))
    return side([cell(f"c{at}", scores={"look": 3, "copy": True}, graders=marks) for at in range(3)], name)


def test_graded_alike_says_nothing() -> None:
    found = compare(_graded("a"), _graded("b"))
    assert found.grading_differences == ()
    assert not found.has_other_source


@pytest.mark.parametrize(
    ("changes", "what", "a", "b"),
    [
        ({"judge_model": "judge-2"}, "judge model", "judge-1", "judge-2"),
        ({"template_sha256": "u" * 64}, "template", "t" * 12, "u" * 12),
        ({"schema_sha256": "u" * 64}, "schema", "s" * 12, "u" * 12),
        ({"config_sha256": "u" * 64}, "config", "c" * 12, "u" * 12),
    ],
)
def test_graded_otherwise_is_told_by_metric(changes: dict[str, str], what: str, a: str, b: str) -> None:
    (found,) = compare(_graded("a"), _graded("b", **changes)).grading_differences
    assert (found.metric, found.what, found.a, found.b, found.pairs) == ("look", what, a, b, 3)


def test_another_tool_version_and_other_rules_and_another_source() -> None:
    a, b = _graded("a"), _graded("b")
    marks = (mark(), mark("copy", "text", judge_model=None, tool_versions={"rapidocr": "3.11"}))
    b = replace(
        b, cells=[replace(one, graders=marks, grade_key="case:1 rules:2") for one in b.cells], source_sha256="1"
    )
    found = compare(a, b)
    assert [(one.metric, one.what, one.a, one.b) for one in found.grading_differences] == [
        ("pass_rate", "verdict rules", "1", "2"),
        ("copy", "rapidocr version", "3.10", "3.11"),
    ]
    assert found.has_other_source


def test_a_judge_that_was_not_needed_is_no_other_judge() -> None:
    assert compare(_graded("a"), _graded("b", judge_model=None)).grading_differences == ()
