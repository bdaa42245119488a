"""Entries of LiteLLM without LiteLLM: names, parameters, trust, and the environment of its process."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tables import rows_of

from visioneval import TaskType, TestCase, UsageError
from visioneval.providers import litellm as catalog
from visioneval.providers.litellm import LiteLLMJudge, LiteLLMProvider, warnings
from visioneval.providers.litellm.generator import Environment, LiteLLMGenerator, open_judge
from visioneval.running.calls.prices import Prices
from visioneval.running.keys import RateLimitKey
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.entries.providers import Price

rows = rows_of(__file__)

Problems = Callable[..., list[str]]
FLUX = "fal_ai/fal-ai/flux-pro/v1.1"


def model(name: Any = FLUX, **entry: Any) -> LiteLLMProvider:
    params = {**({"model": name} if name else {}), **entry.pop("params", {})}
    return LiteLLMProvider.model_validate({"provider": "litellm", "params": params, **entry})


@pytest.mark.parametrize(("params", "problem"), rows("parameters"))
def test_parameters(params: dict[str, Any], problem: str | None) -> None:
    problems = [message for _, message in model().param_problems({"model": FLUX, **params})]
    assert problems == [] if problem is None else problem in problems[0]


@pytest.mark.parametrize(
    ("api", "tasks", "problem"),
    [
        ("images", {TaskType.IMAGE_GENERATION, TaskType.IMAGE_EDITING}, None),
        ("videos", {TaskType.VIDEO_GENERATION}, "/v1/videos takes one image, the first frame: remove the others"),
    ],
)
def test_tasks_and_images_of_an_api(api: str, tasks: set[TaskType], problem: str | None) -> None:
    entry = model(api=api)
    assert {task for task in TaskType if entry.does(task)} == tasks
    images = [{"path": "a.png"}, {"path": "b.png", "role": "last_frame"}]
    for count, expected in ((0, None), (1, None), (2, problem)):
        case = TestCase.model_validate({"id": "one", "prompt": "a tree", "images": images[:count]})
        assert entry.inputs_problem(entry.params, case) == expected


def test_parameters_of_a_judge() -> None:
    def judge(**entry: Any) -> LiteLLMJudge:
        return LiteLLMJudge.model_validate({"provider": "litellm", "model": "openai/gpt-5.4", **entry})

    assert judge(params={"temperature": 0, "max_tokens": 10}).params["max_tokens"] == 10
    for entry, problem in (
        ({"model": "gpt-5.4"}, "does not name its provider"),
        ({"params": {"api_base": "https://evil.example"}}, "'api_base' controls LiteLLM"),
        ({"params": {"messages": []}}, "'messages' is set by the grader"),
    ):
        with pytest.raises(ValidationError, match=problem):
            judge(**entry)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (model(), None),
        (model(api_key_env="FAL_AI_API_KEY"), None),
        (model("openai/gpt-image-2", api_key_env="OPENAI_API_KEY"), None),
        (model("black_forest_labs/flux-pro", api_key_env="BFL_API_KEY"), None),
        (model(api_key_env="OPENAI_API_KEY"), "OPENAI_API_KEY is not a usual key variable of 'fal_ai'"),
        (model(api_key_env="GITHUB_TOKEN"), "GITHUB_TOKEN is not a usual key variable of 'fal_ai'"),
        (model("e.vil/x", api_key_env="E.VIL_API_KEY".replace(".", "_")), "is not a usual key variable"),
        (model(None, api_key_env="FAL_AI_API_KEY", grid={"model": [FLUX, "recraft/recraftv3"]}), "'recraft'"),
        (model("ollama/llava"), "'ollama' is a server of your own: set base_url"),
        (model("azure/flux"), "'azure' is a server of your own: set base_url"),
        (
            model("azure/flux", base_url="https://shop.example", api_key_env="AZURE_API_KEY"),
            "is not the provider's own",
        ),
        (model(base_url="https://shop.example", api_key_env="FAL_AI_API_KEY"), "set api_key_env to a separate"),
        (model(base_url="https://shop.example", api_key_env="OPENAI_API_KEY"), "set api_key_env to a separate"),
    ],
)
def test_hosts_and_keys(entry: LiteLLMProvider, problem: str | None) -> None:
    message = entry.host_problem(trusted=False)
    assert message is None if problem is None else problem in str(message)


def test_what_trust_allows() -> None:
    assert model(api_key_env="GITHUB_TOKEN").host_problem(trusted=True) is None
    server = {"base_url": "https://shop.example", "api_key_env": "SHOP_KEY"}
    assert model(**server).host_problem(trusted=True) is None
    assert model(base_url=server["base_url"], api_key_env="FAL_AI_API_KEY").host_problem(trusted=True) is not None
    for entry, key in (({"env": {"A": "B"}}, "env"), ({"machine_credentials": True}, "machine_credentials")):
        refusal = model(**entry).credentials_problem(trusted=False)
        assert refusal is not None
        assert refusal[0] == key
        assert model(**entry).credentials_problem(trusted=True) is None


def test_where_outputs_may_be() -> None:
    assert model(output_hosts=["cdn.example.com"]).allowed_hosts == ("cdn.example.com", "fal.media", "*.fal.media")
    assert model(base_url="http://localhost:1").allowed_hosts == ()


def test_the_process_gets_what_the_entry_names_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FAL_AI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS", "SHOP_ID"):
        monkeypatch.setenv(name, f"value of {name}")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    values = Environment.of(model(env={"AWS_ACCESS_KEY_ID": "SHOP_ID"})).values("/tmp/empty")
    assert values["AWS_ACCESS_KEY_ID"] == "value of SHOP_ID"
    assert (values["HOME"], values["HTTPS_PROXY"]) == ("/tmp/empty", "http://proxy.example")
    assert (values["LITELLM_LOCAL_MODEL_COST_MAP"], values["LITELLM_MODE"]) == ("true", "PRODUCTION")
    assert [name for name, value in values.items() if value.startswith("value of")] == ["AWS_ACCESS_KEY_ID"]
    assert Path(values["PYTHONPATH"].split(os.pathsep)[0], "visioneval").is_dir()

    values = Environment.of(model(machine_credentials=True)).values("/tmp/empty")
    assert values["HOME"] == os.environ["HOME"]
    assert {name for name, value in values.items() if value.startswith("value of")} == {
        "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS"
    }  # fmt: skip
    assert not {"AWS_EC2_METADATA_DISABLED", "NO_GCE_CHECK"} & values.keys()

    of_key = Environment.of(model("black_forest_labs/flux-pro", api_key_env="SHOP_ID"))
    assert of_key.variables == (("BFL_API_KEY", "SHOP_ID"),)
    assert Environment.of(model(api_key_env="SHOP_ID")).variables == ()  # an argument of the call


def test_keys_and_hosts_are_in_no_cache_key() -> None:
    plain = model()
    elsewhere = model(base_url="http://localhost:1", api_key_env="A", env={"B": "C"}, output_hosts=["x.example"])
    assert plain.key_options == elsewhere.key_options
    judges: list[BaseJudge] = [
        LiteLLMJudge.model_validate({"provider": "litellm", "model": "openai/x", **more})
        for more in ({}, {"base_url": "http://localhost:1", "api_key_env": "A", "env": {"B": "C"}})
    ]
    assert judges[0].answering_options == judges[1].answering_options
    assert elsewhere.needs_keys == ("A", "C")
    assert pickle.loads(pickle.dumps(elsewhere)) == elsewhere


@pytest.mark.parametrize("key", ["sk-1234\n", "sk 1234", "sk-1234\r", "sk-\u00fc1234", "sk-\x00", "sk-1234", ""])
def test_a_key_that_cannot_be_sent_is_named_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "FAL_AI_API_KEY": key})
    monkeypatch.setattr("visioneval.providers.litellm.generator.is_installed", lambda: True)
    judge = LiteLLMJudge(provider="litellm", model="a/b", api_key_env="FAL_AI_API_KEY")
    for build in (lambda: LiteLLMGenerator(model(api_key_env="FAL_AI_API_KEY")), lambda: open_judge(judge)):
        if key == "sk-1234":
            build()
            continue
        with pytest.raises(UsageError, match="FAL_AI_API_KEY") as caught:
            build()
        assert "1234" not in str(caught.value)
    LiteLLMGenerator(model())  # a key that the entry does not name is not sent


@pytest.mark.skipif(catalog.is_installed(), reason="LiteLLM is installed")
def test_without_litellm_a_run_is_one_line(problems: Problems) -> None:
    for build in (lambda: LiteLLMGenerator(model()), lambda: open_judge(LiteLLMJudge(provider="litellm", model="a/b"))):
        with pytest.raises(
            UsageError,
            match=r"^LiteLLM is not installed: run pip install -e '\.\[litellm\]' in a checkout of visioneval$",
        ):
            build()
    assert catalog.unknown_provider("nothing/x") is None
    assert catalog.unknown_model("nothing/x", "generate") is None
    assert catalog.listed_price(FLUX) is None
    suite = {
        "name": "s",
        "cases": [{"id": "one", "prompt": "a tree"}],
        "models": [{"provider": "litellm", "api_key_env": "FAL_AI_API_KEY", "params": {"model": FLUX}}],
        "graders": [{"key": "file", "type": "properties"}],
        "verdict": ["not file.blank"],
    }
    assert problems(json.dumps(suite)) == []
    assert list(warnings(model())) == [(("provider",), catalog.missing_text())]


def test_problems_have_a_place(problems: Problems) -> None:
    suite = """\
name: s
cases: [{id: one, prompt: a tree}]
models:
  - provider: litellm
    env: {AWS_ACCESS_KEY_ID: SHOP_ID}
    params: {model: bedrock/amazon.nova-canvas-v1:0, api_base: "https://evil.example"}
graders: [{key: file, type: properties}]
verdict: [not file.blank]
"""
    first, second = problems(suite)
    assert first.startswith("suite.yaml:5:")
    assert "LiteLLM gets several environment variables: pass --trust-suite" in first
    assert second.startswith("suite.yaml:6:")
    assert "'api_base' controls LiteLLM" in second


def test_public_prices_are_those_of_the_provider_behind_litellm() -> None:
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
    behind = RateLimitKey("litellm", "openai/gpt-5.4", "judge")
    direct = Prices().cost(RateLimitKey("openai", "gpt-5.4", "judge"), usage, 0)
    assert direct is not None
    assert Prices().cost(behind, usage, 0) == direct
    assert not Prices(custom_hosts=frozenset({behind})).knows(behind)
    stated = Prices({"litellm": Price(per_call=2.0)}, custom_hosts=frozenset({behind}))
    assert stated.cost(behind, usage, 0) == 2.0
    assert not Prices().knows(RateLimitKey("litellm", "nowhere/flux", "generate"))
