"""Limits, prices and budgets in a suite: errors are reported with their location."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from suite_text import suite

Problems = Callable[..., list[str]]
MODELS = "models: [{provider: openai, params: {model: gpt-image-2}}, {provider: mock}]"
GRADERS = (
    "graders: [{key: look, type: rubric, judge: eye, metrics: {nice: {type: pass_fail, description: it is nice}}}]"
)  # fmt: skip
JUDGES = "judges: {eye: {provider: gemini, model: gemini-4-argon}}"


def problems_of(problems: Problems, line: str) -> list[str]:
    return problems(suite(JUDGES, line, models=MODELS, graders=GRADERS, verdict="verdict: [nice]"))


@pytest.mark.parametrize(
    "line",
    [
        "limits: {openai: {max_concurrency: 8, requests_per_minute: 0.5, images_per_minute: 2}}",
        "limits: {'openai:gpt-image-2': {max_attempts: 1, timeout_s: 0.5}, 'gemini:gemini-4-argon': {timeout_s: 9}}",
        "limits: {gemini: {timeout_s: 60}, mock: {max_concurrency: 1}}",
        "prices: {openai: {per_image: 0}, gpt-image-2: {per_call: 1}, 'gemini:gemini-4-argon': {per_call: 1}}",
        "prices: {gemini-4-argon: {input_per_million: 1.25, output_per_million: 10}}",
        "budget_usd: 0.01",
    ],
)
def test_limits_and_prices_are_accepted_for_called_models(problems: Problems, line: str) -> None:
    assert problems_of(problems, line) == []


@pytest.mark.parametrize(
    ("line", "column", "output"),
    [
        (
            "limits: {opnai: {max_concurrency: 8}}",
            10,
            "the suite calls no provider or model 'opnai' (did you mean 'openai'?)",
        ),
        ("limits: {gpt-image-2: {max_concurrency: 8}}", 10, "the suite calls no provider or model 'gpt-image-2'"),
        (
            "limits: {'openai:gpt-image-2.5-flare': {timeout_s: 8}}",
            10,
            "the suite calls no provider or model 'openai:gpt-image-2.5-flare'",
        ),
        (
            "prices: {gpt-image-15: {per_image: 1}}",
            10,
            "the suite calls no provider or model 'gpt-image-15' (did you mean",
        ),
        ("prices: {command: {per_call: 1}}", 10, "prices: the suite calls no provider or model 'command'"),
        ("limits: {openai: {max_concurency: 8}}", 19, "max_concurency"),
        ("limits: {openai: {max_concurrency: 0}}", 19, "max_concurrency"),
        ("limits: {openai: {max_concurrency: 5000}}", 19, "max_concurrency"),
        ("limits: {openai: {max_concurrency: 2.5}}", 19, "max_concurrency"),
        ("limits: {openai: {max_concurrency: many}}", 19, "max_concurrency"),
        ("limits: {openai: {requests_per_minute: 0}}", 19, "requests_per_minute"),
        ("limits: {openai: {requests_per_minute: .nan}}", 19, "requests_per_minute"),
        ("limits: {openai: {requests_per_minute: .inf}}", 19, "requests_per_minute"),
        ("limits: {openai: {images_per_minute: -3}}", 19, "images_per_minute"),
        ("limits: {openai: {images_per_minute: true}}", 19, "images_per_minute"),
        ("limits: {openai: {max_attempts: 0}}", 19, "max_attempts"),
        ("limits: {openai: {max_attempts: 101}}", 19, "max_attempts"),
        ("limits: {openai: {timeout_s: 0}}", 19, "timeout_s"),
        ("limits: {openai: {timeout_s: 1e9}}", 19, "timeout_s"),
        ("limits: {openai: 8}", 10, "openai"),
        ("prices: {openai: {per_image: -1}}", 19, "per_image"),
        ("prices: {openai: {per_image: .nan}}", 19, "per_image"),
        (
            "prices: {openai: {}}",
            10,
            "the price is empty: set per_image, per_second, per_call, input_per_million or output_per_million",
        ),
        ("prices: {openai: {per_picture: 1}}", 19, "per_picture"),
        ("prices: {openai: {per_image: free}}", 19, "per_image"),
        ("budget_usd: 0", 1, "budget_usd"),
        ("budget_usd: -5", 1, "budget_usd"),
        ("budget_usd: .nan", 1, "budget_usd"),
        ("budget_usd: .inf", 1, "budget_usd"),
        ("budget_usd: five", 1, "budget_usd"),
        ("budget_usd: true", 1, "budget_usd"),
    ],
)
def test_errors_are_reported_with_location(problems: Problems, line: str, column: int, output: str) -> None:
    (problem,) = problems_of(problems, line)
    where, _, message = problem.partition(": ")
    assert output in message
    file, row, at = where.split(":")
    assert (file, row) == ("suite.yaml", "7")
    assert int(at) >= column
