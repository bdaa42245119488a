"""The gecko grader with a judge that answers by script."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from scripted_judge import ScriptedJudge, context

from visioneval import Grade, GraderError, ProviderError, Reply
from visioneval.graders.gecko import GeckoGrader
from visioneval.graders.gecko.grader import Gecko
from visioneval.graders.gecko.questions import options_digest
from visioneval.records.model import digest
from visioneval.records.questions import PromptQuestions, QuestionsWriter
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


def test_one_call_for_all_questions(tmp_path: Path) -> None:
    judge = ScriptedJudge(answers(sun="b", red="(b) red", dog="Yes."))
    result = grade(tmp_path, judge, PINNED)
    assert result.scores == {"gecko": 1.0, "gecko.animal": 1.0, "gecko.color": 1.0, "gecko.other": 1.0}
    assert (result.error, result.reasons) == (None, {})
    assert len(judge.questions) == 1
    (words,) = judge.words()
    assert "red: Which colour is the dog?\n  a) blue\n  b) red\n  c) none of them" in words
    assert "sun: Is the sun up?\n  a) yes\n  b) no\n" in words
    assert len(judge.images()) == 1
    assert detail(result, "sun") == {
        "id": "sun", "question": "Is the sun up?", "type": "other", "choices": ["yes", "no"], "source": "pinned",
        "depends_on": [], "expected": "no", "answer": "b", "choice": "no", "right": True, "score": 1, "reason": "seen",
    }  # fmt: skip
    assert result.details["source"] == "pinned"
    assert result.judge_model == "judge-1"


def test_details_always_say_how_the_replies_were_read(tmp_path: Path) -> None:
    full = answers(sun="b", red="(b) red", dog="Yes.")
    assert grade(tmp_path, ScriptedJudge(full), PINNED).details["read"] == []
    broken = json.dumps(full)[:-1] + ",}"
    assert grade(tmp_path, ScriptedJudge(broken), PINNED).details["read"] == ["repaired"]


def test_one_call_for_each_question(tmp_path: Path) -> None:
    judge = ScriptedJudge("Yes.", answers(red="blue"), "b")
    result = grade(tmp_path, judge, PINNED, mode="single")
    assert len(judge.questions) == 3
    assert [len(words[0].split("\n\n")) > 1 and words[0].count("  a) ") for words in map(judge.words, range(3))] == [
        1
    ] * 3
    assert result.scores["gecko"] == pytest.approx(2 / 3)


def test_wrong_parent_scores_zero_and_counts_in_the_denominator(tmp_path: Path) -> None:
    result = grade(tmp_path, ScriptedJudge(answers(dog="no", red="red", sun="no")), PINNED)
    assert result.scores == {"gecko": pytest.approx(1 / 3), "gecko.animal": 0, "gecko.color": 0, "gecko.other": 1}
    red = detail(result, "red")
    assert (red["right"], red["score"], red["depends_on"]) == (True, 0, ["dog"])
    assert result.reasons["gecko"] == (
        "2 of 3 wrong: Is there a dog? no, not yes; Which colour is the dog? red, but a question that it depends on has a wrong answer"
    )


def test_only_unanswered_questions_are_retried(tmp_path: Path) -> None:
    judge = ScriptedJudge(answers(dog="yes", sun="it is hard to say", moon="yes"), answers(red="b"), answers(sun="no"))
    result = grade(tmp_path, judge, PINNED)
    assert result.scores["gecko"] == 1.0
    assert len(judge.questions) == 3
    assert "Is there a dog?" not in judge.words(1)[0]
    assert "(not one of the choices: 'it is hard to say')" in judge.words(2)[0]
    assert [detail(result, name).get("asked_again") for name in ("dog", "red", "sun")] == [None, True, True]
    assert result.details["unasked"] == ["moon"]


@pytest.mark.parametrize(
    ("on_unanswered", "scores"),
    [
        ("error", {"gecko": None, "gecko.animal": 1.0, "gecko.color": 1.0, "gecko.other": None}),
        ("wrong", {"gecko": pytest.approx(2 / 3), "gecko.animal": 1.0, "gecko.color": 1.0, "gecko.other": 0.0}),
        ("skip", {"gecko": 1.0, "gecko.animal": 1.0, "gecko.color": 1.0, "gecko.other": None}),
    ],
)
def test_on_unanswered_after_the_retry(tmp_path: Path, on_unanswered: str, scores: dict[str, Any]) -> None:
    judge = ScriptedJudge(answers(dog="a", red="b", sun="Well, the sky is bright."), answers(sun="Hard to say."))
    result = grade(tmp_path, judge, PINNED, on_unanswered=on_unanswered)
    assert result.scores == scores
    assert len(judge.questions) == 2
    message = "1 of 3 questions of 'gecko' have no usable answer, such as sun (not one of the choices: 'Hard to say.')"
    assert result.error == (None if on_unanswered == "wrong" else message)


@pytest.mark.parametrize("on_unanswered", ["error", "wrong", "skip"])
def test_unreadable_replies_give_no_score(tmp_path: Path, on_unanswered: str) -> None:
    judge = ScriptedJudge("What a lovely image! I would say that everything fits.")
    result = grade(tmp_path, judge, PINNED, on_unanswered=on_unanswered)
    assert set(result.scores.values()) == {None}
    assert "3 of 3 questions of 'gecko' have no usable answer, such as dog (the answer does not match the schema" in (
        result.error or ""
    )
    assert result.details["replies"][0].startswith("What a lovely image!")


def test_judge_outage_is_not_a_wrong_answer(tmp_path: Path) -> None:
    judge = ScriptedJudge(answers(dog="yes", red="red"), ProviderError("the judge is out", kind="transient"))
    result = grade(tmp_path, judge, PINNED, on_unanswered="wrong")
    assert set(result.scores.values()) == {None}
    assert result.error == "the judge is out"
    assert detail(result, "dog")["answer"] == "yes"


def test_questions_are_generated_and_then_asked(tmp_path: Path) -> None:
    stored: list[PromptQuestions] = []
    judge = ScriptedJudge(GENERATED, answers(q1="yes", q2="no"))
    config = GeckoGrader.model_validate({"key": "gecko", "type": "gecko"})
    cell = context(tmp_path, judge, {"prompt": "Two dogs on a boat"}, keep_questions=stored.append)
    result = asyncio.run(Gecko(config).grade(cell))
    assert result.scores == {"gecko": 0.5, "gecko.animal": 1.0, "gecko.counting": 0.0}
    assert "Two dogs on a boat" in judge.words(0)[0]
    assert judge.images(0) == []
    assert (result.details["source"], result.details["coverage"]) == ("generated", pytest.approx(2 / 3))
    (entry,) = stored
    assert (entry.source, entry.keywords, len(entry.questions)) == ("generated", GENERATED["keywords"], 2)
    assert entry.template_sha256 is not None


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


@pytest.mark.parametrize(
    "first",
    [
        "I cannot do that.",
        json.dumps(GENERATED)[:200],
        {**GENERATED, "questions": []},
        {**GENERATED, "keywords": "Two dogs"},
        Reply(text=json.dumps(GENERATED), model="judge-1", stopped="max_tokens"),
        {**GENERATED, "questions": [{**GENERATED["questions"][0], "depends_on": ["q9"]}]},  # type: ignore[dict-item]
    ],
    ids=["prose", "cut", "empty", "no items", "stopped", "unknown parent"],
)
def test_unusable_questions_are_requested_once_more(tmp_path: Path, first: Any) -> None:
    judge = ScriptedJudge(first, GENERATED, answers(q1="yes", q2="yes"))
    assert grade(tmp_path, judge, {}).scores["gecko"] == 1.0
    assert "Your last answer could not be used" in judge.words(1)[-1]
    with pytest.raises(GraderError, match="the judge generated no usable questions: "):
        grade(tmp_path, ScriptedJudge(first), {})


@pytest.mark.parametrize("choice", ["drop", "drop_all"])
def test_dependencies_of_a_generated_cycle_can_be_dropped(tmp_path: Path, choice: str) -> None:
    created = {
        **GENERATED,
        "questions": [{**q, "depends_on": ["q2" if q["id"] == "q1" else "q1"]} for q in GENERATED["questions"]],
    }  # type: ignore[index]
    result = grade(tmp_path, ScriptedJudge(created, answers(q1="no", q2="yes")), {}, on_bad_dependency=choice)
    assert result.scores["gecko"] == 0.5
    assert [item["depends_on"] for item in result.details["questions"]] == [[], []]


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


def test_questions_that_the_prompt_does_not_confirm_are_dropped(tmp_path: Path) -> None:
    stored: list[PromptQuestions] = []
    judge = ScriptedJudge(GENERATED, answers(q1="c", q2="yes"), answers(q2="yes"))
    config = GeckoGrader.model_validate({"key": "gecko", "type": "gecko", "check_questions": True})
    cell = context(tmp_path, judge, {"prompt": "Two of them"}, keep_questions=stored.append)
    result = asyncio.run(Gecko(config).grade(cell))
    assert result.scores == {"gecko": 1.0, "gecko.counting": 1.0}
    assert judge.images(1) == []
    assert "  c) the prompt does not say" in judge.words(1)[0]
    (entry,) = stored
    assert [(item.question, item.reason) for item in entry.dropped] == [
        ("Are there dogs?", "the prompt alone does not give 'yes': the prompt does not say")
    ]
    assert entry.questions[0].depends_on == ()
    assert (result.details["dropped"], entry.coverage) == (1, pytest.approx(1 / 3))


def test_no_confirmed_questions_give_no_score(tmp_path: Path) -> None:
    with pytest.raises(GraderError, match="all 2 questions were dropped"):
        grade(tmp_path, ScriptedJudge(GENERATED, answers(q1="no", q2="no")), {}, check_questions=True)


def test_added_questions_are_asked_with_generated_questions(tmp_path: Path) -> None:
    judge = ScriptedJudge(GENERATED, answers(q1="yes", q1_2="yes", q2="yes"))
    case = {"add_questions": [{"id": "q1", "question": "Is the flag up?", "type": "flag"}]}
    result = grade(tmp_path, judge, case)
    assert result.scores == {"gecko": 1.0, "gecko.animal": 1.0, "gecko.counting": 1.0, "gecko.flag": 1.0}
    message = [(item["id"], item["source"], item["depends_on"]) for item in result.details["questions"]]
    assert message == [("q1_2", "generated", []), ("q2", "generated", ["q1_2"]), ("q1", "pinned", [])]


@pytest.mark.parametrize(("choice", "score"), [("drop", 1 / 3), ("drop_all", 2 / 3)])
def test_a_bad_dependency_of_an_added_question(tmp_path: Path, choice: str, score: float) -> None:
    """The generated question q2, which depends on q1, keeps that dependency unless all are dropped."""
    case = {"add_questions": [{"id": "flag", "question": "Is the flag up?", "depends_on": ["gone"]}]}
    judge = ScriptedJudge(GENERATED, answers(q1="no", q2="yes", flag="yes"))
    assert grade(tmp_path, judge, case, on_bad_dependency=choice).scores["gecko"] == pytest.approx(score)


def test_video_uses_its_own_template(tmp_path: Path) -> None:
    created = {"keywords": "{1}[grapes, object, 1.0]", "questions": [
        {"id": "q1", "keyword": 1, "question": "Which fruit rolls?", "choices": ["figs", "grapes", "plums", "limes"],
         "answer": "grapes", "justification": "grapes", "depends_on": []}]}  # fmt: skip
    judge = ScriptedJudge(created, answers(q1="e"))
    result = grade(tmp_path, judge, {"task": "video_generation"}, media="video")
    assert result.scores == {"gecko": 0.0, "gecko.object": 0.0}
    assert "whether a video shows" in judge.words(0)[0]
    assert "Watch the video" in judge.words(1)[0]
    assert "  e) none of them" in judge.words(1)[0]
    assert result.reasons["gecko"] == "1 of 1 wrong: Which fruit rolls? none of them, not grapes"


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


def test_verdicts_count_only_where_the_template_asks_for_them(tmp_path: Path) -> None:
    judge = ScriptedJudge("Question: Is there a dog? Verdict: yes", "Question: Is there a dog? Verdict: yes")
    result = grade(tmp_path, judge, {"questions": [DOG]})
    assert result.scores["gecko"] is None
    assert "one JSON object" in judge.words(1)[-1]


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
