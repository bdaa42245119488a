"""What LiteLLM knows: its providers, its models and their prices, from the files of the installed package.

Nothing is imported or downloaded: LiteLLM's import takes seconds and its own loader would fetch newer prices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import orjson

from visioneval.errors import did_you_mean
from visioneval.installation import install_command

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
    entry = _entry(model)
    if entry is None:
        return None
    given = _usd(entry, "input_cost_per_token", "input_cost_per_image_token") * _PER_MILLION
    taken = _usd(entry, *_OUTPUT_TOKENS) * _PER_MILLION
    is_by_image = entry.get("mode") in _MODES["generate"] and not taken
    per_image = _usd(entry, *_image_prices(entry)) if is_by_image else 0.0
    is_video = entry.get("mode") in _MODES["video"]
    per_second = _usd(entry, *(name for name in entry if is_video and _PER_SECOND.match(name)))
    prices = {"per_image": per_image, "per_second": per_second, "input_per_million": given, "output_per_million": taken}
    listed = {name: usd for name, usd in prices.items() if usd}
    return listed if listed and max(listed.values()) <= _LARGEST_USD else None


def _image_prices(entry: Mapping[str, Any]) -> list[str]:
    """The prices of a generated image, which depend on its size and quality."""
    return [name for name in entry if name.startswith("output_cost_per_image") and "token" not in name]


def _usd(entry: Mapping[str, Any], *names: str) -> float:
    """The highest of some prices, 0 if there is none."""
    values = [entry.get(name) for name in names]
    return max((float(value) for value in values if isinstance(value, (int, float)) and value > 0), default=0.0)


def _entry(model: str) -> Mapping[str, Any] | None:
    """The entry of a model. Those of some providers have no provider in their name."""
    provider, _, name = model.partition("/")
    if (entry := _models().get(model)) is not None:
        return entry
    bare = _models().get(name)
    return bare if bare is not None and _provider_of(bare) == provider else None


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
