from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_judge import ScriptedAnswer, ScriptedJudge

from visioneval import Question, Reply
from visioneval.judging.ask import (
    Answer,
    OffSchemaError,
    answer_details,
    ask_for_json,
    object_schema,
    read_reply,
    schema_problems,
)
from visioneval.providers.reply_json import MAX_CHARS

GOOD = {"n": 4}
QUESTION = Question(parts=("how many?",), schema=object_schema({"n": {"type": "integer"}}), names=("n",))


def check(data: Any) -> list[str]:
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    return [] if data.keys() == {"n"} and type(data["n"]) is int else [f"{data} is not right"]


def answered(*output: ScriptedAnswer, **options: Any) -> tuple[Answer, ScriptedJudge]:
    judge = ScriptedJudge(*output)
    return asyncio.run(ask_for_json(partial(judge, "j"), QUESTION, check, **options)), judge


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ('{"n": 4}', "json"),
        ('\n {"n": 4}\n', "json"),
        ('```json\n{"n": 4}\n```', "extracted"),
        ('```\n{"n": 4}\n```', "extracted"),
        ('I count {them}. So:\n{"n": 4}\nHope that helps {you}!', "extracted"),
        ('{"n": 4}\nYes, as I said: {"n": 4}', "extracted"),
        ('{"n": 4} and {"other": 1}', "extracted"),
        ('<think>{"n": 3}? {"n": 5</think>{"n": 4}', "extracted"),
        ('{"n": 4, "n": 4}', "json"),
    ],
)
def test_an_answer_is_extracted_from_other_text(text: str, how: str) -> None:
    answer, judge = answered(text)
    assert (answer.data, answer.how, answer.asked_again) == (GOOD, how, False)
    assert len(judge.questions) == 1


@pytest.mark.parametrize(
    ("first", "fault"),
    [
        ('{"n": "four"}', "{'n': 'four'} is not right"),
        ('{"n": "4/5"}', "{'n': '4/5'} is not right"),
        ("", "the answer was empty"),
        ("four", "not JSON"),
        ("[1]", "the answer is not a JSON object"),
        ('{"n": 1.5} or {"n": null}', "{'n': None} is not right"),
        ('{"n": 3}\nWait, one more. {"n": 4}', "the answer contains 2 different JSON objects that match the schema"),
        ('{"n": 3}{"n": 4}', "the answer contains 2 different JSON objects that match the schema"),
        ('{"n": 3, {"n": 4}', "not JSON: Expecting property name enclosed in double quotes (line 1, column 10)"),
        ('{"n": 4}}', "not JSON: the answer continues behind the end of its object"),
        ('{"n": 4}, {"n": 4}', "not JSON: the answer continues behind the end of its object"),
        ('{"n": 4,} {"m": 4}', "beside another object"),
        ("{'n': 4}", "not JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
        ("{n: 4}", "not JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
        ('{"n": 4, "ok": True}', "not JSON: Expecting value (line 1, column 16)"),
        ('{"n": ' + "4" * 5000 + "}", "not JSON: the number is too long"),
        ('{"n": 3, "n": 4}', "the key 'n' appears twice with different values"),
        ('{"n": 1, "n": true}', "the key 'n' appears twice with different values"),
        ('[{"n": 3}', "it is a list of objects"),
        ('{"n": 3}\nWait, one more. {"n": 4', "the JSON is incomplete"),
        ("<think>{'n': 3}", "the JSON is incomplete"),
        ('{"n": 4\n "m": 5}', "not JSON: Expecting ',' delimiter (line 2, column 2)"),
        ('{"n": NaN}', "not JSON: NaN is not a number"),
        ("[" * 100_000, "the answer is not a JSON object"),
        ('{"n":' * 20_000, "nested more than 32 levels deep"),
        ('{"n": 4}' * 101, "the answer contains more than 100 JSON objects"),
        ('{"n": 4}' + "." * MAX_CHARS, "characters, over the limit of 262,144"),
    ],
)
def test_an_off_schema_answer_is_retried_once_with_the_problem_and_the_answer(first: str, fault: str) -> None:
    answer, judge = answered(first, '{"n": 4}')
    assert (answer.data, answer.how, answer.asked_again) == (GOOD, "json", True)
    assert len(judge.questions) == 2
    assert judge.questions[1].parts[:-1] == QUESTION.parts
    note = judge.words(1)[-1]
    assert fault in note
    assert (first[:2000] or "(nothing)") in note
    assert judge.questions[1].schema == QUESTION.schema
    assert answer_details(answer)["asked_again"] == 1
    assert answer_details(answer)["replies"][1] == '{"n": 4}'


def test_off_the_schema_twice_is_an_error_with_both_replies() -> None:
    judge = ScriptedJudge('{"m": 4}', "no")
    with pytest.raises(OffSchemaError, match="does not match the schema: not JSON") as caught:
        asyncio.run(ask_for_json(partial(judge, "j"), QUESTION, check))
    assert [reply.text for reply in caught.value.replies] == ['{"m": 4}', "no"]
    assert len(judge.questions) == 2


@pytest.mark.parametrize("mangled", ['{"n": 4,}', '{"n": 4 , }', 'So: {"n": 4,}.', '```json\n{"n": 4,\n}\n```'])
def test_malformed_json_is_repaired_only_if_the_second_answer_is_off_schema_too(mangled: str) -> None:
    answer, judge = answered(mangled, "sorry")
    assert (answer.data, answer.how) == (GOOD, "repaired")
    assert len(judge.questions) == 2
    assert answer_details(answer)["read"] == ["repaired"]
    assert answer_details(answer)["replies"] == [mangled, "sorry"]
    right, _ = answered(mangled, '{"n": 5}')
    assert (right.data, right.how) == ({"n": 5}, "json")
    second, _ = answered(mangled, '{"n": 6,}')
    assert (second.data, second.how) == ({"n": 6}, "repaired")


def test_a_truncated_answer_is_neither_used_nor_repaired() -> None:
    cut = Reply(text='{"n": 4', model="m", stopped="max_tokens")
    with pytest.raises(OffSchemaError, match=r"cut off \(max_tokens\)"):
        answered(cut)
    cut_off = Reply(text='{"n": 4}', model="m", stopped="max_tokens")
    answer, judge = answered(cut_off, '{"n": 40}')
    assert answer.data == {"n": 40}
    assert "cut off (max_tokens)" in judge.words(1)[-1]
    repaired, _ = answered('{"n": 7,}', cut)
    assert (repaired.data, repaired.how) == ({"n": 7}, "repaired")


def test_recorded_answers_may_omit_defaults_and_are_not_retried() -> None:
    def wants_both(data: Any) -> list[str]:
        return [f"{key} is missing" for key in ("n", "why") if key not in data]

    recorded = Reply(text='{"n": 4}', model="recorded", shape="recorded")
    judge = ScriptedJudge(recorded)
    answer = asyncio.run(ask_for_json(partial(judge, "j"), QUESTION, wants_both, {"why": ""}))
    assert (answer.data, answer.how) == (GOOD, "json")
    with pytest.raises(OffSchemaError, match="the recorded answer does not match the schema: why is missing"):
        asyncio.run(ask_for_json(partial(judge, "j"), QUESTION, wants_both))
    assert len(judge.questions) == 2


@pytest.mark.parametrize(
    ("schema", "right", "wrong", "problem"),
    [
        ({"type": "boolean"}, True, 1, "a: 1 is not of the type boolean"),
        ({"type": "integer"}, 1, True, "a: True is not of the type integer"),
        ({"type": "number"}, 0.5, True, "a: True is not of the type number"),
        ({"type": "integer"}, 1, 1.5, "a: 1.5 is not of the type integer"),
        ({"type": "string"}, "x", None, "a: None is not of the type string"),
        ({"type": "string", "enum": ["x", "y"]}, "y", "z", "a: 'z' is not one of x, y"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, 5, 6, "a: 6 is outside 1 to 5"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, 1, 0, "a: 0 is outside 1 to 5"),
        ({"type": "number", "maximum": 1}, -1, 1.01, "a: 1.01 is outside any to 1"),
        ({"type": "array", "items": {"type": "string"}}, [], ["x", 2], "a: 2 is not of the type string"),
    ],
)
def test_an_answer_must_match_the_schema_that_a_custom_grader_states(
    schema: dict[str, Any], right: Any, wrong: Any, problem: str
) -> None:
    assert schema_problems({"a": schema}, {"a": right, "b": "ignored"}) == []
    assert schema_problems({"a": schema}, {"a": wrong}) == [problem]
    assert schema_problems({"a": schema}, {"b": right}) == ["the key 'a' is missing"]
    assert schema_problems({"a": schema}, [right]) == ["the answer is not a JSON object"]


@given(before=st.text(alphabet="ab {}\"'\n`[,:", max_size=40), n=st.integers(), after=st.text(max_size=20))
def test_an_object_in_any_text_is_found(before: str, n: int, after: str) -> None:
    text = before + "\n" + json.dumps({"n": n}) + "\n" + after.replace("{", "")
    result = read_reply(Reply(text, "m"), check)
    # The text before may start an object that is not closed, and the one after may go on with a larger one.
    is_part = re.search(r"[{\[]", before) or re.match(r"[\s,]*[\]}]|\s*,\s*[\[\"]", after)
    assert result.data == {"n": n} or (result.how is None and is_part)


def test_a_line_break_in_a_text_is_repaired() -> None:
    result = read_reply(Reply('{"n": 4, "why": "two\nlines, and\ttabs",}', "m"), lambda data: [])
    assert (result.data, result.how) == ({"n": 4, "why": "two\nlines, and\ttabs"}, "repaired")


def test_a_fence_in_a_text_is_no_end() -> None:
    result = read_reply(Reply('{"code": "\n```py\nx\n```"}', "m"), lambda data: [])
    assert (result.data, result.how) == ({"code": "\n```py\nx\n```"}, "repaired")
    assert read_reply(Reply('{"code": "\n```py\nx\n```', "m"), lambda data: []).how is None


def test_a_comma_in_a_text_stays() -> None:
    result = read_reply(Reply('{"why": "a,] b,} \\",]",}', "m"), lambda data: [])
    assert (result.data, result.how) == ({"why": 'a,] b,} ",]'}, "repaired")


@given(st.text(max_size=200))
def test_any_reply_text_is_read_without_error(text: str) -> None:
    result = read_reply(Reply(text, "m"), check)
    assert result.problems or check(result.data) == []
