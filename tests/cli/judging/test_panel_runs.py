"""Panels of a rubric through the command line and the real SDK: records, faults, quorum, cache, resume, outputs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_api import Fault, JudgeRequest, ToolCall
from panel_runs import ABC, MODELS, record_of, set_answers
from suite_runner import LOOK, SuiteRunner
from toys import Toy

from visioneval.analysis.stats.agreement import krippendorff_alpha
from visioneval.analysis.summary.judges import ReviewPriority
from visioneval.running.keys import grade_key
from visioneval.running.loading import SuiteOptions, load_plan

pytestmark = pytest.mark.slow

pytest_plugins = ("panel_fixtures",)


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
        assert grader.fingerprint.judge_model == "gpt-5.4, gpt-5.4-mini, gpt-6-luna"
        assert grader.fingerprint.template_sha256
        assert record.reasons == {"look": "a: because gpt-5.4; b: because gpt-5.4-mini; c: because gpt-6-luna"}
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
        ids = [f"case{at:02}" for at in range(24)]

        def some(*good: int) -> Callable[[JudgeRequest], bool]:
            return lambda request: any(f"case{at:02}" in request.text for at in range(24) if at % 6 in good)

        runner = panel({"a": some(0, 1, 2), "b": some(0, 1, 2), "c": some(0, 1, 3)}, *ids, gates=["error_rate == 0"])
        result = runner.run("--markdown", "r.md")
        assert result.exit_code == 0, result.output
        alpha = runner.summary()["panels"]["look"]["metrics"]["nice"]["alpha"]
        counts = [[0, 3], [0, 3], [1, 2], [2, 1], [3, 0], [3, 0]] * 4
        assert alpha["value"] == pytest.approx(krippendorff_alpha(counts, [0, 1], "nominal"))
        assert alpha["low"] < alpha["value"] < alpha["high"]
        text = f"look: alpha {alpha['value']:.2f} [{alpha['low']:.2f}, {alpha['high']:.2f}] between a, b, c on nice"
        runner("report", "r", "--runs", runner.out, "--single-file", "-o", "r.html")
        shown = runner("show", "r", "--runs", runner.out)
        outputs = (result.output, shown.output, Path("r.md").read_text(), Path("r.html").read_text())
        assert [output for output in outputs if text not in " ".join(output.replace("<wbr>", "").split())] == []
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
        text = "asked the model 'gpt-5.4-mini', but 'gpt-9' answered: look in 1 cell"
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
            (call,) = load_plan(path, SuiteOptions()).calls()
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
            assert "gpt-5.4, gpt-5.4-mini, gpt-6-luna" in text

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
