"""Required agreement: the lower bound or the estimate of a measure, its state, its note and the exit code."""

from __future__ import annotations

import pytest
from answer_factory import CELLS, GOOD, HUMAN, answered_by
from labeled_runs import USABLE, labeled

from visioneval import UsageError
from visioneval.analysis.agreement.agreement import Minimum, agree


@pytest.mark.parametrize(
    ("least", "state", "code"),
    [
        ([Minimum("good", 0.5, "estimate")], ["passed"], 0),
        ([Minimum("good", 0.51, "estimate")], ["failed"], 1),
        ([Minimum("good", 0.5)], ["unmeasured"], 3),
        ([Minimum("good:accuracy", 0.4)], ["passed"], 0),
        ([Minimum("good:accuracy", 0.75)], ["failed"], 1),
        ([Minimum("good:accuracy", 0.75, "estimate"), Minimum("good:accuracy", 0.4)], ["passed", "passed"], 0),
        ([Minimum("good:pearson", 0.5, "estimate")], ["passed"], 0),
        ([Minimum("good:pearson", 0.51, "estimate"), Minimum("good:pearson", 0.1)], ["failed", "unmeasured"], 3),
        ([Minimum("good:pairwise_accuracy", 0.5, "estimate")], ["passed"], 0),
        ([Minimum("good:pairwise_accuracy", 0.6)], ["unmeasured"], 3),
        ([Minimum("blank", -1.0)], ["unmeasured"], 3),
        ([Minimum("good", 0.9, "estimate"), Minimum("blank", 0.1)], ["failed", "unmeasured"], 3),
    ],
)
def test_minimums_and_their_exit_codes(least: list[Minimum], state: list[str], code: int) -> None:
    result = agree([labeled(CELLS, answered_by(HUMAN))], least)
    assert [entry.state for entry in result.minimums] == state
    assert result.exit_code == code


def test_minimum_uses_the_question_with_the_lowest_agreement() -> None:
    questions = [USABLE, {**USABLE, "key": "fine"}, {**USABLE, "key": "never_asked"}]
    labels = answered_by(GOOD) + answered_by(HUMAN, "fine")
    (finding,) = agree([labeled(CELLS, labels, questions)], [Minimum("good", 0.6, "estimate")]).minimums
    assert (finding.question, finding.value, finding.state) == ("fine", pytest.approx(0.5), "failed")


@pytest.mark.parametrize(
    ("minimum", "message"),
    [
        (Minimum("god", 0.6), "--min god: no run has the metric 'god' (did you mean 'good'?)"),
        (Minimum("god:accuracy", 0.6), "--min god:accuracy: no run has the metric 'god' (did you mean 'good'?)"),
        (Minimum("good:acuracy", 0.6), "--min good:acuracy: no measure 'acuracy' (did you mean 'accuracy'?)"),
        (
            Minimum("edge:kappa", 0.6, "estimate"),
            "--min-point edge:kappa: the measures of edge are spearman, kendall, pearson, pairwise_accuracy",
        ),
        (Minimum("good", float("nan")), "--min good:nan: write a value from -1 to 1"),
        (Minimum("good", 1.5, "estimate"), "--min-point good:1.5: write a value from -1 to 1"),
    ],
)
def test_wrong_minimum_is_rejected(minimum: Minimum, message: str) -> None:
    with pytest.raises(UsageError) as error:
        agree([labeled(CELLS, answered_by(HUMAN))], [minimum])
    assert str(error.value) == message


def test_a_metric_that_no_answered_question_has_is_named() -> None:
    (finding,) = agree([labeled(CELLS, answered_by(HUMAN))], [Minimum("verdict:accuracy", 0.6)]).minimums
    assert finding.note == "no question has the metric 'verdict': the answered ones have good"


def test_an_even_split_of_the_raters_is_no_disagreement_with_the_grader() -> None:
    labels = answered_by(HUMAN) + answered_by({case: not answer for case, answer in HUMAN.items()}, rater="bo")
    finding, *_ = agree([labeled(CELLS, labels)]).graders
    assert (finding.split, finding.disputed) == (8, ())


def test_three_perfect_labels_are_no_proof() -> None:
    cells = {"a": {"good": True}, "b": {"good": True}, "c": {"good": False}}
    answers = answered_by({"a": True, "b": True, "c": False})
    required = [Minimum("good", 0.8), Minimum("good:accuracy", 0.8), Minimum("good", 0.8, "estimate")]
    kappa, accuracy, point = agree([labeled(cells, answers)], required).minimums
    assert (kappa.state, kappa.value, kappa.low) == ("unmeasured", 1, None)
    assert kappa.note == (
        "no interval: 3 cases, 10 are needed; label more cases, or require the estimate with --min-point"
    )
    assert (accuracy.state, accuracy.value, accuracy.low) == ("failed", 1, pytest.approx(0.05 ** (1 / 3)))
    assert accuracy.note is not None
    assert "--min-point" in accuracy.note
    assert (point.state, point.note) == ("passed", None)


def test_minimum_holds_the_lower_bound() -> None:
    """24 cases with one disagreement: the estimate of kappa is 0.92, its lower bound about 0.6."""
    good = {f"c{at}": at % 2 == 0 for at in range(24)}
    run = labeled({case: {"good": value} for case, value in good.items()}, answered_by({**good, "c0": False}))
    for minimum, state in (
        (Minimum("good", 0.55), "passed"),
        (Minimum("good", 0.8), "failed"),
        (Minimum("good", 0.8, "estimate"), "passed"),
        (Minimum("good", 0.95), "failed"),
    ):
        (result,) = agree([run], [minimum]).minimums
        assert result.state == state
        assert result.value == pytest.approx(11 / 12)
        assert result.low is not None
        assert 0.55 < result.low < 0.8
        assert ("--min-point" in (result.note or "")) == (minimum.value == 0.8 and state == "failed")
