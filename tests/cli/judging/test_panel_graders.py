"""Panels of gecko, alignment, text, custom and pairwise graders."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fake_api import Fault, JudgeRequest
from gecko_script import judge as gecko_judge
from panel_runs import MODELS, by_quality, record_of, two_models
from suite_runner import SuiteRunner

from visioneval.graders.text import ocr, second_look
from visioneval.graders.text.layout import Reading
from visioneval.records.between_cells import read_preferences

pytest_plugins = ("panel_fixtures",)

GECKO = {"key": "gecko", "type": "gecko", "judge": ["a", "b", "c"]}


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
        self, panel: Callable[..., SuiteRunner], monkeypatch: pytest.MonkeyPatch, lines: list[str], asked: int
    ) -> None:
        reads: list[str] = []
        monkeypatch.setattr(
            ocr, "read_flat", lambda image: reads.append("ocr") or [Reading(line, 0.99) for line in lines]
        )
        monkeypatch.setattr(second_look, "look_again", lambda images, readings, *_: reads.append("again") or readings)
        says = {name: {"lines": ["SALE"]} for name in "abc"}
        grader = {"key": "copy", "type": "text", "extract": ["ocr", "judge"], "judge": ["a", "b", "c"]}
        case = {"id": "tree", "prompt": "a sign", "expect": {"text": {"required": ["SALE"]}}}
        runner = panel(says, graders=[grader], verdict=["copy"], cases=[case])
        result = runner.run()
        assert result.exit_code == 0, result.output
        (grader_record,) = record_of(runner).graders
        looks = ["ocr", "again"] if asked else ["ocr"]
        assert (reads, runner.called[1], len(grader_record.judges)) == (looks, asked, asked)
        assert runner.run(run_id="again").exit_code == 0
        (again,) = record_of(runner, "again").graders
        assert (reads, again.cached, again.details) == (looks, True, grader_record.details), "OCR is cached"

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

    @pytest.mark.parametrize(
        ("judges", "field"),
        [("a", "judge_model=3"), (["a", "b", "c"], "template_sha256=[1]"), ("a", "failure_tags=5"), ("a", "details=7")],
    )
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

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("says", "quorum", "expected", "code"),
        [("BAA", None, "a", 0), ("BB!", None, "error", 3), ("BB!", 2, "b", 0), ("BA!", 2, "tie", 0)],
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

        grader = {"key": "better", "type": "pairwise", "judge": ["a", "b", "c"], "quorum": quorum}
        local = {"key": "file", "type": "properties"}
        runner = panel({}, "tree", models=two_models(panel), graders=[local, grader], verdict=["not file.blank"])
        runner.api.script.generate(by_quality)
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
