"""LiteLLM runs the same tests as every provider and judge (see ``tests/providers/test_conformance.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance import VARIABLE, GenerationConformance, JudgeConformance, Scene

from visioneval.providers.litellm import LiteLLMJudge, LiteLLMProvider
from visioneval.providers.litellm.generator import LiteLLMGenerator, open_judge

FAULTS = {
    "rate limit": "429: Rate limit reached for ",
    "rate limit with a wait": "429: Rate limit reached for ",
    "rate limit with a header": "429: Rate limit reached for ",
    "rate limit until a past date": "429: Rate limit reached for ",
    "spent quota": "429: You exceeded your current quota",
    "overload with a wait": "503: The engine is currently overloaded",
    "failing server": "500: The server had an error",
    "failing gateway": "502: ",
    "lost connection": "no answer: ",
    "cut answer": "no answer: ",
    "refused key": "401: Incorrect API key provided",
    "missing right": "403: Your organization must be verified",
    "unknown model": "404: The model `gpt-",
    "bad request": "400: Invalid value: 'ultra'.",
    "redirect": "307: the server redirects to 'http://elsewhere.example'; redirects are not followed",
}


class TestLiteLLM(GenerationConformance):
    cannot = {"several_images_of_a_call": "one call generates one image"}
    faults = FAULTS
    timeout_s = 20
    model = "gpt-image-2"
    usd = 1058
    no_image = {"no_image": "", "truncated_base64": "", "empty_base64": ""}
    refusals = {"": "400: Your request was rejected by the safety system."}

    def entry(self, scene: Scene) -> dict[str, Any]:
        params = {"model": f"openai/{self.model}"}
        url = scene.api.openai_base_url
        return {"provider": "litellm", "base_url": url, "api_key_env": VARIABLE, "params": params}

    def open(self, entry: Mapping[str, Any]) -> LiteLLMGenerator:
        return LiteLLMGenerator(LiteLLMProvider.model_validate(entry))


class TestLiteLLMJudge(JudgeConformance):
    cannot = {"web_page": "LiteLLM reads the answer, and says in its words that it cannot"}
    faults = FAULTS
    timeout_s = 20
    model = "gpt-5.4"
    endpoint = "chat"
    input_tokens = "prompt_tokens"
    refusals = {"": "the judge refused: No.", "content_filter": "the judge's answer was blocked: content_filter"}

    def entry(self, scene: Scene) -> dict[str, Any]:
        url = scene.api.openai_base_url
        entry = {"provider": "litellm", "base_url": url, "api_key_env": VARIABLE}
        return {**entry, "model": f"openai/{self.model}"}

    def open(self, entry: Mapping[str, Any]) -> Any:
        return open_judge(LiteLLMJudge.model_validate(entry))
