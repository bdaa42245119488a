"""The gecko grader with a judge that answers by script."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from scripted_judge import ScriptedJudge, context

from visioneval import Grade
from visioneval.graders.gecko import GeckoGrader
from visioneval.graders.gecko.grader import Gecko
from visioneval.graders.gecko.questions import options_digest
from visioneval.records.model import digest
from visioneval.records.questions import QuestionsWriter
from visioneval.running.cells.services import SingleFlight

DOG = {"id": "dog", "question": "Is there a dog?", "type": "animal"}
RED = {"id": "red", "question": "Which colour is the dog?", "choices": ["blue", "red"], "answer": "red",
       "type": "color", "depends_on": ["dog"]}  # fmt: skip
SUN = {"id": "sun", "question": "Is the sun up?", "answer": "no", "type": "other"}
PINNED = {"questions": [DOG, RED, SUN]}
GENERATED = {
    "keywords": "{1}[Two] {2}[dogs] on a {3}[boat]",
    "questions": [
        {"id": "q1", "keyword": 2, "question": "Are there dogs?", "choices": ["yes", "no"], "answer": "yes",
         "type": "animal", "justification": "dogs", "depends_on": []},
        {"id": "q2", "keyword": 1, "question": "Are there two dogs?", "choices": ["yes", "no"], "answer": "yes",
         "type": "counting", "justification": "two", "depends_on": ["q1"]},
    ],
}  # fmt: skip


def answers(**output: str) -> dict[str, Any]:
    return {"answers": [{"id": name, "reason": "seen", "answer": answer} for name, answer in output.items()]}


def grade(folder: Path, asked: ScriptedJudge, case: dict[str, Any], *, once: Any = None, **options: Any) -> Grade:
    config = GeckoGrader.model_validate({"key": "gecko", "type": "gecko", **options})
    changes = {"once": once} if once else {}
    return asyncio.run(Gecko(config).grade(context(folder, asked, case, **changes)))


def detail(result: Grade, name: str) -> dict[str, Any]:
    return next(item for item in result.details["questions"] if item["id"] == name)


def test_the_questions_that_are_asked(tmp_path: Path) -> None:
    judge = ScriptedJudge(answers(sun="b", red="(b) red", dog="Yes."))
    grade(tmp_path, judge, PINNED)
    assert "red: Which colour is the dog?\n  a) blue\n  b) red\n  c) none of them" in judge.words()[0]
    assert "sun: Is the sun up?\n  a) yes\n  b) no\n" in judge.words()[0]
    judge = ScriptedJudge(GENERATED, answers(q1="c", q2="yes"), answers(q2="yes"))
    grade(tmp_path, judge, {"prompt": "Two of them"}, check_questions=True)
    assert "Two of them" in judge.words(0)[0]
    assert "  c) the prompt does not say" in judge.words(1)[0]
    created = {"keywords": "{1}[grapes, object, 1.0]", "questions": [
        {"id": "q1", "keyword": 1, "question": "Which fruit rolls?", "choices": ["figs", "grapes", "plums", "limes"],
         "answer": "grapes", "justification": "grapes", "depends_on": []}]}  # fmt: skip
    judge = ScriptedJudge(created, answers(q1="e"))
    grade(tmp_path, judge, {"task": "video_generation"}, media="video")
    assert "whether a video shows" in judge.words(0)[0]
    assert "Watch the video" in judge.words(1)[0]


def test_questions_are_generated_once_per_prompt(tmp_path: Path) -> None:
    judge, once = ScriptedJudge(GENERATED, answers(q1="yes", q2="yes")), SingleFlight()
    config = GeckoGrader.model_validate({"key": "gecko", "type": "gecko"})
    cells = [context(tmp_path, judge, {"id": name, "prompt": "Two dogs"}, once=once) for name in "abc"]

    async def all_at_once() -> list[Grade]:
        return list(await asyncio.gather(*(Gecko(config).grade(cell) for cell in cells)))

    result = asyncio.run(all_at_once())
    assert [item.scores["gecko"] for item in result] == [1.0] * 3
    assert len(judge.questions) == 4


def test_graders_with_different_judges_do_not_share_questions(tmp_path: Path) -> None:
    other = {**GENERATED, "questions": [{**GENERATED["questions"][0], "question": "Is any dog there?"}]}  # type: ignore[dict-item]
    writer, once = QuestionsWriter(tmp_path), SingleFlight()
    asked = []
    for name, created in (("one", GENERATED), ("two", other)):
        judge = ScriptedJudge(created, answers(q1="yes", q2="yes"))
        config = GeckoGrader.model_validate({"key": "gecko", "type": "gecko", "judge": name})
        cell = context(
            tmp_path, judge, {"prompt": "Two dogs"}, once=once, known_questions=writer.find, keep_questions=writer.add
        )
        result = asyncio.run(Gecko(config).grade(cell))
        asked.append([item["question"] for item in result.details["questions"]])
    assert asked == [["Are there dogs?", "Are there two dogs?"], ["Is any dog there?"]]
    stored = QuestionsWriter(tmp_path)
    for name, words in (("one", asked[0]), ("two", asked[1])):
        judge = ScriptedJudge(answers(q1="yes", q2="yes"))
        config = GeckoGrader.model_validate({"key": "gecko", "type": "gecko", "judge": name})
        result = asyncio.run(
            Gecko(config).grade(context(tmp_path, judge, {"prompt": "Two dogs"}, known_questions=stored.find))
        )
        assert [item["question"] for item in result.details["questions"]] == words, "a run that goes on"


def test_only_the_meaning_of_drop_has_another_version() -> None:
    """Scores and generated questions with the earlier meaning are neither compared silently nor used again."""
    choices = ("error", "drop", "drop_all")
    options = {
        choice: GeckoGrader.model_validate({"key": "gecko", "type": "gecko", "on_bad_dependency": choice})
        for choice in choices
    }
    assert {choice: grader.version for choice, grader in options.items()} == {
        "error": None, "drop": "2", "drop_all": None,
    }  # fmt: skip
    earlier = digest(["default", "image", "drop"])
    assert len({earlier, *map(options_digest, options.values())}) == 4


def test_template_in_the_suite_folder_wins(tmp_path: Path) -> None:
    (tmp_path / "mine.md.j2").write_text("{% for q in questions %}{{ q.id }}? {% endfor %}")
    judge = ScriptedJudge(answers(dog="yes", red="red", sun="no"))
    grade(tmp_path, judge, PINNED, answers_template="mine.md.j2")
    assert judge.words() == ["dog? red? sun? "]


def test_replies_of_the_published_gecko(tmp_path: Path) -> None:
    """A list ``qas`` of numbered questions, then a verdict after each question, where the templates ask for these."""
    (tmp_path / "make.md.j2").write_text("{{ prompt }}. Reply with keywords and qas.")
    (tmp_path / "ask.md.j2").write_text(
        "{% for q in questions %}{{ q.question }}\n{% endfor %}Reply for each: <question> Question: ... Verdict: yes"
    )
    qas = [
        {"question_id": 2, "question": "Are there dogs?", "choices": ["yes", "no"], "answer": "yes",
         "question_type": "animal", "justification": "dogs are named"},
        {"question_id": 1, "question": "Are there two dogs?", "choices": ["yes", "no"], "answer": "yes",
         "question_type": "counting", "justification": "", "dependencies": "2"},
    ]  # fmt: skip
    verdicts = (
        "<question>Two legs only.\n**Question:** Are there two dogs?\n**Verdict:** no\n</question>\n"
        "<question> I see a dog. Question: Are there dogs? Verdict: yes"
    )
    judge = ScriptedJudge({"keywords": "{1}[Two] {2}[dogs] on a {3}[boat]", "qas": qas}, verdicts)
    result = grade(tmp_path, judge, {}, questions_template="make.md.j2", answers_template="ask.md.j2")
    assert result.error is None
    assert result.scores == {"gecko": 0.5, "gecko.animal": 1.0, "gecko.counting": 0.0}
    assert result.details["coverage"] == pytest.approx(2 / 3)
    dogs, two = detail(result, "2"), detail(result, "1")
    assert (dogs["justification"], dogs["reason"], "justification" in two) == ("dogs are named", "I see a dog.", False)
    assert (two["depends_on"], two["reason"], two["answer"]) == (["2"], "Two legs only.", "no")
    assert judge.questions[1].schema is None


def test_a_question_without_a_verdict_is_asked_again(tmp_path: Path) -> None:
    (tmp_path / "ask.md.j2").write_text("{% for q in questions %}{{ q.question }}\n{% endfor %}Question: Verdict:")
    first = "Question: Is there a dog? Verdict: yes Question: Is the sun"
    judge = ScriptedJudge(first, "(b) red", "Question: Is the sun up?\nVerdict: no")
    result = grade(tmp_path, judge, PINNED, answers_template="ask.md.j2")
    assert len(judge.questions) == 3
    assert result.scores["gecko"] == 1.0


def test_a_judge_that_gives_verdicts_is_asked_again_in_the_same_form(tmp_path: Path) -> None:
    (tmp_path / "ask.md.j2").write_text("{{ questions[0].question }} Question: Verdict:")
    judge = ScriptedJudge("I cannot say.", "Question: Is there a dog?\nVerdict: yes")
    assert grade(tmp_path, judge, {"questions": [DOG]}, answers_template="ask.md.j2").scores["gecko"] == 1.0
    assert judge.words(1)[-1].endswith("Answer again in the form that was asked for, and nothing else.")


@pytest.mark.parametrize("form", ["Question: Verdict:", '{% include "form.md.j2" %}'])
def test_only_the_template_and_what_it_includes_ask_for_verdicts(tmp_path: Path, form: str) -> None:
    (tmp_path / "form.md.j2").write_text("Question: Verdict:")
    (tmp_path / "ask.md.j2").write_text("{{ questions[0].id }} {{ questions[0].question }} " + form)
    judge = ScriptedJudge("Question: Is there a dog?\nVerdict: yes")
    assert grade(tmp_path, judge, {"questions": [DOG]}, answers_template="ask.md.j2").scores["gecko"] == 1.0
    shown = {**DOG, "question": "Does the sign say 'Question: yes? Verdict: no'?"}
    judge = ScriptedJudge(json.dumps({"answers": [{"id": shown["id"], "reason": "", "answer": "yes"}]}))
    assert grade(tmp_path, judge, {"questions": [shown]}).scores["gecko"] == 1.0
    assert judge.questions[0].schema is not None


def test_a_verdict_that_may_be_cut_off_is_none(tmp_path: Path) -> None:
    (tmp_path / "ask.md.j2").write_text("{% for q in questions %}{{ q.question }} {% endfor %}Question: Verdict:")
    hue = {"id": "hue", "question": "Which red?", "choices": ["red", "red wine"], "answer": "red wine"}
    judge = ScriptedJudge("Question: Is there a dog? Verdict: yes Question: Which red? Verdict: red", "b")
    assert grade(tmp_path, judge, {"questions": [DOG, hue]}, answers_template="ask.md.j2").scores["gecko"] == 1.0
    assert len(judge.questions) == 2
