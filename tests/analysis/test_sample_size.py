"""How many cases show a difference: by simulation, from stated numbers, from earlier runs, and bad input."""

from __future__ import annotations

import json
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from toys import Toy

from visioneval import Metric, UsageError, Verdict
from visioneval.analysis.planning import Detect, Noise, noise_of, parse_detect, stated_noise
from visioneval.analysis.sides import Cell, Side
from visioneval.analysis.stats.tests import Counts, paired_test, worse_p

METRICS = {
    "good": Metric(type="bool"),
    "layout": Metric(type="number", range=(0, 5)),
    "edge": Metric(type="number", range=(0, None)),
}
FIVE = parse_detect("5", METRICS, list(METRICS))


@pytest.mark.parametrize(("samples", "correlation"), [(1, 0.2), (5, 0.7)])
def test_the_stated_number_of_cases_detects_ten_points_with_80_percent_power(samples: int, correlation: float) -> None:
    noise = stated_noise(FIVE, 0.8, correlation)
    cases = noise.cases_for(parse_detect(10, METRICS, []), samples)
    random, spread = np.random.default_rng(samples), (1 - correlation) / correlation
    ability = random.beta(0.8 * spread, 0.2 * spread, (400, cases))
    before, after = random.binomial(samples, ability), random.binomial(samples, ability * (1 - 0.1 / 0.8))
    runs = [
        [Counts(*counts) for counts in zip(a, repeat(samples), b, repeat(samples), strict=False)]
        for a, b in zip(before.tolist(), after.tolist(), strict=True)
    ]
    power = np.mean([(worse_p(cases) or 0.0) < 0.025 for cases in runs])
    assert float(power) == pytest.approx(0.8, abs=0.07)


def test_the_stated_number_of_cases_detects_a_metric_at_the_level_of_its_family() -> None:
    detect = parse_detect("layout:0.3", METRICS, list(METRICS))
    assert detect.level == pytest.approx(0.05 / 3)
    noise = Noise(3.0, within=0.8, change=0.2)
    cases = noise.cases_for(detect, 4)
    changes = np.random.default_rng(1).normal(0.3, (0.2 + 2 * 0.8 / 4) ** 0.5, (600, cases))
    assert _power(changes, detect.level) == pytest.approx(0.8, abs=0.06)


def _power(changes: Any, level: float) -> float:
    tests = [paired_test(row, 1.0) for row in changes.tolist()]
    return float(np.mean([test is not None and test.p < level for test in tests]))


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("text", ["5", "20", "good:0.1", "edge:0.4"])
def test_one_case_less_does_not_suffice(text: str, samples: int) -> None:
    detect = parse_detect(text, METRICS, list(METRICS))
    noise = Noise(0.7, 0.12, 0.01)
    cases = noise.cases_for(detect, samples)
    assert (noise.detectable(detect, cases, samples) or 9) <= detect.difference
    assert (noise.detectable(detect, cases - 1, samples) or 9) > detect.difference


def test_more_samples_need_no_more_cases_and_a_smaller_difference_needs_more() -> None:
    noise = stated_noise(FIVE, None, None)
    needed = [noise.cases_for(FIVE, samples) or 0 for samples in (1, 2, 3, 5, 8)]
    assert needed == sorted(needed, reverse=True)
    assert (noise.cases_for(parse_detect(2, METRICS, []), 1) or 0) > needed[0]
    assert noise.cases_for(parse_detect(0.01, METRICS, []), 1) is None


BAD = [
    ("0", "above 0 and at most 100"),
    ("-3", "above 0"),
    ("101", "at most 100"),
    ("nan", "write points"),
    ("many", "write points"),
    ("", "write points"),
    ("good:", "write points"),
    ("godo:0.1", r"no metric 'godo' \(did you mean 'good'\?\)"),
    ("good:2", "at most 1"),
    ("layout:6", "at most 5"),
    ("edge:0", "above 0$"),
]


@pytest.mark.parametrize(("text", "problem"), BAD)
def test_bad_differences(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_detect(text, METRICS, list(METRICS))


@pytest.mark.parametrize(("rate", "correlation"), [(1.1, None), (-0.1, None), (None, 1.0), (None, -0.1)])
def test_bad_stated_numbers(rate: float | None, correlation: float | None) -> None:
    with pytest.raises(UsageError, match="must be from 0"):
        stated_noise(FIVE, rate, correlation)


def test_the_variance_of_a_number_must_come_from_a_run() -> None:
    with pytest.raises(UsageError, match="add --like RUN"):
        stated_noise(parse_detect("edge:0.1", METRICS, []), 0.8, None)


def side(name: str, values: list[list[float | None]], labels: tuple[str, ...] = ("m",), **changes: Any) -> Side:
    """A run in which each row has the samples of a case: of the metric ``edge``, which passes from 1 on."""
    cells = [
        Cell(
            f"case{case}",
            label,
            sample,
            Verdict.ERROR if value is None else Verdict.PASS if value >= 1 else Verdict.FAIL,
            {"edge": value},
        )
        for label in labels
        for case, row in enumerate(values)
        for sample, value in enumerate(row)
    ]
    return Side(name=name, cells=cells, suite="demo", **changes)


EDGE = Detect("edge", METRICS["edge"], 0.3)


def test_a_run_with_several_samples_shows_the_variance_within_cases() -> None:
    noise = noise_of(EDGE, [side("a", [[1, 3], [4, 4], [0, None]])], "demo", None)
    assert noise.within == pytest.approx((2 + 0) / 2)
    assert noise.change == 0
    assert noise.notes == ("Variance between samples of a case from a.",)


def test_model_runs_differ_in_their_means_without_being_noise() -> None:
    two = side("a", [[1, 3], [2, 4]])
    shifted = [Cell(cell.test_id, "n", cell.sample_index, cell.verdict, {"edge": (cell.scores["edge"] or 0) + 50})
               for cell in two.cells]  # fmt: skip
    both = Side(name="a", cells=[*two.cells, *shifted], suite="demo")
    assert noise_of(EDGE, [both], "demo", None).within == pytest.approx(2.0)


def test_a_run_with_one_sample_needs_a_correlation() -> None:
    run = side("a", [[0], [2], [4]])
    noise = noise_of(EDGE, [run], "other", 0.25)
    assert noise.within == pytest.approx(4 * 0.75)
    assert "correlation of 0.25" in noise.notes[0]
    assert noise.notes[1] == "a is a run of the suite 'demo', not of 'other'."
    assert noise_of(EDGE, [run], "demo", None).within == pytest.approx(4 * 0.5)


def test_two_runs_show_the_variance_of_their_differences() -> None:
    a, b = side("a", [[0], [2], [4]]), side("b", [[1], [2], [6]])
    noise = noise_of(EDGE, [a, b], "demo", None)
    assert 2 * noise.within == pytest.approx(1.0)  # the differences are 1, 0 and 2
    assert "all of it counts as noise that more samples reduce" in noise.notes[0]
    a, b = side("a", [[0, 2], [2, 4], [4, 6]]), side("b", [[0, 2], [8, 10], [4, 6]])
    noise = noise_of(EDGE, [a, b], "demo", None)
    assert noise.within == pytest.approx(2.0)
    assert noise.change == pytest.approx(12 - 2 * 2 / 2)


def test_pass_rates_come_from_verdicts_without_errors_and_flaky_cases() -> None:
    run = side("a", [[1, 0], [1, 1], [None, None]])
    flaky = Cell("z", "m", 0, Verdict.FAIL, flaky=True)
    noise = noise_of(FIVE, [Side(name="a", cells=[*run.cells, flaky])], "demo", None)
    assert noise.rate == 0.75
    assert noise.within == pytest.approx(0.25)


SIDES: list[tuple[list[Side], float | None, str]] = [
    ([Side(name="a", cells=[])], None, "a: the run has no samples"),
    ([side("a", [[None]])], None, "no score of edge"),
    ([side("a", [[1]])], None, "one case with one sample"),
    ([side("a", [[1, 1], [2, 2]])], None, "the same in all samples"),
    ([side("a", [[1, 2]])], 0.5, "several samples per case and shows it"),
    ([side("a", [[1], [2]])], 1.0, "must be from 0 to below 1"),
    ([side("a", [[1], [2]])] * 2, None, "given twice"),
    ([side("a", [[1], [2]]), side("b", [[1], [2]])], 0.5, "leave it out"),
    ([side(name, [[1], [2]]) for name in "abc"], None, "or two"),
]


@pytest.mark.parametrize(("sides", "correlation", "problem"), SIDES)
def test_runs_that_show_no_variance(sides: list[Side], correlation: float | None, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        noise_of(EDGE, sides, "demo", correlation)


SUITE = """\
name: sized
cases:
  - {id: a, prompt: a}
  - {id: b, prompt: b}
  - {id: c, prompt: c, flaky: true}
models: [{provider: "mine:Generate", label: m, params: {model: m-1}}]
samples: 2
graders: [{key: look, type: "mine:Look", writes: {fine: {type: bool}, level: {type: number, range: [0, 1]}}}]
verdict: [fine]
"""


def test_plan_has_a_row_for_each_number_of_samples(toy: Toy) -> None:
    path = toy.folder / "suite.yaml"
    path.write_text(SUITE)
    assert "your 2 cases x 2 samples (without 1 flaky) detect 78.3 points" in " ".join(
        toy("plan", path, "--trust-suite", "--detect", "5").stdout.split()
    )
    data = json.loads(toy("plan", path, "--trust-suite", "--json", "--detect", "fine:0.4").stdout)["detect"]
    assert [row["samples"] for row in data["sizes"]] == [1, 2, 3, 5, 8]
    assert (data["level"], data["cases"], data["samples"], data["flaky_cases"]) == (0.025, 2, 2, 1)
    first = data["sizes"][0]
    assert (first["cells"], first["usd"]) == (-(-first["cases"] * 3 // 2), None)


def test_costs_scale_with_cases_and_samples(toy: Toy) -> None:
    path = toy.folder / "suite.yaml"
    path.write_text(SUITE.replace(", flaky: true", "") + "prices: {'mine:Generate:m-1': {per_image: 0.5}}\n")
    plan = toy("plan", path, "--trust-suite", "--json", "--detect", "5")
    assert plan.exit_code == 0, plan.output
    for row in json.loads(plan.stdout)["detect"]["sizes"]:
        assert row["cells"] == row["cases"] * row["samples"]
        assert row["usd"] == pytest.approx(row["cells"] * 0.5)


def test_bad_flags_are_one_line(toy: Toy) -> None:
    path = toy.folder / "suite.yaml"
    path.write_text(SUITE)
    for flags, problem in (
        (("--like", "latest"), "--like: needs --detect"),
        (("--pass-rate", "0.8", "--gate", "pass_rate >= 0.9"), "--pass-rate: needs --detect"),
        (("--case-correlation", "0.5"), "--case-correlation: needs --detect"),
        (("--detect", "5", "--like", "none"), "none"),
        (("--detect", "0"), "--detect 0: the points of pass rate must be above 0"),
        (("--detect", "fin:0.1"), "did you mean 'fine'?"),
        (("--detect", "5", "--pass-rate", "80"), "--pass-rate 80: must be from 0 to 1"),
    ):
        result = toy("plan", path, "--trust-suite", *flags)
        assert (result.exit_code, len(result.stderr.strip().splitlines())) == (2, 1), flags
        assert problem in result.stderr


def test_an_earlier_run_gives_the_variance(toy: Toy) -> None:
    import visioneval as ve

    path = toy.folder / "suite.yaml"
    path.write_text(SUITE)
    toy("run", path, "--trust-suite")
    flags = ("--trust-suite", "--detect", "5", "--like", "latest")
    shown = toy("plan", path, *flags)
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.stdout.split())
    assert "Variance between samples of a case from latest" in text
    both = toy("plan", path, *flags, "--pass-rate", "0.5")
    assert (both.exit_code, "leave out one" in both.stderr) == (2, True)
    planned = ve.plan(path, trust_suite=True, runs=toy.folder / "runs", detect=5, like=ve.load_run(toy.latest))
    assert planned.sizes.samples == 2
    with pytest.raises(UsageError, match="--like: needs --detect"):
        ve.plan(path, trust_suite=True, like="latest")
