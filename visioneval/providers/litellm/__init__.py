"""The options of models and judges behind LiteLLM, and checks against what the installed LiteLLM knows."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import orjson
from pydantic import Field, field_validator

from visioneval.errors import did_you_mean
from visioneval.installation import install_command
from visioneval.media.urls import trusted_hosts
from visioneval.providers.openai import ImagesOrVideos
from visioneval.suite.case import Text
from visioneval.suite.entries.judges import BaseJudge, check_params
from visioneval.suite.files import Trust
from visioneval.suite.messages import Loc
from visioneval.suite.remote import GEMINI_KEYS, OPENAI_KEYS, DeclaredHosts, EnvName, Remote, not_own_host

CLOUD_NAMES = frozenset(
    {
        "api_version",
        "aws_region_name",
        "region_name",
        "vertex_ai_location",
        "vertex_ai_project",
        "vertex_location",
        "vertex_project",
        "watsonx_region_name",
    }
)
"""Parameters of LiteLLM that become part of a host or a path, so they may only be names."""
_CLOUD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")
_MODEL = re.compile(r"[A-Za-z0-9_.-]+/\S+")
_RESERVED = re.compile(
    r".*_?callbacks?|.*(api_base|base_url|api_url|endpoint)|.*_cost(_.*)?|.*_cost_per_.*|.*fallbacks?|.*guardrails?"
    r"|(.*_)?(ad_token|access_key|api_key|client|credentials?|headers?|host|key_id|password|proxy|secret|secret_key"
    r"|service_account|session_token|token_provider|username|web_identity_token|retries|timeout|organization)"
    r"|(arize|auto_router|aws|azure|cache|caching|complexity_router|fallback|gcs|langfuse|langsmith|litellm|milvus|mock"
    r"|posthog|s3|wandb|weave|stream|custom_llm)(_.*)?|(additional_)?drop_params|retry_(policy|strategy)|deployment_id"
    r"|model_(config|file_id_mapping|info|list)|prompt_(id|label|variables|version)|metadata"
)
"""Parameters that control LiteLLM: keys, addresses, retries, callbacks, prices. Its process refuses all the others."""

_KEYS = {
    "openai": OPENAI_KEYS,
    "gemini": GEMINI_KEYS,
    "black_forest_labs": frozenset({"BFL_API_KEY"}),
    "huggingface": frozenset({"HF_TOKEN", "HUGGINGFACE_API_KEY"}),
    "runwayml": frozenset({"RUNWAYML_API_KEY", "RUNWAYML_API_SECRET"}),
    "together_ai": frozenset({"TOGETHERAI_API_KEY", "TOGETHER_API_KEY"}),
}
"""The usual key variables of LiteLLM's providers, unless it is the provider's name and ``_API_KEY``."""
_KEY_VARIABLES = {"black_forest_labs": "BFL_API_KEY"}
"""LiteLLM's variables of the keys that it does not accept as an argument everywhere."""
_WITHOUT_HOST = re.compile(
    "azure|azure_ai|custom_openai|databricks|docker_model_runner|hosted_vllm|infinity|lemonade|litellm_proxy|llamafile"
    "|lm_studio|ollama|ollama_chat|oobabooga|openai_like|triton|vllm|xinference"
)
"""LiteLLM's providers whose server is the user's own."""
_OUTPUT_HOSTS = {
    "black_forest_labs": ("*.bfl.ai",),
    "fal_ai": ("fal.media", "*.fal.media"),
    "recraft": ("img.recraft.ai",),
}
"""Hosts of providers that keep their outputs apart from their API."""


_NAMES_IN_GENAI_PRICES = {
    **{name: name for name in ("anthropic", "mistral", "openai", "openrouter")},
    "gemini": "google",
    "vertex_ai": "google",
    "xai": "x-ai",
}
"""Names of providers there, by LiteLLM's."""


class LiteLLMOptions(Remote):
    """Options of models and judges. The model's name begins with LiteLLM's name of its provider."""

    env: dict[EnvName, EnvName] = Field(
        default_factory=dict,
        description="For providers that need several values: variables that LiteLLM reads, each with the environment"
        " variable that contains its value. Needs `--trust-suite`.",
    )
    machine_credentials: bool = Field(
        default=False,
        description="`true`: LiteLLM uses this machine's credentials of AWS and Google Cloud. Needs `--trust-suite`.",
    )

    @property
    @abstractmethod
    def model_names(self) -> tuple[str, ...]:
        """The models that the entry names."""

    @property
    def host_names(self) -> list[str]:
        """LiteLLM's names of the providers of the entry's models."""
        return sorted({name.partition("/")[0] for name in self.model_names})

    @property
    def is_own_host(self) -> bool:
        return self.base_url is None

    @classmethod
    def public_name(cls, model: str) -> tuple[str, str] | None:
        provider, _, name = model.partition("/")
        return (_NAMES_IN_GENAI_PRICES[provider], name) if provider in _NAMES_IN_GENAI_PRICES and name else None

    @classmethod
    def listed_price(cls, model: str) -> Mapping[str, float] | None:
        return listed_price(model)

    @property
    def needed_variables(self) -> tuple[str, ...]:
        """The environment variables that must be set."""
        return (*((self.api_key_env,) if self.api_key_env else ()), *self.env.values())

    @property
    def passed_variables(self) -> dict[str, str]:
        """The variables that LiteLLM gets, each with the one that contains its value."""
        key = self.api_key_env
        named = {_KEY_VARIABLES[name]: key for name in self.host_names if key and name in _KEY_VARIABLES}
        return {**named, **self.env}

    def host_problem(self, *, trusted: bool) -> str | None:
        """Also refuses a server that only LiteLLM's environment or default would name."""
        key = self.key_variable
        if self.base_url is None:
            if names := [name for name in self.host_names if _WITHOUT_HOST.fullmatch(name)]:
                return f"{names[0]!r} is a server of your own: set base_url to its URL"
            unusual = [name for name in self.host_names if key and key not in usual_keys(name)]
            if trusted or not unusual:
                return None
            return f"{key} is not a usual key variable of {unusual[0]!r}: pass --trust-suite to allow it"
        host = urlsplit(self.base_url).hostname or ""
        with_host = (name for name in self.host_names if not _WITHOUT_HOST.fullmatch(name))
        if key in OPENAI_KEYS | GEMINI_KEYS or any(key in usual_keys(name) for name in with_host):
            return (
                f"base_url {host!r} is not the provider's own host: set api_key_env to a separate environment variable"
                f" so that {key} is not sent there"
            )
        if trusted or host in trusted_hosts():
            return None
        return not_own_host(host)

    def credentials_problem(self, *, trusted: bool) -> tuple[str, str] | None:
        if trusted or not (self.env or self.machine_credentials):
            return None
        what = "this machine's credentials" if self.machine_credentials else "several environment variables"
        key = "machine_credentials" if self.machine_credentials else "env"
        return key, f"LiteLLM gets {what}: pass --trust-suite if you trust this suite"


def model_problem(model: object) -> str | None:
    """Why a value cannot be the name of a model."""
    if not isinstance(model, str):
        return "params.model is missing: set it to LiteLLM's name of a provider and a model, such as fal_ai/MODEL"
    if not _MODEL.fullmatch(model):
        return f"model {model!r} does not name its provider: write provider/model, such as openai/{model[:60]}"
    if "://" in model or "@" in model.partition("/")[0]:
        return f"model {model!r} contains a URL: set base_url instead"
    return None


def parameter_problems(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each parameter that a suite must not set, and why."""
    for name, value in params.items():
        if name in CLOUD_NAMES:
            if not (isinstance(value, str) and _CLOUD_NAME.fullmatch(value)):
                yield name, f"{name!r} must be a name of letters, digits, '.' and '-'"
        elif _RESERVED.fullmatch(name):
            yield (
                name,
                f"{name!r} controls LiteLLM, not the model: remove it (see docs/reference/providers/litellm.md)",
            )


def usual_keys(provider: str) -> frozenset[str]:
    """The variables that usually contain the key of a provider of LiteLLM."""
    is_name = re.fullmatch(r"[a-z0-9_]+", provider)
    return _KEYS.get(provider) or (frozenset({f"{provider.upper()}_API_KEY"}) if is_name else frozenset())


class LiteLLMProvider(ImagesOrVideos, LiteLLMOptions, DeclaredHosts):
    """A model that LiteLLM knows, such as ``fal_ai/fal-ai/flux-pro/v1.1``. One call generates one image or video."""

    edit_body: ClassVar[Literal["form", "json"]] = "json"

    provider: Literal["litellm"]
    api: Literal["images", "videos"] = Field(
        default="images",
        description="`videos`: the models generate videos. A case may then have one image, the first frame.",
    )

    @property
    def model_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in (self.params.get("model"), *self.grid.get("model", ())) if name)

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return self.needed_variables

    @property
    def key_options(self) -> dict[str, Any]:
        """Without ``api``, which follows from the task."""
        return {name: value for name, value in super().key_options.items() if name != "api"}

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """The declared hosts of outputs, and those of the provider."""
        usual = (host for name in self.host_names for host in _OUTPUT_HOSTS.get(name, ()))
        return (*self.output_hosts, *(usual if self.base_url is None else ()))

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if problem := model_problem(params.get("model")):
            yield "model", problem
        if params.get("n", 1) != 1 or isinstance(params.get("n"), bool):
            yield "n", "n must be 1, since one call generates one output: set 'samples' to get several"
        yield from parameter_problems(params)


class LiteLLMJudge(BaseJudge, LiteLLMOptions):
    """A vision model that LiteLLM knows."""

    provider: Literal["litellm"]
    model: Text = Field(description="The model as LiteLLM names it, with its provider: `anthropic/claude-sonnet-5-5`.")
    params: dict[str, Any] = Field(
        default_factory=dict, description="Parameters of the completion, such as `reasoning_effort` or `max_tokens`."
    )

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        if problem := model_problem(model):
            raise ValueError(problem)
        return model

    @field_validator("params")
    @classmethod
    def _asks_nothing(cls, params: dict[str, Any]) -> dict[str, Any]:
        for name, problem in parameter_problems(params):
            raise ValueError(f"params: {problem}" if name in problem else f"params: {name}: {problem}")
        return check_params(params, {"functions", "messages", "model", "n", "stream", "tools"})

    @property
    def model_names(self) -> tuple[str, ...]:
        return (self.model,)

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return self.needed_variables


def problems(entry: LiteLLMOptions, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str]]:  # noqa: ARG001
    """Yields models of providers that LiteLLM does not know. Without LiteLLM, nothing is known."""
    for loc, model in _named_models(entry):
        if problem := unknown_provider(model):
            yield loc, problem


def warnings(entry: LiteLLMOptions) -> Iterator[tuple[Loc, str]]:
    """Yields models that LiteLLM's list lacks, or that LiteLLM is missing."""
    if not is_installed():
        yield ("provider",), missing_text()
    elif entry.is_own_host:  # another server has models of its own
        use: Use = "judge" if isinstance(entry, LiteLLMJudge) else "generate"
        if isinstance(entry, LiteLLMProvider) and entry.api == "videos":
            use = "video"
        for loc, model in _named_models(entry):
            if warning := unknown_model(model, use):
                yield loc, warning


def _named_models(entry: LiteLLMOptions) -> Iterator[tuple[Loc, str]]:
    """The models of an entry whose names have a provider."""
    for model in entry.model_names:
        if model_problem(model) is None:
            yield (("model",) if isinstance(entry, LiteLLMJudge) else ("params", "model")), model


Use = Literal["generate", "video", "judge"]

_MODELS = "model_prices_and_context_window_backup.json"
_PROVIDERS = "provider_endpoints_support_backup.json"
_MODES: Mapping[Use, tuple[str, ...]] = {
    "generate": ("image_generation", "image_edit"),
    "video": ("video_generation",),
    "judge": ("chat", "responses", "completion"),
}
_OUTPUT_TOKENS = ("output_cost_per_token", "output_cost_per_image_token", "output_cost_per_reasoning_token")
_PER_SECOND = re.compile("output_cost_per_(video_per_)?second")
_PER_MILLION = 1_000_000
_LARGEST_USD = 1_000_000


def missing_text() -> str:
    """The message where LiteLLM is not installed."""
    return f"LiteLLM is not installed: {install_command('litellm')}"


def is_installed() -> bool:
    """Whether LiteLLM can be imported. Does not import it."""
    return find_spec("litellm") is not None


def unknown_provider(model: str) -> str | None:
    """Why LiteLLM cannot reach the provider in a model's name, with the closest one; ``None`` if it can."""
    name, known = model.partition("/")[0], _providers()
    if not known or name in known:
        return None
    return f"LiteLLM has no provider {name!r}{did_you_mean(name, known)}"


def unknown_model(model: str, use: Use) -> str | None:
    """What to say of a model that is not in LiteLLM's list, if the list has such models of its provider."""
    provider = model.partition("/")[0]
    names = _names(provider, use)
    if not names or model in names:
        return None
    return f"LiteLLM's list of models has no {model!r}{did_you_mean(model, names)}; it is called nevertheless"


def listed_price(model: str) -> dict[str, float] | None:
    """The price of a model in LiteLLM's list, by image or by token; ``None`` if it has none of these.

    A model whose list has both bills tokens: its price of an image is that of a small one. Where tokens of images or of
    reasoning have a price of their own, all tokens have the higher price, and an image has the highest of several.
    """
    provider, _, name = model.partition("/")
    entry = _models().get(model)
    if entry is None:  # those of some providers have no provider in their name
        entry = _models().get(name)
        if entry is None or _provider_of(entry) != provider:
            return None
    given = _usd(entry, "input_cost_per_token", "input_cost_per_image_token") * _PER_MILLION
    taken = _usd(entry, *_OUTPUT_TOKENS) * _PER_MILLION
    is_by_image = entry.get("mode") in _MODES["generate"] and not taken
    by_size = (name for name in entry if name.startswith("output_cost_per_image") and "token" not in name)
    per_image = _usd(entry, *by_size) if is_by_image else 0.0
    is_video = entry.get("mode") in _MODES["video"]
    per_second = _usd(entry, *(name for name in entry if is_video and _PER_SECOND.match(name)))
    prices = {"per_image": per_image, "per_second": per_second, "input_per_million": given, "output_per_million": taken}
    listed = {name: usd for name, usd in prices.items() if usd}
    return listed if listed and max(listed.values()) <= _LARGEST_USD else None


def _usd(entry: Mapping[str, Any], *names: str) -> float:
    """The highest of some prices, 0 if there is none."""
    values = [entry.get(name) for name in names]
    return max((float(value) for value in values if isinstance(value, (int, float)) and value > 0), default=0.0)


def _provider_of(entry: Mapping[str, Any]) -> str:
    """A provider's name, without the kind of its models (``vertex_ai-image-models``)."""
    return str(entry.get("litellm_provider", "")).partition("-")[0]


@cache
def _names(provider: str, use: Use) -> frozenset[str]:
    """The full names of a provider's models for a use."""
    return frozenset(
        name if name.startswith(f"{provider}/") else f"{provider}/{name}"
        for name, entry in _models().items()
        if entry.get("mode") in _MODES[use] and _provider_of(entry) == provider
    )


@cache
def _models() -> dict[str, dict[str, Any]]:
    models = _read(_MODELS)
    return {name: entry for name, entry in models.items() if isinstance(entry, dict) and name != "sample_spec"}


@cache
def _providers() -> frozenset[str]:
    providers = _read(_PROVIDERS).get("providers", {})
    of_models = (_provider_of(entry) for entry in _models().values())
    return frozenset(filter(None, (*providers, *of_models)))


def _read(name: str) -> dict[str, Any]:
    """A file of the installed package; empty if it is missing or unreadable."""
    spec = find_spec("litellm")
    for folder in (spec and spec.submodule_search_locations) or ():
        try:
            data = orjson.loads((Path(folder) / name).read_bytes())
        except (OSError, ValueError):
            continue
        return data if isinstance(data, dict) else {}
    return {}
