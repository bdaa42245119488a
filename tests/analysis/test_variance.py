"""Where the noise of a run is: components from records, half-widths, and plain sentences."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from record_factory import info, record
from rich.console import Console

from visioneval import GraderRecord, Record, Summary
from visioneval.analysis.stats.variance import CaseTable, case_of_values, case_of_votes, components
from visioneval.analysis.summary.summary import summarize
from visioneval.analysis.summary.variance import ONE_CASE, ONE_SAMPLE, ONE_VOTE, NoiseFinding
from visioneval.report.run import run_report
from visioneval.report.sections import Section
from visioneval.report.terminal import print_report
from visioneval.suite.model import Suite

SCORE = {"type": "score", "scale": [0, 5], "description": "order"}
FINGERPRINT = {"config_sha256": "0" * 64}


def summary_of(records: list[Record], votes: int = 3, labels: tuple[str, ...] = ("m",)) -> Summary:
    suite = Suite.model_validate(
        {
            "name": "demo",
            "judges": {"default": {"provider": "recorded", "path": "answers.csv"}},
            "cases": [{"id": name, "prompt": "a tree"} for name in dict.fromkeys(cell.test_id for cell in records)],
            "models": [{"provider": "mock", "label": label} for label in labels],
            "graders": [
                {"key": "look", "type": "rubric", "votes": votes, "metrics": {"layout": SCORE}},
                {"key": "own", "type": "own:Look", "writes": {"edge": {"type": "number"}}},
            ],
            "verdict": ["layout >= 3"],
        }
    )
    metrics: Any = {"layout": {"type": "number"}, "edge": {"type": "number"}}
    return summarize(info(suite=suite, metrics=metrics, state="complete", planned_cells=len(records)), records)


def cell(case: str, sample: int, votes: list[Any] | None, score: float | None = 1.0, **changes: Any) -> Record:
    details = {} if votes is None else {"votes": {"layout": votes}}
    grader = GraderRecord(key="look", type="rubric", details=details, fingerprint=FINGERPRINT)
    fields = {"scores": {"layout": score}, "graders": (grader,), **changes}
    return record(test_id=case, sample_index=sample, **fields)


def finding(summary: Summary, name: str) -> NoiseFinding:
    return next(entry for entry in summary.noise if entry.name == name)


def simulated(cases: int, samples: int, votes: int) -> list[Record]:
    random = np.random.default_rng(3)
    records = []
    for case, ability in enumerate(random.normal(0, 2, cases)):
        for sample, output in enumerate(random.normal(ability, 1, samples)):
            answers = random.normal(output, 0.5, votes).tolist()
            records.append(cell(f"c{case}", sample, answers, float(np.mean(answers))))
    return records


def test_cases_samples_and_votes_are_separated_where_there_are_several_of_each() -> None:
    layout = finding(summary_of(simulated(250, 3, 4)), "layout")
    assert layout.case == pytest.approx(4, rel=0.2)
    assert layout.sample == pytest.approx(1, rel=0.2)
    assert layout.vote == pytest.approx(0.25, rel=0.1)
    assert (layout.cases, layout.samples, layout.votes) == (250, 3, 4)
    assert layout.notes == ()


def test_the_half_width_is_that_of_the_metrics_interval() -> None:
    summary = summary_of(simulated(50, 2, 2))
    layout, estimate = finding(summary, "layout"), summary.models[0].metrics["layout"]
    assert layout.half_width == pytest.approx(((estimate.high or 0) - (estimate.low or 0)) / 2, rel=1e-6)


@pytest.mark.parametrize(("passed", "cases", "samples"), [(19, 20, 2), (2, 3, 1), (1, 2, 1), (12, 20, 1)])
def test_the_half_width_of_a_rate_is_that_of_its_interval_and_so_is_that_of_twice_the_cases(
    passed: int, cases: int, samples: int
) -> None:
    """Also near 100 %, where the interval is far from symmetric, and with few cases."""

    def measured(times: int) -> tuple[NoiseFinding, float]:
        records = [
            cell(f"c{case}", sample, None, 1.0, verdict="PASS" if case % cases < passed or sample else "FAIL")
            for case in range(cases * times)
            for sample in range(samples)
        ]
        summary = summary_of(records, 1)
        estimate = summary.models[0].counts.pass_rate
        return finding(summary, "pass_rate"), ((estimate.high or 0) - (estimate.low or 0)) / 2

    rate, half_width = measured(1)
    assert rate.half_width == pytest.approx(half_width)
    assert rate.doubled["cases"] == pytest.approx(measured(2)[1], rel=0.12)


def test_doubling_cases_narrows_most_unless_samples_do_as_much() -> None:
    layout = finding(summary_of(simulated(50, 2, 2)), "layout")
    assert layout.best == ("cases",)
    assert layout.doubled["cases"] < layout.doubled["samples"] < layout.doubled["votes"] < (layout.half_width or 0)
    noisy = [cell(f"c{case}", sample, None, float(sample)) for case in range(40) for sample in range(2)]
    equal = finding(summary_of(noisy, 1), "layout")
    assert equal.case == 0
    assert equal.best == ("cases", "samples")


def test_model_runs_are_pooled_without_their_difference() -> None:
    records = [
        cell(f"c{case}", sample, None, score + 100 * (label == "n"), model_label=label)
        for label in ("m", "n")
        for case in range(3)
        for sample, score in enumerate((case, case + 1.0))
    ]
    layout = finding(summary_of(records, 1, ("m", "n")), "layout")
    assert (layout.sample, layout.cases) == (pytest.approx(0.5), 3)
    assert layout.case == pytest.approx(1 - 0.25)


NOTES: list[tuple[list[Record], set[str]]] = [
    ([cell("a", 0, None, 1.0), cell("b", 0, None, 2.0)], {ONE_SAMPLE, ONE_VOTE}),
    ([cell("a", 0, [1, 2]), cell("b", 0, [2, 3])], {ONE_SAMPLE}),
    ([cell("a", 0, None, 1.0), cell("a", 1, None, 2.0)], {ONE_CASE, ONE_VOTE}),
]


@pytest.mark.parametrize(("records", "notes"), NOTES)
def test_what_cannot_be_separated_is_explained(records: list[Record], notes: set[str]) -> None:
    layout = finding(summary_of(records), "layout")
    assert set(layout.notes) == notes
    assert ("samples" in layout.doubled) == (layout.sample is not None and layout.half_width is not None)


def test_only_graders_with_a_judge_have_votes() -> None:
    records = [cell("a", 0, None, 1.0, scores={"edge": 1.0}), cell("b", 0, None, 1.0, scores={"edge": 2.0})]
    assert finding(summary_of(records), "edge").notes == (ONE_SAMPLE,)


def test_lost_votes_nulls_and_errors_do_not_count() -> None:
    records = [
        cell("a", 0, [1, None, 3], 1.0),
        cell("b", 0, [2, 2, 2], 2.0),
        cell("c", 0, [None, None, 5], None),
        cell("d", 0, None, None, verdict="ERROR"),
    ]
    layout = finding(summary_of(records), "layout")
    assert layout.vote == pytest.approx(2 / 3)
    assert layout.votes == pytest.approx(5 / 2)


def test_votes_of_a_strangers_record_are_checked() -> None:
    strange: list[Any] = [[10**400, "5", True, [1]], [True, True]]
    records = [cell("a", 0, strange[0], 1.0), cell("b", 0, strange[1], 1.0)]
    assert finding(summary_of(records), "layout").votes == 1.5
    grader = GraderRecord(key="look", type="rubric", details={"votes": [1, 2]}, fingerprint=FINGERPRINT)
    summary_of([cell("a", 0, None, graders=(grader,))])


def test_findings_do_not_depend_on_the_order_of_the_records() -> None:
    records = simulated(9, 2, 3)
    first, second = summary_of(records), summary_of(records[:1] + records[:0:-1])
    assert first.noise == second.noise


def test_a_run_without_measured_cells_has_no_noise() -> None:
    assert summary_of([cell("a", 0, None, None, verdict="ERROR")]).noise == ()


def noise_of(summary: Summary) -> Section:
    (section,) = (part for part in run_report(summary).sections if isinstance(part, Section) and part.name == "noise")
    return section


def test_nothing_is_printed_as_nan_and_sentences_name_their_metrics() -> None:
    console = Console(width=100, record=True, markup=False)
    constant = summary_of([cell("a", 0, [1, 1], 1.0), cell("b", 0, [1, 1], 1.0)])
    for summary in (summary_of(simulated(20, 2, 3)), constant, constant.model_copy(update={"noise": ()})):
        print_report(run_report(summary), console, is_full=True)
    text = " ".join(console.export_text().split())
    assert not re.search(r"\bnan\b", text.lower())
    assert text.count("Where the noise is:") == 2
    assert "To narrow the interval, add cases: layout" in text
    assert "pass_rate, layout: all values of a model run are equal: no variance to estimate" in text


def test_columns_without_any_number_are_left_out() -> None:
    section = noise_of(summary_of([cell("a", 0, None, 1.0), cell("b", 0, None, 2.0)]))
    assert [column.name for column in section.columns] == ["metric", "now", "2x cases"]
    assert all(len(cells) == len(section.columns) for cells in section.rows)
    every = [column.name for column in noise_of(summary_of(simulated(20, 2, 3))).columns]
    assert every[1:] == ["case", "sample", "vote", "now", "2x cases", "2x samples", "2x votes"]


def stratum(table: NDArray[np.float64]) -> list[CaseTable]:
    """A table of shape ``(cases, samples, votes)``; NaN is a missing vote."""
    cases = []
    for samples in table:
        given = [votes[~np.isnan(votes)] for votes in samples]
        rows = [(len(votes), float(votes.mean()), float(np.square(votes - votes.mean()).sum()))
                for votes in given if len(votes)]  # fmt: skip
        if rows:
            cases.append(case_of_votes(rows))
    return cases


def test_one_vote_per_sample_is_one_value_per_sample() -> None:
    assert case_of_values([1.0, 2.0, 6.0]) == case_of_votes([(1, 1.0, 0.0), (1, 2.0, 0.0), (1, 6.0, 0.0)])


def nested(shape: tuple[int, int, int], deviations: tuple[float, float, float], seed: int = 0) -> NDArray[np.float64]:
    random, (cases, samples, votes) = np.random.default_rng(seed), shape
    case, sample, vote = deviations
    table: NDArray[np.float64] = (
        random.normal(0, case, (cases, 1, 1))
        + random.normal(0, sample, (cases, samples, 1))
        + random.normal(0, vote, (cases, samples, votes))
    )
    return table


def test_balanced_data_give_the_mean_squares_of_the_textbook_table() -> None:
    cases, samples, votes = 6, 4, 3
    table = nested((cases, samples, votes), (2, 1, 0.5))
    by_sample, by_case = table.mean(axis=2), table.mean(axis=(1, 2))
    votes_ms = np.square(table - by_sample[..., None]).sum() / (cases * samples * (votes - 1))
    samples_ms = votes * np.square(by_sample - by_case[:, None]).sum() / (cases * (samples - 1))
    cases_ms = votes * samples * np.square(by_case - table.mean()).sum() / (cases - 1)
    result = components([stratum(table)])
    assert result.vote == pytest.approx(votes_ms)
    assert result.sample == pytest.approx((samples_ms - votes_ms) / votes)
    assert result.case == pytest.approx((cases_ms - samples_ms) / (votes * samples))


def test_balanced_data_agree_with_restricted_maximum_likelihood() -> None:
    import statsmodels.api as sm

    table = nested((30, 4, 1), (2, 1, 0))[..., 0]
    fitted = sm.MixedLM(table.ravel(), np.ones(table.size), groups=np.repeat(np.arange(30), 4)).fit(reml=True)
    result = components([stratum(table[..., None])])
    assert result.case == pytest.approx(float(fitted.cov_re[0, 0]), rel=1e-3)
    assert result.sample == pytest.approx(float(fitted.scale), rel=1e-3)


@pytest.mark.slow
def test_estimates_from_unbalanced_data_are_unbiased() -> None:
    estimates = []
    for seed in range(200):
        table = nested((12, 5, 4), (1.5, 1, 2), seed)
        random = np.random.default_rng([seed, 1])
        table[random.random(table.shape) < 0.4] = np.nan
        result = components([stratum(table), stratum(nested((4, 2, 1), (1.5, 1, 2), seed + 1000) + 40)])
        estimates.append([result.case or 0.0, result.sample or 0.0, result.vote or 0.0])
    assert np.mean(estimates, axis=0) == pytest.approx([2.25, 1, 4], rel=0.1)


def test_strata_pool_their_cases_but_not_their_means() -> None:
    table = nested((10, 3, 2), (1, 1, 1))
    apart = components([stratum(table), stratum(table + 1000)])
    together = components([stratum(table), stratum(table)])
    assert [apart.case, apart.sample, apart.vote] == pytest.approx([together.case, together.sample, together.vote])


def test_what_cannot_be_separated_is_part_of_the_level_above() -> None:
    table = nested((10, 1, 1), (1, 1, 1))
    single = components([stratum(table)])
    assert (single.sample, single.vote) == (None, None)
    assert single.case == pytest.approx(float(table.var(ddof=1)))
    several_votes = nested((10, 1, 5), (1, 1, 1))
    result = components([stratum(several_votes)])
    assert result.sample is None
    assert result.vote == pytest.approx(float(several_votes.var(axis=2, ddof=1).mean()))
    assert result.case == pytest.approx(float(several_votes.mean(axis=2).var(ddof=1)) - (result.vote or 0) / 5)
    several_samples = nested((1, 6, 1), (1, 1, 1))
    result = components([stratum(several_samples)])
    assert (result.case, result.vote) == (None, None)
    assert result.sample == pytest.approx(float(several_samples.var(ddof=1)))
    nothing = components([])
    assert (nothing.case, nothing.sample, nothing.vote) == (None, None, None)


def test_negative_components_are_0() -> None:
    table = np.array([[[0.0], [4.0]], [[4.0], [0.0]], [[0.1], [3.9]]])
    assert components([stratum(table)]).case == 0


def test_no_votes_are_advised_where_the_grader_has_none() -> None:
    suite = Suite.model_validate(
        {
            "name": "demo",
            "judges": {"default": {"provider": "recorded", "path": "answers.csv"}},
            "cases": [{"id": name, "prompt": "a tree"} for name in "ab"],
            "models": [{"provider": "mock", "label": "m"}],
            "graders": [{"key": "g", "type": "gecko"}],
            "verdict": ["gecko >= 0.5"],
        }
    )
    metrics: Any = {"gecko": {"type": "number"}}
    outcomes = (("a", 1.0, "PASS"), ("b", 0.0, "FAIL"))
    records = [record(test_id=name, scores={"gecko": score}, verdict=verdict) for name, score, verdict in outcomes]
    summary = summarize(info(suite=suite, metrics=metrics, state="complete", planned_cells=2), records)
    assert [entry.notes for entry in summary.noise] == [(ONE_SAMPLE,), (ONE_SAMPLE,)]
