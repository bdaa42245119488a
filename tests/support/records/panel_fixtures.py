"""The fixture ``panel``, for modules that name this one in ``pytest_plugins``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from panel_runs import ABC, MODELS, PRICES, Verdicts, set_answers
from suite_runner import SuiteRunner


@pytest.fixture
def panel(runner: SuiteRunner) -> Callable[..., SuiteRunner]:
    """``panel({"a": True, "b": Fault("refusal")}, "one", **suite)``: a suite whose judges say this of every image."""

    def write(says: Verdicts, *ids: str, **changes: Any) -> SuiteRunner:
        set_answers(runner, says)
        host = {"base_url": runner.api.openai_base_url, "api_key_env": "LOCAL_KEY"}
        judges = {name: {"provider": "openai", "model": model, **host} for name, model in MODELS.items()}
        suite = {"judges": judges, "graders": [ABC], "prices": PRICES, "limits": {"openai": {"max_attempts": 1}}}
        runner.write(*ids, **{**suite, **changes})
        return runner

    return write
