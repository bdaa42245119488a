"""Votes of one judge: the combined score has no bias towards no or towards low scores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted_judge import ScriptedAnswer, ScriptedJudge, context
from suite_runner import LOOK, SuiteRunner

from visioneval import Grade, ProviderError
from visioneval.graders.rubric import RubricGrader
from visioneval.graders.rubric.grader import Rubric
from visioneval.judging.ask import combined_vote, is_tie
from visioneval.types import Score

METRICS = {
    "clear": {"type": "pass_fail", "description": "Is it clear?"},
    "style": {"type": "score", "scale": [0, 5], "description": "How is the style?"},
}
LOST = ProviderError("gone", kind="transient")


def expected(shares: dict[Any, float], votes: int) -> float:
    """The exact expected combined score of independent votes with these shares."""
    return sum(
        prod(shares[vote] for vote in outcome) * float(combined_vote(outcome) or 0)
        for outcome in product(shares, repeat=votes)
    )


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5, 0.9])
def test_two_votes_have_the_rate_of_the_judge(rate: float) -> None:
    assert expected({True: rate, False: 1 - rate}, 2) == pytest.approx(rate)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("votes", [2, 4, 6, 8])
def test_an_even_number_of_votes_has_the_rate_of_one_vote_less(votes: int, rate: float) -> None:
    """The odd number cannot be tied, so it has no tie rule that could favor an answer."""
    shares = {True: rate, False: 1 - rate}
    assert expected(shares, votes) == pytest.approx(expected(shares, votes - 1))


def test_two_votes_have_the_mean_of_the_judge() -> None:
    shares = {1: 0.1, 2: 0.1, 3: 0.25, 4: 0.31, 5: 0.24}
    assert expected(shares, 2) == pytest.approx(sum(value * share for value, share in shares.items()))


@pytest.mark.parametrize("votes", [2, 3, 4, 5])
def test_mirrored_scores_have_the_mirrored_result(votes: int) -> None:
    shares = {1: 0.4, 2: 0.1, 3: 0.2, 4: 0.05, 5: 0.25}
    mirrored = {6 - value: share for value, share in shares.items()}
    assert expected(mirrored, votes) == pytest.approx(6 - expected(shares, votes))


def test_simulated_judges_keep_their_rate_and_mean() -> None:
    """A judge that says yes 90 % of the time, and one with a mean of 3.49, vote twice on 20,000 images."""
    random = np.random.default_rng(7)
    answers = (random.random((20_000, 2)) < 0.9).tolist()
    rate = np.mean([combined_vote(votes) for votes in answers])
    assert rate == pytest.approx(0.9, abs=0.01)  # three standard errors are 0.006
    scores = random.choice([1, 2, 3, 4, 5], size=(20_000, 2), p=[0.1, 0.1, 0.25, 0.31, 0.24]).tolist()
    mean = np.mean([combined_vote(votes) for votes in scores])
    assert mean == pytest.approx(3.49, abs=0.03)


@pytest.mark.parametrize(
    ("votes", "score", "tied"),
    [
        ([True, False], True, True),
        ([False, True], False, True),
        ([False, True, True], True, False),
        ([None, False, True], False, True),  # the first usable vote
        ([None, None, True], None, False),
        ([True, None], None, False),
        ([2, 5], 3.5, True),
        ([4, 4], 4, False),
        ([5, 1, 4, 2], 3.0, True),
        ([5, 1, 3], 3, False),
        ([3, None, 4], 3.5, True),
        ([7], 7, False),
    ],
)
def test_votes_are_combined(votes: Sequence[Score], score: Score, tied: bool) -> None:
    result = combined_vote(votes)
    assert (result, type(result)) == (score, type(score))
    assert is_tie(votes) is tied


def graded(folder: Path, *answers: ScriptedAnswer, **options: Any) -> Grade:
    known = {"key": "look", "type": "rubric", "metrics": METRICS, "failure_tags": ["blurry", "cut_off"]}
    grader = Rubric(RubricGrader.model_validate({**known, **options}))
    return asyncio.run(grader.grade(context(folder, ScriptedJudge(*answers))))


def vote(clear: bool, style: float, verdict: str = "PASS", *tags: str) -> dict[str, Any]:
    return {"reason": f"{clear} {style}", "clear": clear, "style": style, "failure_tags": tags, "verdict": verdict}


def test_the_first_vote_decides_a_tie_and_the_record_names_it(tmp_path: Path) -> None:
    first = graded(tmp_path, vote(True, 5, "PASS", "blurry"), vote(False, 2, "FAIL", "cut_off"), votes=2)
    assert first.scores == {"clear": True, "style": 3.5}
    assert (first.details["judge_verdict"], first.failure_tags) == ("PASS", ("blurry",))
    assert first.details["tied"] == ["clear", "style"]
    assert first.reasons == {"look": "True 5 (tied votes: clear yes, no; style 5, 2)"}
    turned = graded(tmp_path, vote(False, 2, "FAIL", "cut_off"), vote(True, 5, "PASS", "blurry"), votes=2)
    assert turned.scores == {"clear": False, "style": 3.5}
    assert (turned.details["judge_verdict"], turned.failure_tags) == ("FAIL", ("cut_off",))


def test_a_lost_vote_may_leave_a_tie(tmp_path: Path) -> None:
    grade = graded(tmp_path, LOST, vote(False, 3), vote(True, 3), votes=3)
    assert grade.scores == {"clear": False, "style": 3}
    assert grade.details["tied"] == ["clear"]
    assert grade.reasons["look"].endswith("(tied votes: clear lost, no, yes)")


def test_votes_without_a_tie_name_none(tmp_path: Path) -> None:
    grade = graded(tmp_path, vote(True, 4), vote(True, 4), votes=2)
    assert (grade.reasons, "tied" in grade.details) == ({"look": "True 4"}, False)


def test_tags_need_most_votes_like_scores(tmp_path: Path) -> None:
    grade = graded(tmp_path, vote(True, 4, "PASS", "blurry"), LOST, votes=2)
    assert (grade.scores["clear"], grade.failure_tags) == (None, ())


def test_a_verdict_needs_most_votes_like_scores(tmp_path: Path) -> None:
    assert "judge_verdict" not in graded(tmp_path, LOST, LOST, vote(True, 4), votes=3).details
    assert graded(tmp_path, LOST, vote(True, 4), vote(True, 4), votes=3).details["judge_verdict"] == "PASS"


def test_per_metric_ties_are_named_at_their_metric(tmp_path: Path) -> None:
    reply = {"reason": "c", "failure_tags": [], "verdict": "PASS"}
    answers = ({**reply, "clear": True}, {**reply, "clear": False}, {**reply, "style": 3}, {**reply, "style": 3})
    grade = graded(tmp_path, *answers, votes=2, per_metric=True)
    assert grade.reasons == {"clear": "c (tied votes: clear yes, no)", "style": "c"}


SUITE = """\
name: demo
cases: [{id: one, prompt: a tree}]
models: [{provider: mock}]
judges: {default: {provider: openai, model: gpt-5.4}}
graders:
  - {key: look, type: rubric, votes: VOTES, metrics: {good: {type: pass_fail, description: Is it good}}}
verdict: [good]
"""


def test_an_even_number_of_votes_gets_a_warning_with_its_position(load: Callable[..., Any]) -> None:
    (warning,) = load(SUITE.replace("VOTES", "4")).warnings
    assert (warning.line, warning.column) == (6, 38)
    assert warning.message == (
        "warning: 4 votes can be tied: the first vote then decides, or the mean of the two middle scores;"
        " 5 votes cannot"
    )
    assert load(SUITE.replace("VOTES", "3")).warnings == ()
    assert load(SUITE.replace("VOTES", "1")).warnings == ()


def test_validate_prints_the_warning_and_succeeds(runner: SuiteRunner) -> None:
    path = runner.folder / "suite.yaml"
    path.write_text(SUITE.replace("VOTES", "2"))
    result = runner("validate", path)
    assert result.exit_code == 0
    assert "6:38: warning: 2 votes can be tied" in result.output


def test_grades_of_the_old_tie_rule_are_not_reused(runner: SuiteRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.write("tree", graders=[{**LOOK, "votes": 2}])
    with monkeypatch.context() as before:
        before.setattr(RubricGrader, "version", None)
        assert runner.run().exit_code == 0
    result = runner("run", runner.folder / "suite.yaml", "--resume", runner.out / "r")
    assert "to grade again: 1" in result.output
    assert runner.records()["tree", 0].graders[0].fingerprint.version == "2"


def test_only_graders_with_votes_have_the_new_version() -> None:
    options = {"key": "look", "type": "rubric", "metrics": METRICS}
    versions = [RubricGrader.model_validate({**options, "votes": votes}).version for votes in (1, 2, 3)]
    assert versions == [None, "2", "2"]
