"""``plan --gate``: how often a gate fails by true rate, the threshold it suggests, and bad input."""

from __future__ import annotations

import json
from math import comb
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from toys import Toy

import visioneval as ve
from visioneval import Metric, UsageError
from visioneval.analysis.planning import RATES, gate_rates, parse_detect, parse_planned_gate, stated_noise
from visioneval.rules import parse_gate

METRICS = {"good": Metric(type="bool"), "layout": Metric(type="number", range=(0, 5))}
NOISE = stated_noise(parse_detect(5, {}, []), None, 0.0)
ASSUMED = stated_noise(parse_detect(5, {}, []), None, None)


def binomial_fails(cells: int, needed: int, rate: float) -> float:
    return sum(comb(cells, k) * rate**k * (1 - rate) ** (cells - k) for k in range(needed))


def test_the_figures_are_binomial_where_cases_do_not_differ() -> None:
    planned = gate_rates(parse_gate("pass_rate >= 0.9"), 30, NOISE)
    assert [row.rate for row in planned.rows] == list(RATES)
    assert [row.fails[0] for row in planned.rows] == pytest.approx([binomial_fails(30, 27, rate) for rate in RATES])


@pytest.mark.parametrize("cells", [5, 8, 30, 90, 200])
@pytest.mark.parametrize("noise", [NOISE, ASSUMED])
def test_the_suggestion_is_the_strictest_that_fails_seldom(cells: int, noise: object) -> None:
    planned = gate_rates(parse_gate("pass_rate >= 0.9"), cells, noise)
    needed = next(k for k in range(cells, -1, -1) if binomial_fails(cells, k, 0.95) <= 0.05)
    threshold = parse_gate(planned.suggested).threshold
    assert (needed - 1) / cells < threshold <= needed / cells
    assert planned.suggested_fails == pytest.approx(binomial_fails(cells, needed, 0.95))


def test_a_limit_is_the_mirror_of_a_minimum() -> None:
    minimum = gate_rates(parse_gate("pass_rate >= 0.9"), 40, ASSUMED)
    limit = gate_rates(parse_gate("rate(good) <= 0.1"), 40, ASSUMED)
    assert [row.rate for row in limit.rows] == pytest.approx([1 - rate for rate in reversed(RATES)])
    assert [row.fails for row in reversed(limit.rows)] == [pytest.approx(row.fails) for row in minimum.rows]
    assert limit.good_rate == 0.05
    assert minimum.suggested == "pass_rate >= 0.9"
    assert limit.suggested == "rate(good) <= 0.1"


def test_one_cell_must_pass_and_a_gate_that_all_must_pass_fails_often() -> None:
    assert gate_rates(parse_gate("pass_rate > 0.9"), 1, NOISE).suggested == "pass_rate >= 1"
    planned = gate_rates(parse_gate("pass_rate == 1"), 30, NOISE)
    assert {row.rate: row.fails[0] for row in planned.rows}[0.99] == pytest.approx(1 - 0.99**30)


def test_an_assumed_correlation_is_shown_beside_none() -> None:
    assert gate_rates(parse_gate("pass_rate >= 0.9"), 30, NOISE).correlations == (0.0,)
    planned = gate_rates(parse_gate("pass_rate >= 0.9"), 30, ASSUMED)
    assert planned.correlations == (0.0, 0.5)
    at_92 = next(row.fails for row in planned.rows if row.rate == 0.92)
    assert at_92[0] > at_92[1]
    assert "--like RUN" in planned.notes[0]


BAD = [
    ("pass_rate", "is not a valid gate"),
    ("pass_rate >= 90%", "write 'pass_rate >= 0.9'"),
    ("pass_rate >= 1.5", "a rate is between 0 and 1"),
    ("pass_rate != 1", "write a limit, with >=, >, <= or <"),
    ("pass_rate == 0.9", "write a limit, with >=, >, <= or <"),
    ("error_rate <= 0.1", "errors come from outages"),
    ("unmeasured_rate == 0", "errors come from outages"),
    ("refusal_rate <= 0.1", "takes a rate: pass_rate, or rate"),
    ("mean(layout) >= 3", "takes a rate: pass_rate, or rate"),
    ("p90(layout) >= 3", "takes a rate"),
    ("separation(good) >= 0.5", "takes a rate"),
    ("rate(godo) >= 0.5", r"no metric 'godo' \(did you mean 'good'\?\)"),
    ("", "is not a valid gate"),
]


@pytest.mark.parametrize(("text", "problem"), BAD)
def test_bad_gates(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=f"^--gate.*{problem}"):
        parse_planned_gate(text, METRICS)


SUITE = """\
name: sized
cases: [{id: a, prompt: a}, {id: b, prompt: b}, {id: c, prompt: c}, {id: d, prompt: d}, {id: e, prompt: e}]
models: [{provider: "mine:Generate", label: m, params: {model: m-1}}]
samples: 2
graders: [{key: look, type: "mine:Look", writes: {fine: {type: bool}, level: {type: number, range: [0, 1]}}}]
verdict: [fine]
"""


def test_plan_has_a_row_for_each_rate(toy: Toy) -> None:
    path = toy.folder / "suite.yaml"
    path.write_text(SUITE)
    data = json.loads(toy("plan", path, "--trust-suite", "--gate", "rate(fine) >= 0.9", "--json").stdout)
    assert (data["gate"]["cells"], data["gate"]["correlations"], data["detect"]) == (10, [0.0, 0.5], None)
    more = toy("plan", path, "--trust-suite", "--json", "--gate", "pass_rate >= 0.9", "--samples", "8")
    assert json.loads(more.stdout)["gate"]["cells"] == 40
    bad = toy("plan", path, "--trust-suite", "--gate", "mean(level) >= 3")
    assert (bad.exit_code, len(bad.stderr.strip().splitlines())) == (2, 1)
    data = json.loads(toy("plan", path, "--trust-suite", "--json").stdout)
    assert (data["gate"], data["must_detect"]) == (None, None)


def test_an_earlier_run_shows_the_correlation(toy: Toy) -> None:
    path = toy.folder / "suite.yaml"
    path.write_text(SUITE.replace("{id: e, prompt: e}", "{id: e, prompt: e, metadata: {look: bad}}"))
    assert toy("run", path, "--trust-suite").exit_code == 1
    planned = ve.plan(path, trust_suite=True, runs=toy.folder / "runs", gate="pass_rate >= 0.9", like="latest")
    assert planned.sizes is None
    assert planned.gate.correlations == (1.0,)  # no case has samples that differ
    assert "Variance between samples of a case from latest" in planned.gate.notes[0]
    path.write_text(SUITE)
    assert toy("run", path, "--trust-suite").exit_code == 0
    planned = ve.plan(path, trust_suite=True, runs=toy.folder / "runs", gate="pass_rate >= 0.9", like="latest")
    assert planned.gate.correlations == (0.0, 0.5), "a run in which everything passed shows none"
    assert "shows no correlation" in planned.gate.notes[0]


def must_detect_line(toy: Toy, *flags: str | Path) -> str:
    """What ``plan`` prints about ``must_detect`` of the suite of a test."""
    result = toy("plan", toy.folder / "suite.yaml", "--trust-suite", *flags)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    return text[text.index("must_detect ") :].partition(" To detect ")[0].partition(" How often ")[0]


def must_detect_data(toy: Toy, *flags: str | Path) -> dict[str, Any]:
    data = json.loads(toy("plan", toy.folder / "suite.yaml", "--trust-suite", "--json", *flags).stdout)
    found: dict[str, Any] = data["must_detect"]
    if data["detect"] is not None and data["detect"]["metric"] is None:
        assert found["detectable"] == pytest.approx(100 * data["detect"]["detectable"])
    return found


@pytest.mark.parametrize(("points", "state"), [(70, "met."), (50, "not met ('compare' exits 3).")])
def test_plan_shows_whether_a_suite_meets_its_must_detect(toy: Toy, points: int, state: str) -> None:
    """By the number that ``--detect`` shows, and with the variance that it has."""
    (toy.folder / "suite.yaml").write_text(SUITE + f"compare: {{must_detect: {points}}}\n")
    for flags, rate, is_assumed in (
        (("--detect", str(points), "--case-correlation", "0.5"), "an assumed pass rate of 0.8", True),
        (("--detect", str(points), "--pass-rate", "0.8"), "a pass rate of 0.8", False),
        (("--detect", "fine:0.4", "--pass-rate", "0.9"), "an assumed pass rate of 0.8", True),
    ):
        line = must_detect_line(toy, *flags)
        assert line == (
            f"must_detect {points} points: {state} 5 cases x 2 samples detect drops of 54.2 points or more, at {rate}"
        )
        data = must_detect_data(toy, *flags)
        assert (data["is_met"], data["is_assumed"]) == (state == "met.", is_assumed)
    assert must_detect_line(toy, "--samples", "1", "--case", "a") == (
        f"must_detect {points} points: not met ('compare' exits 3). 1 case x 1 sample detects no drop, at an assumed"
        " pass rate of 0.8"
    )


def test_the_pass_rate_of_an_earlier_run_is_not_assumed(toy: Toy) -> None:
    (toy.folder / "suite.yaml").write_text(
        SUITE.replace("{id: e, prompt: e}", "{id: e, prompt: e, metadata: {look: bad}}")
        + "compare: {must_detect: 10}\n"
    )
    assert toy("run", toy.folder / "suite.yaml", "--trust-suite").exit_code == 1
    assert must_detect_line(toy, "--detect", "10", "--like", "latest").endswith(", at a pass rate of 0.8")
    assert must_detect_data(toy, "--detect", "10", "--like", "latest")["is_assumed"] is False


TWO_MODELS = SUITE.replace("models: [", "models: [{provider: openai, params: {model: gpt-image-2, n: IMAGES}}, ")


@pytest.mark.parametrize(
    ("images", "size", "cells"),
    [(1, "5 cases x 2 samples x 2 model runs", 20), (3, "5 cases with 40 cells", 40)],
)
def test_the_size_of_a_run_counts_its_model_runs_and_the_images_of_a_call(
    toy: Toy, images: int, size: str, cells: int
) -> None:
    text = TWO_MODELS.replace("IMAGES", str(images)) + "compare: {must_detect: 10}\n"
    (toy.folder / "suite.yaml").write_text(text)
    assert f": not met ('compare' exits 3). {size} detect drops of " in must_detect_line(toy)
    data = must_detect_data(toy)
    assert (data["cases"], data["samples"], data["model_runs"], data["cells"]) == (5, 2, 2, cells)


def test_what_a_shard_can_show_is_that_of_all_shards(toy: Toy) -> None:
    """Shards are merged before their gates are evaluated and before they are compared. Only the work is a shard's."""
    path = toy.folder / "suite.yaml"
    path.write_text(SUITE + "compare: {must_detect: 70}\n")
    part = ("--case", "a", "--case", "b", "--case", "c", "--samples", "4")
    asked = ("--trust-suite", "--detect", "10", "--gate", "pass_rate >= 0.9", "--json", *part)
    whole = json.loads(toy("plan", path, *asked).stdout)
    shards = [json.loads(toy("plan", path, *asked, "--shard", f"{number}/4").stdout) for number in (1, 2, 3, 4)]
    assert any(not shard["cells"] for shard in shards), "one is empty, and no error"
    assert sum(shard["cells"] for shard in shards) == whole["cells"]
    for shard in shards:
        assert [shard[name] for name in ("must_detect", "detect", "gate")] == [
            whole[name] for name in ("must_detect", "detect", "gate")
        ]
    assert must_detect_line(toy, *part, "--shard", "1/4") == must_detect_line(toy, *part)


def test_a_suite_without_rules_does_not_meet_its_must_detect(toy: Toy) -> None:
    text = SUITE.partition("graders:")[0] + "labels: {questions: [{key: good, type: yes_no, ask: Is it good?}]}\n"
    (toy.folder / "suite.yaml").write_text(text + "compare: {must_detect: 100}\n")
    for flags in ((), ("--detect", "10", "--pass-rate", "0.9")):
        assert must_detect_line(toy, *flags) == (
            "must_detect 100 points: not met. A suite without verdict rules has no pass rate to compare"
        )
        data = json.loads(toy("plan", toy.folder / "suite.yaml", "--trust-suite", "--json", *flags).stdout)
        found = data["must_detect"]
        assert (found["is_met"], found["detectable"], found["rate"], found["is_assumed"]) == (False, None, None, False)


TOO_SMALL = "cannot show a regression in 'compare', even if everything breaks: two runs with"


@pytest.mark.parametrize(
    ("cases", "samples", "flaky", "note"),
    [
        (4, 1, 0, f"4 cases x 1 sample {TOO_SMALL} 5 cases, or 2"),
        (5, 1, 1, "4 cases x 1 sample cannot show"),
        (2, 2, 0, ""),
        (1, 2, 0, f"1 case x 2 samples {TOO_SMALL} 2 cases, or 4"),
    ],
)
def test_suites_that_are_too_small_for_compare_are_noted(
    toy: Toy, cases: int, samples: int, flaky: int, note: str
) -> None:
    listed = [
        f"  - {{id: c{number}, prompt: x, flaky: {'true' if number < flaky else 'false'}}}" for number in range(cases)
    ]
    path = toy.folder / "suite.yaml"
    rest = SUITE.replace("samples: 2", f"samples: {samples}").split("\n", 2)[2]
    path.write_text("\n".join(["name: sized", "cases:", *listed, rest]))
    plan, checked = toy("plan", path, "--trust-suite"), toy("validate", path, "--trust-suite")
    assert (plan.exit_code, checked.exit_code) == (0, 0)
    for text in (plan.stderr, checked.stdout):
        assert ("suite.yaml: note: " in text) == bool(note)
        assert note in text
    data = json.loads(toy("validate", path, "--trust-suite", "--format", "json").stdout)
    assert [problem["severity"] for problem in data["problems"]] == (["note"] if note else [])
    annotations = toy("validate", path, "--trust-suite", "--format", "github").stdout
    assert annotations.startswith("::notice file=") == bool(note)
    assert "note:" not in toy("run", path, "--trust-suite").output
    if cases > 1:
        assert "note:" not in toy("plan", path, "--trust-suite", "--case", "c1").stderr, "flags leave out cases"


@pytest.mark.parametrize(
    ("turns", "samples", "note"),
    [
        (2, 1, f"1 case x 2 turns {TOO_SMALL} 2 cases, or 2 samples of each, could"),
        (2, 2, ""),
        (3, 1, f"1 case x 3 turns {TOO_SMALL} 2 cases, or 2 samples of each, could"),
    ],
)
def test_turns_are_not_samples_of_a_suite_that_is_too_small(toy: Toy, turns: int, samples: int, note: str) -> None:
    steps = ", ".join("{prompt: x}" for _ in range(turns))
    Image.new("RGB", (32, 32)).save(toy.folder / "sign.png")
    path = toy.folder / "suite.yaml"
    rest = SUITE.replace("samples: 2", f"samples: {samples}").split("\n", 2)[2]
    path.write_text(f"name: sized\ncases:\n  - {{id: sign, images: [sign.png], turns: [{steps}]}}\n{rest}")
    plan = toy("plan", path, "--trust-suite")
    assert plan.exit_code == 0, plan.output
    assert note in plan.stderr.replace("\n", " ")
    assert ("note: " in plan.stderr) == bool(note)


@pytest.mark.parametrize(
    ("turns", "samples", "size", "required"),
    [
        ((0, 0), 1, "2 cases x 1 sample", "2 cases x 1 sample"),
        ((2, 2), 1, "2 cases x 2 turns", "2 cases x 2 turns"),
        ((2, 2), 3, "2 cases x 2 turns x 3 samples", "2 cases x 2 turns x 3 samples"),
        ((3, 0), 1, "2 cases x 1 to 3 turns", "2 cases with 4 cells"),
        ((3, 0), 2, "2 cases x 1 to 3 turns x 2 samples", "2 cases with 8 cells"),
    ],
)
def test_what_a_suite_detects_counts_turns_as_turns(
    toy: Toy, turns: tuple[int, int], samples: int, size: str, required: str
) -> None:
    Image.new("RGB", (32, 32)).save(toy.folder / "sign.png")
    listed = [
        f"  - {{id: c{number}, images: [sign.png], turns: [{', '.join(['{prompt: x}'] * many)}]}}"
        if many
        else f"  - {{id: c{number}, prompt: x}}"
        for number, many in enumerate(turns)
    ]
    rest = SUITE.replace("samples: 2", f"samples: {samples}").split("\n", 2)[2]
    text = "\n".join(["name: sized", "cases:", *listed, rest]) + "compare: {must_detect: 10}\n"
    (toy.folder / "suite.yaml").write_text(text)
    printed = toy("plan", toy.folder / "suite.yaml", "--trust-suite", "--detect", "10").stdout
    assert f"your {size} detect " in " ".join(printed.split())
    assert must_detect_line(toy).startswith(f"must_detect 10 points: not met ('compare' exits 3). {required} detect ")
    data = json.loads(toy("plan", toy.folder / "suite.yaml", "--trust-suite", "--detect", "10", "--json").stdout)
    fewest_and_most = [max(1, min(turns)), max(1, *turns)]
    assert data["detect"]["turns"] == data["must_detect"]["turns"] == fewest_and_most
