"""People's preferences between two images, and pairwise judges compared with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from labeled_runs import label, labeled
from preference_factory import pair

from visioneval import Agreement
from visioneval.analysis.agreement.agreement import agree
from visioneval.analysis.agreement.answers import LabeledRun
from visioneval.records.between_cells import Preference
from visioneval.records.labels import Label

CASES = [f"c{at}" for at in range(12)]
ANSWERS = dict(zip(CASES, "bbbbbbaaatbb".replace("t", "-"), strict=True))


def preferred(answers: dict[str, str], rater: str = "ann", other: str = "s@n", **more: Any) -> list[Label]:
    words = {"a": "a", "b": "b", "-": "tie"}
    return [label(case, rater, "better", words[answer], other=other, **more) for case, answer in answers.items()]


def run(labels: Sequence[Label], preferences: Sequence[Preference] = (), run_id: str = "r") -> LabeledRun:
    scores = {case: {"good": True} for case in CASES}
    return replace(labeled(scores, labels, run_id=run_id), preferences=preferences)


def judged(answers: dict[str, str], a: str = "r@m", b: str = "s@n", **more: Any) -> list[Preference]:
    words = {"a": ("a", "a"), "b": ("b", "b"), "-": ("tie", "tie"), "f": ("a", "b"), "?": ("a", None)}
    return [line for case, answer in answers.items() for line in pair(case, *words[answer], a=a, b=b, **more)]


def test_win_rate_of_people() -> None:
    from statsmodels.stats.proportion import proportion_confint

    (finding,) = agree([run(preferred(ANSWERS))]).preferences
    assert (finding.question, finding.a, finding.b, finding.raters) == ("better", "r@m", "s@n", 1)
    assert (finding.b_wins, finding.a_wins, finding.ties) == (8, 3, 1)
    rate = finding.b_win_rate
    assert (rate.value, rate.n) == (pytest.approx(8.5 / 12), 12)
    low, high = proportion_confint(8.5, 12, method="wilson")
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=0.09)


def test_both_directions_are_the_same_pairs() -> None:
    """Labels of r against s and of s against r; of a rater who answered in both, one answer counts."""
    flipped = {case: {"a": "b", "b": "a", "-": "-"}[answer] for case, answer in ANSWERS.items()}
    one_way = preferred(ANSWERS)
    other_way = preferred(flipped, "bo", "r@m", model_label="n") + preferred(flipped, "ann", "r@m", model_label="n")
    other = replace(run([], run_id="s"), labels=other_way)
    other = replace(other, records=[record.model_copy(update={"model_label": "n"}) for record in other.records])
    result = agree([run(one_way), other])
    (finding,) = result.preferences
    assert (finding.a, finding.b, finding.raters) == ("r@m", "s@n", 2)
    assert (finding.b_wins, finding.a_wins, finding.ties) == (8, 3, 1)
    (people,) = [entry for entry in result.people if entry.type == "pair"]
    assert (people.items, people.shared, people.alpha["nominal"].value) == (12, 12, 1)
    assert result.labels == 36
    assert {rater.rater: rater.answers for rater in result.raters} == {"ann": 24, "bo": 12}


def test_raters_vote() -> None:
    votes = {"c0": "aab", "c1": "ab-", "c2": "b--", "c3": "-a"}
    labels = [entry for case, answers in votes.items() for rater, answer in zip("xyz", answers, strict=False)
              for entry in preferred({case: answer}, rater)]  # fmt: skip
    (finding,) = agree([run(labels)]).preferences
    assert (finding.a_wins, finding.b_wins, finding.ties, finding.raters) == (2, 1, 1, 3)


def test_each_two_model_runs_are_a_finding() -> None:
    result = agree([run(preferred(ANSWERS) + preferred(ANSWERS, other="t@n"))])
    assert [(finding.a, finding.b) for finding in result.preferences] == [("r@m", "s@n"), ("r@m", "t@n")]


def judge_agreement(preferences: Sequence[Preference]) -> Any:
    result = agree([run(preferred(ANSWERS), preferences)])
    (finding,) = result.pairwise_judges
    return finding


def test_judge_is_compared_with_people() -> None:
    choices = dict(zip(CASES, "bbbbbaaa-?fb", strict=True))
    finding = judge_agreement(judged(choices))
    assert (finding.question, finding.judge, finding.pairs, finding.decided) == ("better", "j", 11, 11)
    assert (finding.flips, finding.unjudged) == (1, 1)
    assert finding.accuracy.value == pytest.approx((8 + 1 + 0) / 11)
    assert finding.accuracy.low < finding.accuracy.value < finding.accuracy.high
    assert finding.confusion.people == finding.confusion.grader == ("a", "tie", "b")
    assert finding.confusion.counts == ((2, 1, 0), (0, 0, 0), (1, 1, 6))
    assert finding.kappa.value is not None
    assert finding.kappa.low is not None


@pytest.mark.parametrize("direction", [("r@m", "s@n"), ("s@n", "r@m")])
def test_direction_of_the_judge_does_not_matter(direction: tuple[str, str]) -> None:
    answers = ANSWERS if direction[0] == "r@m" else {
        case: {"a": "b", "b": "a", "-": "-"}[answer] for case, answer in ANSWERS.items()
    }  # fmt: skip
    finding = judge_agreement(judged(answers, *direction))
    assert (finding.accuracy.value, finding.kappa.value) == (1, 1)


def test_several_judges_and_model_runs_without_labels() -> None:
    lines = judged(ANSWERS) + judged(ANSWERS, judge="k") + judged(ANSWERS, b="t@n", judge="l")
    result = agree([run(preferred(ANSWERS), lines)])
    assert [finding.judge for finding in result.pairwise_judges] == ["j", "k"]


def test_same_line_in_two_runs_counts_once() -> None:
    lines = judged(ANSWERS)
    result = agree([run(preferred(ANSWERS), lines), run([], lines, "s")])
    assert result.pairwise_judges[0].pairs == 12


@pytest.mark.parametrize(
    ("labels", "choices", "accuracy", "kappa"),
    [
        ("a", "a", "no interval: 1 case, 2 are needed", "people and the judge give every pair the same answer"),
        ("ab", "ab", None, "no interval: 2 cases, 10 are needed"),
        ("--", "ab", "people prefer neither image in any pair that the judge answered", "no interval: 2 cases"),
        ("ab", "??", "people prefer neither image in any pair that the judge answered", "nothing to compare"),
        ("------------", "------------", "people prefer neither image", "people and the judge give every pair"),
    ],
)
def test_few_pairs_have_a_note(labels: str, choices: str, accuracy: str | None, kappa: str) -> None:
    answers = dict(zip(CASES, labels, strict=False))
    result = agree([run(preferred(answers), judged(dict(zip(CASES, choices, strict=False))))])
    (finding,) = result.pairwise_judges
    assert (finding.accuracy.note or "").startswith(accuracy or "")
    assert finding.kappa.note.startswith(kappa)
    assert finding.kappa.low is None
    assert "NaN" not in result.model_dump_json()
    assert Agreement.model_validate_json(result.model_dump_json()) == result


def test_withdrawn_answers_and_no_labels() -> None:
    labels = [*preferred({"c0": "a"}), label("c0", "ann", "better", None, other="s@n")]
    result = agree([run(labels, judged(ANSWERS))])
    assert (result.preferences, result.pairwise_judges) == ((), ())
