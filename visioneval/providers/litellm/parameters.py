"""Names of models and parameters that a suite may pass to LiteLLM.

LiteLLM takes keys, addresses, retries, callbacks and prices as parameters too. Those are refused: a suite names
variables with keys, and the rest is this program's. A test compares the lists with LiteLLM's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

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
"""Parameters that become part of a host or a path, so they may only be names."""
_CLOUD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")
_MODEL = re.compile(r"[A-Za-z0-9_.-]+/\S+")
_RESERVED = re.compile(
    r".*_?callbacks?|.*(api_base|base_url|api_url|endpoint)|.*_cost(_.*)?|.*_cost_per_.*"
    r"|(.*_)?(ad_token|access_key|api_key|client|credentials?|headers?|host|key_id|password|proxy|secret|secret_key"
    r"|service_account|session_token|token_provider|username|web_identity_token)"
    r"|(arize|auto_router|aws|azure|cache|caching|complexity_router|fallback|gcs|langfuse|langsmith|litellm|milvus|mock"
    r"|posthog|s3|wandb|weave)_.*"
)
_OTHERS = re.compile(
    r"acompletion|additional_drop_params|aimg_generation|allowed_model_region|allowed_openai_params"
    r"|assistant_continue_message|async_call|atext_completion|azure|base_model|bos_token|budget_duration|cache"
    r"|caching|client_id|complete_response|configurable_clientside_auth_params|context_window_fallback_dict"
    r"|cooldown_time|custom_llm_provider|default_api_key_rpm_limit|default_api_key_tpm_limit|deployment_id"
    r"|disable_add_transform_inline_image_block|drop_params|enable_json_schema_validation|ensure_alternating_roles"
    r"|eos_token|fallbacks|fastest_response|final_prompt_value|force_timeout|guardrails|hf_model_name|id|logger_fn"
    r"|max_budget|max_fallbacks|max_file_size_mb|max_parallel_requests|max_retries"
    r"|merge_reasoning_content_in_choices|metadata|model_config|model_file_id_mapping|model_info|model_list|no-log"
    r"|num_retries|order|organization|preset_cache_key|prompt_id|prompt_label|prompt_variables|prompt_version"
    r"|provider_specific_header|proxy_server_request|request_timeout|retry_policy|retry_strategy|roles|rpm"
    r"|search_tool_name|secret_fields|self|shared_session|ssl_verify|stream|stream_options|stream_timeout"
    r"|supports_system_message|tag_regex|tags|tenant_id|text_completion|tiered_pricing|timeout|tpm|ttl"
    r"|turn_off_message_logging|use_client|use_in_pass_through|use_litellm_proxy|user_continue_message"
    r"|vector_store_id|verbose|weight"
)


def model_problem(model: object) -> str | None:
    """Why a value cannot be the name of a model."""
    if not isinstance(model, str):
        return "params.model is missing: set it to LiteLLM's name of a provider and a model, such as fal_ai/MODEL"
    if not _MODEL.fullmatch(model):
        return f"model {model!r} does not name its provider: write provider/model, such as openai/{model[:60]}"
    if "://" in model or "@" in model.partition("/")[0]:
        return f"model {model!r} contains a URL: set base_url instead"
    return None


def is_reserved(name: str) -> bool:
    """Whether a parameter controls LiteLLM itself instead of the model."""
    return name not in CLOUD_NAMES and any(names.fullmatch(name) for names in (_RESERVED, _OTHERS))


def parameter_problems(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each parameter that a suite must not set, and why."""
    for name, value in params.items():
        if is_reserved(name):
            yield name, f"{name!r} controls LiteLLM, not the model: remove it (see docs/suite.md for what replaces it)"
        elif name in CLOUD_NAMES and not (isinstance(value, str) and _CLOUD_NAME.fullmatch(value)):
            yield name, f"{name!r} must be a name of letters, digits, '.' and '-'"
