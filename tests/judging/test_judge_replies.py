"""A judge's replies over HTTP, end to end: truncated, with extra keys, degenerate, and asked again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI, Fault, JudgeRequest
from gecko_script import asked_questions, generated_questions, prompt_of
from PIL import Image
from toys import Toy

from visioneval import Record, read_records
from visioneval.records.between_cells import read_preferences
from visioneval.records.questions import read_questions

pytestmark = pytest.mark.slow

APIS = ("responses", "chat", "gemini")
PARTS = 8
"""The number of cells of a run, each with a different truncation of the same replies."""
DEGENERATE = "{" * 200_000
LOOK: dict[str, Any] = {
    "key": "look",
    "type": "rubric",
    "metrics": {
        "nice": {"type": "pass_fail", "description": "Is it nice?"},
        "layout": {"type": "score", "scale": [0, 100], "description": "How is the layout?"},
    },
}
COPY = {"key": "copy", "type": "text", "extract": "judge"}
FIT = {"key": "fit", "type": "alignment"}
GECKO = {"key": "gecko", "type": "gecko", "on_unanswered": "wrong"}
QUESTIONS = [{"id": "q1", "question": "Is there a boat?"}, {"id": "q2", "question": "Is it red?", "answer": "yes"}]
SCORES = {"nice": True, "layout": 90, "copy": True, "copy.recall": 1.0, "copy.cer": 0.0, "fit": 100 * 2 / 3}
SCORES |= {"gecko": 0.5, "gecko.other": 0.5}


def item(what: str, *, met: bool) -> dict[str, Any]:
    return {"requirement": what, "question": f"Is there {what}?", "analysis": "I looked.", "answer": met, "gap": ""}


def complete_answer(request: JudgeRequest) -> dict[str, Any]:
    """The complete answer to any question."""
    names = request.schema["properties"] if request.schema else {}
    if "nice" in names:
        return {"reason": "so it is", "nice": True, "layout": 90, "verdict": "PASS"}
    if "requirements" in names:
        return {
            "requirements": [item("a bun", met=True), item("a cup", met=True), item("snow", met=False)],
            "score": 66,
        }
    if "keywords" in names:
        return generated_questions(request)
    if "answers" in names:
        output = {name: "yes" if name == "q1" else "no" for name in asked_questions(request)}
        return {"answers": [{"id": name, "reason": "seen", "answer": answer} for name, answer in output.items()]}
    if "lines" in names:
        return {"lines": ["SPRING SALE", "10 % OFF"]}
    return {"reason": "A is calm", "answer": "A"}


class Suite:
    """Cells whose images exist, so that only judges are called. The height of an image identifies its cell."""

    def __init__(self, toy: Toy, api: FakeAPI, way: str = "responses", cells: int = 1, **changes: Any) -> None:
        self.toy, self.api = toy, api
        for at in range(cells):
            for label, colour in (("x", "red"), ("y", "blue")):
                path = toy.folder / label / f"case{at}.png"
                path.parent.mkdir(exist_ok=True)
                Image.new("RGB", (32, 24 + at), colour).save(path)
        is_gemini = way == "gemini"
        judge: dict[str, Any] = {"provider": "gemini" if is_gemini else "openai", "api_key_env": "JUDGE_KEY"}
        judge |= {"model": "gemini-3.5-flash"} if is_gemini else {"model": "gpt-5.4", "api": way}
        judge["base_url"] = api.gemini_base_url if is_gemini else api.openai_base_url
        text = {"expect": {"text": {"required": ["SPRING SALE", "10 % OFF"]}}}
        suite: dict[str, Any] = {
            "models": [{"provider": "files", "label": "x", "path": "x/{case}.png"}],
            "judges": {"default": judge},
            "graders": [LOOK, COPY, FIT, GECKO],
            "verdict": ["nice", "layout >= 50", "fit >= 50", "gecko >= 0.5", "copy"],
        }
        cases = [{"questions": QUESTIONS, **text} for _ in range(cells)]
        if changes.pop("plain", False):
            cases = [{"prompt": f"red boat {'abcdefghijklmnopqrstuvwxyz'[at] * 3}"} for at in range(cells)]
        self.path = toy.write(*cases, **{**suite, **changes})

    def run(self, *arguments: str) -> Any:
        return self.toy("run", self.path, "--run-id", "r", "--quiet", *arguments)

    def resume(self, *arguments: str) -> Any:
        return self.toy("run", "--resume", "r", "--quiet", *arguments)

    @property
    def folder(self) -> Path:
        return self.toy.folder / "runs" / "r"

    @property
    def records(self) -> list[Record]:
        result = {record.cell: record for record in read_records(self.folder)}
        return list(result.values())

    @property
    def calls(self) -> int:
        return len(self.api.requests)


@pytest.fixture(autouse=True)
def _around(monkeypatch: pytest.MonkeyPatch, api: FakeAPI) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("JUDGE_KEY", api.key)


def part_for(request: JudgeRequest) -> float:
    return (request.images[-1].size[1] - 24) / PARTS


def cut(text: str, part: float) -> str:
    return text[: int(len(text) * part)]


@pytest.mark.parametrize("way", APIS)
def test_a_truncated_reply_is_null_even_if_its_server_reports_it_complete(toy: Toy, api: FakeAPI, way: str) -> None:
    api.script.judge(lambda request: cut(json.dumps(complete_answer(request)), part_for(request)))
    suite = Suite(toy, api, way, PARTS)
    result = suite.run()
    assert result.exit_code == 3, result.output
    assert len(suite.records) == PARTS
    for record in suite.records:
        assert set(record.scores.values()) == {None}, record.scores
        assert record.verdict == "ERROR"
    api.script.judge(complete_answer)
    again = suite.resume()
    assert again.exit_code == 0, again.output
    assert all(record.scores == pytest.approx(SCORES) for record in suite.records)


@pytest.mark.parametrize(
    "text",
    [
        '{"reason": "", "nice": true, "layout": 9, "layout": 90, "verdict": "PASS"}',
        '{"reason": "", "nice": true, "layout": 9, "verdict": "FAIL"}\n{"reason": "", "nice": true, "layout": 90, "verdict": "PASS"}',
        '{"reason": "", "nice": true, "verdict": "PASS", "layout": 9',
        '{"reason": "", "nice": true, "verdict": "PASS", "layout": 90, ',
        '<think>{"reason": "", "nice": true, "layout": 90, "verdict": "PASS"}',
    ],
    ids=["a key twice", "two objects", "a number at the end", "no end", "in thoughts"],
)  # fmt: skip
def test_an_ambiguous_reply_is_null(toy: Toy, api: FakeAPI, text: str) -> None:
    api.script.judge(text)
    suite = Suite(toy, api, "chat", graders=[LOOK], verdict=["nice", "layout >= 50"])
    assert suite.run().exit_code == 3
    (record,) = suite.records
    assert (record.scores, suite.calls) == ({"nice": None, "layout": None}, 2)
    assert record.graders[0].details["replies"] == [text, text]


def test_a_description_that_ends_early_reads_no_lines(toy: Toy, api: FakeAPI) -> None:
    seen = {"description": 'A poster. It says "SPRING SALE" and below "10 % OFF".'}

    def judged(request: JudgeRequest) -> str:
        if request.images:
            return cut(json.dumps(seen), part_for(request))
        lines = [line for line in ("SPRING SALE", "10 % OFF") if line in request.text]
        return json.dumps({"lines": lines, "criteria_met": True, "reason": ""})

    api.script.judge(judged)
    suite = Suite(toy, api, "chat", PARTS, graders=[{**COPY, "describe": True}], verdict=["copy"])
    assert suite.run().exit_code == 3
    assert {record.scores["copy"] for record in suite.records} == {None}


@pytest.mark.parametrize("check", [False, True])
def test_questions_of_a_reply_that_ends_early_are_none(toy: Toy, api: FakeAPI, check: bool) -> None:
    def judged(request: JudgeRequest) -> str:
        text = json.dumps(complete_answer(request))
        if request.images or (check and "keywords" in (request.schema or {})["properties"]):
            return text
        prompt = (
            prompt_of(request) if not check else next(line for line in request.text.splitlines() if "red boat" in line)
        )
        return cut(text, "abcdefghijklmnopqrstuvwxyz".index(prompt.rstrip()[-1]) / PARTS)

    api.script.judge(judged)
    gecko = {**GECKO, "check_questions": check}
    suite = Suite(toy, api, "chat", PARTS, plain=True, graders=[gecko], verdict=["gecko >= 0.1"])
    assert suite.run().exit_code == 3
    assert read_questions(suite.folder) == ()
    assert {score for record in suite.records for score in record.scores.values()} == {None}


def test_a_choice_of_a_pair_that_ends_early_is_an_error_and_asked_again(toy: Toy, api: FakeAPI) -> None:
    models = [{"provider": "files", "label": label, "path": f"{label}/{{case}}.png"} for label in "xy"]
    api.script.judge(lambda request: cut(json.dumps(complete_answer(request)), part_for(request)))
    image = {"key": "image", "type": "properties"}
    suite = Suite(toy, api, "chat", PARTS, models=models, graders=[image], verdict=["image"])
    suite.run()
    result = toy("pairwise", "r@x", "r@y", "--json")
    assert (result.exit_code, suite.calls) == (3, 4 * PARTS), result.output
    lines = read_preferences(suite.folder)
    assert {(line.answer, line.reason) for line in lines} == {(None, None)}
    assert toy("pairwise", "r@x", "r@y", "--json", "--offline").exit_code == 3
    assert suite.calls == 4 * PARTS
    api.script.judge(lambda request: json.dumps({**complete_answer(request), "mood": "calm"}))
    assert toy("pairwise", "r@x", "r@y", "--json").exit_code == 0
    assert suite.calls == 6 * PARTS
    assert {line.answer for line in read_preferences(suite.folder)} == {"a", "b"}
    assert {json.dumps(line.extra_keys) for line in read_preferences(suite.folder)} == {'{"mood": "\\"calm\\""}'}


@pytest.mark.parametrize("way", APIS)
def test_extra_keys_are_ignored_and_recorded(toy: Toy, api: FakeAPI, way: str) -> None:
    many = {f"note {at}": "x" * 5000 for at in range(50)}

    def judged(request: JudgeRequest) -> str:
        text = {"confidence": 0.5, **complete_answer(request), **many}
        if "requirements" in text:
            text["requirements"][0]["mood"] = ["calm"]
        return json.dumps(text)

    api.script.judge(judged)
    suite = Suite(toy, api, way)
    result = suite.run()
    assert result.exit_code == 0, result.output
    (record,) = suite.records
    assert record.scores == pytest.approx(SCORES)
    assert suite.calls == 4
    for grader in record.graders:
        extra: Any = grader.details["extra_keys"]
        assert extra["confidence"] == "0.5"
        assert len(extra) == 20
        assert len(json.dumps(extra)) < 6000
    fit = next(grader.details for grader in record.graders if grader.key == "fit")
    assert "requirements[0].mood" in fit["extra_keys"]  # type: ignore[operator]
    assert all("mood" not in entry for entry in fit["requirements"])  # type: ignore[union-attr]


def test_extra_keys_beside_generated_questions_are_recorded(toy: Toy, api: FakeAPI) -> None:
    api.script.judge(lambda request: json.dumps({**complete_answer(request), "mood": "calm"}))
    suite = Suite(toy, api, "chat", plain=True, graders=[GECKO], verdict=["gecko >= 0.1"])
    assert suite.run().exit_code == 0
    (entry,) = read_questions(suite.folder)
    assert entry.extra_keys == {"mood": '"calm"'}


def test_a_degenerate_reply_stops_no_other_cell_and_is_asked_again(toy: Toy, api: FakeAPI) -> None:
    start = time.monotonic()
    api.script.judge(lambda request: DEGENERATE if request.images[-1].size[1] == 24 else complete_answer(request))
    suite = Suite(toy, api, "chat", 3, cell_timeout_s=60)
    assert suite.run().exit_code == 3
    assert time.monotonic() - start < 60, "it took 143 s for each of them"
    result = {record.test_id: record for record in suite.records}
    assert set(result["case0"].scores.values()) == {None}
    assert [result[name].verdict for name in ("case1", "case2")] == ["PASS", "PASS"]
    assert len(json.dumps(result["case0"].model_dump(mode="json"))) < 400_000
    calls = suite.calls
    assert suite.resume("--offline").exit_code == 3
    assert suite.calls == calls, "a replay calls nobody"
    (record,) = (entry for entry in suite.records if entry.test_id == "case0")
    assert set(record.scores.values()) == {None}
    api.script.judge(complete_answer)
    assert suite.resume().exit_code == 0
    assert {record.verdict for record in suite.records} == {"PASS"}
    assert suite.calls == calls + 4, "one call for each grader of that cell"


@pytest.mark.parametrize("fault", ["empty", "max_tokens", "prose"])
@pytest.mark.parametrize("check", [False, True])
def test_failed_question_generation_is_retried(toy: Toy, api: FakeAPI, fault: str, check: bool) -> None:
    text = "No questions come to mind." if fault == "prose" else None
    api.faults.when(lambda request: isinstance(request, JudgeRequest), Fault(fault, text=text))
    api.script.judge(complete_answer)
    gecko = {**GECKO, "check_questions": check}
    suite = Suite(toy, api, plain=True, graders=[gecko], verdict=["gecko >= 0.1"])
    assert suite.run().exit_code == 3
    assert suite.calls == 2
    assert suite.resume("--offline").exit_code == 3
    assert suite.calls == 2
    api.faults.clear()
    assert suite.resume().exit_code == 0, suite.records
    assert suite.calls == (5 if check else 4)


def test_answers_that_could_not_be_read_are_asked_for_again_and_no_others(toy: Toy, api: FakeAPI) -> None:
    def judged(request: JudgeRequest) -> str:
        output = complete_answer(request)["answers"]
        return json.dumps({"answers": output[:1] if len(output) > 1 else []})

    api.script.judge(judged)
    suite = Suite(toy, api, graders=[{**GECKO, "on_unanswered": "error"}], verdict=["gecko >= 0.5"])
    assert suite.run().exit_code == 3
    assert suite.calls == 2, "both questions, and then the second one alone"
    assert suite.resume("--offline").exit_code == 3
    api.script.judge(complete_answer)
    assert suite.resume().exit_code == 0
    assert suite.calls == 3
    (record,) = suite.records
    assert record.scores["gecko"] == 0.5


def test_a_lost_vote_is_cast_again_only_where_a_score_hangs_on_it(toy: Toy, api: FakeAPI) -> None:
    votes: list[str] = []

    def judged(request: JudgeRequest) -> Any:
        votes.append("")
        return complete_answer(request) if len(votes) <= 2 else "{"

    api.script.judge(judged)
    suite = Suite(toy, api, graders=[{**LOOK, "votes": 3}], verdict=["nice"])
    result = suite.run("--max-concurrency", "1")
    assert result.exit_code == 0, result.output
    calls = suite.calls
    assert calls == 4
    strict = toy.folder / "strict.yaml"
    strict.write_text(json.dumps({**json.loads(suite.path.read_text()), "gates": ["mean(layout) >= 95"]}))
    done = toy("grade", "r", "--suite", strict, "--quiet")
    assert (done.exit_code, suite.calls) == (1, calls), "a changed rule asks no judge"
    api.script.judge("{")
    assert toy("grade", "r", "--suite", strict, "--reuse", "none", "--quiet").exit_code == 3
    api.script.judge(complete_answer)
    calls = suite.calls
    assert toy("grade", "r", "--suite", strict, "--quiet").exit_code == 1
    assert suite.calls == calls + 3, "all three votes were lost"


def test_an_answer_at_the_second_try_is_replayed_without_a_call(toy: Toy, api: FakeAPI) -> None:
    api.faults.queue(Fault("off_schema"))
    api.script.judge(complete_answer)
    suite = Suite(toy, api, graders=[LOOK], verdict=["nice"])
    assert suite.run().exit_code == 0
    assert suite.calls == 2
    assert toy("run", suite.path, "--run-id", "other", "--quiet").exit_code == 0
    assert suite.calls == 2
