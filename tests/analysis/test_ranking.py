"""Pairwise preferences, and rankings from the answers of judges and of people: what is pooled, what is left out, and what
cannot be ranked."""

from __future__ import annotations

from math import isnan, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from preference_factory import pair, preference
from ranked_runs import JUDGE, answered, judged, label

from visioneval import Rankings, UsageError
from visioneval.analysis.agreement.answers import LabeledRun
from visioneval.analysis.preferences import (
    PreferencePanel,
    RankedRun,
    Ranking,
    never_asked_pairs,
    summarize_preferences,
    unjudged,
)
from visioneval.analysis.ranking import rank_runs
from visioneval.analysis.stats.correlation import kendall, pearson, spearman
from visioneval.analysis.stats.intervals import rate_interval
from visioneval.suite.filters import Scope


def only(rankings: Rankings) -> Ranking:
    (ranking,) = rankings.rankings
    return ranking


def places(ranking: Ranking) -> dict[str, tuple[int | None, int | None, int | None]]:
    return {entry.name: (entry.rank, entry.low_rank, entry.high_rank) for entry in ranking.model_runs}


def entry_of(ranking: Ranking, name: str) -> RankedRun:
    return next(entry for entry in ranking.model_runs if entry.name == name)


def by_judges(*preferences: Any, **more: Any) -> Rankings:
    return rank_runs([answered([line for pair in preferences for line in pair])], "judges", **more)


def by_people(*labels: Any, **more: Any) -> Rankings:
    return rank_runs([answered(labels=labels, **more)], "people")


def mixed(cases: int = 12, **more: Any) -> list[Any]:
    """``x`` beats ``y`` in two of three cases, and ``y`` beats ``z`` so; ``x`` and ``z`` tie."""
    pairs = []
    for at in range(cases):
        winner = "b" if at % 3 == 0 else "a"
        pairs += [judged(f"c{at}", "x", "y", winner, **more), judged(f"c{at}", "y", "z", winner, **more)]
        pairs += [judged(f"c{at}", "x", "z", "tie", **more)]
    return pairs


def test_two_model_runs_have_the_log_odds_of_their_points() -> None:
    wins = [judged(f"w{at}", "x", "y", "a") for at in range(5)]
    others = [judged("l0", "x", "y", "b"), judged("t0", "x", "y", "tie"), judged("f0", "x", "y", "a", "b")]
    ranking = only(by_judges(*wins, *others))
    x = entry_of(ranking, "x")
    assert (x.model_run, x.rank, x.wins, x.losses, x.ties, x.pairs, x.cases) == ("r@x", 1, 5, 1, 2, 8, 8)
    assert x.strength.value == pytest.approx(log(6 / 2) / 2)
    assert x.chance.value == pytest.approx(1 / (1 + (2 / 6) ** 0.5))
    (pair,) = ranking.comparisons
    assert (pair.a, pair.b, pair.a_wins, pair.b_wins, pair.ties, pair.flips, pair.pairs) == ("x", "y", 5, 1, 2, 1, 8)
    assert pair.difference.value == pytest.approx(log(3))
    assert pair.difference.as_chance().value == pytest.approx(6 / 8)
    assert (ranking.judge, ranking.question, ranking.raters, ranking.cases) == (JUDGE, None, None, 8)


def test_ranks_strengths_and_intervals() -> None:
    result = by_judges(*mixed())
    ranking = only(result)
    assert list(places(ranking)) == ["x", "y", "z"]
    for entry in ranking.model_runs:
        assert entry.low_rank <= entry.rank <= entry.high_rank
        assert entry.strength.low < entry.strength.value < entry.strength.high
        assert 0 < entry.chance.low < entry.chance.value < entry.chance.high < 1
    assert (result.exit_code, result.gaps, ranking.gaps, ranking.notes) == (0, (), (), ())
    assert result == by_judges(*mixed())


@pytest.mark.parametrize(
    ("answer", "rank"),
    [("a", {"x": (1, None, None), "y": (2, None, None)}), ("tie", dict.fromkeys("xy", (1, None, None)))],
)
def test_one_pair_has_ranks_without_intervals(answer: str, rank: dict[str, Any]) -> None:
    result = by_judges(judged("one", "x", "y", answer))
    ranking = only(result)
    assert places(ranking) == rank
    assert "no intervals: they need 6 cases" in ranking.notes
    assert result.exit_code == 0
    assert all(entry.strength is None or entry.strength.low is None for entry in ranking.model_runs)


def test_many_pairs_of_one_case_are_one_case() -> None:
    samples = [judged("one", "x", "y", "a" if at % 3 else "b", sample_index=at) for at in range(30)]
    ranking = only(by_judges(*samples))
    assert (ranking.pairs, ranking.cases) == (30, 1)
    assert entry_of(ranking, "x").strength.low is None


@pytest.mark.parametrize("answers", [("tie", "tie"), ("a", "b")])
def test_only_ties_share_the_first_rank(answers: tuple[str, str]) -> None:
    pairs = [(a, b) for a, b in (("x", "y"), ("y", "z"), ("x", "z"))]
    ranking = only(by_judges(*(judged(f"c{at}", a, b, *answers) for at in range(10) for a, b in pairs)))
    assert places(ranking) == dict.fromkeys("xyz", (1, 1, 3))
    x = entry_of(ranking, "x").strength
    assert x.value == pytest.approx(0)
    assert x.low < 0


def test_a_cycle_is_no_order() -> None:
    cycle = (("x", "y"), ("y", "z"), ("z", "x"))
    result = by_judges(*(judged(f"c{at}", a, b, "a") for at in range(10) for a, b in cycle))
    assert places(only(result)) == dict.fromkeys("xyz", (1, 1, 3))
    assert result.exit_code == 0


def test_a_winner_of_every_pair_is_ranked_without_a_strength() -> None:
    wins = [judged(f"c{at}", "x", other, "a") for at in range(10) for other in "yz"]
    result = by_judges(*wins, *(judged(f"c{at}", "y", "z", "a" if at % 2 else "b") for at in range(10)))
    ranking = only(result)
    assert places(ranking) == {"x": (1, 1, 1), "y": (2, 2, 3), "z": (2, 2, 3)}
    assert entry_of(ranking, "x").strength is None
    assert entry_of(ranking, "y").strength.value == pytest.approx(0)
    assert ranking.notes == ("x won every pair: its strength has no upper bound",)
    assert result.exit_code == 0
    assert [pair.difference is None for pair in ranking.comparisons] == [True, True, False]


def test_a_loser_of_every_pair_and_tiers_are_explained() -> None:
    losses = [judged(f"c{at}", other, "z", "a") for at in range(8) for other in "xy"]
    ranking = only(by_judges(*losses, *(judged(f"c{at}", "x", "y", "a" if at % 2 else "b") for at in range(8))))
    assert ranking.notes == ("z lost every pair: its strength has no lower bound",)
    assert places(ranking)["z"] == (3, 3, 3)
    tiers = [judged(f"c{at}", a, b, "ab"[at % 2]) for at in range(8) for a, b in (("v", "w"), ("x", "y"))]
    tiers += [judged(f"c{at}", "v", "x", "a") for at in range(8)]
    ranking = only(by_judges(*tiers))
    assert ranking.notes == ("strengths compare only within each of these tiers: v, w; x, y",)
    assert {entry.name: entry.tier for entry in ranking.model_runs} == {"v": 1, "w": 1, "x": 2, "y": 2}
    assert all(entry.strength is not None for entry in ranking.model_runs)


def test_groups_that_never_met_are_ranked_apart() -> None:
    pairs = [judged(f"c{at}", a, b, "ab"[at % 2]) for at in range(8) for a, b in (("v", "w"), ("x", "y"), ("y", "z"))]
    result = by_judges(*pairs)
    ranking = only(result)
    assert {entry.name: entry.group for entry in ranking.model_runs} == {"x": 1, "y": 1, "z": 1, "v": 2, "w": 2}
    assert ranking.gaps == ("not ranked together, as no answers connect them: x, y, z; v, w",)
    assert result.exit_code == 3
    assert {(pair.a, pair.b) for pair in ranking.comparisons} == {("v", "w"), ("x", "y"), ("x", "z"), ("y", "z")}


def test_model_runs_that_nothing_orders_are_a_gap() -> None:
    pairs = [judged(f"c{at}", "x", other, "a") for at in range(8) for other in "yz"]
    result = by_judges(*pairs)
    assert only(result).gaps == ("no answers show which is better: y and z",)
    assert places(only(result)) == {"x": (1, 1, 1), "y": (2, 2, 3), "z": (2, 2, 3)}
    assert result.exit_code == 3


def test_unanswered_pairs_are_counted_and_left_out() -> None:
    result = by_judges(
        *mixed(), judged("c0", "x", "y", None), judged("c1", "x", "y", "a", None), judged("c0", "x", "w", None)
    )
    ranking = only(result)
    assert ranking.unanswered == 3
    assert ranking.gaps == (
        "3 pairs could not be judged and are left out",
        "not ranked together, as no answers connect them: x, y, z; w",
    )
    w = entry_of(ranking, "w")
    assert (w.rank, w.strength, w.pairs, w.wins) == (None, None, 0, 0)
    assert result.exit_code == 3
    pair = next(pair for pair in ranking.comparisons if (pair.a, pair.b) == ("w", "x"))
    assert (pair.unanswered, pair.pairs, pair.difference) == (1, 0, None)


def test_model_runs_in_fewer_cases_are_named() -> None:
    lines = [*mixed(), *(judged(f"c{at}", "w", "x", "ab"[at % 2]) for at in range(7))]
    assert only(by_judges(*lines)).notes == ("compared in fewer than 12 cases: w (7)",)


def test_only_unanswered_pairs_rank_nothing() -> None:
    result = by_judges(judged("c0", "x", "y", None))
    assert [entry.rank for entry in only(result).model_runs] == [None, None]
    assert result.exit_code == 3


def test_each_judge_ranks_by_itself() -> None:
    pairs = [*mixed(), *mixed(judge="gemini:flash")]
    pairs[0] = judged("c0", "x", "y", "tie")
    result = by_judges(*pairs)
    assert [ranking.judge for ranking in result.rankings] == ["gemini:flash", JUDGE]
    assert only(by_judges(*pairs, judge=JUDGE)) == result.rankings[1]
    with pytest.raises(UsageError, match=r"--judge gemini:flsh: no answers .* \(did you mean 'gemini:flash'\?\)"):
        by_judges(*pairs, judge="gemini:flsh")


def test_a_judge_is_also_known_by_its_name_in_the_suite() -> None:
    run = answered([line for pair in mixed() for line in pair])
    suite = run.info.suite.model_validate(
        {
            **run.info.suite.model_dump(mode="json", exclude_defaults=True),
            "judges": {"eye": {"provider": "openai", "model": "gpt-5.4"}},
        }
    )
    info = run.info.model_copy(update={"suite": suite})
    named = LabeledRun(info, (), (), preferences=run.preferences)
    assert only(rank_runs([named], "judges", judge="eye")).judge == JUDGE


def test_several_runs_are_pooled_and_overlapping_pairs_count_once() -> None:
    first = answered([line for pair in mixed() for line in pair])
    same_pair = [judged(f"c{at}", "s@x", "r@x", "a" if at % 2 else "tie") for at in range(12)]
    reverse = [judged(f"c{at}", "r@x", "s@x", "tie") for at in range(12)]
    second = answered([line for pair in [*same_pair, *reverse] for line in pair], run_id="s")
    ranking = only(rank_runs([first, second], "judges"))
    assert [entry.name for entry in ranking.model_runs] == ["s@x", "r@x", "y", "z"]
    s = entry_of(ranking, "s@x")
    assert (s.pairs, s.wins, s.ties, s.losses, s.cases) == (12, 6, 18, 0, 12)
    pair = next(pair for pair in ranking.comparisons if {pair.a, pair.b} == {"r@x", "s@x"})
    shares = [0.75, 0.5] * 6  # a win and a tie in half of the cases, else two ties
    share = sum(shares) / 12
    assert -pair.difference.value == pytest.approx(log(share / (1 - share)))


def test_filters_and_labels_narrow_the_ranking() -> None:
    lines = [line for pair in mixed() for line in pair]
    run = answered(lines, tags={"c0": ["sign"], "c1": ["sign"]})
    assert only(rank_runs([run], "judges", Scope(cases=("c1*",)))).cases == 3
    assert only(rank_runs([run], "judges", Scope(tags=("sign",)))).pairs == 6
    assert list(places(only(rank_runs([run], "judges", Scope(models=("x", "z")))))) == ["x", "z"]
    narrowed = answered(lines, selected=("x", "y"))
    assert set(places(only(rank_runs([narrowed], "judges")))) == {"x", "y"}
    empty = rank_runs([narrowed], "judges", Scope(models=("z",)))
    assert (empty.rankings, empty.gaps, empty.exit_code) == (
        (),
        ("no pair of these model runs and cases was compared",),
        3,
    )
    for filters, message in (
        (
            Scope(cases=("d*",)),
            "--case 'd*': no match in these runs (known: c0, c1, c10, c11, c2, c3, c4, c5, c6, c7, c8, c9)",
        ),
        (Scope(tags=("sing",)), "--tag 'sing': no match in these runs (did you mean 'sign'?)"),
        (Scope(models=("v",)), "--model 'v': no match in these runs (known: x, y, z)"),
    ):
        with pytest.raises(UsageError) as error:
            rank_runs([run], "judges", filters)
        assert str(error.value) == message


def test_no_answers_at_all_is_a_line_that_says_what_to_run() -> None:
    for by, command in (("judges", "visioneval pairwise A B"), ("people", "visioneval label RUN@A --pairs RUN@B")):
        result = rank_runs([answered()], by)
        (line,) = result.gaps
        assert f"'{command}'" in line
        assert (result.exit_code, result.rankings) == (3, ())


def test_an_interrupted_run_is_a_gap() -> None:
    run = answered([line for pair in mixed() for line in pair], state="interrupted")
    result = rank_runs([run], "judges")
    assert (result.gaps, result.exit_code) == (("the run r is interrupted: pairs may be missing",), 3)
    assert len(result.rankings) == 1


def test_people_rank_by_question_and_a_pair_counts_once() -> None:
    labels = [label(f"c{at}", rater, "x", "r@y", "a") for at in range(8) for rater in ("ann", "bo")]
    labels += [label("c0", "cy", "x", "r@y", "b"), label("c1", "ann", "x", "r@y", "tie", question="calmer")]
    labels += [label("c0", "ann", "x", "r@y", "a", question="better.why")]
    result = by_people(*labels)
    assert [ranking.question for ranking in result.rankings] == ["better", "calmer"]
    ranking = result.rankings[0]
    assert (ranking.judge, ranking.raters, ranking.pairs, ranking.cases) == (None, 3, 8, 8)
    x = entry_of(ranking, "x")
    assert (x.wins, x.losses, x.ties, x.pairs) == (16, 1, 0, 8)
    share = (7 + 2 / 3) / 8
    assert x.strength.value == pytest.approx(log(share / (1 - share)) / 2)
    assert result.exit_code == 0


def test_people_who_disagree_evenly_tie() -> None:
    labels = [
        label(f"c{at}", rater, "x", "r@y", answer) for at in range(8) for rater, answer in (("ann", "a"), ("bo", "b"))
    ]
    ranking = only(by_people(*labels))
    assert places(ranking) == {"x": (1, 1, 2), "y": (1, 1, 2)}
    assert entry_of(ranking, "x").strength.value == pytest.approx(0)


def test_the_newest_answer_of_a_rater_counts_and_a_withdrawn_one_does_not() -> None:
    labels = [label("c0", "ann", "x", "r@y", "a"), label("c0", "ann", "x", "r@y", "b")]
    labels += [label("c1", "ann", "x", "r@y", "a"), label("c1", "ann", "x", "r@y", None)]
    ranking = only(by_people(*labels))
    assert (ranking.pairs, entry_of(ranking, "y").wins, entry_of(ranking, "x").wins) == (1, 1, 0)


def test_the_newest_answer_counts_whichever_output_was_shown_first() -> None:
    early = [label(f"c{at}", "ann", "x", "r@y", "a", at="2025-01-01T12:00:00+00:00") for at in range(8)]
    late = [label(f"c{at}", "ann", "y", "r@x", "a", at="2025-02-01T12:00:00+00:00") for at in range(8)]
    for labels in ([*early, *late], [*late, *early]):
        ranking = only(by_people(*labels))
        assert (entry_of(ranking, "y").wins, entry_of(ranking, "x").wins) == (8, 0)


def test_a_model_run_without_answers_is_named() -> None:
    result = by_judges(*(judged(f"c{case}", "r@x", "r@y", "ab"[case % 2]) for case in range(8)))
    assert result.exit_code == 0
    assert "no answers about r@z: not ranked" in result.notes


def test_labels_of_replaced_outputs_and_unknown_cells_are_ignored() -> None:
    new, old = "1" * 64, "2" * 64
    labels = [
        label("c0", "ann", "x", "r@y", "a", artifact_sha256=new, other_sha256=new),
        label("c1", "ann", "x", "r@y", "a", artifact_sha256=old),
        label("c2", "ann", "x", "r@y", "a", other_sha256=old),
        label("c3", "ann", "x", "r@gone", "a"),
        label("c4", "ann", "gone", "r@y", "a"),
        label("c5", "ann", "x", "r@x", "a"),
        label("c6", "ann", "x", "s@x", "a"),
        label("c7", "ann", "x", None, True, question="usable", artifact_sha256=old),
    ]
    result = by_people(*labels, hashes={"x": new, "y": new})
    ranking = only(result)
    assert {entry.model_run: entry.pairs for entry in ranking.model_runs} == {"r@x": 2, "r@y": 1, "s@x": 1}
    assert result.notes[:2] == (
        "ignored: 2 labels for replaced images",
        "ignored: 2 labels for cells that are not in the run",
    )


def test_odd_names_from_records_are_no_error() -> None:
    result = by_judges(
        judged("c0", "@", "@", "a"), judged("c0", "r@[b]x", "r@<i>y", "a"), judged("c1", "r@[b]x", "r@<i>y", "b")
    )
    assert set(places(only(result))) == {"[b]x", "<i>y"}


def test_huge_and_tiny_strengths_have_chances() -> None:
    pairs = [judged(f"c{at}", "x", "y", "a") for at in range(3000)] + [judged("d", "x", "y", "b")]
    ranking = only(by_judges(*pairs))
    y = entry_of(ranking, "y")
    assert y.strength.value == pytest.approx(-log(3000) / 2)
    assert places(ranking) == {"x": (1, 1, 1), "y": (2, 2, 2)}


@pytest.mark.slow
def test_too_many_model_runs_and_cases_are_refused() -> None:
    with pytest.raises(UsageError, match="102 model runs, more than 100: select some with --model"):
        by_judges(*(judged("c", "x", f"m{at}", "a") for at in range(101)))
    with pytest.raises(UsageError, match="7,501 cases are too many for 64 model runs"):
        by_judges(
            *(judged("c0", "x", f"m{at}", "a") for at in range(63)),
            *(judged(f"c{at}", "x", "m0", "a") for at in range(7501)),
        )


@given(st.lists(st.tuples(st.integers(-4, 4), st.floats(0, 1).map(lambda x: round(x, 1))), min_size=2, max_size=60))
@settings(max_examples=40)
def test_correlations_with_ties_match_scipy(rows: list[tuple[int, float]]) -> None:
    from scipy import stats

    first, second = (np.asarray(column, dtype=float) for column in zip(*rows, strict=True))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert isnan(spearman(first, second))
        assert isnan(kendall(first, second))
        assert isnan(pearson(first, second))
        return
    assert pearson(first, second) == pytest.approx(stats.pearsonr(first, second).statistic, abs=1e-9)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert kendall(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)


def test_correlations_of_many_rows_match_scipy() -> None:
    from scipy import stats

    random = np.random.default_rng(1)
    first = random.normal(size=20_000)
    second = np.round(first + random.normal(size=20_000), 1)
    assert kendall(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert pearson(first * 1e150, second) == pytest.approx(stats.pearsonr(first, second).statistic), "no overflow"


def test_correlations_of_too_few_rows_are_nan() -> None:
    for rows in ([], [1.0]):
        assert isnan(spearman(rows, rows))
        assert isnan(kendall(rows, rows))
        assert isnan(pearson(rows, rows))
    assert pearson([1, 2, 4], [-1, -2, -4]) == -1
    assert (spearman([1, 2], [2, 1]), kendall([1, 2], [2, 1])) == (-1, -1)


@pytest.mark.parametrize(
    ("first_answer", "second_answer", "result"),
    [
        ("a", "a", "a"),
        ("b", "b", "b"),
        ("tie", "tie", "tie"),
        ("a", "b", "flip"),
        ("b", "a", "flip"),
        ("tie", "b", "flip"),
        ("b", None, "error"),
        (None, None, "error"),
    ],
)
def test_both_orders_give_one_result(first_answer: Any, second_answer: Any, result: str) -> None:
    (summary,) = summarize_preferences(pair("one", first_answer, second_answer))
    assert [finding.result for finding in summary.pairs] == [result]
    rate = {"a": 0.0, "b": 1.0, "tie": 0.5, "flip": 0.5, "error": None}[result]
    assert summary.rate == rate
    assert (summary.interval is None) == (result == "error")
    assert summary.judged == (result != "error")


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        (pair("one", "b", "b", judge="k"), "b"),
        (pair("one", None, None, judge="k"), "b"),
        (pair("one", None, None, judge="k", never_asked=True), "error"),
        ([preference("one", "a", "b", judge="k"), preference("one", "b", None, judge="k", never_asked=True)], "error"),
        ([preference("one", "a", "b", judge="k")], "error"),
        ([], "error"),
    ],
)
def test_a_quorum_excuses_a_judge_that_is_down_and_none_that_was_never_asked(lines: Any, result: str) -> None:
    panel = PreferencePanel("better", ("j", "k"), required=1)
    findings = summarize_preferences([*pair("one", "b", "b"), *lines], [panel])
    assert [finding.result for finding in findings[-1].pairs] == [result]
    assert unjudged(findings) == (result == "error")
    assert [(entry.name, entry.number) for entry in never_asked_pairs(findings)] == (
        [("k", 1)] if lines and result == "error" else []
    )


def test_missing_order_is_an_error() -> None:
    (summary,) = summarize_preferences([preference("one", "a", "b")])
    assert (summary.errors, summary.judged, summary.rate) == (1, 0, None)


def test_ties_count_half_and_errors_do_not_count() -> None:
    lines = [*pair("1", "b", "b"), *pair("2", "a", "b"), *pair("3", "tie", "tie"), *pair("4", "b", None)]
    (summary,) = summarize_preferences(lines)
    assert (summary.count("b"), summary.count("a"), summary.ties, summary.flips, summary.errors) == (1, 0, 2, 1, 1)
    assert summary.rate == pytest.approx(2 / 3)
    assert summary.interval == rate_interval([(1.0, 1), (0.5, 1), (0.5, 1)], ties=2)


def test_judges_and_runs_are_summarized_separately() -> None:
    lines = [*pair("1", "b", "b"), *pair("1", "a", "a", judge="k"), *pair("1", "tie", "tie", b="s@y")]
    assert [(finding.b, finding.judge, finding.rate) for finding in summarize_preferences(lines)] == [
        ("r@y", "j", 1.0), ("r@y", "k", 0.0), ("s@y", "j", 0.5)
    ]  # fmt: skip
    assert summarize_preferences([]) == ()


def test_samples_of_a_case_are_no_further_cases() -> None:
    def width(samples: int, cases: int) -> float:
        numbers = range(samples * cases)
        lines = (pair(f"c{at % cases}", *("ab"[at % cases % 2],) * 2, at // cases) for at in numbers)
        (found,) = summarize_preferences(line for both in lines for line in both)
        return found.interval.high - found.interval.low

    assert width(5, 20) == pytest.approx(width(1, 20), rel=0.1)
