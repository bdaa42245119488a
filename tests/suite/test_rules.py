"""Verdict rules and gates: parsing, and evaluation on scores."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from record_factory import UNMEASURED, record, run_of

from visioneval import Record, Verdict
from visioneval.analysis.left_out import DueMetrics
from visioneval.analysis.summary.gates import GateAccumulator
from visioneval.rules import Gate, Rule, gate_passes, judge_cell, parse_gate, parse_rule, show_beside
from visioneval.suite.rules import GateRule
from visioneval.types import Score


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("logo", Rule("logo", "logo")),
        ("  logo ", Rule("logo", "logo")),
        ("not image.blank", Rule("not image.blank", "image.blank", expected=False)),
        ("not  'a b'", Rule("not  'a b'", "a b", expected=False)),
        ("fit >= 4", Rule("fit >= 4", "fit", ">=", 4.0)),
        ("fit>=4", Rule("fit>=4", "fit", ">=", 4.0)),
        ("fit < -1.5e-3", Rule("fit < -1.5e-3", "fit", "<", -0.0015)),
        ("a.b-c != .5", Rule("a.b-c != .5", "a.b-c", "!=", 0.5)),
        ("'gecko.animal/human' >= 0.5", Rule("'gecko.animal/human' >= 0.5", "gecko.animal/human", ">=", 0.5)),
        ('"a >= b" == 1', Rule('"a >= b" == 1', "a >= b", "==", 1.0)),
        ("nothing", Rule("nothing", "nothing")),
    ],
)
def test_rules(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("pass_rate >= 0.9", Gate("pass_rate >= 0.9", "pass_rate", None, ">=", 0.9)),
        ("error_rate==0", Gate("error_rate==0", "error_rate", None, "==", 0.0)),
        ("mean( fit ) > 4", Gate("mean( fit ) > 4", "mean", "fit", ">", 4.0)),
        ("rate('a b') < 1", Gate("rate('a b') < 1", "rate", "a b", "<", 1.0)),
    ],
)
def test_gates(text: str, gate: Gate) -> None:
    assert parse_gate(text) == gate


@pytest.mark.parametrize(
    ("rule", "score", "answer"),
    [
        ("m", True, "passed"),
        ("m", False, "failed"),
        ("m", None, "unmeasured"),
        ("not m", True, "failed"),
        ("not m", False, "passed"),
        ("not m", None, "unmeasured"),
        ("m >= 4", 4, "passed"),
        ("m >= 4", 3.999, "failed"),
        ("m > 4", 4, "failed"),
        ("m <= 4", 4, "passed"),
        ("m < 4", 4, "failed"),
        ("m == 4", 4.0, "passed"),
        ("m != 4", 4, "failed"),
        ("m >= 4", None, "unmeasured"),
    ],
)
def test_a_rule_is_evaluated_against_a_score(rule: str, score: Score, answer: str) -> None:
    assert parse_rule(rule).outcome({"m": score}) == answer


def test_a_metric_that_no_grader_wrote_skips_its_rule() -> None:
    assert parse_rule("m").outcome({"other": True}) == "skipped"


@pytest.mark.parametrize(
    ("rules", "scores", "verdict"),
    [
        (["a", "b"], {"a": True, "b": True}, Verdict.PASS),
        (["a", "b"], {"a": True, "b": False}, Verdict.FAIL),
        (["a", "b"], {"a": None, "b": False}, Verdict.FAIL),  # an outage elsewhere hides no failure
        (["a", "b"], {"a": True, "b": None}, Verdict.ERROR),
        (["a", "b"], {"a": True}, Verdict.PASS),
        (["a", "b"], {}, Verdict.ERROR),  # nothing was evaluated
        (["a"], {"a": None}, Verdict.ERROR),
        ([], {"a": True}, Verdict.ERROR),
        (["?a"], {"a": True}, Verdict.ERROR),  # a warning rule does not affect the verdict
        (["?a", "b"], {"a": False, "b": True}, Verdict.PASS),
        (["?a", "b"], {"a": None, "b": True}, Verdict.PASS),
        (["?a", "b"], {"a": False, "b": False}, Verdict.FAIL),
    ],
)
def test_the_verdict_of_a_cell(rules: list[str], scores: dict[str, Score], verdict: Verdict) -> None:
    parsed = [(parse_rule(text.lstrip("?")), text.startswith("?")) for text in rules]
    assert judge_cell(parsed, scores).verdict is verdict


def test_a_failed_grader_is_no_pass_whatever_the_rules_read() -> None:
    rules = [(parse_rule("a"), False)]
    verdicts = [judge_cell(rules, {"a": score}, failed_graders=["look"]).verdict for score in (True, False)]
    assert verdicts == [Verdict.ERROR, Verdict.FAIL]


def test_every_rule_is_printed_as_written() -> None:
    rules = [(parse_rule(text), warn) for text, warn in [("a>=4", False), ("not b", True), ("c", False), ("d", False)]]
    output = judge_cell(rules, {"a": 3, "b": True, "d": None})
    assert (output.failed, output.warned, output.skipped, output.unmeasured) == (("a>=4",), ("not b",), ("c",), ("d",))


SCORES = st.dictionaries(st.sampled_from("abc"), st.none() | st.booleans())
RULES = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=6)


@given(RULES, SCORES)
def test_a_verdict_is_fail_only_if_a_rule_failed(
    generated: list[tuple[str, bool, bool]], scores: dict[str, Score]
) -> None:
    rules = [(parse_rule(f"not {name}" if negated else name), warn) for name, negated, warn in generated]
    output = judge_cell(rules, scores)
    answers = {rule.outcome(scores) for rule, warn in rules if not warn}
    assert (output.verdict is Verdict.FAIL) == ("failed" in answers)
    assert (output.verdict is Verdict.PASS) == (answers - {"skipped"} == {"passed"})
    assert output == judge_cell(list(rules), dict(scores))


RUN = run_of(
    {"one": {}, "other": {"expect": {"aligned": False}}}, ["m"], [], {"m": {"type": "number"}, "ok": {"type": "bool"}}
)


def cells(text: str) -> list[Record]:
    """P, F, E for verdicts; R for a refused FAIL."""
    created = {
        "P": record(),
        "F": record(verdict="FAIL"),
        "E": record(verdict="ERROR", status="error", error=UNMEASURED),
        "R": record(verdict="FAIL", status="refused"),
    }
    return [created[sign] for sign in text]


def pooled(gate: str, counted: Iterable[Record], **entry: Any) -> tuple[float | None, int]:
    pool = GateAccumulator(GateRule(rule=gate, **entry), RUN, DueMetrics(RUN))
    for cell in counted:
        pool.add(cell)
    return pool.value()


@pytest.mark.parametrize(
    ("gate", "run", "value", "passed"),
    [
        ("pass_rate >= 0.9", "PPPPPPPPPF", (0.9, 10), True),
        ("pass_rate >= 0.7", "PPPPPPPFFF", (0.7, 10), True),
        ("pass_rate == 1", "PPEE", (1.0, 2), True),  # errors are no failures
        ("pass_rate == 1", "PF", (0.5, 2), False),
        ("pass_rate == 0", "EE", (None, 0), False),  # without measurements, every gate is unmet
        ("pass_rate == 0", "FR", (0.0, 2), True),
        ("error_rate == 0", "PFR", (0.0, 3), True),
        ("error_rate <= 0.25", "PPPE", (0.25, 4), True),
        ("error_rate == 0", "", (None, 0), False),
        ("refusal_rate < 0.5", "PPRE", (1 / 3, 3), True),  # nobody knows what the model would have refused
    ],
)
def test_gates_over_verdicts(gate: str, run: str, value: tuple[float | None, int], passed: bool) -> None:
    assert pooled(gate, cells(run)) == value
    assert gate_passes(parse_gate(gate), value[0]) is passed


def test_a_separation_needs_aligned_cells_and_counterexamples() -> None:
    run = [record(scores={"m": 0.75}), record(test_id="other", scores={"m": None})]
    assert pooled("separation(m) >= 0", run) == (None, 1)
    run.append(record(test_id="other", scores={"m": 0.25}))
    assert pooled("separation(m) >= 0", run) == (0.5, 2)


def test_a_weighted_gate_needs_each_tag_and_counts_it_by_its_weight() -> None:
    run, weights = [record(scores={"m": 1}, tags=("photo",))] * 3, {"photo": 1, "logo": 3}
    assert pooled("mean(m) >= 0", run, weights=weights) == (None, 3)
    run.append(record(scores={"m": 0}, tags=("logo",)))
    assert pooled("mean(m) >= 0", run, weights=weights) == (0.25, 4)


def test_gates_over_metrics_ignore_unmeasured_cells() -> None:
    run = [
        record(scores={"m": 4, "ok": True}),
        record(scores={"m": None, "ok": None}),
        record(),
        record(scores={"m": 2, "ok": False}),
    ]
    assert pooled("mean(m) >= 3", run) == (3.0, 2)
    assert pooled("rate(ok) > 0", run) == (0.5, 2)
    assert pooled("mean(gone) >= 0", run) == (None, 0)


def test_only_error_rate_gates_are_about_errors() -> None:
    assert [parse_gate(f"{fn} > 0").is_about_errors for fn in ("error_rate", "pass_rate", "mean(m)")] == [
        True,
        False,
        False,
    ]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
@example([0.1] * 3)
@example([0.7] * 10)
def test_a_mean_is_between_the_scores(scores: list[float]) -> None:
    value, count = pooled("mean(m) > 0", [record(scores={"m": score}) for score in scores])
    assert count == len(scores)
    assert value is not None
    assert min(scores) <= value <= max(scores)


@given(st.integers(0, 50), st.integers(1, 50))
def test_a_pass_rate_meets_the_threshold_that_states_it(passed: int, failed: int) -> None:
    run = cells("P" * passed + "F" * failed)
    rate = pooled("pass_rate >= 0", run)[0]
    assert gate_passes(parse_gate(f"pass_rate == {rate!r}"), rate)
    assert rate == passed / (passed + failed)


@pytest.mark.parametrize(
    ("value", "gate", "is_passed"),
    [
        (0.7 - 0.5, "separation(m) >= 0.2", True),
        (0.1 + 0.2, "mean(m) <= 0.3", True),
        (0.1 + 0.2, "mean(m) == 0.3", True),
        (0.1 + 0.2, "mean(m) > 0.3", False),
        (0.1 + 0.2, "mean(m) != 0.3", False),
        (0.3 + 1e-8, "mean(m) <= 0.3", False),
        (4.49996, "mean(m) >= 4.5", False),
        (1e12 + 0.1, "mean(m) == 1000000000000", True),
        (1e12 + 1e5, "mean(m) == 1000000000000", False),
    ],
)
def test_gates_ignore_rounding_errors_only(value: float, gate: str, is_passed: bool) -> None:
    assert gate_passes(parse_gate(gate), value) is is_passed


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30))
def test_a_mean_of_decimals_that_lies_on_its_threshold_passes(hundredths: list[int]) -> None:
    threshold = Fraction(sum(hundredths), 100 * len(hundredths))
    mean, _ = pooled("mean(m) >= 0", [record(scores={"m": value / 100}) for value in hundredths])
    assert gate_passes(parse_gate(f"mean(m) >= {float(threshold):.12f}"), mean)


@pytest.mark.parametrize(
    ("value", "threshold", "text"),
    [
        (4.49996, 4.5, "4.49996"),
        (2249 / 2500, 0.9, "0.8996"),
        (0.89999, 0.9, "0.89999"),
        (0.5, 0.9, "0.5"),
        (0.1 + 0.2, 0.3, "0.3"),
        (1 / 3, 0.9, "0.3333"),
        (0.90001, 0.9, "0.90001"),
        (99_999.6, 100_000, "99999.6"),
        (-1.00001, -1, "-1.00001"),
    ],
)
def test_a_number_beside_a_threshold_shows_its_side(value: float, threshold: float, text: str) -> None:
    assert show_beside(value, threshold) == text


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_number_beside_a_threshold_is_never_shown_on_the_other_side(value: float, threshold: float) -> None:
    shown = float(show_beside(value, threshold))
    if abs(value - threshold) > 1e-9 * max(1.0, abs(threshold)):
        assert (shown > threshold) == (value > threshold)
        assert (shown < threshold) == (value < threshold)


def test_what_messages_say_to_write_is_a_rule_or_a_gate() -> None:
    """About slips, which are among the bad suites."""
    words = (
        'style in ["flat", "sketch"]',
        "style not in [\"flat\", 'line art']",
        'style != "flat"',
        'image.ok == "true"',
    )
    assert [parse_rule(text).text for text in words] == list(words)
    assert parse_rule("look.share >= 0.625")
    assert parse_rule("look.quality != 3")
    assert parse_rule("not image.blank")
    assert parse_gate("mean(image.bytes) > 4")
    assert parse_gate("p95(seconds) <= 20")
    assert parse_gate("pass_rate == 1")
