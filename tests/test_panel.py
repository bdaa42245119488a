"""Panels: several judges grade an output, and their scores become one."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_api import Fault, JudgeRequest
from gecko_script import judge as gecko_judge
from suite_runner import LOOK, SuiteRunner
from toys import Toy

from visioneval.analysis.panels import Panels
from visioneval.analysis.review_priority import ReviewPriority
from visioneval.analysis.stats.chance import interval_alpha, krippendorff_alpha
from visioneval.analysis.stats.measure import Measure
from visioneval.engine.prepare.planning import SuiteOptions, load_plan
from visioneval.expansion import grade_key
from visioneval.graders.panel import combine_panel
from visioneval.graders.rubric.config import RubricGrader
from visioneval.records.judge_answers import JudgeAnswer
from visioneval.records.model import GraderRecord, Record, RunInfo
from visioneval.records.preferences import read_preferences
from visioneval.suite.model import Suite
from visioneval.types import Metric, Score

pytest_plugins = ("fake_api.fixtures",)

YES = Metric(type="bool", better="higher")
NUMBER = Metric(type="number", range=(0, 5), better="higher")
MODELS = {"a": "gpt-5.4", "b": "gpt-5.4-mini", "c": "gpt-5.4-nano"}
ABC = {**LOOK, "judge": ["a", "b", "c"]}
PRICES = {
    "openai:gpt-image-1.5": {"per_image": 0.04},
    "openai:gpt-5.4": {"per_call": 0.01},
    "openai:gpt-5.4-mini": {"per_call": 0.002},
    "openai:gpt-5.4-nano": {"per_call": 0.001},
}


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
        def one(judge: str, verdict: str, *tags: str) -> JudgeAnswer:
            more: dict[str, Any] = {"failure_tags": tags, "reasons": {"look": f"by {judge}"}}
            return JudgeAnswer(judge=judge, scores={"clear": True}, details={"judge_verdict": verdict}, **more)

        answers = [one("a", "PASS", "blurry"), one("b", "FAIL", "blurry", "cut"), one("c", "PASS")]
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


def test_the_interval_of_alpha_covers_the_alpha_of_all_cases() -> None:
    """Three judges, two samples of each of 40 cases; the true alpha is that of very many cases."""
    random = np.random.default_rng(5)
    metrics = {"nice": {"type": "pass_fail", "description": "x"}}
    look = RubricGrader.model_validate({"key": "look", "type": "rubric", "judge": ["a", "b", "c"], "metrics": metrics})
    info = RunInfo.model_construct(suite=Suite.model_construct(graders=(look,)))

    def answers_on(cases: int) -> Any:
        rates = random.random((cases, 1, 1)) + random.normal(0, 0.1, (cases, 2, 1))
        return random.random((cases, 2, 3)) < rates

    def alpha_of(answers: Any) -> Measure:
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
  a: {provider: openai, model: gpt-5}
  b: {provider: openai, model: gpt-5-mini}
  c: {provider: gemini, model: gemini-3.5-flash}
  twin: {provider: openai, model: gpt-5}
graders:
  - {key: look, type: rubric, PANEL, metrics: {good: {type: pass_fail, description: x}}}
verdict: [good]
"""
SCORED = SUITE.replace("{type: pass_fail, description: x}", "{type: score, scale: [0, 5], description: x}").replace(
    "[good]", "[good >= 3]"
)


class TestSuites:
    """What ``validate`` reports."""

    @pytest.mark.parametrize(
        "panel", ["judge: [a, b, c]", "judge: [a]", "judge: [a, b, c], quorum: 2, combine: majority"]
    )
    def test_valid_panels(self, panel: str, problems: Callable[..., list[str]]) -> None:
        assert problems(SUITE.replace("PANEL", panel)) == []

    @pytest.mark.parametrize(
        ("panel", "message"),
        [
            ("judge: [a, b, a]", "10:45: the panel names the judge 'a' twice"),
            ("judge: [a, b, cc]", "10:45: there is no judge 'cc' under 'judges' (did you mean 'c'?)"),
            (
                "judge: [a, b, twin]",
                "10:45: 'a' and 'twin' are the same model with the same settings, so they would share every answer",
            ),
            ("judge: [a, b, c], quorum: 4", "10:57: quorum is 4, but the panel has only 3 judges"),
            ("judge: [a, b, c], quorum: 0", "10:57: quorum: must be at least 1, not 0"),
            ("judge: a, quorum: 1", "10:49: quorum needs a panel: list several judges, as in 'judge: [a, b, c]'"),
            ("judge: [a], combine: majority", "combine needs a panel: list several judges"),
            (
                "judge: [a, b, c], combine: median",
                "median does not fit 'good', which is yes or no: remove 'combine' for the default",
            ),
            ("judge: [a, b, c], combine: mean", "mean does not fit 'good', which is yes or no"),
            ("judge: [a, b, c], combine: max", "'max' is not one of majority, median, mean"),
            ("judge: []", "judge: must not be empty"),
            ("judge: 3", "judge: expected text, not 3: put it in quotes"),
            ("judge: [a, 3]", "judge: expected text, not 3: put it in quotes"),
            ("judge: {a: b}", "judge: expected text, not a mapping"),
        ],
    )
    def test_invalid_panels(self, panel: str, message: str, problems: Callable[..., list[str]]) -> None:
        (problem,) = problems(SUITE.replace("PANEL", panel))
        assert message in problem

    def test_majority_of_numbers_is_an_error(self, problems: Callable[..., list[str]]) -> None:
        (problem,) = problems(SCORED.replace("PANEL", "judge: [a, b, c], combine: majority"))
        assert "majority does not fit 'good', which is a number" in problem

    def test_an_even_number_of_judges_gets_a_warning_for_yes_or_no(self, load: Callable[..., Any]) -> None:
        (warning,) = load(SUITE.replace("PANEL", "judge: [a, b]")).warnings
        assert (warning.line, warning.column) == (10, 38)
        assert warning.message == (
            "warning: 2 judges can be split on 'good', which is then not measured; an odd number cannot"
        )
        assert load(SUITE.replace("PANEL", "judge: [a, b, c]")).warnings == ()
        assert load(SCORED.replace("PANEL", "judge: [a, b]")).warnings == ()

    def test_a_flag_may_not_make_two_judges_of_a_panel_the_same(self, runner: SuiteRunner) -> None:
        path = runner.folder / "suite.yaml"
        path.write_text(SUITE.replace("PANEL", "judge: [a, b, c]"))
        result = runner("validate", path, "--judge", "b=openai:gpt-5")
        assert result.exit_code == 2
        assert "are the same model with the same settings" in result.output

    def test_the_flag_replaces_one_judge_of_a_panel(self, runner: SuiteRunner) -> None:
        path = runner.folder / "suite.yaml"
        path.write_text(SUITE.replace("PANEL", "judge: [a, b, c]"))
        data = json.loads(runner("plan", path, "--judge", "b=gemini:gemini-3.5-pro", "--json").stdout)
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
        assert "set the environment variable GEMINI_API_KEY: required by the judge 'c'" in result.stderr

    def test_the_key_of_a_single_judge_has_no_trace_of_panels(self, load: Callable[..., Any]) -> None:
        """A run from before panels keeps its grades."""
        (grader,) = load(SUITE.replace("PANEL", "judge: a")).suite.graders
        assert {"combine", "quorum"}.isdisjoint(grader.key_options)
        (grader,) = load(SUITE.replace("PANEL", "judge: [a, b, c], quorum: 2")).suite.graders
        assert grader.key_options["quorum"] == 2


Verdicts = Mapping[str, Any]


@pytest.fixture
def panel(runner: SuiteRunner) -> Callable[..., SuiteRunner]:
    """``panel({"a": True, "b": Fault("refusal")}, "one", **suite)``: a suite whose judges say this of every image."""

    def write(says: Verdicts, *ids: str, **changes: Any) -> SuiteRunner:
        set_answers(runner, says)
        host = {"base_url": runner.api.openai_base_url, "api_key_env": "LOCAL_KEY"}
        judges = {name: {"provider": "openai", "model": model, **host} for name, model in MODELS.items()}
        suite = {"judges": judges, "graders": [ABC], "prices": PRICES, "limits": {"openai": {"max_attempts": 1}}}
        runner.write(*ids, **{**suite, **changes})
        return runner

    return write


def set_answers(runner: SuiteRunner, says: Verdicts) -> None:
    by_model = {MODELS[name]: value for name, value in says.items()}

    def reply(request: JudgeRequest) -> Any:
        value = by_model[request.model]
        if callable(value):
            value = value(request)
        if isinstance(value, (Fault, str, dict)):
            return value
        return {"nice": value, "reason": f"because {request.model}", "verdict": "PASS" if value else "FAIL"}

    runner.api.script.judge(reply)


def record_of(runner: SuiteRunner, run_id: str = "r", case: str = "tree") -> Any:
    return runner.records(run_id)[case, 0]


class TestRuns:
    """Panels through the command line and the real SDK."""

    def test_each_answer_is_recorded_with_its_cost(self, panel: Callable[..., SuiteRunner]) -> None:
        runner = panel({"a": True, "b": False, "c": True}, "tree")
        result = runner.run()
        assert result.exit_code == 0, result.output
        record = record_of(runner)
        (grader,) = record.graders
        assert (record.scores, record.verdict, grader.error) == ({"nice": True}, "PASS", None)
        answers = {item.judge: item for item in grader.judges}
        assert list(answers) == ["a", "b", "c"]
        assert [item.scores["nice"] for item in answers.values()] == [True, False, True]
        assert [item.model for item in answers.values()] == list(MODELS.values())
        assert [item.cost_usd for item in answers.values()] == [0.01, 0.002, 0.001]
        assert answers["b"].reasons == {"look": "because gpt-5.4-mini"}
        assert answers["b"].details["judge_verdict"] == "FAIL"
        assert grader.cost_usd == pytest.approx(0.013)
        assert grader.details == {"judge_verdict": "PASS"}
        assert grader.fingerprint.judge_model == "gpt-5.4, gpt-5.4-mini, gpt-5.4-nano"
        assert grader.fingerprint.template_sha256
        assert record.reasons == {
            "look": "a: because gpt-5.4; b: because gpt-5.4-mini; c: because gpt-5.4-nano",
        }
        costs = {cost["name"]: cost["usd"] for cost in runner.summary()["costs"] if cost["what"] == "judging"}
        assert costs == pytest.approx({"look by a": 0.01, "look by b": 0.002, "look by c": 0.001})
        assert runner.called == (1, 3)

    def test_votes_combine_before_the_panel(self, panel: Callable[..., SuiteRunner]) -> None:
        turns: dict[str, int] = {}

        def second_of_three(request: JudgeRequest) -> bool:
            turns[request.model] = turns.get(request.model, 0) + 1
            return turns[request.model] == 2

        says = {"a": True, "b": second_of_three, "c": second_of_three}
        runner = panel(says, "tree", graders=[{**ABC, "votes": 3}])
        assert runner.run().exit_code == 1
        (grader,) = record_of(runner).graders
        assert record_of(runner).scores == {"nice": False}, "five of nine votes say yes, but two of three judges no"
        assert [answer.scores["nice"] for answer in grader.judges] == [True, False, False]
        assert sorted(grader.judges[1].details["votes"]["nice"]) == [False, False, True]
        assert runner.called == (1, 9)

    @pytest.mark.parametrize("fault", ["server_error", "refusal", "off_schema", "max_tokens"])
    def test_a_judge_that_is_down_fails_the_grader(self, panel: Callable[..., SuiteRunner], fault: str) -> None:
        runner = panel({"a": True, "b": Fault(fault), "c": True}, "tree")
        assert runner.run().exit_code == 3
        record = record_of(runner)
        assert (record.verdict, record.scores) == ("ERROR", {"nice": None})
        assert record.error.message.startswith("look: 2 of 3 judges answered, 3 must; b: ")
        assert [answer.scores["nice"] for answer in record.graders[0].judges] == [True, None, True]
        assert record.graders[0].judges[1].error
        assert runner.summary()["counts"]["unmeasured"] == 1

    @pytest.mark.parametrize("fault", ["server_error", "refusal", "off_schema"])
    def test_a_quorum_excuses_a_judge_and_says_so(self, panel: Callable[..., SuiteRunner], fault: str) -> None:
        runner = panel({"a": True, "b": Fault(fault), "c": True}, "tree", graders=[{**ABC, "quorum": 2}])
        result = runner.run()
        assert result.exit_code == 0, result.output
        assert "look: b did not answer in 1 of 1 cell" in result.output
        record = record_of(runner)
        assert (record.verdict, record.scores, record.graders[0].error) == ("PASS", {"nice": True}, None)
        assert record.graders[0].judges[1].error
        assert runner.summary()["panels"]["look"]["unanswered"] == {"b": 1}

    def test_a_quorum_does_not_excuse_the_budget(self, panel: Callable[..., SuiteRunner]) -> None:
        graders = [{**ABC, "quorum": 1}]
        runner = panel({"a": True, "b": True, "c": True}, "tree", graders=graders, budget_usd=0.0509)
        assert runner.run("--max-concurrency", "1").exit_code == 3
        (record,) = runner.records().values()
        assert (record.verdict, record.error.kind) == ("ERROR", "budget")
        assert record.graders[0].judges[0].scores == {"nice": True}

    def test_a_refused_key_ends_the_run(self, panel: Callable[..., SuiteRunner]) -> None:
        says = {"a": True, "b": Fault("unauthorized"), "c": True}
        runner = panel(says, "tree", graders=[{**ABC, "quorum": 2}])
        result = runner.run()
        assert result.exit_code == 3
        assert "the judge 'b': the provider refused the API key" in result.output

    @pytest.mark.parametrize(("optional", "code", "verdict"), [(None, 3, "ERROR"), (True, 0, "PASS")])
    def test_a_split_is_an_error_unless_optional(
        self, panel: Callable[..., SuiteRunner], optional: bool | None, code: int, verdict: str
    ) -> None:
        two = {**LOOK, "judge": ["a", "b"], "optional": optional}
        local = {"key": "file", "type": "properties"}
        says = {"a": True, "b": False}
        runner = panel(says, "tree", graders=[two, local], verdict=["nice", "not file.blank"])
        assert runner.run().exit_code == code
        record = record_of(runner)
        assert (record.verdict, record.scores["nice"]) == (verdict, None)
        assert record.graders[0].error == "the judges are split on 'nice': a yes, b no"
        assert runner.summary()["panels"]["look"]["metrics"]["nice"]["split"] == 1

    def test_an_unmeasured_rate_may_allow_splits(self, panel: Callable[..., SuiteRunner]) -> None:
        gates = ["error_rate <= 1", "unmeasured_rate <= 0.5"]
        says = {"a": True, "b": lambda request: "a tree" in request.text}
        runner = panel(says, "tree", "boat", graders=[{**LOOK, "judge": ["a", "b"]}], gates=gates)
        assert runner.run().exit_code == 0
        assert {name: record.verdict for (name, _), record in runner.records().items()} == {
            "tree": "PASS",
            "boat": "ERROR",
        }

    def test_agreement_is_reported_everywhere(self, panel: Callable[..., SuiteRunner]) -> None:
        ids = [f"case{at}" for at in range(6)]

        def some(*good: int) -> Callable[[JudgeRequest], bool]:
            return lambda request: any(f"case{at}" in request.text for at in good)

        runner = panel({"a": some(0, 1, 2), "b": some(0, 1, 2), "c": some(0, 1, 3)}, *ids, gates=["error_rate == 0"])
        result = runner.run("--markdown", "r.md")
        assert result.exit_code == 0, result.output
        alpha = runner.summary()["panels"]["look"]["metrics"]["nice"]["alpha"]
        counts = [[0, 3], [0, 3], [1, 2], [2, 1], [3, 0], [3, 0]]
        assert alpha["value"] == pytest.approx(krippendorff_alpha(counts, [0, 1], "nominal"))
        assert alpha["low"] < alpha["value"] < alpha["high"]
        text = f"look: alpha {alpha['value']:.2f} [{alpha['low']:.2f}, {alpha['high']:.2f}] between a, b, c on nice"
        runner("report", "r", "--runs", runner.out, "--single-file", "-o", "r.html")
        shown = runner("show", "r", "--runs", runner.out)
        outputs = (result.output, shown.output, Path("r.md").read_text(), Path("r.html").read_text())
        assert [output for output in outputs if text not in " ".join(output.split())] == []
        assert runner("run", runner.folder / "suite.yaml", "--resume", runner.out / "r", "--json").stdout.count(
            f'"alpha":{json.dumps(alpha, separators=(",", ":"))}'
        )

    def test_show_and_report_contain_each_answer(self, panel: Callable[..., SuiteRunner]) -> None:
        runner = panel({"a": True, "b": False, "c": True}, "tree")
        runner.run()
        shown = " ".join(runner("show", "r", "tree", "--runs", runner.out).output.split())
        assert "b nice: no; 0.0020 USD (gpt-5.4-mini) because gpt-5.4-mini" in shown
        runner("report", "r", "--runs", runner.out, "--single-file", "-o", "r.html")
        page = Path("r.html").read_text()
        assert '"judge":"b","model":"gpt-5.4-mini","scores":{"nice":false}' in page
        assert runner("export", "r", "--runs", runner.out, "--format", "csv", "-o", "r.csv").exit_code == 0
        (row,) = csv.DictReader(Path("r.csv").read_text().splitlines())
        assert {name: value for name, value in row.items() if name.startswith("nice")} == {
            "nice": "true", "nice by a": "true", "nice by b": "false", "nice by c": "true"
        }  # fmt: skip

    def test_a_rerouted_judge_of_a_panel_is_a_warning(
        self, panel: Callable[..., SuiteRunner], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runner = panel({"a": True, "b": True, "c": True}, "tree")
        runner.run()
        line = runner.out / "r" / "results.jsonl"
        line.write_text(line.read_text().replace('"model":"gpt-5.4-mini"', '"model":"gpt-9"'))
        text = "look: asked the model 'gpt-5.4-mini', but 'gpt-9' answered in 1 cell"
        for words in (("show", "r"), ("compare", "r", "r")):
            assert text in " ".join(runner(*words, "--runs", runner.out).output.split())

    def test_answers_are_cached_by_judge_and_replayed_offline(self, panel: Callable[..., SuiteRunner]) -> None:
        runner = panel({"a": True, "b": False, "c": True}, "tree")
        cache = ("--cache", "cache")
        runner.run(*cache)
        runner.run(*cache, run_id="again")
        assert runner.called == (2, 3), "the same image is generated again, and no judge is asked again"
        assert all(item.cached and item.cost_usd == 0 for item in record_of(runner, "again").graders[0].judges)
        runner.run(*cache, "--offline", run_id="offline")
        assert runner.called == (2, 3)
        first, offline = record_of(runner), record_of(runner, "offline")
        assert offline.scores == first.scores
        assert [item.scores for item in offline.graders[0].judges] == [item.scores for item in first.graders[0].judges]

    def test_resume_asks_only_the_judge_that_was_down(self, panel: Callable[..., SuiteRunner]) -> None:
        runner = panel({"a": True, "b": Fault("server_error"), "c": True}, "tree")
        cache = ("--cache", "cache")
        assert runner.run(*cache).exit_code == 3
        set_answers(runner, {"a": False, "b": True, "c": False})
        before = runner.called
        assert runner("run", "--resume", runner.out / "r", *cache).exit_code == 0
        assert runner.called == (before[0], before[1] + 1)
        assert [answer.cached for answer in record_of(runner).graders[0].judges] == [True, False, True]

    def test_a_met_quorum_is_complete_for_resume(self, panel: Callable[..., SuiteRunner]) -> None:
        runner = panel({"a": True, "b": Fault("server_error"), "c": True}, "tree", graders=[{**ABC, "quorum": 2}])
        runner.run()
        before = runner.called
        assert runner("run", "--resume", runner.out / "r").exit_code == 0
        assert runner.called == before

    def test_a_changed_panel_is_graded_again_and_asks_only_the_new_judge(
        self, panel: Callable[..., SuiteRunner]
    ) -> None:
        says = {"a": True, "b": False, "c": False}
        runner = panel(says, "tree", graders=[LOOK | {"judge": "a"}])
        cache = ("--cache", "cache")
        assert runner.run(*cache).exit_code == 0
        calls = [runner.called]
        for judges in (["a", "b", "c"], ["a", "c", "b"], ["a", "c"], "a"):
            panel(says, "tree", graders=[LOOK | {"judge": judges}])
            result = runner("run", runner.folder / "suite.yaml", "--resume", runner.out / "r", *cache)
            assert "to grade again: 1" in result.output
            calls.append(runner.called)
        assert calls == [(1, 1), (1, 3), (1, 3), (1, 3), (1, 3)]
        assert record_of(runner).scores == {"nice": True}
        assert record_of(runner).graders[0].judges == ()

    @pytest.mark.parametrize(
        "change", [{"quorum": 2}, {"judge": ["a", "b"]}, {"judge": ["b", "a", "c"]}, {"judge": "a"}]
    )
    def test_what_changes_the_grade_key(self, panel: Callable[..., SuiteRunner], change: dict[str, Any]) -> None:
        def key(grader: Mapping[str, Any]) -> str:
            path = panel({}, "tree", graders=[grader]).folder / "suite.yaml"
            (call,) = load_plan(path, SuiteOptions()).plan.calls()
            return grade_key(call, lambda _: "hash")

        assert key(ABC) == key({**ABC, "optional": None})
        assert key(ABC) != key({**ABC, **change})

    def test_compare_names_the_changed_models_and_a_baseline_too(self, panel: Callable[..., SuiteRunner]) -> None:
        says = {"a": True, "b": True, "c": True}
        runner = panel(says, "tree")
        runner.run()
        runner("baseline", "set", "r", "--runs", runner.out)
        panel(says, "tree", graders=[{**ABC, "judge": ["a", "b"]}])
        runner.run(run_id="two")
        for a in ("r", "baseline"):
            text = " ".join(runner("compare", a, "two", "--runs", runner.out).output.split())
            assert "judge model" in text
            assert "gpt-5.4, gpt-5.4-mini, gpt-5.4-nano" in text

    def test_grade_keeps_the_answers_when_only_rules_change(self, panel: Callable[..., SuiteRunner]) -> None:
        says = {"a": True, "b": False, "c": True}
        runner = panel(says, "tree")
        runner.run()
        panel(says, "tree", verdict=["not nice"])
        result = runner("grade", "r", "--suite", runner.folder / "suite.yaml", "--runs", runner.out, "--run-id", "g")
        assert result.exit_code == 1, result.output
        assert runner.called == (1, 3)
        answers = record_of(runner, "g").graders[0].judges
        assert [(item.scores["nice"], item.cost_usd) for item in answers] == [(True, 0), (False, 0), (True, 0)]

    def test_the_plan_counts_and_prices_each_judge(self, panel: Callable[..., SuiteRunner]) -> None:
        runner = panel({}, "tree", "boat", graders=[{**ABC, "votes": 3}])
        data = json.loads(runner("plan", runner.folder / "suite.yaml", "--json").stdout)
        assert [(cost["name"], cost["calls"]) for cost in data["costs"]] == [
            ("m", 2), ("look by a", 6), ("look by b", 6), ("look by c", 6)
        ]  # fmt: skip
        costs = {cost["name"]: cost["usd"] for cost in data["costs"]}
        assert costs == pytest.approx({"m": 0.08, "look by a": 0.06, "look by b": 0.012, "look by c": 0.006})

    def test_earlier_runs_price_each_judge(self, panel: Callable[..., SuiteRunner]) -> None:
        runner = panel({"a": True, "b": True, "c": True}, "tree")
        runner.run()
        panel({}, "tree", "boat", prices={})
        data = json.loads(runner("plan", runner.folder / "suite.yaml", "--runs", runner.out, "--json").stdout)
        costs = {cost["name"]: (cost["usd"], cost["basis"]) for cost in data["costs"]}
        assert costs["look by b"] == (pytest.approx(0.004), "earlier runs")

    def test_a_labeled_run_agrees_with_the_combined_score(self, panel: Callable[..., SuiteRunner]) -> None:
        runner = panel({"a": True, "b": False, "c": True}, "tree")
        runner.run()
        label = {
            "schema_version": 2, "rater": "kim", "test_id": "tree", "model_label": "m", "sample_index": 0, "other": None,
            "question": "usable", "answer": True, "seconds": None, "at": "2026-01-01T00:00:00Z", "source": "import",
        }  # fmt: skip
        (runner.out / "r" / "labels.jsonl").write_text(json.dumps(label) + "\n")
        data = json.loads(runner("agreement", "r", "--runs", runner.out, "--json").stdout)
        assert (data["graders"][0]["metric"], data["graders"][0]["question"]) == ("verdict", "usable")

    def test_crops_of_each_judge_are_stored_under_its_name(self, panel: Callable[..., SuiteRunner]) -> None:
        from fake_api import ToolCall

        def zooms(request: JudgeRequest) -> Any:
            if not request.tool_results:
                return (ToolCall("crop", {"image_id": "output", "x1": 0, "y1": 0, "x2": 9, "y2": 9}),)
            return {"nice": True, "reason": "closer", "verdict": "PASS"}

        runner = panel({}, "tree", graders=[{**ABC, "zoom": {"max_crops": 2}}])
        runner.api.script.judge(zooms)
        assert runner.run().exit_code == 0
        crops = [item.details["crops"][0]["path"] for item in record_of(runner).graders[0].judges]
        assert len(set(crops)) == 3
        assert all((runner.out / "r" / path).is_file() for path in crops)


GECKO = {"key": "gecko", "type": "gecko", "judge": ["a", "b", "c"]}


def test_recorded_judges_may_form_a_panel(toy: Toy) -> None:
    """Without any image and any call."""
    for name, value in (("a", "true"), ("b", "false"), ("c", "false")):
        (toy.folder / f"{name}.csv").write_text(f"case,question,answer\ncase0,nice,{value}\n")
    judges = {name: {"provider": "recorded", "path": f"{name}.csv"} for name in "abc"}
    models = [{"provider": "files", "outputs": "none", "label": "m"}]
    result = toy.run({}, models=models, judges=judges, graders=[ABC], verdict=["nice"])
    assert result.exit_code == 1, result.output
    assert toy.record.scores == {"nice": False}
    assert [answer.judge for answer in toy.record.graders[0].judges] == ["a", "b", "c"]


def test_a_split_panel_is_reviewed_first(panel: Callable[..., SuiteRunner]) -> None:
    runner = panel({"a": True, "b": lambda request: "a tree" in request.text, "c": True}, "tree", "boat")
    runner.run()
    info = runner.info()
    priority = ReviewPriority(info.suite, info.metrics)
    weights = {case: priority.weight(record) for (case, _), record in runner.records().items()}
    assert weights["boat"] >= 1 > weights["tree"]


class TestOtherGraders:
    """Panels of graders other than rubrics."""

    def test_the_first_judge_of_a_gecko_panel_writes_the_questions(self, panel: Callable[..., SuiteRunner]) -> None:
        writers: list[str] = []
        wrong = MODELS["b"]

        def reply(request: JudgeRequest) -> Any:
            right = gecko_judge(lambda name, asked: "no" if asked.model == wrong else "yes")(request)
            if not request.images:
                writers.append(request.model)
            return right

        runner = panel({}, "boat", graders=[GECKO], verdict=["gecko >= 0.9"])
        runner.api.script.judge(reply)
        result = runner.run()
        assert writers == [MODELS["a"]], result.output
        record = record_of(runner, case="boat")
        shares = [answer.scores["gecko"] for answer in record.graders[0].judges]
        assert record.scores["gecko"] == sorted(shares)[1] == 1
        assert shares[1] == 0
        questions = [[q["id"] for q in item.details["questions"]] for item in record.graders[0].judges]
        assert questions[0] == questions[1] == questions[2]
        asked = len(questions[0])
        assert runner.summary()["questions"]["gecko"]["models"]["m"]["all"]["n"] == 3 * asked

    def test_questions_are_prepared_by_the_first_judge_alone(self, panel: Callable[..., SuiteRunner]) -> None:
        runner = panel({}, "boat", graders=[GECKO], verdict=["gecko >= 0.9"])
        runner.api.script.judge(gecko_judge(lambda name, asked: "yes"))
        result = runner("questions", runner.folder / "suite.yaml", "-o", "questions.json")
        assert result.exit_code == 0, result.output
        models = {entry.asked.model for entry in runner.api.requests if isinstance(entry.asked, JudgeRequest)}
        assert models == {MODELS["a"]}

    def test_an_alignment_panel_has_the_median(self, panel: Callable[..., SuiteRunner]) -> None:
        def share(met: int) -> dict[str, Any]:
            text = {"question": "Is it?", "analysis": "Look.", "gap": ""}
            items = [{"requirement": f"r{at}", **text, "answer": at < met} for at in range(4)]
            return {"requirements": items, "score": 50}

        says = {"a": share(4), "b": share(1), "c": share(3)}
        grader = {"key": "fit", "type": "alignment", "judge": ["a", "b", "c"]}
        runner = panel(says, "tree", graders=[grader], verdict=["fit >= 50"])
        assert runner.run().exit_code == 0
        assert record_of(runner).scores == {"fit": 75}
        panel(says, "tree", graders=[{**grader, "combine": "mean"}], verdict=["fit >= 50"])
        runner.run(run_id="mean")
        assert record_of(runner, "mean").scores == {"fit": pytest.approx(200 / 3)}

    @pytest.mark.parametrize(("lines", "asked"), [(["SALE"], 0), ([], 3)])
    def test_ocr_runs_once_and_a_panel_only_where_it_does_not_pass(
        self,
        panel: Callable[..., SuiteRunner],
        monkeypatch: pytest.MonkeyPatch,
        lines: list[str],
        asked: int,
    ) -> None:
        from visioneval.graders.text import ocr
        from visioneval.graders.text.copy_match import Reading

        reads: list[int] = []
        monkeypatch.setattr(ocr, "read", lambda image: reads.append(1) or [Reading(line, 0.99) for line in lines])
        says = {name: {"lines": ["SALE"]} for name in "abc"}
        grader = {"key": "copy", "type": "text", "extract": ["ocr", "judge"], "judge": ["a", "b", "c"]}
        case = {"id": "tree", "prompt": "a sign", "expect": {"text": {"required": ["SALE"]}}}
        runner = panel(says, graders=[grader], verdict=["copy"], cases=[case])
        result = runner.run()
        assert result.exit_code == 0, result.output
        (grader_record,) = record_of(runner).graders
        assert (len(reads), runner.called[1], len(grader_record.judges)) == (1, asked, asked)

    def test_a_custom_grader_is_called_for_each_judge(self, panel: Callable[..., SuiteRunner]) -> None:
        code = """
from visioneval import Grade

class Count:
    def __init__(self, config):
        pass

    async def grade(self, context):
        answers = await context.ask("How many dogs?", {"dogs": {"type": "integer"}})
        return Grade({"dogs": answers["dogs"]}, reasons={"dogs": str(context.judge)})
"""
        says = {"a": {"dogs": 1}, "b": {"dogs": 4}, "c": {"dogs": 2}}
        grader = {
            "key": "dogs",
            "type": "counts:Count",
            "judge": ["a", "b", "c"],
            "writes": {"dogs": {"type": "number"}},
        }
        runner = panel(says, "tree", graders=[grader], verdict=["dogs >= 2"])
        (runner.folder / "counts.py").write_text(code)
        result = runner.run("--trust-suite")
        assert result.exit_code == 0, result.output
        record = record_of(runner)
        assert (record.scores, record.reasons) == ({"dogs": 2}, {"dogs": "a: a; b: b; c: c"})

    @pytest.mark.parametrize("judges", ["a", ["a", "b", "c"]])
    @pytest.mark.parametrize("field", ["judge_model=3", "template_sha256=[1]", "failure_tags=5", "details=7"])
    def test_a_grade_of_the_wrong_types_is_an_error_of_its_cell(
        self, panel: Callable[..., SuiteRunner], judges: Any, field: str
    ) -> None:
        code = f"""
from visioneval import Grade

class Odd:
    def __init__(self, config):
        pass

    async def grade(self, context):
        await context.ask("How many?", {{"dogs": {{"type": "integer"}}}})
        return Grade({{"dogs": 1}}, {field})
"""
        grader = {"key": "dogs", "type": "odd:Odd", "judge": judges, "writes": {"dogs": {"type": "number"}}}
        runner = panel(dict.fromkeys("abc", '{"dogs": 1}'), "tree", graders=[grader], verdict=["dogs >= 1"])
        (runner.folder / "odd.py").write_text(code)
        result = runner.run("--trust-suite")
        assert result.exit_code == 3, result.output
        record = record_of(runner)
        assert (record.verdict, record.error.kind) == ("ERROR", "internal")

    @pytest.mark.parametrize(
        ("says", "quorum", "expected", "code"),
        [
            ("BBA", None, "b", 0),
            ("BAA", None, "a", 0),
            ("BA-", None, "tie", 0),
            ("BB!", None, "error", 3),
            ("BB!", 2, "b", 0),
            ("BA!", 2, "tie", 0),
        ],
    )
    def test_a_pairwise_panel(
        self, panel: Callable[..., SuiteRunner], says: str, quorum: int | None, expected: str, code: int
    ) -> None:
        """Each judge prefers model run ``m`` (A), ``n`` (B), neither (-), or is down (!)."""
        images: dict[str, list[bytes]] = {}

        def reply(request: JudgeRequest) -> Any:
            side = says[list(MODELS.values()).index(request.model)]
            if side == "!":
                return Fault("server_error")
            if side == "-":
                return {"reason": "same", "answer": "tie"}
            order = images.setdefault("order", [image.data for image in request.images])
            is_turned = [image.data for image in request.images] != order
            return {"reason": "better", "answer": "A" if (side == "A") is not is_turned else "B"}

        host = {"base_url": panel({}).api.openai_base_url, "api_key_env": "LOCAL_KEY", "provider": "openai"}
        models = [{**host, "label": label, "params": {"model": "gpt-image-1.5", "quality": quality}}
                  for label, quality in (("m", "low"), ("n", "high"))]  # fmt: skip
        grader = {"key": "better", "type": "pairwise", "judge": ["a", "b", "c"], "quorum": quorum}
        local = {"key": "file", "type": "properties"}
        runner = panel({}, "tree", models=models, graders=[local, grader], verdict=["not file.blank"])
        runner.api.script.generate(lambda request: [_image(str(request.params.get("quality")))] * request.n)
        runner.api.script.judge(reply)
        result = runner.run("--max-concurrency", "1")
        assert result.exit_code == code, result.output
        assert len(read_preferences(runner.out / "r")) == 6
        assert "panel better" in result.output
        command = runner("pairwise", "r@m", "r@n", "--runs", runner.out, "--json")
        findings = {finding["judge"]: finding for finding in json.loads(command.stdout)["preferences"]}
        assert [pair["result"] for pair in findings["panel better"]["pairs"]] == [expected]
        assert len(findings) == 4
        alone = runner("pairwise", "r@m", "r@n", "--runs", runner.out, "--json", "--judge", "b")
        assert [finding["judge"] for finding in json.loads(alone.stdout)["preferences"]] == ["openai:gpt-5.4-mini"]


def _image(word: str) -> bytes:
    from io import BytesIO

    from PIL import Image

    out = BytesIO()
    image = Image.new("RGB", (32, 24), "red" if word == "low" else "blue")
    image.paste("white", (4, 4, 20, 20))
    image.save(out, "PNG")
    return out.getvalue()
