"""Drift of the last runs of an experiment: what is tested together, what is left out, and the limit of its p-value."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import pytest
from calibration.drift import NO_DROP, TEN, Case, simulate
from calibration.regression import SHOWN, Design
from compare_factory import cell, mark, side, verdicts

from visioneval import Verdict
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.drift import Drift, find_drift
from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.analysis.sides import Cell, Series, SeriesRun, Side, pooled_side
from visioneval.analysis.stats.drift import drift_limit
from visioneval.analysis.stats.tests import Counts, worse_p
from visioneval.analysis.stats.variance import RunNoise

GOOD, BAD = "P" * 24 + "F" * 6, "P" * 16 + "F" * 14
A = side(verdicts(GOOD))


def run(number: int, cells: str | list[Cell] = GOOD, **changes: Any) -> SeriesRun:
    """A run on a day of January."""
    of_run = verdicts(cells) if isinstance(cells, str) else cells
    name = f"run-{number}"
    known = {"run_ids": ((f"key-{number}", name),), **changes}
    return SeriesRun(name, f"2026-01-{number:02}T03:00:00+00:00", side(of_run, name, **known))


def drift(*runs: SeriesRun, a: Side = A, last: int = 5, **options: Any) -> Drift:
    return find_drift(a, Series("nightly", last, runs, last), **options)


def test_the_limit_is_that_of_known_designs() -> None:
    """With an exact baseline, windows of all runs have Pocock's constant for 20 looks (2.392), those of one run are
    independent, and one baseline run that outweighs everything leaves a single test."""
    assert drift_limit(1e6, 20) == pytest.approx(1 - NormalDist().cdf(2.392), abs=3e-4)
    assert drift_limit(1e6, 1) == pytest.approx(1 - 0.95 ** (1 / 20), abs=3e-4)
    assert 0.02 < drift_limit(0.1, 20) < 0.05
    assert drift_limit(5, 7) < drift_limit(5, 20) < drift_limit(1, 20)
    assert drift_limit(5, 100) < drift_limit(5, 20), "more nights than 20 share the error rate"


def test_one_run_is_tested_as_a_comparison_of_two() -> None:
    (night,) = drift(run(1, BAD)).nights
    comparison = compare(A, side(verdicts(BAD)))
    assert night.difference is not None
    assert night.evidence is not None
    assert night.difference.difference == comparison.pass_rate.difference
    assert night.difference.interval == comparison.pass_rate.interval
    assert 2 * night.evidence.p == pytest.approx(comparison.pass_rate.p)
    assert (night.evidence.runs, night.evidence.cases) == (1, 30)


def test_runs_together_count_the_samples_of_a_once() -> None:
    found = drift(run(1, BAD), run(2, GOOD), run(3, BAD))
    evidence = found.nights[-1].evidence
    assert evidence is not None
    assert evidence.change == pytest.approx(-16 / 90)
    by_hand = [Counts(1, 1, 3, 3)] * 16 + [Counts(1, 1, 1, 3)] * 8 + [Counts(0, 1, 0, 3)] * 6
    assert evidence.p == pytest.approx(worse_p(by_hand))
    assert [night.evidence.runs for night in found.nights if night.evidence] == [1, 2, 3]


def test_a_window_has_the_last_runs_only_and_reaches_before_the_table() -> None:
    found = drift(*(run(number, BAD if number > 4 else GOOD) for number in range(1, 8)), last=3)
    assert [night.run_id for night in found.nights] == ["run-5", "run-6", "run-7"]
    assert [night.evidence.runs for night in found.nights if night.evidence] == [3, 3, 3]
    changes = [night.evidence.change for night in found.nights if night.evidence]
    assert changes == pytest.approx([-8 / 90, -16 / 90, -24 / 90])


def test_a_drop_is_a_drift_since_the_first_night_that_shows_it() -> None:
    found = drift(*(run(number, BAD if number > 2 else GOOD) for number in range(1, 8)))
    assert found.state == "failed"
    beyond = [night.run_id for night in found.nights if found.is_beyond(night)]
    assert beyond[-1] == "run-7"
    assert found.message.endswith(f", since {beyond[0]} of 2026-01-0{beyond[0][-1]}")
    assert "below" in found.message
    nights = [run(number, BAD) for number in range(1, 8)]
    assert drift(*nights[2:]).message.endswith(", since run-3 of 2026-01-03"), "the runs of the series are all shown"
    assert drift(*nights).message.endswith(", since run-3 of 2026-01-03 or before"), "two of them are not shown"
    equal = drift(*(run(number) for number in range(1, 8)))
    assert equal.state == "passed"
    assert equal.message.startswith("no drift found: pass rate +0.0 points over the last 5 runs (p 0.5, not below ")
    better = drift(*(run(number, "P" * 30) for number in range(1, 8)))
    assert better.state == "passed"


def test_the_noise_between_the_runs_of_a_counts() -> None:
    quiet = pooled_side([A] * 3)
    letters = (GOOD, "P" * 30, "P" * 18 + "F" * 12)
    noisy = pooled_side([side(verdicts(of_run)) for of_run in letters])
    runs = [run(number, BAD) for number in range(1, 6)]
    found = [drift(*runs, a=a).nights[-1].evidence for a in (quiet, noisy)]
    p = [evidence.p for evidence in found if evidence]
    assert p[0] < 0.001 < p[1]
    passes = [[of_run[at] for of_run in letters].count("P") for at in range(30)]
    by_hand = [Counts(passed, 3, 5 * (at < 16), 5) for at, passed in enumerate(passes)]
    noise = compare(noisy, side(verdicts(BAD))).noise
    assert noise.shared > 0
    assert p[1] == pytest.approx(worse_p(by_hand, replace(noise, new_runs=5)))
    assert RunNoise(3, 0.01, new_runs=5).of_difference == pytest.approx(0.01 * (1 / 3 + 1 / 5))
    assert RunNoise(3, 0.01).of_difference == pytest.approx(0.01 * (1 / 3 + 1))


def test_too_few_cases_and_runs_cannot_tell() -> None:
    few = side(verdicts("PPPP"))
    assert drift(run(1, "FFFF"), a=few).state == "cannot_tell"
    assert "4 cases in 1 run cannot show a drift (p 0.031 at best" in drift(run(1, "PPPP"), a=few).message
    enough = [run(number, "FFFF") for number in range(1, 6)]
    assert drift(*enough, a=few).state == "failed"
    passing = [run(number, "PPPP") for number in range(1, 6)]
    assert drift(*passing, a=few).state == "passed"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (run(4, BAD, state="interrupted"), "incomplete: interrupted"),
        (run(4, BAD, state="running"), "incomplete: running"),
        (SeriesRun("run-4", "2026-01-04", None, "cannot be read: damaged"), "cannot be read: damaged"),
        (run(4, BAD, run_ids=(("key-2", "run-2"),)), "it is the same run as run-2"),
        (run(4, BAD, run_ids=(("base", "base"),)), "it is one of the runs of A"),
        (run(4, "P" * 28 + "!!"), "2 of 30 cells were not measured, more than 5%"),
        (run(4, [cell("other")]), "it has no cell in common with A"),
        (run(4, verdicts(BAD, grade_key="case:1 rules:2")), "it was graded in another way than A: verdict rules"),
        (run(4, verdicts("F" * 30, flaky=True)), ""),
    ],
)
def test_what_cannot_be_compared_is_left_out_and_said(bad: SeriesRun, why: str) -> None:
    a = replace(A, run_ids=(("base", "base"),))
    found = drift(run(1), run(2), run(3), bad, run(5), a=a)
    assert found.nights[3].left_out == why
    assert (found.nights[3].evidence is None) is bool(why)
    assert found.nights[4].evidence is not None
    assert found.nights[4].evidence.runs == (4 if why else 5)
    assert drift(run(1), run(2), run(3), bad, a=a).state == ("unmeasured" if why else "failed"), "the newest run"


def test_outputs_of_an_earlier_run_are_no_new_evidence() -> None:
    def outputs(letters: str, start: int) -> list[Cell]:
        return [replace(item, artifact_sha256=str(start + at)) for at, item in enumerate(verdicts(letters))]

    a = side(outputs(GOOD, 0))
    runs = run(1, outputs(BAD, 100)), run(2, outputs(BAD, 100)), run(3, outputs(GOOD, 0)), run(4, outputs(BAD, 101))
    found = drift(*runs, a=a)
    assert [night.left_out for night in found.nights] == [
        "",
        "its outputs are those of run-1: nothing new was generated",
        "its outputs are those of A: nothing new was generated",
        "",
    ]


def test_cells_that_are_graded_in_another_way_are_left_out_of_a_run() -> None:
    cells = [replace(item, graders=(mark(judge_model="judge-1"),)) for item in verdicts(GOOD)]
    moved = [replace(item, graders=(mark(judge_model="judge-2"),)) if at < 2 else item for at, item in enumerate(cells)]
    (night,) = drift(run(1, moved), a=side(cells)).nights
    assert night.remarks == ("2 cells graded in another way than in A: rubric: judge model judge-1 -> judge-2",)
    assert night.evidence is not None
    assert night.evidence.cases == 28
    hashed = [replace(item, graders=(mark(config_sha256="d" * 64),)) for item in cells]
    assert (
        drift(run(1, hashed), a=side(cells)).nights[0].left_out
        == "it was graded in another way than A: rubric: options of the grader"
    )


def test_cases_of_one_side_are_said() -> None:
    (night,) = drift(run(1, [*verdicts(GOOD)[:28], cell("new")])).nights
    assert night.remarks == ("2 cells not in this run: c28, c29", "1 cell not in A: new")
    half = drift(run(1, verdicts(GOOD)[:15])).nights[0]
    assert (half.left_out, half.remarks) == ("", ("15 cells not in this run: c15, c16, c17 and 12 more",))
    assert drift(run(1, verdicts(GOOD)[:14])).nights[0].left_out == "it has only 14 of 30 cells of A"
    (lost,) = drift(run(1, "P" * 29 + "!")).nights
    assert lost.remarks == ("1 of 30 cells was not measured",)


def test_a_granted_share_of_cells_may_lack_a_verdict() -> None:
    runs = [run(number, "P" * 24 + "F" * 3 + "!!!") for number in range(1, 4)]
    assert drift(*runs).state == "unmeasured"
    assert drift(*runs, granted=0.1).state == "passed"


def test_half_of_the_runs_left_out_are_too_many() -> None:
    def holes(number: int) -> list[SeriesRun]:
        return [run(at, GOOD, state="interrupted" if at <= number else "complete") for at in range(1, 6)]

    assert drift(*holes(2)).state == "passed"
    assert drift(*holes(3)).state == "unmeasured"
    assert drift(*holes(3)).message.startswith("3 of the last 5 runs are left out; pass rate +0.0 points over 2 of")
    worse = [*holes(3)[:3], run(4, "F" * 30), run(5, "F" * 30)]
    assert drift(*worse).state == "failed", "a drift that is found counts"


def test_days_without_a_run_are_said_of_nightly_runs() -> None:
    nightly = drift(*(run(number) for number in (1, 2, 3, 6, 7)))
    assert nightly.missing_days == ("2026-01-04", "2026-01-05")
    weekly = drift(*(run(number) for number in (1, 8, 15, 22)))
    assert weekly.missing_days == ()
    unknown = replace(run(2), started_at="never")
    assert drift(run(1), unknown).missing_days == ()


def test_a_selection_of_cases_is_tested_alone() -> None:
    half = verdicts("P" * 15 + "F" * 15)
    some = drift(run(1, half), filters=ComparisonFilters(cases=("c2?",)))
    assert some.nights[0].evidence is not None
    assert some.nights[0].evidence.cases == 10
    tagged = [replace(item, tags=("text",)) if at < 6 else item for at, item in enumerate(verdicts(GOOD))]
    of_tag = drift(run(1, half), a=side(tagged), filters=ComparisonFilters(tags=("text",)))
    assert of_tag.nights[0].evidence is not None
    assert of_tag.nights[0].evidence.cases == 6, "the tags are those of A"


def test_model_runs_are_paired_by_label_and_by_map() -> None:
    def both(letters: str, other: str) -> list[Cell]:
        return [replace(item, model_label=label) for label in ("m", other) for item in verdicts(letters)]

    a = side(both(GOOD, "n"))
    same = drift(run(1, both(BAD, "n")), a=a).nights[0]
    assert same.evidence is not None
    assert same.evidence.change == pytest.approx(-8 / 30)
    renamed = drift(run(1, both(BAD, "new")), run(2, verdicts(BAD)), a=a, renamed=("n=new", "m=m"))
    assert renamed.nights[0].evidence is not None
    assert renamed.nights[0].evidence.change == pytest.approx(-8 / 30)
    assert renamed.nights[1].left_out == "it has no cell in common with A"


def test_samples_of_a_case_are_one_case() -> None:
    def samples(letters: str, number: int) -> list[Cell]:
        return [replace(item, sample_index=at) for item in verdicts(letters) for at in range(number)]

    (night,) = drift(run(1, samples(BAD, 3)), a=side(samples(GOOD, 3))).nights
    assert night.evidence is not None
    assert night.evidence.cases == 30
    assert night.evidence.p == pytest.approx(
        worse_p([Counts(3, 3, 3, 3)] * 16 + [Counts(3, 3, 0, 3)] * 8 + [Counts(0, 3, 0, 3)] * 6)
    )


def test_a_case_of_which_a_has_no_verdict_is_not_compared() -> None:
    a = side([replace(item, verdict=Verdict.ERROR) if item.test_id == "c0" else item for item in verdicts(GOOD)])
    assert drift(run(1), a=a).nights[0].left_out == ""
    empty = side([replace(item, verdict=Verdict.ERROR) for item in verdicts(GOOD)])
    assert drift(run(1), a=empty).nights[0].left_out == "of A, 30 of 30 cells were not measured, more than 5%"


@pytest.mark.parametrize(("errors", "granted", "is_left_out"), [(1, 0.0, False), (2, 0.0, True), (2, 0.1, False)])
@pytest.mark.parametrize("in_b", [GOOD, "!" * 2 + GOOD[2:]])
def test_too_many_cells_of_a_without_a_verdict_leave_a_run_out(
    errors: int, granted: float, is_left_out: bool, in_b: str
) -> None:
    """Also those that are errors on both sides: the few others would pass for all."""
    if errors == 1:
        in_b = in_b.replace("!!", "!P")
    (night,) = drift(run(1, in_b), a=side(verdicts("!" * errors + GOOD[errors:])), granted=granted).nights
    verb = "was" if errors == 1 else "were"
    sentence = f"of A, {errors} of 30 cells {verb} not measured"
    assert night.left_out == (f"{sentence}, more than 5%" if is_left_out else "")
    assert night.remarks == (() if is_left_out else (sentence,))


@pytest.mark.parametrize("differing", [15, 16])
def test_a_run_of_which_more_than_half_was_graded_in_another_way_is_left_out(differing: int) -> None:
    cells = [
        replace(item, grade_key="case:1 rules:2") if at < differing else item for at, item in enumerate(verdicts(GOOD))
    ]
    (night,) = drift(run(1, cells)).nights
    why = "it was graded in another way than A in 16 of 30 cells: verdict rules"
    assert night.left_out == ("" if differing == 15 else why)
    lacking = drift(run(1, cells[:29])).nights[0]
    assert lacking.left_out.startswith("it was graded in another way than A in "), "cells that it lacks count too"


def test_a_complete_copy_of_an_incomplete_run_counts() -> None:
    known = {"run_ids": (("key", "run"),)}
    found = drift(run(1, state="interrupted", **known), run(2, **known), run(3, **known))
    assert [night.left_out for night in found.nights] == [
        "incomplete: interrupted",
        "",
        "it is the same run as run-2",
    ]


@pytest.mark.slow
def test_nights_of_equal_quality_seldom_alarm_and_a_drop_is_found_sooner() -> None:
    """Of 100 series, 5 are expected to alarm in 20 nights at most; 56 of 100 find ten points by night 5, and 37 by each
    night alone."""
    design = Design(30, 1, SHOWN[0])
    equal = simulate(Case(design, 5, 7, NO_DROP), 60)
    assert equal.together[20] <= 6
    worse = simulate(Case(design, 5, 7, TEN, nights=5), 60)
    assert worse.together[5] >= 24
    assert worse.together[5] > worse.nightly[5]
