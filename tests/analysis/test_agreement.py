"""Agreement with graders, among raters and of each rater over time: known results and undefined cases."""

from __future__ import annotations

from typing import Any

import pytest
from answer_factory import CELLS, GOOD, HUMAN, answered_by
from labeled_runs import BETTER, CLEAR, SHARP, USABLE, label, labeled

from visioneval import UsageError
from visioneval.analysis.agreement import raters
from visioneval.analysis.agreement.agreement import Minimum, agree

pytestmark = pytest.mark.slow
# Eight cells: the grader fails a, b, c, d; raters fail a, b, c, e.


def against(*runs: Any, question: str = "usable") -> Any:
    return next(finding for finding in agree(runs).graders if finding.question == question)


def test_yes_no_question_with_known_result() -> None:
    from statsmodels.stats.proportion import proportion_confint

    finding = against(labeled(CELLS, answered_by(HUMAN)))
    assert (finding.metric, finding.kind, finding.cells, finding.headline) == ("good", "bool", 8, "kappa")
    values = {name: measure.value for name, measure in finding.measures.items()}
    assert values == pytest.approx(
        {
            "kappa": 0.5,
            "accuracy": 0.75,
            "fail_precision": 0.75,
            "fail_recall": 0.75,
            "spearman": 0.5,
            "kendall": 0.5,
            "pearson": 0.5,
            "pairwise_accuracy": 15 / 28,
        }
    )
    assert finding.confusion.people == ("no", "yes")
    assert finding.confusion.counts == ((3, 1), (1, 3))
    assert {cell.test_id for cell in finding.disputed} == {"d", "e"}
    accuracy = finding.measures["accuracy"]
    assert accuracy.low == pytest.approx(proportion_confint(6, 8, method="wilson")[0])
    assert accuracy.high == pytest.approx(1 - proportion_confint(2, 8, alpha=0.1, method="beta")[0])
    assert (finding.measures["fail_precision"].n, finding.measures["fail_recall"].n) == (4, 4)


def test_failure_is_the_worse_value() -> None:
    question = {**USABLE, "metric": "blank"}
    cells = {case: {"blank": case in "ab"} for case in "abcd"}
    finding = against(labeled(cells, answered_by({"a": True, "b": False, "c": False, "d": False}), [question]))
    assert finding.measures["fail_precision"].value == 0.5
    assert finding.measures["fail_recall"].value == 1


def test_majority_counts_and_even_splits_are_excluded() -> None:
    labels = answered_by(HUMAN) + answered_by(HUMAN, rater="bo") + answered_by({"a": True, "b": False}, rater="cy")
    labels += answered_by({"c": True}, rater="bo")
    finding = against(labeled(CELLS, labels))
    assert (finding.cells, finding.split) == (8, 1)
    assert finding.measures["accuracy"].n == 7
    assert finding.measures["spearman"].n == 8
    (a,) = [cell for cell in finding.disputed if cell.test_id == "a"]
    assert (a.people, a.raters, a.grader) == (pytest.approx(1 / 3), 3, 0)
    assert finding.ceiling.value < 1


def test_verdict_is_a_metric_and_errors_are_unmeasured() -> None:
    question = {**USABLE, "metric": "verdict"}
    cells = {**CELLS, "i": {"good": None}}
    finding = against(labeled(cells, answered_by({**HUMAN, "i": True}), [question]))
    assert (finding.metric, finding.cells, finding.unmeasured) == ("verdict", 8, 1)
    assert finding.measures["kappa"].value == pytest.approx(0.5)


def test_rubric_scale_fails_by_the_rule_of_the_suite() -> None:
    cells = {case: {"layout": score} for case, score in zip("abcdef", (5, 4, 3, 2, 1, 0), strict=True)}
    labels = answered_by(dict(zip("abcdef", (5, 5, 2, 3, 1, 1), strict=True)), "clear")
    finding = against(labeled(cells, labels, [CLEAR]), question="clear")
    assert (finding.kind, finding.headline, finding.rule) == ("scale", "quadratic_kappa", "layout >= 3")
    assert finding.measures["accuracy"].value == pytest.approx(4 / 6)
    assert finding.measures["fail_precision"].value == pytest.approx(2 / 3)
    assert finding.confusion.grader == ("0", "1", "2", "3", "4", "5")
    assert sum(map(sum, finding.confusion.counts)) == 6
    assert finding.disputed[0].reason.startswith("about ")
    assert finding.disputed[0].gap == pytest.approx(0.2)


def test_a_long_scale_has_its_measures_and_no_table_of_counts() -> None:
    cells = {case: {"layout": score} for case, score in zip("abcd", (5, 4, 3, 1), strict=True)}
    labels = answered_by(dict(zip("abcd", (4.88, 4.0, 2.52, 1.32), strict=True)), "clear")
    for step, has_table in ((0.01, False), (0.04, True)):
        finding = against(labeled(cells, labels, [{**CLEAR, "step": step}]), question="clear")
        assert finding.measures["quadratic_kappa"].value > 0.9
        assert (finding.confusion is not None) is has_table


def test_other_numbers_are_compared_by_rank() -> None:
    cells = {case: {"edge": edge} for case, edge in zip("abcd", (0.1, 7.0, 40.0, 900.0), strict=True)}
    labels = answered_by(dict(zip("abcd", (1, 2, 3, 5), strict=True)), "sharp")
    finding = against(labeled(cells, labels, [SHARP]), question="sharp")
    assert (finding.kind, finding.headline, finding.confusion, finding.rule) == ("continuous", "spearman", None, None)
    assert {name: measure.value for name, measure in finding.measures.items()} == pytest.approx(
        {"spearman": 1, "kendall": 1, "pearson": 0.895229, "pairwise_accuracy": 1}
    )
    assert finding.disputed == ()


def test_newest_answer_counts_and_withdrawn_one_does_not() -> None:
    labels = [*answered_by(dict.fromkeys("abcdefgh", True)), *answered_by(HUMAN), label("a", "ann", "usable", None)]
    finding = against(labeled(CELLS, labels))
    assert finding.cells == 7
    assert finding.measures["accuracy"].value == pytest.approx(5 / 7)


def test_case_in_two_runs_is_one_cluster() -> None:
    entry = labeled(CELLS, answered_by(HUMAN))
    two = labeled(CELLS, answered_by(HUMAN), run_id="s")
    both = against(entry, two)
    assert (both.cells, both.measures["kappa"].value) == (16, pytest.approx(0.5))
    assert both.measures["kappa"].note == "no interval: 8 cases, 10 are needed"
    alone = against(entry).measures["accuracy"]
    assert both.measures["accuracy"].low == alone.low, "the same cases say no more"


def test_runs_with_different_questions_are_not_pooled() -> None:
    entry = labeled(CELLS, answered_by(HUMAN))
    other = labeled(CELLS, answered_by(HUMAN), [{**USABLE, "metric": "blank"}, CLEAR, SHARP], run_id="s")
    with pytest.raises(UsageError, match="r and s define question 'usable' differently"):
        agree([entry, other])
    words = labeled(CELLS, answered_by(HUMAN), [{**USABLE, "ask": "Would it do?"}], run_id="s")
    assert against(entry, words).cells == 16


# Undefined measures have a note and are not NaN


@pytest.mark.parametrize(
    ("cells", "answers", "note"),
    [
        ({}, {}, "nothing to compare"),
        (
            dict.fromkeys("abcd", True),
            dict.fromkeys("abcd", True),
            "the raters and the grader give every cell the same answer",
        ),
        ({"a": True}, {"a": True}, "the raters and the grader give every cell the same answer"),
    ],
)
def test_constant_and_empty_columns_have_a_note(cells: dict[str, bool], answers: dict[str, bool], note: str) -> None:
    scores = {case: {"good": good} for case, good in cells.items()} or {"a": {"good": True}}
    result = agree([labeled(scores, answered_by(answers))], [Minimum("good", 0.5)])
    finding = result.graders[0]
    kappa = finding.measures["kappa"]
    assert (kappa.value, kappa.low, kappa.high) == (None, None, None)
    assert kappa.note.startswith(note)
    assert finding.measures["spearman"].value is None
    assert (result.minimums[0].state, result.exit_code) == ("unmeasured", 3)
    assert "NaN" not in result.model_dump_json()


def test_constant_grader_agrees_by_chance_only() -> None:
    cells = {case: {"good": True} for case in "abcd"}
    result = agree(
        [labeled(cells, answered_by({"a": True, "b": False, "c": True, "d": False}))], [Minimum("good", 0.1)]
    )
    measures = result.graders[0].measures
    assert measures["kappa"].value == 0
    assert measures["fail_precision"].note == "the grader fails no cell"
    assert measures["fail_recall"].value == 0
    assert measures["spearman"].note == "one side gives every cell the same value: the measure is undefined"
    assert result.exit_code == 3


def test_one_rater_no_overlap_and_one_case_have_a_note() -> None:
    alone = agree([labeled(CELLS, answered_by(HUMAN))])
    assert "only one rater: agreement among raters is unknown" in alone.notes
    assert alone.people[0].alpha["nominal"].note == "no item has answers from two raters"
    assert alone.graders[0].ceiling.note.startswith("no cell has answers from two raters")
    apart = agree(
        [labeled(CELLS, answered_by({"a": True, "b": False}) + answered_by({"c": True, "d": False}, rater="bo"))]
    )
    assert (apart.people[0].shared, apart.people[0].cohen) == (0, ())
    assert apart.people[0].fleiss.note == "no item has answers from two raters"
    entry = labeled({"a": {"good": True}}, answered_by({"a": False}))
    assert against(entry).measures["kappa"].note == "no interval: 1 case, 10 are needed"
    assert against(entry).measures["accuracy"].note == "no interval: 1 case, 2 are needed"


def test_metric_that_was_never_measured() -> None:
    cells = {case: {"good": None} for case in "abcd"}
    result = agree([labeled(cells, answered_by(dict.fromkeys("abcd", True)))], [Minimum("good", 0.5)])
    finding = result.graders[0]
    assert (finding.cells, finding.unmeasured) == (0, 4)
    assert {measure.value for measure in finding.measures.values()} == {None}
    assert result.minimums[0].note == "none of the 4 labeled cells was measured"
    assert result.exit_code == 3


def test_evenly_split_raters_only() -> None:
    labels = answered_by(GOOD) + answered_by({case: not good for case, good in GOOD.items()}, rater="bo")
    result = agree([labeled(CELLS, labels)], [Minimum("good", 0.5)])
    finding = result.graders[0]
    assert (finding.cells, finding.split, finding.disputed) == (8, 8, ())
    assert finding.measures["kappa"].note == "nothing to compare"
    assert finding.ceiling.value == -1
    assert (result.minimums[0].state, result.minimums[0].note) == ("unmeasured", "nothing to compare")


def test_run_without_labels() -> None:
    result = agree([labeled(CELLS, [])], [Minimum("good", 0.6)])
    assert result.notes[0].startswith("these runs have no labels yet")
    assert (result.labels, result.people, result.raters, result.exit_code) == (0, (), (), 3)
    assert agree([labeled(CELLS, [])]).exit_code == 0


def test_unmatched_labels_are_counted_and_ignored() -> None:
    labels = [*answered_by(HUMAN), label("zz", "ann", "usable", True), label("a", "bo", "mood", True),
              label("a", "bo", "usable", 3), label("a", "bo", "clear", 9), label("a", "bo", "wrong", ["size"]),
              label("a", "bo", "better", "a"), label("a", "bo", "usable", None)]  # fmt: skip
    result = agree([labeled(CELLS, labels)])
    assert result.labels == 8
    assert "ignored: 1 label for cells that are not in the run" in result.notes
    assert "ignored: 4 labels that match no question in the suite" in result.notes


# Agreement among raters


def test_agreement_among_raters_with_known_result() -> None:
    second = {**HUMAN, "a": True, "h": False}
    (finding,) = agree([labeled(CELLS, answered_by(HUMAN) + answered_by(second, rater="bo"), [USABLE])]).people
    assert (finding.raters, finding.items, finding.shared, finding.fleiss_raters) == (2, 8, 8, 2)
    (pair,) = finding.cohen
    assert (pair.raters, pair.n, pair.kappa) == (("ann", "bo"), 8, pytest.approx(0.5))
    assert finding.cohen_mean.value == pytest.approx(0.5)
    assert finding.alpha["nominal"].value == pytest.approx(1 - 15 * 4 / (2 * 8 * 8))
    assert finding.fleiss.value == pytest.approx(0.5)
    assert [(item.test_id, item.answers) for item in finding.split_items] == [
        ("a", {"no": 1, "yes": 1}),
        ("h", {"no": 1, "yes": 1}),
    ]


def test_measures_of_scales_tags_and_pairs() -> None:
    labels = [
        *answered_by(dict(zip("abcd", (1, 2, 4, 5), strict=True)), "clear"),
        *answered_by(dict(zip("abcd", (1, 3, 4, 5), strict=True)), "clear", "bo"),
        *(label(case, rater, "wrong", tags) for rater, tags in (("ann", ["cut"]), ("bo", ["colour", "cut"])) for case in "ab"),
        *(label(case, rater, "wrong", []) for rater in ("ann", "bo") for case in "cd"),
        *(label(case, rater, "better", answer, other="s@n") for rater in ("ann", "bo")
          for case, answer in zip("abc", ("a", "b", "tie"), strict=True)),
        label("a", "ann", "better.why", "sharper", other="s@n"),
    ]  # fmt: skip
    result = agree(
        [labeled(CELLS, labels, [CLEAR, {"key": "wrong", "ask": "?", "type": "tags", "choices": ["colour", "cut"]}])]
    )
    finding = {(entry.question, entry.tag): entry for entry in result.people}
    assert list(finding) == [("clear", None), ("wrong", "colour"), ("wrong", "cut"), (BETTER["key"], None)]
    assert finding["clear", None].alpha["ordinal"].value == pytest.approx(1 - (2 / 8) / (648 / 56))
    assert finding["clear", None].alpha.keys() == {"ordinal", "interval"}
    assert finding["wrong", "cut"].alpha["nominal"].value == 1
    assert finding["wrong", "colour"].alpha["nominal"].value < 0
    assert finding["better", None].fleiss.value == 1
    assert finding["better", None].split_items == ()
    assert result.notes == ("no labeled cell has a score for the metric of its question",)


# Each rater


def test_rater_consistency_and_anchors_over_time() -> None:
    anchors = [label(case, "agreed", "clear", 3, source="anchor") for case in "abc"]
    labels = [
        label("a", "ann", "clear", 3, "2025-06-01", source="anchor"),
        label("b", "ann", "clear", 3, "2025-06-01", source="anchor"),
        label("a", "ann", "clear", 3, "2025-06-08", source="anchor"),
        label("b", "ann", "clear", 5, "2025-06-08", source="anchor"),
        label("d", "ann", "usable", True),
        label("d", "ann", "usable", None),
        label("d", "ann", "usable", False),
        label("d", "bo", "usable", True),
    ]
    ann, bo = agree([labeled(CELLS, labels, anchors=anchors)]).raters
    assert (ann.rater, ann.answers) == ("ann", 3)
    assert (ann.repeats.n, ann.repeats.same, ann.repeats.share, ann.repeats.distance) == (2, 1, 0.5, 1)
    assert (ann.anchors.n, ann.anchors.same, ann.anchors.distance) == (4, 3, 0.5)
    assert [(day.day, day.n, day.same) for day in ann.days] == [("2025-06-01", 2, 2), ("2025-06-08", 2, 1)]
    assert (bo.repeats.n, bo.repeats.share, bo.anchors.n, bo.days) == (0, None, 0, ())


def test_withdrawn_answer_is_not_compared_with_the_next() -> None:
    for given, n, same in (
        ([True, None, False], 0, 0),
        ([None, True, True], 1, 1),
        ([True, False, None, True], 1, 1),
        ([True, None, None, False, False, True], 2, 1),
    ):
        (ann,) = agree([labeled(CELLS, [label("a", "ann", "usable", answer) for answer in given])]).raters
        assert (ann.repeats.n, ann.repeats.same) == (n, same)


def test_too_many_raters_have_no_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    answered_by = [label(case, rater, "usable", (at + item) % 3 > 0) for at, case in enumerate("abcd") for item, rater in enumerate(("ann", "bo", "cy"))]  # fmt: skip
    run = labeled({case: {"good": True} for case in "abcd"}, answered_by)
    assert len(agree([run]).people[0].cohen) == 3
    monkeypatch.setattr(raters, "MAX_RATER_PAIRS", 11)
    (finding,) = agree([run]).people
    assert (finding.cohen, finding.cohen_mean.note) == (
        (),
        "too many raters for pairwise kappa: see alpha",
    )
    assert finding.alpha["nominal"].value is not None


def test_duplicate_run_is_rejected() -> None:
    run = labeled(CELLS, answered_by(HUMAN))
    with pytest.raises(UsageError, match=r"^r is given twice: a on m would count twice$"):
        agree([run, run])


# Required agreement: the lower bound or the estimate of a measure, its state, its note and the exit code


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
        assert 0.55 < result.low < 0.8
        assert ("--min-point" in (result.note or "")) == (minimum.value == 0.8 and state == "failed")
