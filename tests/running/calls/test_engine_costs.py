"""The paid calls of a plan, their sizes, their cost bounds and the estimate of a run."""

from __future__ import annotations

from typing import Any

import pytest
from engine_parts import plan_of
from toys import LOOK, Toy

from visioneval import Question
from visioneval.providers.base import AddressPart, ImagePart, Tool, ToolCall, Turn, VideoPart
from visioneval.providers.gemini import GeminiProvider
from visioneval.providers.openai import OpenAIJudge, OpenAIProvider
from visioneval.running.calls.prices import (
    ANSWER_TOKENS,
    FRAME_TOKENS,
    IMAGE_TOKENS,
    VIDEO_TOKENS,
    CallSize,
    budget_warnings,
    generation_size,
    paid_configs,
    prices_of,
    question_size,
    smallest_size,
)
from visioneval.running.estimate import estimate
from visioneval.running.keys import RateLimitKey
from visioneval.types import TaskType

OPENAI: dict[str, Any] = {"provider": "openai", "label": "m", "params": {"model": "gpt-image-2"}}
JUDGE: dict[str, Any] = {"provider": "openai", "model": "gpt-5.4"}
RUBRIC = {"key": "rubric", "type": "rubric", "metrics": {"good": {"type": "pass_fail", "description": "good?"}}}
GENERATION = RateLimitKey("openai", "gpt-image-2", "generate")
JUDGEMENT = RateLimitKey("openai", "gpt-5.4", "judge")
PAID: dict[str, Any] = {"models": [OPENAI], "judges": {"default": JUDGE}, "graders": [LOOK, RUBRIC]}


class TestQuestionSize:
    """Upper bounds of the tokens of a question."""

    config = OpenAIJudge(provider="openai", model="gpt-5.4")

    def size(self, *parts: Any, **more: Any) -> int:
        """The input tokens above those of an empty question."""
        return question_size(self.config, Question(parts, **more)).input_tokens - FRAME_TOKENS

    def test_text_counts_its_bytes(self) -> None:
        assert (self.size(), self.size("abc"), self.size("äö")) == (0, 3, 4)

    def test_images_and_videos_count_their_maximum(self) -> None:
        image, video = ImagePart(b"x", "image/png"), VideoPart(b"x", "video/mp4")
        address = AddressPart(b"", "video/mp4", uri="gs://a/b.mp4")
        assert self.size(image) == IMAGE_TOKENS
        assert self.size("a", image, image) == 1 + 2 * IMAGE_TOKENS
        assert self.size(video) == self.size(address) == VIDEO_TOKENS

    def test_schema_tools_and_earlier_rounds_count(self) -> None:
        tool = Tool("zoom", "zooms", {"a": 1}, lambda _: ())
        turn = Turn("reply", ((ToolCall("zoom", "{}", "1"), ("text", ImagePart(b"x", "image/png"))),))
        assert self.size(schema={"a": 1}) == len('{"a":1}')
        assert self.size(tools=(tool,)) == len('["zooms",{"a":1}]')
        assert self.size(turns=(turn,)) == len('"reply"') + len("text") + IMAGE_TOKENS
        assert self.size(turns=(turn, turn)) == 2 * self.size(turns=(turn,))

    def test_a_maximum_of_output_tokens_is_used(self) -> None:
        limited = self.config.model_copy(update={"params": {"max_output_tokens": 100}})
        size = question_size(limited, Question(()))
        assert (size.max_output_tokens, size.images) == (100, 0)
        assert question_size(self.config, Question(())).likely_output_tokens == ANSWER_TOKENS


class TestGenerationSize:
    """Upper bounds of the tokens of a generation."""

    def test_prompt_parameters_and_images_count(self, toy: Toy) -> None:
        toy.outputs("a.png", "b.png")
        editing = {"prompt": "blue", "images": ["a.png", "b.png"]}
        plan = plan_of(
            toy.write({"prompt": "blue"}, editing, models=[{"provider": "mine:Generate", "params": {"n": 1}}])
        )
        first, edit = (generation_size(call) for call in plan.calls())
        assert first == CallSize(1, FRAME_TOKENS + len("blue") + len('{"n":1}'), None, 8_192)
        assert edit.input_tokens == first.input_tokens + 2 * IMAGE_TOKENS

    def test_all_images_of_a_call_count(self, toy: Toy) -> None:
        models = [{**OPENAI, "params": {"model": "gpt-image-2", "n": 3, "quality": "low"}}]
        (call,) = plan_of(toy.write(models=models)).calls()
        size = generation_size(call)
        assert (size.images, size.likely_output_tokens) == (3, 3 * 512)

    def test_the_quality_bounds_the_output(self) -> None:
        openai, gemini = OpenAIProvider(provider="openai"), GeminiProvider(provider="gemini")
        sizes = [smallest_size(openai, {"quality": q}, 1, TaskType.IMAGE_GENERATION) for q in ("low", "medium", "high")]
        assert [size.likely_output_tokens for size in sizes] == [512, 2048, 8192]
        size = smallest_size(gemini, {"quality": "low"}, 2, TaskType.IMAGE_GENERATION)
        assert size.likely_output_tokens == 2 * 4096


class TestPaidCalls:
    """Which calls of a plan may cost money."""

    def test_models_and_used_judges_are_paid(self, toy: Toy) -> None:
        judges = {"default": JUDGE, "unused": {**JUDGE, "model": "gpt-5.4-mini"}}
        plan = plan_of(toy.write(**{**PAID, "judges": judges, "models": [OPENAI, {"provider": "mock"}]}))
        assert set(paid_configs(plan)) == {GENERATION, JUDGEMENT}

    def test_public_prices_are_for_the_host_of_the_provider(self, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
        plan = plan_of(
            toy.write(
                **{**PAID, "models": [{**OPENAI, "base_url": "http://127.0.0.1:9/v1", "api_key_env": "LOCAL_KEY"}]}
            )
        )
        prices = prices_of(plan)
        assert (prices.knows(GENERATION), prices.knows(JUDGEMENT)) == (False, True)
        stated = plan_of(toy.write(**PAID, prices={"openai": {"per_call": 3}}))
        assert prices_of(stated).cost(GENERATION, None, 1) == 3

    @pytest.mark.parametrize(
        ("limit_usd", "judges", "keys"),
        [
            (1.0, True, []),
            (0.1, True, [GENERATION]),
            (0.01, True, [GENERATION, JUDGEMENT]),
            (0.01, False, [GENERATION]),
        ],
    )
    def test_a_budget_below_a_single_call_has_a_warning(
        self, toy: Toy, limit_usd: float, judges: bool, keys: list[RateLimitKey]
    ) -> None:
        prices = {"gpt-image-2": {"per_image": 0.5}, "gpt-5.4": {"per_call": 0.05}}
        warnings = budget_warnings(plan_of(toy.write(**PAID, prices=prices)), limit_usd, judges=judges)
        assert [f"one call of {key}, which may cost" in line for key, line in zip(keys, warnings, strict=True)] == [
            True for _ in keys
        ]

    def test_a_model_that_is_not_called_has_no_warning(self, toy: Toy) -> None:
        toy.outputs("base.png")
        models = [{**OPENAI, "tasks": ["image_generation"]}, {"provider": "mock"}]
        suite = {"models": models, "prices": {"openai": {"per_call": 5}}}
        path = toy.write({"prompt": "a"}, {"images": ["base.png"]}, **suite)
        assert len(budget_warnings(plan_of(path), 1.0)) == 1
        assert budget_warnings(plan_of(path, cases=("case1",)), 1.0) == []


class TestEstimate:
    """The work of a run."""

    def test_dependents_are_cells_but_not_calls(self, toy: Toy) -> None:
        work = estimate(plan_of(toy.write({}, {"id": "x", "prompt": "a", "output_of": "case0"})))
        assert (work.calls, work.cells, work.grader_calls) == (1, 2, 2)

    @pytest.mark.parametrize(("flag", "count"), [(None, 1), (9.0, 0), (0.1, 1)])
    def test_the_budget_of_the_flag_replaces_that_of_the_suite(self, toy: Toy, flag: float | None, count: int) -> None:
        plan = plan_of(toy.write(budget_usd=0.5, prices={"mine:Generate": {"per_call": 1}}))
        assert len(estimate(plan, budget_usd=flag).budget_warnings) == count
