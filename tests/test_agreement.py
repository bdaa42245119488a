"""People against graders, among themselves and each with himself: by hand, and where nothing can be told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opinions import BETTER, CLEAR, SHARP, USABLE, label, labeled

from visioneval.analysis.agreement import among_raters
from visioneval.analysis.agreement.agreement import Minimum, agree
from visioneval.errors import UsageError

# What graders and people say of eight cells: the grader fails a, b, c, d; people fail a, b, c, e.
GOOD = dict(zip("abcdefgh", (False, False, False, False, True, True, True, True), strict=True))
PEOPLE = {**GOOD, "d": True, "e": False}
CELLS = {case: {"good": good} for case, good in GOOD.items()}


def said(answers: dict[str, Any], question: str = "usable", rater: str = "ann") -> list[Any]:
    return [label(case, rater, question, answer) for case, answer in answers.items()]


def against(*runs: Any, question: str = "usable") -> Any:
    return next(found for found in agree(runs).graders if found.question == question)


def test_a_yes_or_no_by_hand() -> None:
    found = against(labeled(CELLS, said(PEOPLE)))
    assert (found.metric, found.kind, found.cells, found.headline) == ("good", "bool", 8, "kappa")
    values = {name: measure.value for name, measure in found.measures.items()}
    assert values == pytest.approx(
        {"kappa": 0.5, "accuracy": 0.75, "fail_precision": 0.75, "fail_recall": 0.75, "spearman": 0.5, "kendall": 0.5}
    )
    assert found.confusion.people == ("no", "yes")
    assert found.confusion.counts == ((3, 1), (1, 3))
    assert {cell.test_id for cell in found.disputed} == {"d", "e"}
    kappa = found.measures["kappa"]
    assert kappa.low < kappa.value < kappa.high


def test_what_fails_is_what_is_worse() -> None:
    question = {**USABLE, "metric": "blank"}
    cells = {case: {"blank": case in "ab"} for case in "abcd"}
    found = against(labeled(cells, said({"a": True, "b": False, "c": False, "d": False}), [question]))
    assert found.measures["fail_precision"].value == 0.5
    assert found.measures["fail_recall"].value == 1


def test_a_majority_speaks_for_people_and_an_even_split_is_left_out() -> None:
    labels = said(PEOPLE) + said(PEOPLE, rater="bo") + said({"a": True, "b": False}, rater="cy")
    labels += said({"c": True}, rater="bo")
    found = against(labeled(CELLS, labels))
    assert (found.cells, found.split) == (8, 1)
    assert found.measures["accuracy"].n == 7
    assert found.measures["spearman"].n == 8
    (a,) = [cell for cell in found.disputed if cell.test_id == "a"]
    assert (a.people, a.raters, a.grader) == (pytest.approx(1 / 3), 3, 0)
    assert found.ceiling.value < 1


def test_the_verdict_is_a_metric_and_an_error_is_not_measured() -> None:
    question = {**USABLE, "metric": "verdict"}
    cells = {**CELLS, "i": {"good": None}}
    found = against(labeled(cells, said({**PEOPLE, "i": True}), [question]))
    assert (found.metric, found.cells, found.unmeasured) == ("verdict", 8, 1)
    assert found.measures["kappa"].value == pytest.approx(0.5)


def test_a_rubrics_scale_by_the_suites_own_rule() -> None:
    cells = {case: {"layout": score} for case, score in zip("abcdef", (5, 4, 3, 2, 1, 0), strict=True)}
    labels = said(dict(zip("abcdef", (5, 5, 2, 3, 1, 1), strict=True)), "clear")
    found = against(labeled(cells, labels, [CLEAR]), question="clear")
    assert (found.kind, found.headline, found.rule) == ("scale", "quadratic_kappa", "layout >= 3")
    assert found.measures["accuracy"].value == pytest.approx(4 / 6)
    assert found.measures["fail_precision"].value == pytest.approx(2 / 3)
    assert found.confusion.grader == ("0", "1", "2", "3", "4", "5")
    assert sum(map(sum, found.confusion.counts)) == 6
    assert found.disputed[0].reason.startswith("about ")
    assert found.disputed[0].gap == pytest.approx(0.2)


def test_any_other_number_is_held_by_rank_alone() -> None:
    cells = {case: {"edge": edge} for case, edge in zip("abcd", (0.1, 7.0, 40.0, 900.0), strict=True)}
    labels = said(dict(zip("abcd", (1, 2, 3, 5), strict=True)), "sharp")
    found = against(labeled(cells, labels, [SHARP]), question="sharp")
    assert (found.kind, found.headline, found.confusion, found.rule) == ("continuous", "spearman", None, None)
    assert {name: measure.value for name, measure in found.measures.items()} == {"spearman": 1, "kendall": 1}
    assert found.disputed == ()


def test_cells_that_the_metric_is_not_for_do_not_count() -> None:
    cells = {**CELLS, "i": {}, "j": {"good": None}}
    found = against(labeled(cells, said({**PEOPLE, "i": True, "j": True})))
    assert (found.cells, found.unmeasured) == (8, 1)


def test_the_newest_answer_counts_and_one_that_was_taken_back_does_not() -> None:
    labels = [*said(dict.fromkeys("abcdefgh", True)), *said(PEOPLE), label("a", "ann", "usable", None)]
    found = against(labeled(CELLS, labels))
    assert found.cells == 7
    assert found.measures["accuracy"].value == pytest.approx(5 / 7)


def test_runs_are_pooled_and_a_case_in_two_runs_is_one_cluster() -> None:
    one = labeled(CELLS, said(PEOPLE))
    two = labeled(CELLS, said(PEOPLE), run_id="s")
    both = against(one, two)
    assert (both.cells, both.measures["kappa"].value) == (16, pytest.approx(0.5))
    alone = against(one).measures["kappa"]
    assert both.measures["kappa"].low == pytest.approx(alone.low)


def test_runs_that_ask_or_measure_differently_are_not_pooled() -> None:
    one = labeled(CELLS, said(PEOPLE))
    other = labeled(CELLS, said(PEOPLE), [{**USABLE, "metric": "blank"}, CLEAR, SHARP], run_id="s")
    with pytest.raises(UsageError, match="r and s ask 'usable' differently"):
        agree([one, other])
    words = labeled(CELLS, said(PEOPLE), [{**USABLE, "ask": "Would it do?"}], run_id="s")
    assert against(one, words).cells == 16


# Where nothing can be told, a plain sentence says why, and nothing is NaN


@pytest.mark.parametrize(
    ("cells", "answers", "note"),
    [
        ({}, {}, "nothing to compare"),
        (dict.fromkeys("abcd", True), dict.fromkeys("abcd", True), "people and grader give one and the same answer"),
        ({"a": True}, {"a": True}, "people and grader give one and the same answer"),
    ],
)
def test_constant_columns_and_empty_ones_have_a_sentence(
    cells: dict[str, bool], answers: dict[str, bool], note: str
) -> None:
    scores = {case: {"good": good} for case, good in cells.items()} or {"a": {"good": True}}
    result = agree([labeled(scores, said(answers))], [Minimum("good", 0.5)])
    found = result.graders[0]
    kappa = found.measures["kappa"]
    assert (kappa.value, kappa.low, kappa.high) == (None, None, None)
    assert kappa.note.startswith(note)
    assert found.measures["spearman"].value is None
    assert (result.minimums[0].state, result.exit_code) == ("unmeasured", 3)
    assert "NaN" not in result.model_dump_json()


def test_a_grader_that_always_says_the_same_agrees_by_chance_only() -> None:
    cells = {case: {"good": True} for case in "abcd"}
    result = agree([labeled(cells, said({"a": True, "b": False, "c": True, "d": False}))], [Minimum("good", 0.1)])
    measures = result.graders[0].measures
    assert measures["kappa"].value == 0
    assert measures["fail_precision"].note == "the grader fails no cell"
    assert measures["fail_recall"].value == 0
    assert measures["spearman"].note == "one side says the same of every cell: nothing can be told"
    assert result.exit_code == 1


def test_one_rater_no_overlap_and_one_case_are_said_in_words() -> None:
    alone = agree([labeled(CELLS, said(PEOPLE))])
    assert "one rater only: how far people agree among themselves is not known" in alone.notes
    assert alone.people[0].alpha["nominal"].note == "no item has answers of two raters"
    assert alone.graders[0].ceiling.note.startswith("no cell has answers of two raters")
    apart = agree([labeled(CELLS, said({"a": True, "b": False}) + said({"c": True, "d": False}, rater="bo"))])
    assert (apart.people[0].shared, apart.people[0].cohen) == (0, ())
    assert apart.people[0].fleiss.note == "no item has answers of two raters"
    one = labeled({"a": {"good": True}}, said({"a": False}))
    assert against(one).measures["kappa"].note == "one case only: no interval"


def test_nobody_labeled_anything() -> None:
    result = agree([labeled(CELLS, [])], [Minimum("good", 0.6)])
    assert result.notes[0].startswith("nobody has labeled a cell")
    assert (result.labels, result.people, result.raters, result.exit_code) == (0, (), (), 3)
    assert agree([labeled(CELLS, [])]).exit_code == 0


def test_labels_that_fit_nothing_are_counted_and_left_out() -> None:
    labels = [*said(PEOPLE), label("zz", "ann", "usable", True), label("a", "bo", "mood", True),
              label("a", "bo", "usable", 3), label("a", "bo", "clear", 9), label("a", "bo", "wrong", ["size"]),
              label("a", "bo", "better", "a"), label("a", "bo", "usable", None)]  # fmt: skip
    result = agree([labeled(CELLS, labels)])
    assert result.labels == 8
    assert "left out: 1 label about cells that are not in the run" in result.notes
    assert "left out: 4 labels that fit no question of the suite" in result.notes


# Demands


@pytest.mark.parametrize(
    ("least", "state", "code"),
    [
        ([Minimum("good", 0.5)], ["passed"], 0),
        ([Minimum("good", 0.51)], ["failed"], 1),
        ([Minimum("blank", -1.0)], ["unmeasured"], 3),
        ([Minimum("good", 0.9), Minimum("blank", 0.1)], ["failed", "unmeasured"], 3),
    ],
)
def test_demands_and_their_exit_codes(least: list[Minimum], state: list[str], code: int) -> None:
    result = agree([labeled(CELLS, said(PEOPLE))], least)
    assert [one.state for one in result.minimums] == state
    assert result.exit_code == code


def test_of_two_questions_over_one_metric_the_one_that_agrees_least_counts() -> None:
    questions = [USABLE, {**USABLE, "key": "fine"}, {**USABLE, "key": "never_asked"}]
    labels = said(GOOD) + said(PEOPLE, "fine")
    (found,) = agree([labeled(CELLS, labels, questions)], [Minimum("good", 0.6)]).minimums
    assert (found.question, found.value, found.state) == ("fine", pytest.approx(0.5), "failed")


def test_a_demand_on_what_is_not_there_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match=r"--min god: no run has this metric \(did you mean 'good'\?\)"):
        agree([labeled(CELLS, [])], [Minimum("god", 0.6)])


# People among themselves


def test_people_among_themselves_by_hand() -> None:
    second = {**PEOPLE, "a": True, "h": False}
    (found,) = agree([labeled(CELLS, said(PEOPLE) + said(second, rater="bo"), [USABLE])]).people
    assert (found.raters, found.items, found.shared, found.fleiss_raters) == (2, 8, 8, 2)
    (pair,) = found.cohen
    assert (pair.raters, pair.n, pair.kappa) == (("ann", "bo"), 8, pytest.approx(0.5))
    assert found.cohen_mean.value == pytest.approx(0.5)
    assert found.alpha["nominal"].value == pytest.approx(1 - 15 * 4 / (2 * 8 * 8))
    assert found.fleiss.value == pytest.approx(0.5)
    assert [(torn.test_id, torn.answers) for torn in found.torn] == [
        ("a", {"no": 1, "yes": 1}),
        ("h", {"no": 1, "yes": 1}),
    ]


def test_scales_tags_and_pairs_have_their_own_measures() -> None:
    labels = [
        *said(dict(zip("abcd", (1, 2, 4, 5), strict=True)), "clear"),
        *said(dict(zip("abcd", (1, 3, 4, 5), strict=True)), "clear", "bo"),
        *(label(case, rater, "wrong", tags) for rater, tags in (("ann", ["cut"]), ("bo", ["colour", "cut"])) for case in "ab"),
        *(label(case, rater, "wrong", []) for rater in ("ann", "bo") for case in "cd"),
        *(label(case, rater, "better", answer, other="s@n") for rater in ("ann", "bo")
          for case, answer in zip("abc", ("a", "b", "tie"), strict=True)),
        label("a", "ann", "better.why", "sharper", other="s@n"),
    ]  # fmt: skip
    result = agree(
        [labeled(CELLS, labels, [CLEAR, {"key": "wrong", "ask": "?", "type": "tags", "choices": ["colour", "cut"]}])]
    )
    found = {(one.question, one.tag): one for one in result.people}
    assert list(found) == [("clear", None), ("wrong", "colour"), ("wrong", "cut"), (BETTER["key"], None)]
    assert found["clear", None].alpha["ordinal"].value == pytest.approx(1 - (2 / 8) / (648 / 56))
    assert found["clear", None].alpha.keys() == {"ordinal", "interval"}
    assert found["wrong", "cut"].alpha["nominal"].value == 1
    assert found["wrong", "colour"].alpha["nominal"].value < 0
    assert found["better", None].fleiss.value == 1
    assert found["better", None].torn == ()
    assert result.notes == ("no labeled cell has a score of the metric that its question names",)


# Each rater


def test_a_rater_against_himself_and_against_anchors_over_time() -> None:
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
    assert (ann.himself.n, ann.himself.same, ann.himself.share, ann.himself.distance) == (2, 1, 0.5, 1)
    assert (ann.anchors.n, ann.anchors.same, ann.anchors.distance) == (4, 3, 0.5)
    assert [(day.day, day.n, day.same) for day in ann.days] == [("2025-06-01", 2, 2), ("2025-06-08", 2, 1)]
    assert (bo.himself.n, bo.himself.share, bo.anchors.n, bo.days) == (0, None, 0, ())


def test_an_answer_that_was_taken_back_is_not_held_against_the_next() -> None:
    for given, n, same in (
        ([True, None, False], 0, 0),
        ([None, True, True], 1, 1),
        ([True, False, None, True], 1, 1),
        ([True, None, None, False, False, True], 2, 1),
    ):
        (ann,) = agree([labeled(CELLS, [label("a", "ann", "usable", answer) for answer in given])]).raters
        assert (ann.himself.n, ann.himself.same) == (n, same)


def test_the_findings_are_json_of_a_known_form() -> None:
    found = json.loads(agree([labeled(CELLS, said(PEOPLE))]).model_dump_json())
    assert list(found) == [
        "schema_version", "runs", "labels", "graders", "people", "raters", "notes", "minimums", "exit_code",
    ]  # fmt: skip


def test_of_a_crowd_no_pairs_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [label(case, rater, "usable", (at + each) % 3 > 0) for at, case in enumerate("abcd") for each, rater in enumerate(("ann", "bo", "cy"))]  # fmt: skip
    run = labeled({case: {"good": True} for case in "abcd"}, said)
    assert len(agree([run]).people[0].cohen) == 3
    monkeypatch.setattr(among_raters, "MAX_RATER_PAIRS", 11)
    (found,) = agree([run]).people
    assert (found.cohen, found.cohen_mean.note) == (
        (),
        "too many raters to hold each against each: alpha speaks of them all",
    )
    assert found.alpha["nominal"].value is not None


def test_a_run_that_is_given_twice_would_count_double() -> None:
    run = labeled(CELLS, said(PEOPLE))
    with pytest.raises(UsageError, match=r"^r is given twice: a on m would count double$"):
        agree([run, run])
