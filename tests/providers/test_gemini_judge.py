"""A Gemini judge through the real SDK: schema, tools, refusals; and a whole run over two providers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fake_api import FakeAPI, Fault, JudgeRequest, Script, ToolCall
from fake_api.samples import CROP, SCHEMA, asked_judge, encode

from visioneval import CellRef, ProviderError, Question, Reply
from visioneval.providers.base import ImagePart, Tool
from visioneval.providers.base import ToolCall as Called
from visioneval.providers.gemini import GeminiJudge
from visioneval.providers.gemini.generator import GeminiJudgeClient
from visioneval.providers.questions import converse, run_tool

pytestmark = pytest.mark.slow

CELL = CellRef("case-77", "the-generation-model", 0)
PARTS = ("Judge it.", "output: the image", ImagePart(encode(), "image/png"))


@pytest.fixture(autouse=True)
def key(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_KEY", api.key)
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_API_KEY", "wrong-key-of-the-environment")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9")


def ask(api: FakeAPI, question: Question, model: str = "gemini-3.5-flash", **params: Any) -> Reply:
    entry = {"provider": "gemini", "model": model, "base_url": api.gemini_base_url, "api_key_env": "FAKE_KEY"}
    judge = GeminiJudgeClient(GeminiJudge.model_validate({**entry, "params": params}))
    return asyncio.run(converse(lambda item: judge.ask(item, CELL), question))


def failed(api: FakeAPI, question: Question, **params: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(api, question, **params)
    return caught.value


class Zoom:
    """Crops that record their arguments."""

    def __init__(self) -> None:
        self.arguments: list[dict[str, Any]] = []
        self.tool = Tool("crop", "Look closer.", CROP, self._call)

    def _call(self, arguments: Any) -> Any:
        self.arguments.append(dict(arguments))
        return [f"crop {len(self.arguments)}", ImagePart(encode(size=(10 + len(self.arguments), 9)), "image/png")]

    def question(self, max_calls: int = 6) -> Question:
        return Question(PARTS, SCHEMA, ("quality",), (self.tool,), max_tool_calls=max_calls)


def test_a_question_is_asked_with_its_schema(api: FakeAPI, script: Script) -> None:
    script.judge({"verdict": "PASS", "quality": 4, "tags": []})
    params: dict[str, Any] = {"temperature": 0, "thinking_config": {"include_thoughts": True}}
    reply = ask(api, Question(PARTS, SCHEMA, ("quality",), detail="high"), **params)
    assert json.loads(reply.text) == {"verdict": "PASS", "quality": 4, "tags": []}
    assert (reply.shape, reply.model, reply.stopped, reply.tool_calls) == ("schema", "gemini-3.5-flash", None, 0)
    assert reply.usage is not None
    assert reply.usage["prompt_token_count"] > 258
    sent = api.requests[0].body
    assert sent["generationConfig"] == {
        "responseMimeType": "application/json", "responseJsonSchema": SCHEMA, "temperature": 0,
        "thinkingConfig": {"include_thoughts": True}, "mediaResolution": "MEDIA_RESOLUTION_HIGH",
    }  # fmt: skip
    assert [set(part) for part in sent["contents"][0]["parts"]] == [{"text"}, {"text"}, {"inlineData"}]
    assert not any(word in json.dumps(sent) for word in ("case-77", "the-generation-model"))


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-3.1-pro-preview"])
def test_a_judge_zooms_in_for_several_rounds(api: FakeAPI, script: Script, model: str) -> None:
    def answer(request: JudgeRequest) -> Any:
        if request.schema:
            return {"verdict": "PASS", "quality": len(request.tool_results), "tags": []}
        if request.turns < 2:
            return [ToolCall("crop", {"image_id": name, "x1": request.turns}) for name in ("output", "ref_1")]
        return "I have seen enough."

    script.judge(answer)
    zoom = Zoom()
    reply = ask(api, zoom.question(), model)
    assert json.loads(reply.text)["quality"] == 4
    assert (reply.tool_calls, reply.shape) == (4, "schema")
    assert zoom.arguments == [{"image_id": name, "x1": turn} for turn in (0, 1) for name in ("output", "ref_1")]
    assert [logged.asked.tools != () for logged in api.requests if isinstance(logged.asked, JudgeRequest)] == [
        True, True, True, False,
    ]  # fmt: skip
    last = asked_judge(api)
    assert [result.text for result in last.tool_results] == [f'{{"result": "crop {n}"}}' for n in (1, 2, 3, 4)]
    assert [image.size[0] for image in last.images] == [64, 11, 12, 13, 14]
    assert reply.usage is not None
    assert reply.usage["prompt_token_count"] > 4 * 258
    turns = api.requests[-1].body["contents"]
    assert [turn["role"] for turn in turns] == ["user", "model", "user", "model", "user", "model", "user"]
    signed = "thoughtSignature" in turns[1]["parts"][0]
    assert signed == model.startswith("gemini-3")


def test_integers_reach_a_tool_as_integers(api: FakeAPI, script: Script) -> None:
    call = ToolCall("crop", {"image_id": "output", "x1": 3.0})
    script.judge(lambda request: None if request.turns else call)
    zoom = Zoom()
    ask(api, zoom.question())
    assert isinstance(zoom.arguments[0]["x1"], int)


def test_an_unknown_tool_is_reported_to_the_judge() -> None:
    zoom = Zoom()
    (message,) = run_tool(zoom.question().tools, Called("measure", "{}", "7"))
    assert (message, zoom.arguments) == ("There is no tool 'measure'. There are: crop.", [])


def test_an_empty_turn_is_not_sent_back(api: FakeAPI) -> None:
    api.faults.queue(Fault("empty"))
    reply = ask(api, Zoom().question())
    assert set(json.loads(reply.text)) == {"verdict", "quality", "tags"}
    assert [turn["role"] for turn in api.requests[-1].body["contents"]] == ["user", "user"]


def test_a_bad_parameter_is_named(api: FakeAPI) -> None:
    error = failed(api, Question(PARTS), colour="red")
    assert (error.kind, "invalid parameter colour" in str(error), api.requests) == ("invalid", True, [])
