"""What is shown of scores, rates and reasons: one unit, the limit of a failed rule, and the end of a long reason."""

from __future__ import annotations

import pytest
from tables import rows_of

from visioneval import Metric
from visioneval.analysis.scores import Estimate
from visioneval.report.text import cut_middle, failed_text, show_estimate, show_rate, show_share
from visioneval.types import Score

rows = rows_of(__file__)

YES_OR_NO = Metric()
STARS = Metric(type="number", range=(1, 5))
SHARE = Metric(type="number", range=(0, 1))
PIXELS = Metric(type="number", range=(0, None))


@pytest.mark.parametrize(
    ("share", "low", "high", "text"),
    [
        (2 / 3, 0.208, 0.939, "66.7 % [20.8, 93.9]"),
        (1.0, 0.439, 1.0, "100 % [43.9, 100]"),
        (0.0, 0.0, 0.561, "0 % [0, 56.1]"),
        (0.5, None, None, "50 %"),
    ],
)
def test_a_share_and_its_interval_are_in_percent(
    share: float, low: float | None, high: float | None, text: str
) -> None:
    assert show_share(share, low, high) == text
    assert show_rate(Estimate(value=share, low=low, high=high, n=3)) == f"{text} n=3"
    assert show_estimate(Estimate(value=share, low=low, high=high, n=3), YES_OR_NO) == f"{text} (3)"


def test_nothing_counted_has_no_rate() -> None:
    assert show_rate(Estimate()) == "- n=0"


@pytest.mark.parametrize(
    ("metric", "text"),
    [(STARS, "2.67 of 5 [1.20, 4.1] (3)"), (SHARE, "2.67 [1.20, 4.1] (3)"), (PIXELS, "2.67 [1.20, 4.1] (3)")],
)
def test_a_mean_has_the_highest_score_of_its_scale(metric: Metric, text: str) -> None:
    finding = Estimate(value=8 / 3, low=1.2, high=4.1, n=3)
    assert show_estimate(finding, metric) == text.replace("1.20", "1.2")
    assert show_estimate(finding.model_copy(update={"unmeasured": 2}), metric).endswith("(3) !2")


@pytest.mark.parametrize(("rule", "score", "text"), rows("a_failed_rule_has_its_score_and_its_limit"))
def test_a_failed_rule_has_its_score_and_its_limit(rule: str, score: Score, text: str) -> None:
    metric = rule.removeprefix("not ").partition(" ")[0]
    assert failed_text(rule, {metric: score}) == text


def test_a_long_reason_keeps_its_conclusion() -> None:
    reason = f"The heading is large.\n{'The margins are even. ' * 20}So the hierarchy is clear."
    shown = cut_middle(reason, 60)
    assert len(shown) <= 60
    assert shown == "The heading is large. The ... So the hierarchy is clear."
    assert cut_middle("short\x1b[31m\nand clear", 60) == "short\ufffd[31m and clear"
    assert len(cut_middle("x" * 300, 60)) == 60, "a single word is cut too"
    assert cut_middle("x" * 60, 60) == "x" * 60
