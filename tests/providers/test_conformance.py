"""Every provider and every judge runs the same tests; what one cannot do has an entry with the reason.

Those of LiteLLM are in ``tests/integration/litellm/test_conformance.py``, as its library is in an environment of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from conformance import LOCAL, VARIABLE, Conformance, GenerationConformance, JudgeConformance, Scene
from PIL import Image

from visioneval import plugins
from visioneval.providers.command import Command, CommandProvider
from visioneval.providers.files import FilesProvider
from visioneval.providers.gemini import GeminiJudge, GeminiProvider
from visioneval.providers.gemini.generator import GeminiGenerator, GeminiJudgeClient
from visioneval.providers.mock import MockProvider
from visioneval.providers.mock.generator import Mock
from visioneval.providers.openai import OpenAIJudge, OpenAIProvider
from visioneval.providers.openai.generator import OpenAIGenerator
from visioneval.providers.openai.judge import open_judge

REDIRECT = "307: the server redirects to 'http://elsewhere.example'; redirects are not followed"
CUT = "no answer: the connection was closed in the middle of the answer"
OPENAI_FAULTS = {
    "rate limit": "429: Rate limit reached for ",
    "rate limit with a wait": "429: Rate limit reached for ",
    "rate limit with a header": "429: Rate limit reached for ",
    "rate limit until a past date": "429: Rate limit reached for ",
    "spent quota": "429: You exceeded your current quota",
    "overload with a wait": "503: The engine is currently overloaded",
    "failing server": "500: The server had an error",
    "failing gateway": "502: ",
    "lost connection": "no answer: ",
    "cut answer": CUT,
    "refused key": "401: Incorrect API key provided",
    "missing right": "403: Your organization must be verified",
    "unknown model": "404: The model `gpt-",
    "bad request": "400: Invalid value: 'ultra'.",
    "redirect": REDIRECT,
}
GEMINI_FAULTS = {
    "rate limit": "429: You exceeded your current quota",
    "rate limit with a wait": "429: You exceeded your current quota",
    "rate limit with a header": "429: You exceeded your current quota",
    "rate limit until a past date": "429: You exceeded your current quota",
    "spent quota": "429: You exceeded your current quota",
    "overload with a wait": "503: The model is overloaded",
    "failing server": "500: An internal error has occurred",
    "failing gateway": "502: a web page: '502 Bad Gateway'",
    "lost connection": "no answer: ReadError",
    "cut answer": CUT,
    "refused key": "400: API key not valid",
    "missing right": "403: The caller does not have permission",
    "unknown model": "404: models/gemini-",
    "bad request": "400: Request contains an invalid argument.",
    "redirect": REDIRECT,
}
NO_SERVER = dict.fromkeys(
    (
        "faults", "retries", "cancellation", "key_is_never_written", "output_is_stored_byte_for_byte", "mask",
        "mask_argument", "several_images_of_a_call", "refusal", "answers_without_an_image", "web_page", "usage",
    ),
    LOCAL,
)  # fmt: skip


class TestOpenAI(GenerationConformance):
    faults = OPENAI_FAULTS
    model = "gpt-image-2"
    calls_for_three = 1
    usd = 1058
    no_image = {"no_image": "", "truncated_base64": "", "empty_base64": ""}
    refusals = {"": "400: Your request was rejected by the safety system."}

    def entry(self, scene: Scene) -> dict[str, Any]:
        url = scene.api.openai_base_url
        return {"provider": "openai", "base_url": url, "api_key_env": VARIABLE, "params": {"model": "gpt-image-2"}}

    def open(self, entry: Mapping[str, Any]) -> OpenAIGenerator:
        return OpenAIGenerator(OpenAIProvider.model_validate(entry))


class TestGemini(GenerationConformance):
    cannot = {"mask_argument": "its API has no argument for a mask"}
    faults = GEMINI_FAULTS
    says_no_wait = frozenset({"overload with a wait"})
    model = "gemini-nano-banana-2.1"
    mask_mode = "as_image"
    usd = 1357
    no_image = {"no_image": "", "truncated_base64": "", "empty_base64": ""}
    refusals = {
        "": "the prompt was blocked: PROHIBITED_CONTENT",
        "prompt:IMAGE_SAFETY": "the prompt was blocked: IMAGE_SAFETY",
        "IMAGE_SAFETY": "the answer was blocked: IMAGE_SAFETY",
        "PROHIBITED_CONTENT": "the answer was blocked: PROHIBITED_CONTENT",
    }

    def entry(self, scene: Scene) -> dict[str, Any]:
        url = scene.api.gemini_base_url
        return {"provider": "gemini", "base_url": url, "api_key_env": VARIABLE, "params": {"model": self.model}}

    def open(self, entry: Mapping[str, Any]) -> GeminiGenerator:
        return GeminiGenerator(GeminiProvider.model_validate(entry))


class TestMock(GenerationConformance):
    cannot = NO_SERVER

    def entry(self, scene: Scene) -> dict[str, Any]:
        return {"provider": "mock"}

    def open(self, entry: Mapping[str, Any]) -> Mock:
        return Mock(MockProvider.model_validate(entry))


class TestCommand(GenerationConformance):
    cannot = NO_SERVER

    def entry(self, scene: Scene) -> dict[str, Any]:
        code = (
            "import json, sys\nfrom PIL import Image\nImage.linear_gradient('L').save(json.load(sys.stdin)['output'])"
        )
        return {"provider": "command", "argv": [sys.executable, "-c", code]}

    def open(self, entry: Mapping[str, Any]) -> Command:
        return Command(CommandProvider.model_validate(entry))


class TestFiles(GenerationConformance):
    cannot = {
        **NO_SERVER,
        "generation": "its outputs exist: no call is made",
        "edit": "its outputs exist: no call is made",
    }

    def entry(self, scene: Scene) -> dict[str, Any]:
        for sample in range(3):
            Image.linear_gradient("L").save(scene.toy.folder / f"one-{sample}.png")
        return {"provider": "files", "path": "{case}-{sample}.png"}

    def open(self, entry: Mapping[str, Any]) -> FilesProvider:
        return FilesProvider.model_validate(entry)


class TestOpenAIJudge(JudgeConformance):
    faults = OPENAI_FAULTS
    model = "gpt-5.4"
    endpoint = "responses"
    stopped = "max_output_tokens"
    refusals = {
        "": "the judge refused: No.",
        "content_filter": "the judge's answer was blocked: content_filter",
        "invalid_prompt": "400: Invalid prompt:",
    }

    def entry(self, scene: Scene) -> dict[str, Any]:
        url = scene.api.openai_base_url
        entry = {"provider": "openai", "base_url": url, "api_key_env": VARIABLE, "model": self.model}
        return {**entry, "api": self.endpoint}

    def open(self, entry: Mapping[str, Any]) -> Any:
        return open_judge(OpenAIJudge.model_validate(entry))


class TestOpenAIChatJudge(TestOpenAIJudge):
    endpoint = "chat"
    stopped = "max_tokens"
    input_tokens = "prompt_tokens"
    refusals = {"": "the judge refused: No.", "content_filter": "the judge's answer was blocked: content_filter"}


class TestGeminiJudge(JudgeConformance):
    faults = GEMINI_FAULTS
    says_no_wait = frozenset({"overload with a wait"})
    model = "gemini-3.5-flash"
    endpoint = "gemini"
    schema_form = (None, True)
    detail = None
    input_tokens = "prompt_token_count"
    tools_until_the_end = False
    refusals = {
        "": "the prompt was blocked: PROHIBITED_CONTENT",
        "SAFETY": "the answer was blocked: SAFETY",
    }

    def entry(self, scene: Scene) -> dict[str, Any]:
        url = scene.api.gemini_base_url
        return {"provider": "gemini", "base_url": url, "api_key_env": VARIABLE, "model": self.model}

    def open(self, entry: Mapping[str, Any]) -> GeminiJudgeClient:
        return GeminiJudgeClient(GeminiJudge.model_validate(entry))


def behaviors(base: type[Conformance]) -> set[str]:
    return {name.removeprefix("test_") for name in dir(base) if name.startswith("test_")}


class TestRecordedJudge(JudgeConformance):
    cannot = dict.fromkeys(behaviors(JudgeConformance), "it makes no calls: see tests/cli/judging/test_recorded.py")


PROVIDERS: Mapping[str, tuple[type[GenerationConformance], ...]] = {
    "openai": (TestOpenAI,),
    "gemini": (TestGemini,),
    "mock": (TestMock,),
    "command": (TestCommand,),
    "files": (TestFiles,),
}
JUDGES: Mapping[str, tuple[type[JudgeConformance], ...]] = {
    "openai": (TestOpenAIJudge, TestOpenAIChatJudge),
    "gemini": (TestGeminiJudge,),
    "recorded": (TestRecordedJudge,),
}
ELSEWHERE = {"litellm"}
"""In an environment of its own."""


def test_every_provider_and_judge_is_here_with_all_that_it_cannot_do() -> None:
    assert PROVIDERS.keys() | ELSEWHERE == plugins.PROVIDERS.keys()
    assert JUDGES.keys() | ELSEWHERE == plugins.JUDGES.keys()
    for base, table in ((GenerationConformance, PROVIDERS), (JudgeConformance, JUDGES)):
        for subject in (subject for subjects in table.values() for subject in subjects):
            shown = {name for name in behaviors(subject) if getattr(subject, f"test_{name}") is not None}
            assert shown == behaviors(base) - subject.cannot.keys()
            assert all(subject.cannot.values())
