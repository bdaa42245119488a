"""Comparisons of hand-made cells with known results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from compare_factory import METRICS, cell, mark, scored, side, verdicts

from visioneval import Metric, UsageError
from visioneval.analysis.compare.compare import Comparison, compare
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.analysis.sides import Cell, Side
from visioneval.report.differences import assessment


def compared(before: list[Cell], after: list[Cell], **changes: Any) -> Comparison:
    return compare(side(before), side(after, "b"), **changes)


def metric(result: Comparison, name: str) -> Difference:
    return next(item for item in (*result.metrics, *result.by_type) if item.name == name)


def test_pass_rate_difference_and_flips() -> None:
    from scipy.stats import binomtest

    result = compared(verdicts("PPPPPPPPFFPP!"), verdicts("FFFFFFFPPFPPP"))
    assert result.counts["broken"] == 7
    assert result.counts["fixed"] == 1
    assert result.counts["error_before"] == 1
    rate = result.pass_rate
    assert (rate.a, rate.b) == pytest.approx((10 / 12, 4 / 12))
    assert rate.difference == pytest.approx(-0.5)
    assert (rate.lower, rate.higher, rate.unmeasured) == (7, 1, 1)
    assert rate.p == pytest.approx(binomtest(7, 8).pvalue, abs=0.04)
    assert rate.interval.low < -0.5 < rate.interval.high < 0
    assert rate.worse_by == pytest.approx(0.5)


def test_a_number_is_tested_by_the_mean_difference_of_its_cases() -> None:
    from scipy.stats import ttest_1samp

    before, after = [5, 4, 4, 3, 5, 2, 4, 5, 3, 4, 1, 2], [4, 2, 3, 3, 1, 1, 3, 4, 4, 2, 0, 1]
    looks = metric(compared(scored("look", before), scored("look", after)), "look")
    differences = [b - a for a, b in zip(before, after, strict=True)]
    assert looks.difference == pytest.approx(sum(differences) / 12)
    assert looks.p == pytest.approx(ttest_1samp(differences, 0).pvalue, abs=0.01)
    assert looks.worse_by == pytest.approx(-sum(differences) / 12)
    assert looks.detectable is not None


def test_every_case_counts_the_same_whatever_its_number_of_samples() -> None:
    """One case with eight samples gets worse, three with one sample get better."""
    before = [cell("many", scores={"look": 4}, sample_index=at) for at in range(8)] + scored("look", [1, 1, 1])
    after = [cell("many", scores={"look": 0}, sample_index=at) for at in range(8)] + scored("look", [3, 3, 3])
    looks = metric(compared(before, after), "look")
    assert looks.difference == pytest.approx((-4 + 2 + 2 + 2) / 4)
    assert (looks.a, looks.b) == pytest.approx((7 / 4, 9 / 4))


def test_lower_is_an_improvement_if_lower_is_better() -> None:
    result = metric(compared(scored("copy.cer", [0.5] * 9), scored("copy.cer", [0.1] * 9)), "copy.cer")
    assert result.difference == pytest.approx(-0.4)
    assert result.worse_by == pytest.approx(-0.4)
    neither = replace(result, metric=Metric(type="number", better="none"))
    assert neither.worse_by is None


def test_samples_show_that_their_cases_changed_and_hardly_more() -> None:
    """Twelve flips in three cases are no chance, but say little about other cases: the interval is over three cases."""
    before = [cell(f"c{at}", "PASS", sample_index=k) for at in range(3) for k in range(4)]
    after = [cell(f"c{at}", "FAIL", sample_index=k) for at in range(3) for k in range(4)]
    rate = compared(before, after).pass_rate
    assert (rate.n_pairs, rate.n_cases) == (12, 3)
    assert rate.p == pytest.approx(1 / 70**3)
    assert rate.interval.low == -1
    assert -0.01 < rate.interval.high < 0


def test_unmeasured_pairs_are_excluded_and_counted() -> None:
    result = metric(compared(scored("look", [3, None, 5, 2]), scored("look", [3, 4, None, 4])), "look")
    assert (result.n_pairs, result.unmeasured, result.a, result.b) == (2, 2, 2.5, 3.5)
    empty = metric(compared(scored("look", [3, 2]), scored("look", [None, None])), "look")
    assert (empty.n_pairs, empty.unmeasured, empty.p, empty.difference) == (0, 2, None, None)


def test_cells_without_the_metric_are_not_unmeasured() -> None:
    result = compared([cell("x", scores={"look": 3}), cell("y")], [cell("x", scores={"look": 3}), cell("y")])
    assert metric(result, "look").unmeasured == 0


def test_no_difference_in_any_case_is_no_certainty() -> None:
    rate = compared(verdicts("P" * 48), verdicts("P" * 48)).pass_rate
    assert (rate.difference, rate.p) == (0, 1)
    assert rate.interval.low == -rate.interval.high < -0.03
    assert 0.05 < rate.detectable < 0.2
    unbounded = metric(compared(scored("copy.cer", [0.1] * 9), scored("copy.cer", [0.1] * 9)), "copy.cer")
    assert (unbounded.interval, unbounded.p, unbounded.significant) == (None, None, False)


def test_the_pass_rate_and_the_other_metrics_are_two_families() -> None:
    before = [replace(item, scores={"look": 3, "copy": True, "copy.cer": 0.1}) for item in verdicts("P" * 12)]
    after = [replace(item, scores={"look": 2, "copy": True, "copy.cer": 0.3}) for item in verdicts("F" * 8 + "P" * 4)]
    result = compared(before, after)
    look, cer = metric(result, "look"), metric(result, "copy.cer")
    assert result.pass_rate.p_holm == result.pass_rate.p
    assert look.p_holm == pytest.approx(2 * look.p)
    assert cer.p_holm == pytest.approx(look.p_holm)
    assert metric(result, "copy").p_holm == 1  # it does not differ, so it does not affect the others
    assert result.pass_rate.significant


def test_a_metric_that_too_few_cases_changed_keeps_its_p() -> None:
    """Alone in its family, Holm changes nothing; beside another metric, it does not count in its adjustment."""
    looks = [3] * 9, [3] * 6 + [2] * 3
    alone = metric(compared(*(scored("look", values) for values in looks)), "look")
    assert alone.p > 0.05
    assert alone.p_holm == alone.p
    sides = [[cell(f"c{at}", scores={"look": a, "copy.cer": b}) for at, (a, b) in enumerate(zip(values, cer, strict=True))]
             for values, cer in zip(looks, ([0.1] * 9, [0.3, 0.2, 0.4, 0.3, 0.2, 0.3, 0.2, 0.4, 0.3]), strict=True)]  # fmt: skip
    cer = metric(compared(*sides), "copy.cer")
    assert cer.p_holm == cer.p


def test_a_metric_detects_less_if_another_shares_its_family() -> None:
    before, after = [3, 2, 4, 3, 2, 4, 3, 5, 1, 3], [2, 3, 4, 4, 1, 5, 3, 4, 2, 3]

    def detectable(names: tuple[str, ...]) -> float:
        sides = [
            [cell(f"c{at}", scores=dict.fromkeys(names, value)) for at, value in enumerate(values)]
            for values in (before, after)
        ]
        size = metric(compared(*sides), "look").detectable
        assert size is not None
        return size

    assert detectable(("look", "copy.cer")) > 1.1 * detectable(("look",))


def test_interval_needs_two_cases() -> None:
    assert compared(verdicts("P"), verdicts("F")).pass_rate.interval is None
    interval = compared(verdicts("PPPPPP"), verdicts("FFFFFF")).pass_rate.interval
    assert -1 <= interval.low < interval.high < -0.3


def test_tags_and_gecko_types_are_separate_and_not_adjusted() -> None:
    marks = (mark("gecko", "gecko"),)
    scores = {"gecko": 0.5, "gecko.counting": 0.0}
    before = [cell(f"c{at}", tags=("text",) if at < 6 else ("edit",), scores=scores, graders=marks) for at in range(9)]
    after = [replace(item, scores={"gecko": 1.0, "gecko.counting": 1.0}) for item in before]
    known = {"gecko": Metric(type="number"), "gecko.counting": Metric(type="number")}
    result = compare(side(before, metrics=known), side(after, "b", metrics=known))
    assert [(item.name, item.n_pairs) for item in result.by_tag] == [("text", 6), ("edit", 3)]
    assert [item.name for item in result.metrics] == ["gecko"]
    assert [(item.name, item.difference, item.p_holm) for item in result.by_type] == [("gecko.counting", 1, None)]


def test_several_model_runs_have_separate_pass_rates() -> None:
    before = [cell(f"c{at}", model_label=label) for at in range(4) for label in "xy"]
    after = [replace(item, verdict="FAIL") if item.model_label == "y" else item for item in before]
    assert [(item.name, item.difference, item.p_holm) for item in compared(before, after).by_run] == [
        ("x", 0, None),
        ("y", -1, None),
    ]
    assert compared(before[:1], before[:1]).by_run == ()


def test_flaky_cases_are_paired_but_excluded_from_differences() -> None:
    before = [*verdicts("PP"), cell("unsure", flaky=True)]
    after = [*verdicts("PP"), cell("unsure", "FAIL")]
    result = compared(before, after)
    assert [pair.b.test_id for pair in result.changed("broken")] == ["unsure"]
    assert (result.pass_rate.n_pairs, result.pass_rate.difference) == (2, 0)
    assert len(result.stable_pairs) == 2


def test_must_pass_cases_come_first_and_flaky_cases_last() -> None:
    before = [cell("a", flaky=True), cell("b"), cell("c", tags=("must_pass",))]
    after = [replace(item, verdict="FAIL") for item in before]
    assert [pair.b.test_id for pair in compared(before, after).changed("broken")] == ["c", "b", "a"]


def test_costs_and_times_cover_pairs_with_both_values() -> None:
    before = [cell("a", cost_usd=0.5, seconds=2), cell("b", cost_usd=None, seconds=4)]
    after = [cell("a", cost_usd=0.25, seconds=1), cell("b", cost_usd=9.0, seconds=3)]
    result = compared(before, after)
    assert (result.cost_usd.a, result.cost_usd.b, result.cost_usd.pairs) == (0.5, 0.25, 1)
    assert (result.seconds.a, result.seconds.b, result.seconds.pairs) == (3, 2, 2)


def test_filters() -> None:
    before = [cell("a", tags=("text",), scores={"look": 1, "copy": True}), cell("b", scores={"look": 1})]
    result = compared(before, before, filters=ComparisonFilters(metrics=("co*",), tags=("text",)))
    assert [item.name for item in result.metrics] == ["copy"]
    assert [pair.b.test_id for pair in result.pairs] == ["a"]
    assert [pair.b.test_id for pair in compared(before, before, filters=ComparisonFilters(cases=("b",))).pairs] == ["b"]


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (
            ComparisonFilters(metrics=("lok",)),
            r"--metric 'lok': no match in either run \(did you mean 'look'\?\)",
        ),
        (ComparisonFilters(cases=("zzz",)), r"--case 'zzz': no match in either run \(known: one\)"),
        (ComparisonFilters(tags=("x",)), "--tag 'x': no match in either run"),
    ],
)
def test_filters_without_matches_are_rejected(filters: ComparisonFilters, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compared([cell()], [cell()], filters=filters)


def test_metric_direction_comes_from_the_side_that_declares_it() -> None:
    unknown = {"copy.cer": Metric(type="number", better="none")}
    cells = scored("copy.cer", [0.5])
    for a, b in ((unknown, METRICS), (METRICS, unknown)):
        result = compare(side(cells, metrics=a), side(cells, "b", metrics=b))
        assert metric(result, "copy.cer").metric.better == "lower"


def _graded(name: str, **changes: Any) -> Side:
    marks = (mark("rubric", **changes), mark("copy", "text", judge_model=None, tool_versions={"rapidocr": "3.10"}))
    return side([cell(f"c{at}", scores={"look": 3, "copy": True}, graders=marks) for at in range(3)], name)


def test_same_grading_has_no_differences() -> None:
    result = compare(_graded("a"), _graded("b"))
    assert result.grading_differences == ()
    assert not result.has_other_source


@pytest.mark.parametrize(
    ("changes", "what", "a", "b"),
    [
        ({"judge_model": "judge-2"}, "judge model", "judge-1", "judge-2"),
        ({"template_sha256": "u" * 64}, "template", "t" * 12, "u" * 12),
        ({"schema_sha256": "u" * 64}, "schema", "s" * 12, "u" * 12),
        ({"config_sha256": "u" * 64}, "config", "c" * 12, "u" * 12),
        ({"version": "2"}, "version", "none", "2"),
    ],
)
def test_grading_differences_are_listed_by_metric(changes: dict[str, str], what: str, a: str, b: str) -> None:
    (result,) = compare(_graded("a"), _graded("b", **changes)).grading_differences
    assert (result.metric, result.what, result.a, result.b, result.pairs) == ("look", what, a, b, 3)


def test_differences_of_tool_version_rules_and_source() -> None:
    a, b = _graded("a"), _graded("b")
    marks = (mark(), mark("copy", "text", judge_model=None, tool_versions={"rapidocr": "3.11"}))
    b = replace(
        b, cells=[replace(item, graders=marks, grade_key="case:1 rules:2") for item in b.cells], source_sha256="1"
    )
    result = compare(a, b)
    assert [(item.metric, item.what, item.a, item.b) for item in result.grading_differences] == [
        ("pass_rate", "verdict rules", "1", "2"),
        ("copy", "rapidocr version", "3.10", "3.11"),
    ]
    assert result.has_other_source


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ("rules", "verdict rules"),
        ("case", "prompt, criteria, expect, tags or metadata of the case"),
        ("optional", "optional graders"),
        ("metrics", "computed metrics"),
        ("images", "input images"),
        ("masks", "masks"),
        ("reference", "reference image"),
    ],
)
def test_changed_parts_of_a_case_are_named(part: str, what: str) -> None:
    sides = [
        replace(base, cells=[replace(item, grade_key=f"other:1{key}") for item in base.cells])
        for base, key in ((_graded("a"), ""), (_graded("b"), f" {part}:2"))
    ]
    (result,) = compare(*sides).grading_differences
    assert (result.metric, result.what, result.a, result.b, result.pairs) == ("pass_rate", what, "none", "2", 3)


def test_missing_judge_on_one_side_is_no_difference() -> None:
    assert compare(_graded("a"), _graded("b", judge_model=None)).grading_differences == ()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        ({"difference": 0.0, "p": 1.0}, "no change"),
        ({"difference": -0.3, "p": None, "changed_cases": 1}, "no clear change"),
        ({"difference": -0.3, "p": 0.2, "changed_cases": 3}, "no clear change"),
        ({"difference": -0.3, "p": 0.2, "changed_cases": 4, "n_cases": 4}, "cannot tell: too few cases"),
        (
            {"difference": -0.3, "p": 0.2, "n_cases": 4, "changed_cases": 4, "within": 0.1, "lowest_p": 1e-9},
            "no clear change",
        ),
        ({"difference": -0.3, "p": 0.01, "changed_cases": 9}, "worse"),
        ({"difference": -0.3, "p": 0.01, "p_holm": 0.06, "changed_cases": 9}, "no clear change"),
        ({"difference": 0.3, "p": 0.01, "p_holm": 0.04, "changed_cases": 9}, "better"),
        ({"difference": 0.3, "p": 0.01, "changed_cases": 9, "metric": Metric(better="none")}, "higher"),
    ],
)
def test_assessment_needs_evidence(changes: dict[str, Any], text: str) -> None:
    """The level that decides is that of the adjusted p-value where there is one."""
    assert assessment(Difference(**{"name": "look", "metric": Metric(type="number"), "n_cases": 9, **changes})) == text


def test_an_error_of_either_side_is_no_failed_cell() -> None:
    for a, b in (("PPF", "P!F"), ("P!F", "PPF")):
        rate = compare(side(verdicts(a)), side(verdicts(b))).pass_rate
        assert (rate.a, rate.b, rate.n_pairs, rate.unmeasured) == (0.5, 0.5, 2, 1)
