"""Recorded answers as a judge, from CSV and JSONL."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from toys import Toy

from visioneval import CellRef, Problem, ProviderError, Question, SuiteError, UsageError, read_records
from visioneval.providers.recorded import Recorded, RecordedJudge, problems
from visioneval.suite.files import Trust

pytestmark = pytest.mark.slow

MODEL_AND_SAMPLE = {"model": "model", "sample": "sample"}


def judge(path: Path, text: str, **fields: str) -> Recorded:
    path.write_text(text)
    return Recorded(RecordedJudge.model_validate({"provider": "recorded", "path": str(path), "fields": fields}))


def answers(recorded: Recorded, *names: str, model: str = "m", sample: int = 0, schema: Any = None) -> Any:
    question = Question(("Judge.",), schema, names)
    reply = asyncio.run(recorded.ask(question, CellRef("one", model, sample)))
    assert (reply.shape, reply.model, reply.usage, reply.cost_usd) == ("recorded", "recorded", None, None)
    return json.loads(reply.text)


def test_answers_for_every_model_and_sample(tmp_path: Path) -> None:
    recorded = judge(tmp_path / "a.csv", "case,question,answer\none,quality,4\none,right,true\n")
    for model, sample in (("m", 0), ("other", 7)):
        assert answers(recorded, "right", "quality", model=model, sample=sample) == {"right": True, "quality": 4}


def test_answers_of_one_model_and_sample(tmp_path: Path) -> None:
    rows = "case,model,sample,question,answer\none,m,0,quality,4\none,m,1,quality,2\none,n,0,quality,0\n"
    recorded = judge(tmp_path / "a.csv", rows, **MODEL_AND_SAMPLE)
    assert answers(recorded, "quality") == {"quality": 4}
    assert answers(recorded, "quality", sample=1) == {"quality": 2}
    assert answers(recorded, "quality", model="n") == {"quality": 0}
    with pytest.raises(
        ProviderError, match=r"^a\.csv: no recorded answer for case 'one', model 'n', sample 1$"
    ) as message:
        answers(recorded, "quality", model="n", sample=1)
    assert message.value.kind == "invalid"


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_row_replaces_no_answer(tmp_path: Path, empty: str) -> None:
    """As when two raters share a table, and only one of them answered."""
    rows = f"case,question,answer\none,quality,4\none,quality,{empty}\none,depth,{empty}\none,depth,2\n"
    recorded = judge(tmp_path / "a.csv", rows)
    assert (answers(recorded, "quality"), answers(recorded, "depth")) == ({"quality": 4}, {"depth": 2})


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("4", 4), ("0.5", 0.5), (" 3 ", 3), ("true", True), ("FALSE", False), ("True", True), ("yes", "yes"),
        ("NaN", "NaN"), ('"[""a"", ""b""]"', ["a", "b"]), ("1,5".replace(",", "·"), "1·5"),
    ],
)  # fmt: skip
def test_the_cells_of_a_table_are_typed(tmp_path: Path, written: str, value: Any) -> None:
    result = answers(judge(tmp_path / "a.csv", f"case,question,answer\none,q,{written}\n"), "q")["q"]
    assert (result, type(result)) == (value, type(value))


YES_NO = {"properties": {"q": {"type": "boolean"}}}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", True), ("0", False), ("yes", True), (" No ", False), ("PASS", True), ("fail", False), ("TRUE", True),
        ("1.0", True), ("perhaps", "perhaps"), ("2", 2), ("null", None),
    ],
)  # fmt: skip
def test_a_yes_or_no_is_written_in_many_ways(tmp_path: Path, written: str, value: Any) -> None:
    result = answers(judge(tmp_path / "a.csv", f"case,question,answer\none,q,{written}\n"), "q", schema=YES_NO)["q"]
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(("written", "value"), [(1, True), (0.0, False), ("Yes", True), (True, True), (2, 2), ([], [])])
def test_jsonl_may_write_yes_or_no_as_a_number(tmp_path: Path, written: Any, value: Any) -> None:
    row = json.dumps({"case": "one", "question": "q", "answer": written})
    result = answers(judge(tmp_path / "a.jsonl", row), "q", schema=YES_NO)["q"]
    assert (result, type(result)) == (value, type(value))


TAGS = {"properties": {"q": {"type": "array", "items": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("\"['blurry', 'cut']\"", ["blurry", "cut"]), ('"[""blurry""]"', ["blurry"]), ("blurry", ["blurry"]), ("[]", []),
        ("[blurry]", "[blurry]"), ("\"['a' 'b']\"", "['a' 'b']"),
    ],
)  # fmt: skip
def test_a_list_is_written_as_in_a_dataset(tmp_path: Path, written: str, value: Any) -> None:
    """What may be a list or a text stays text, which no list of tags is."""
    assert (
        answers(judge(tmp_path / "a.csv", f"case,question,answer\none,q,{written}\n"), "q", schema=TAGS)["q"] == value
    )


def test_words_for_yes_and_no_stay_text_where_none_is_asked_for(tmp_path: Path) -> None:
    recorded = judge(tmp_path / "a.csv", "case,question,answer\none,q,pass\none,r,1\n")
    assert answers(recorded, "q", "r", schema={"properties": {"q": {"type": "string"}, "r": {"type": "integer"}}}) == {
        "q": "pass",
        "r": 1,
    }


def test_jsonl_values_preserve_their_types(tmp_path: Path) -> None:
    rows = [
        {"id": "one", "run": "m", "n": 0, "q": "Is it blue?", "a": False},
        {"id": "one", "run": "m", "n": 0, "q": "q2", "a": 3.5},
        {"id": "one", "run": "m", "n": 0, "q": "q3", "a": None},
    ]
    names = {"case": "id", "model": "run", "sample": "n", "question": "q", "answer": "a"}
    recorded = judge(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)), **names)
    assert answers(recorded, "Is it blue?", "q2", "q3", "q4") == {"Is it blue?": False, "q2": 3.5}


def test_a_missing_answer_is_left_out(tmp_path: Path) -> None:
    recorded = judge(tmp_path / "a.tsv", "case\tquestion\tanswer\none\tquality\t4\none\tright\t\n")
    assert answers(recorded, "right", "quality", "style") == {"quality": 4}


def test_additional_schema_fields_are_answered_too(tmp_path: Path) -> None:
    rows = "case,question,answer\none,quality,4\none,verdict,PASS\none,reason,12\n"
    schema = {"properties": {"quality": {"type": "integer"}, "reason": {"type": "string"}, "verdict": {"enum": []}}}
    recorded = judge(tmp_path / "a.csv", rows)
    assert answers(recorded, "quality", schema=schema) == {"quality": 4, "reason": "12", "verdict": "PASS"}


def test_text_questions_match_by_id_or_text_and_answers_remain_text(tmp_path: Path) -> None:
    rows = "case,question,answer\none,q1,TRUE\none,How many dogs?,2\none,q3,\none,Is it red?,no\n"
    recorded = judge(tmp_path / "a.csv", rows)
    texts = {"q1": "Is it?", "q2": "How many dogs?", "q3": "Is it red?", "q4": "Is it there?"}
    reply = asyncio.run(recorded.ask(Question(("Look.",), None, tuple(texts), texts=texts), CellRef("one", "m", 0)))
    assert json.loads(reply.text) == {"q1": "TRUE", "q2": "2", "q3": "no"}


def test_questions_in_words_of_a_cell_without_any_answer_are_unanswered(tmp_path: Path) -> None:
    recorded = judge(tmp_path / "a.csv", "case,question,answer\none,q1,yes\n")
    question = Question(("Look.",), None, ("q1",), texts={"q1": "Is it?"})
    assert json.loads(asyncio.run(recorded.ask(question, CellRef("two", "m", 0))).text) == {}


@pytest.mark.parametrize(("name", "text"), [("a.csv", "case,question,answer\n"), ("a.jsonl", "{"), ("a.txt", "x")])
def test_an_unreadable_file_is_reported_when_the_run_is_prepared(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises((UsageError, SuiteError)):
        judge(tmp_path / name, text)


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({}, ["line 2: add model: model to the judge's fields"]),
        ({"model": "model"}, []),
        ({"model": "other"}, ["line 2: keep one"]),
    ],
)
def test_conflicting_answers_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, str], lines: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    column = fields.get("model", "model")
    rows = f"case,{column},question,answer\none,m,right,yes\none,n,right,no\none,m,right,YES\n"
    (tmp_path / "a.csv").write_text(rows if column == "model" else rows.replace("n,right", "m,right"))
    recorded = RecordedJudge.model_validate({"provider": "recorded", "path": "a.csv", "fields": fields})
    reported = problems(recorded, tmp_path, Trust.for_run_suite())
    expected = [f"answers 'right' of case 'one' differently than {line}" for line in lines]
    assert [problem.message for problem in reported if isinstance(problem, Problem)] == expected


@pytest.mark.parametrize(
    ("first", "other"), [("yes", "true"), ("yes", "1.0"), ("yes", "PASS"), ("3", "3.0"), ("yes", ""), ("nan", "NaN")]
)
def test_equal_and_empty_answers_are_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, other: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(f"case,question,answer\none,right,{first}\none,right,{other}\n")
    recorded = RecordedJudge.model_validate({"provider": "recorded", "path": "a.csv"})
    assert list(problems(recorded, tmp_path, Trust.for_run_suite())) == []


def test_copy_in_another_case_is_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy is checked letter by letter: otherwise the last row would decide."""
    monkeypatch.chdir(tmp_path)
    rows = [{"case": "one", "question": "lines", "answer": [line]} for line in ("Sale", "SALE")]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    recorded = RecordedJudge.model_validate({"provider": "recorded", "path": "a.jsonl"})
    (problem,) = problems(recorded, tmp_path, Trust.for_run_suite())
    assert isinstance(problem, Problem)
    assert problem.message == "answers 'lines' of case 'one' differently than line 1: keep one"


def test_a_run_is_judged_by_recorded_answers(toy: Toy) -> None:
    (toy.folder / "deep").mkdir()
    suite = toy.write(
        {},
        {},
        {},
        name="deep/suite.yaml",
        models=[{"provider": "mock", "label": "generated", "params": {"size": "64x64"}}],
        judges={"people": {"provider": "recorded", "path": "answers.csv", "fields": {"model": "model"}}},
        graders=[
            {
                "key": "people",
                "type": "rubric",
                "judge": "people",
                "metrics": {
                    "liked": {"type": "pass_fail", "description": "Did they like it?"},
                    "quality": {"type": "score", "scale": [0, 5], "description": "How good is it?"},
                },
            }
        ],
        verdict=["liked", "quality >= 3"],
    )
    rows = [
        "case0,generated,liked,TRUE",
        "case0,generated,quality,2",
        "case0,generated,verdict,PASS",
        "case1,generated,liked,TRUE",
    ]
    (suite.parent / "answers.csv").write_text("\n".join(["case,model,question,answer", *rows, ""]))
    result = toy("run", suite)
    records = {record.test_id: record for record in read_records(toy.latest)}
    assert result.exit_code == 3, result.output
    assert (records["case0"].verdict, records["case0"].failed_rules) == ("FAIL", ("quality >= 3",))
    grader = records["case0"].graders[0]
    assert (grader.details["reply_shape"], grader.details["judge_verdict"]) == ("recorded", "PASS")
    assert records["case1"].verdict == "ERROR"
    assert "the recorded answer does not match the schema: the key 'quality' is missing" in (
        records["case1"].graders[0].error or ""
    )
    assert "no recorded answer for case 'case2'" in (records["case2"].graders[0].error or "")


class Judged:
    """A run `a` of two cases whose only judge is a file of recorded answers."""

    rubric: ClassVar[dict[str, Any]] = {
        "key": "people",
        "type": "rubric",
        "judge": "people",
        "metrics": {"quality": {"type": "score", "scale": [0, 5], "description": "How good is it?"}},
    }

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        self.record_answers(case0=4, case1=4)
        assert toy("run", self.write(), "--run-id", "a").exit_code == 0

    def record_answers(self, name: str = "answers.csv", **answers: int) -> None:
        rows = [f"{case},quality,{answer}" for case, answer in answers.items()]
        (self.toy.folder / name).write_text("\n".join(["case,question,answer", *rows, ""]))

    def write(self, path: str = "answers.csv", **changes: Any) -> Path:
        models = [{"provider": "mock", "label": "generated", "params": {"size": "64x64"}}]
        judges = {"people": {"provider": "recorded", "path": path}}
        suite = {"models": models, "judges": judges, "graders": [self.rubric], "verdict": ["quality >= 3"]}
        return self.toy.write({}, {}, **{**suite, **changes})

    def scores(self, run: str) -> dict[str, Any]:
        return {record.test_id: record.scores["quality"] for record in read_records(self.toy.folder / "runs" / run)}


@pytest.fixture
def judged(toy: Toy) -> Judged:
    return Judged(toy)


@pytest.mark.parametrize("suite", [(), ("suite.yaml",)])
def test_resume_grades_again_if_the_recorded_answers_changed(judged: Judged, suite: tuple[str, ...]) -> None:
    judged.record_answers(case0=4, case1=1)
    result = judged.toy("run", *(judged.toy.folder / name for name in suite), "--resume", "a")
    assert result.exit_code == 1, result.output
    assert "to generate: 0; to grade again: 2 (2 grader.people changed); unchanged: 0" in result.stderr
    assert judged.scores("a") == {"case0": 4, "case1": 1}


@pytest.mark.parametrize("is_moved", [False, True])
def test_resume_keeps_the_grades_of_the_same_answers(judged: Judged, is_moved: bool) -> None:
    name = "moved.csv" if is_moved else "answers.csv"
    judged.record_answers(name, case0=4, case1=4)
    result = judged.toy("run", judged.write(name), "--resume", "a")
    assert result.exit_code == 0, result.output
    assert "to grade again: 0; unchanged: 2" in result.stderr


def test_resume_with_other_columns_grades_again(judged: Judged) -> None:
    (judged.toy.folder / "answers.csv").write_text("case,question,answer,other\ncase0,quality,4,1\ncase1,quality,4,5\n")
    entry = {"provider": "recorded", "path": "answers.csv", "fields": {"answer": "other"}}
    assert judged.toy("run", judged.write(judges={"people": entry}), "--resume", "a").exit_code == 1
    assert judged.scores("a") == {"case0": 1, "case1": 5}


@pytest.mark.parametrize(("rule", "code"), [("quality >= 3", 1), ("quality >= 1", 0)])
def test_grade_reads_changed_answers_even_if_only_rules_changed_too(judged: Judged, rule: str, code: int) -> None:
    judged.record_answers(case0=2, case1=4)
    suite = judged.write(verdict=[rule])
    result = judged.toy("grade", "a", "--suite", suite, "--run-id", "b")
    assert result.exit_code == code, result.output
    assert "re-evaluated" not in result.stderr
    assert (judged.scores("a"), judged.scores("b")) == ({"case0": 4, "case1": 4}, {"case0": 2, "case1": 4})


@pytest.mark.parametrize("flags", [("--offline",), ("--reuse", "all"), ("--reuse", "none")])
def test_no_cache_answers_for_a_changed_file(judged: Judged, flags: tuple[str, ...]) -> None:
    judged.record_answers(case0=4, case1=0)
    result = judged.toy("run", judged.write(), "--run-id", "b", *flags)
    assert result.exit_code == 1, result.output
    assert judged.scores("b") == {"case0": 4, "case1": 0}


def test_one_changed_file_of_a_panel_is_enough(judged: Judged) -> None:
    judges = {name: {"provider": "recorded", "path": f"{name}.csv"} for name in ("one", "two", "three")}
    for name in judges:
        judged.record_answers(f"{name}.csv", case0=4, case1=4)
    suite = judged.write(judges=judges, graders=[{**judged.rubric, "judge": list(judges)}])
    assert judged.toy("run", suite, "--run-id", "panel").exit_code == 0
    assert "unchanged: 2" in judged.toy("run", suite, "--resume", "panel").stderr
    judged.record_answers("two.csv", case0=4, case1=3)
    assert "to grade again: 2" in judged.toy("run", suite, "--resume", "panel").stderr


def test_a_deleted_file_stops_a_resume(judged: Judged) -> None:
    (judged.toy.folder / "answers.csv").unlink()
    result = judged.toy("run", judged.toy.folder / "suite.yaml", "--resume", "a")
    assert (result.exit_code, "answers.csv" in result.stderr) == (2, True), result.output
    assert judged.scores("a") == {"case0": 4, "case1": 4}


CUSTOM_JUDGE = """
import json
from visioneval.providers.base import Reply

class Eye:
    def __init__(self, config):
        self.config = config

    async def ask(self, question, about):
        said = {**self.config.params["say"], "reason": about.test_id, "verdict": "PASS"}
        return Reply(text=json.dumps(said), model=self.config.model, usage={"tokens": 3})
"""


def test_a_custom_judge_gets_its_entry(toy: Toy) -> None:
    (toy.folder / "eye.py").write_text(CUSTOM_JUDGE)
    metrics = {"liked": {"type": "pass_fail", "description": "Did they like it?"}}
    result = toy.run(
        judges={"default": {"provider": "eye:Eye", "model": "my-eye", "params": {"say": {"liked": True}}}},
        graders=[{"key": "people", "type": "rubric", "metrics": metrics}],
        verdict=["liked"],
    )
    assert result.exit_code == 0, result.output
    grader = toy.record.graders[0]
    assert (toy.record.scores, grader.fingerprint.judge_model, grader.usage) == (
        {"liked": True},
        "my-eye",
        {"tokens": 3},
    )
    assert toy.record.reasons == {"people": "case0"}
