"""What this program assumes about LiteLLM: its parameters, its lists, and that it is quiet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from canned_api import canned
from conftest import FORMS
from pydantic import ValidationError

from visioneval import ProviderError
from visioneval.providers import litellm as catalog
from visioneval.providers.litellm import CLOUD_NAMES
from visioneval.running.calls.prices import CallSize, CostBound, Prices, bound_of
from visioneval.running.keys import RateLimitKey

PARAMETERS = """\
import json
from litellm.types.router import GenericLiteLLMParams
from litellm.types.utils import all_litellm_params
print(json.dumps(sorted({*all_litellm_params, *GenericLiteLLMParams.model_fields})))
"""


def test_every_parameter_of_litellm_itself_is_refused(generate: Callable[..., Any]) -> None:
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "true"}
    output = subprocess.run([sys.executable, "-c", PARAMETERS], env=environment, capture_output=True, check=True)
    names = json.loads(output.stdout)
    assert len(names) > 200
    assert len(set(names) & CLOUD_NAMES) > 4
    with canned({}) as server:
        for name in sorted(set(names) - CLOUD_NAMES):
            with pytest.raises((ProviderError, ValidationError)) as raised:
                generate(FORMS["openai"], server.url, params={name: "x"})
            message = f"{name!r} controls LiteLLM, not the model: remove it"
            assert message in str(raised.value) or f"{name!r} looks like a secret" in str(raised.value)
    assert server.bodies == []


WITHOUT_AN_IMPORT = """\
import sys
from visioneval.providers import litellm as catalog
catalog.unknown_provider("fal/x"), catalog.unknown_model("fal_ai/fal-ai/flux-pro/v1.2", "generate")
assert "litellm" not in sys.modules
"""


def test_models_and_providers_are_known_without_an_import() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_AN_IMPORT], check=True)
    assert catalog.is_installed()
    assert catalog.unknown_provider("fal_ai/x") is None
    assert catalog.unknown_provider("fal/x") == "LiteLLM has no provider 'fal' (did you mean 'fal_ai'?)"
    assert catalog.unknown_model("fal_ai/fal-ai/flux-pro/v1.1", "generate") is None
    assert catalog.unknown_model("fal_ai/fal-ai/flux-pro/v1.2", "generate") == (
        "LiteLLM's list of models has no 'fal_ai/fal-ai/flux-pro/v1.2' (did you mean 'fal_ai/fal-ai/flux-pro/v1.1'?);"
        " it is called nevertheless"
    )
    assert catalog.unknown_model("openai/gpt-image-1", "generate") is None
    assert catalog.unknown_model("hosted_vllm/anything", "judge") is None


def test_prices_come_from_its_list() -> None:
    price = catalog.listed_price("fal_ai/fal-ai/flux-pro/v1.1")
    assert price == {"per_image": 0.04}
    judge = catalog.listed_price("openai/gpt-5.4")
    assert judge == {"input_per_million": 2.5, "output_per_million": 15.0}
    assert catalog.listed_price("fal_ai/none") is None


def test_a_model_that_bills_tokens_has_no_price_by_image() -> None:
    """The list's price of an image is one of 1 MP. One of 16 MP takes more tokens, and thinking does too."""
    price = catalog.listed_price("gemini/gemini-3-pro-image-preview")
    assert price == {"input_per_million": 2.0, "output_per_million": 120.0}


def test_a_free_token_leaves_the_price_by_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """As previews had it; the list has none now."""
    free = {
        "mode": "image_generation",
        "litellm_provider": "shop",
        "input_cost_per_token": 0,
        "output_cost_per_token": 0,
    }
    monkeypatch.setattr(catalog, "_models", lambda: {"shop/preview": {**free, "output_cost_per_image": 0.039}})
    price = catalog.listed_price("shop/preview")
    assert price == {"per_image": 0.039}


def test_an_image_has_the_highest_of_its_prices_by_size_and_quality(monkeypatch: pytest.MonkeyPatch) -> None:
    prices = {"output_cost_per_image": 0.008, "output_cost_per_image_above_1024_and_1024_pixels": 0.012}
    entry = {"mode": "image_generation", "litellm_provider": "shop", **prices}
    monkeypatch.setattr(catalog, "_models", lambda: {"shop/large": entry})
    assert catalog.listed_price("shop/large") == {"per_image": 0.012}


def test_a_video_has_the_highest_of_its_prices_by_resolution() -> None:
    assert catalog.listed_price("fal_ai/bytedance/seedance-2.0/text-to-video") == {"per_second": 1.5552}
    assert catalog.unknown_model("fal_ai/bytedance/seedance-2.0/text-to-video", "video") is None
    assert "has no" in str(catalog.unknown_model("fal_ai/bytedance/seedance-2.0/text-to-video", "generate"))


def test_a_listed_price_is_the_cost_of_an_image() -> None:
    key = RateLimitKey("litellm", "fal_ai/fal-ai/flux-pro/v1.1", "generate")
    assert Prices().cost(key, None, 2) == 0.08
    assert bound_of(Prices(), key, CallSize(images=1)) == CostBound(0.04, is_strict=True)
    assert not Prices(custom_hosts=frozenset({key})).knows(key)
