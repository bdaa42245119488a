"""Panels: several judges grade an output, and their scores become one. Combining, agreement, and checks of suites."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from suite_runner import SuiteRunner

from visioneval import GraderRecord, Metric, Record, RunInfo
from visioneval.analysis.stats.agreement import interval_alpha, krippendorff_alpha
from visioneval.analysis.stats.basic import Statistic
from visioneval.analysis.summary.judges import Panels
from visioneval.graders.panel import combine_panel
from visioneval.graders.rubric import RubricGrader
from visioneval.records.model import JudgeAnswer
from visioneval.suite.model import Suite
from visioneval.types import Score

YES = Metric(type="bool", better="higher")
NUMBER = Metric(type="number", range=(0, 5), better="higher")


def answer(judge: str, error: str | None = None, **scores: Score) -> JudgeAnswer:
    return JudgeAnswer(judge=judge, scores=scores, error=error)


class TestCombining:
    """From the answers of judges to one grade."""

    @pytest.mark.parametrize(
        ("scores", "expected"),
        [([True, True, False], True), ([False, True, False], False), ([True], True), ([False, False], False)],
    )
    def test_most_judges_decide_a_yes_or_no(self, scores: list[bool], expected: bool) -> None:
        answers = [answer(name, clear=score) for name, score in zip("abc", scores, strict=False)]
        result = combine_panel(answers, {"clear": YES}, required=len(answers))
        assert (result.scores, result.error) == ({"clear": expected}, None)

    @pytest.mark.parametrize(
        ("scores", "expected"), [([1, 5, 2], 2), ([1, 4], 2.5), ([3, 3], 3), ([0.5, 1.0, 0.75, 0.0], 0.625)]
    )
    def test_numbers_have_their_median(self, scores: list[float], expected: float) -> None:
        answers = [answer(name, style=score) for name, score in zip("abcd", scores, strict=False)]
        assert combine_panel(answers, {"style": NUMBER}, required=2).scores == {"style": expected}

    def test_numbers_may_have_their_mean(self) -> None:
        answers = [answer("a", style=1), answer("b", style=2), answer("c", style=6)]
        assert combine_panel(answers, {"style": NUMBER}, required=3, combine="mean").scores == {"style": 3}

    def test_an_even_split_is_no_answer(self) -> None:
        result = combine_panel(
            [answer("a", clear=True, style=1), answer("b", clear=False, style=2)],
            {"clear": YES, "style": NUMBER},
            required=2,
        )
        assert result.scores == {"clear": None, "style": 1.5}
        assert result.error == "the judges are split on 'clear': a yes, b no"

    def test_all_must_answer_unless_a_quorum_says_less(self) -> None:
        answers = [answer("a", clear=True), answer("b", "503: down", clear=None), answer("c", clear=True)]
        result = combine_panel(answers, {"clear": YES}, required=3)
        assert result.scores == {"clear": None}
        assert result.error == "2 of 3 judges answered, 3 must; b: 503: down"
        excused = combine_panel(answers, {"clear": YES}, required=2)
        assert (excused.scores, excused.error) == ({"clear": True}, None)

    def test_a_quorum_that_is_split_is_no_answer(self) -> None:
        answers = [answer("a", clear=True), answer("b", "down", clear=None), answer("c", clear=False)]
        assert combine_panel(answers, {"clear": YES}, required=2).scores == {"clear": None}

    def test_a_metric_counts_only_the_judges_that_measured_it(self) -> None:
        answers = [answer("a", "half", clear=True, style=None), answer("b", clear=True, style=3)]
        result = combine_panel(answers, {"clear": YES, "style": NUMBER}, required=1)
        assert result.scores == {"clear": True, "style": 3}

    def test_an_optional_metric_that_nobody_reports_is_omitted(self) -> None:
        metrics = {"gecko": NUMBER, "gecko.color": NUMBER}
        down = answer("b", "down", **{"gecko": None, "gecko.color": None})
        result = combine_panel([answer("a", gecko=1), down], metrics, required=1, optional={"gecko.color"})
        assert (result.scores, result.error) == ({"gecko": 1}, None)

    def test_tags_verdicts_and_reasons(self) -> None:
        def tagged(judge: str, verdict: str, *tags: str) -> JudgeAnswer:
            more: dict[str, Any] = {"failure_tags": tags, "reasons": {"look": f"by {judge}"}}
            return JudgeAnswer(judge=judge, scores={"clear": True}, details={"judge_verdict": verdict}, **more)

        answers = [tagged("a", "PASS", "blurry"), tagged("b", "FAIL", "blurry", "cut"), tagged("c", "PASS")]
        result = combine_panel(answers, {"clear": YES}, required=3)
        assert result.failure_tags == ("blurry",)
        assert result.details == {"judge_verdict": "PASS"}
        assert result.reasons == {"look": "a: by a; b: by b; c: by c"}
        assert combine_panel(answers[:2], {"clear": YES}, required=2).details == {}


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [83.25, 90.5, 100.0]])
def test_alpha_from_moments_is_krippendorffs_alpha(values: list[float]) -> None:
    random = np.random.default_rng(3)
    units = [random.choice(values, size=size) for size in random.integers(0, 5, size=60)]
    counts = np.array([[np.sum(unit == value) for value in values] for unit in units])
    moments = np.array([[len(unit), unit.sum(), np.square(unit).sum()] for unit in units]).T
    expected = krippendorff_alpha(counts, values, "interval")
    assert interval_alpha(*moments) == pytest.approx(expected)
    if len(values) == 2:
        assert krippendorff_alpha(counts, values, "nominal") == pytest.approx(expected)


@pytest.mark.parametrize("moments", [([], [], []), ([1, 1], [4, 5], [16, 25]), ([2, 2], [6, 6], [18, 18])])
def test_alpha_from_moments_may_be_undefined(moments: tuple[list[float], ...]) -> None:
    assert np.isnan(interval_alpha(*moments))


@pytest.mark.slow
def test_the_interval_of_alpha_covers_the_alpha_of_all_cases() -> None:
    """Three judges, two samples of each of 40 cases; the true alpha is that of very many cases."""
    random = np.random.default_rng(5)
    metrics = {"nice": {"type": "pass_fail", "description": "x"}}
    look = RubricGrader.model_validate({"key": "look", "type": "rubric", "judge": ["a", "b", "c"], "metrics": metrics})
    info = RunInfo.model_construct(suite=Suite.model_construct(graders=(look,)))

    def answers_on(cases: int) -> Any:
        rates = random.random((cases, 1, 1)) + random.normal(0, 0.1, (cases, 2, 1))
        return random.random((cases, 2, 3)) < rates

    def alpha_of(answers: Any) -> Statistic:
        panels = Panels(info)
        for case, sample in np.ndindex(answers.shape[:2]):
            judges = (answer(name, nice=bool(yes)) for name, yes in zip("abc", answers[case, sample], strict=True))
            grader = GraderRecord.model_construct(key="look", judges=tuple(judges))
            panels.add(Record.model_construct(test_id=str(case), scores={}, graders=(grader,)))
        return panels.result()["look"].metrics["nice"].alpha

    yes = answers_on(50_000).sum(axis=2).ravel()
    true = interval_alpha(np.full(len(yes), 3), yes, yes)
    intervals = [alpha_of(answers_on(40)) for _ in range(60)]
    covered = [(alpha.low or 0) <= true <= (alpha.high or 0) for alpha in intervals]
    assert np.mean(covered) >= 0.88


SUITE = """\
name: demo
cases: [{id: one, prompt: a tree}]
models: [{provider: mock}]
judges:
  a: {provider: openai, model: gpt-5.4}
  b: {provider: openai, model: gpt-5.4-mini}
  c: {provider: gemini, model: gemini-3.5-flash}
  twin: {provider: openai, model: gpt-5.4}
graders:
  - {key: look, type: rubric, PANEL, metrics: {good: {type: pass_fail, description: x}}}
verdict: [good]
"""


class TestSuites:
    """What ``validate`` reports."""

    def test_a_flag_may_not_make_two_judges_of_a_panel_the_same(self, runner: SuiteRunner) -> None:
        path = runner.folder / "suite.yaml"
        path.write_text(SUITE.replace("PANEL", "judge: [a, b, c]"))
        result = runner("validate", path, "--judge", "b=openai:gpt-5.4")
        assert result.exit_code == 2
        assert "are the same model with the same settings" in result.output

    def test_the_flag_replaces_one_judge_of_a_panel(self, runner: SuiteRunner) -> None:
        path = runner.folder / "suite.yaml"
        path.write_text(SUITE.replace("PANEL", "judge: [a, b, c]"))
        data = json.loads(runner("plan", path, "--judge", "b=gemini:gemini-4-argon", "--json").stdout)
        assert [cost["name"] for cost in data["costs"]] == ["look by a", "look by b", "look by c"]
        assert data["missing_keys"] == ["GEMINI_API_KEY", "OPENAI_API_KEY"]

    def test_a_missing_key_of_one_judge_ends_the_run_before_it_starts(
        self, runner: SuiteRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (runner.folder / "suite.yaml").write_text(SUITE.replace("PANEL", "judge: [a, b, c], quorum: 2"))
        monkeypatch.setenv("OPENAI_API_KEY", "known")
        assert "GEMINI_API_KEY" not in os.environ
        result = runner.run()
        assert result.exit_code == 2
        assert "set the environment variable GEMINI_API_KEY, or put it into" in result.stderr
        assert "required by the judge 'c'" in result.stderr

    def test_the_key_of_a_single_judge_has_no_trace_of_panels(self, load: Callable[..., Any]) -> None:
        """A run from before panels keeps its grades."""
        (grader,) = load(SUITE.replace("PANEL", "judge: a")).suite.graders
        assert {"combine", "quorum"}.isdisjoint(grader.key_options)
        (grader,) = load(SUITE.replace("PANEL", "judge: [a, b, c], quorum: 2")).suite.graders
        assert grader.key_options["quorum"] == 2
