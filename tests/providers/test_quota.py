"""A spent quota, which ends a run, and limits that a wait ends: both sides of each form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from visioneval.providers.error_replies import is_quota_spent, read_error

WORDS = "You exceeded your current quota, please check your plan and billing details."


def openai(message: str, code: str | None, kind: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind or code, "param": None, "code": code}}


def gemini(*quotas: str, message: str = WORDS, delay: str = "37s", reason: str | None = None) -> dict[str, Any]:
    details: list[dict[str, Any]] = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": name} for name in quotas]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
    ]
    if reason is not None:
        details.append({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason})
    return {"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}}


DAY, MINUTE = "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "GenerateRequestsPerMinutePerProjectPerModel"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, openai("Billing hard limit has been reached", "billing_hard_limit_reached", "invalid_request_error")),
        (400, openai("Billing hard limit has been reached", None)),
        (429, openai("Your account is not active, please check your billing details on our website.", None)),
        (429, openai(WORDS, "insufficient_quota")),
        (429, openai(WORDS, None)),
        (429, openai("No more", "project_spend_limit_exceeded")),
        (429, openai("No more", "organization_usage_limit_exceeded")),
        (429, openai("No more", "credit_balance_exhausted")),
        (402, {"error": {"code": 402, "message": "This request requires more credits, or fewer max_tokens."}}),
        (402, "Payment Required"),
        (402, ""),
        (403, "Out of call volume quota. Quota will be replenished in 5.03:23:11"),
        (429, {"error": {"code": "InsufficientQuota", "message": "none"}}),
        (429, gemini(DAY)),
        (429, gemini(MINUTE, DAY)),
        (429, [gemini(DAY)]),
        (429, openai(f"litellm.RateLimitError: GeminiException - {json.dumps(gemini(DAY))}", "429")),
        (429, {"error": {"message": "Quota exceeded for quota metric x", "details": [
            {"violations": [{"quotaMetric": "generativelanguage.googleapis.com/generate_requests_per_model_per_day"}]}]}}),
        (429, gemini(MINUTE, message="Quota exceeded for metric: generativelanguage.googleapis.com/free, limit: 0")),
        (429, gemini(message="Your prepayment credits are depleted. Please go to AI Studio")),
        (429, gemini(message="Your project has exceeded its monthly spending cap.")),
        (403, gemini(message="This API method requires billing to be enabled.", reason="BILLING_DISABLED")),
        (400, openai("Budget has been exceeded! Current cost: 26.075, Max budget: 0.25", "400", "budget_exceeded")),
        (401, openai("ExceededBudget: End User=a over budget. Spend=1, Budget=0.5", "400", "auth_error")),
        (429, openai("No deployments available - crossed budget: Exceeded budget for deployment", "429")),
        (429, "Your team has either used all available credits or reached its monthly spending limit."),
        (403, {"code": "personal-team-blocked:spending-limit", "error": "You have run out of credits"}),
        (403, {"detail": "User is locked. Reason: Exhausted balance. Top up your balance."}),
        (400, {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access"}}),
        (429, openai("Your account is suspended due to insufficient balance", None, "exceeded_current_quota_error")),
        (403, openai("quota is not enough", "insufficient_user_quota", "new_api_error")),
        (429, {"errors": [{"code": 4006, "message": "you have used up your daily free allocation of 10,000 neurons"}]}),
        (429, openai("Rate limit reached on images per min: Limit 0, Used 0, Requested 1.", "rate_limit_exceeded")),
        (429, openai("Rate limit exceeded: free-models-per-day-high-balance.", "429", "rate_limit_error")),
        (500, openai(WORDS, "insufficient_quota")),
    ],
)  # fmt: skip
def test_a_spent_quota(status: int, body: Any) -> None:
    assert is_quota_spent(status, read_error(body))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, openai("Rate limit reached for m on requests per min (RPM): Limit 5, Used 5, Requested 1.", "requests")),
        (429, openai("Rate limit reached for m on requests per day: Limit 200. Please try again in 7m12s.", "requests")),
        (429, openai("Tokens per minute limit exceeded", "token_quota_exceeded", "too_many_tokens_error")),
        (429, openai("Rate limit: 0 requests left", "rate_limit_exceeded")),
        (429, "exceeded token rate limit. Please retry after 60 seconds. Go to https://aka.ms/oai/quotaincrease"),
        (429, openai("Your account request reached max request: 3", None, "rate_limit_reached_error")),
        (429, gemini(MINUTE)),
        (429, gemini("GenerateContentInputTokensPerModelPerMinute-FreeTier")),
        (429, gemini()),
        (429, {"error": {"code": 429, "message": WORDS, "status": "RESOURCE_EXHAUSTED"}}),
        (429, openai(f"litellm.RateLimitError: GeminiException - {json.dumps(gemini(MINUTE))}", "429")),
        (429, gemini(message="Quota exceeded for metric: generativelanguage.googleapis.com/free, limit: 10")),
        (429, gemini(message="Quota exceeded for aiplatform.googleapis.com/generate_content_requests_per_minute_per_project")),
        (429, gemini(message="Resource exhausted. Please try again later.")),
        (429, {"error": {"message": "Rate limit exceeded: free-models-per-min.", "code": 429}}),
        (400, openai("Invalid prompt: a poster about billing, budgets and quotas", "invalid_value")),
        (403, {"detail": "User is locked. Reason: Admin lock."}),
        (401, openai("Incorrect API key provided", "invalid_api_key")),
        (429, ""),
        (429, "x" * 30_000 + "insufficient_quota"),
    ],
)  # fmt: skip
def test_what_a_wait_or_another_request_ends(status: int, body: Any) -> None:
    assert not is_quota_spent(status, read_error(body))


PAYMENT = "A shop sign that says: payment required, out of credits"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (422, {"detail": [{"type": "string_too_long", "loc": ["body", "prompt"], "msg": "too long", "input": PAYMENT}]}),
        (403, {"detail": [{"type": "blocked", "msg": "no", "input": {"prompt": PAYMENT}, "ctx": {"code": "budget_exceeded"}}]}),
        (429, {"error": {"message": "slow down", "prompt": PAYMENT, "metadata": {"flagged_input": PAYMENT}}}),
        (422, {"detail": f"the prompt {PAYMENT!r} is too long"}),
        (400, openai(f"Invalid prompt: {PAYMENT!r}", "invalid_value")),
        (404, openai(f"no model for {PAYMENT!r}", "model_not_found")),
        (500, PAYMENT),
        (429, f"<html><title>Too many requests</title><body>{PAYMENT}</body></html>"),
    ],
)  # fmt: skip
def test_a_prompt_that_is_repeated_is_no_quota(status: int, body: Any) -> None:
    assert not is_quota_spent(status, read_error(body))
    assert is_quota_spent(429, read_error({"detail": PAYMENT})), "the same words are a quota where the server says them"
