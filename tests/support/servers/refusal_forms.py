"""Error replies as providers, gateways and servers send them: refusals, and what looks like one and is none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from http_server import QuietHandler, serving

Form = tuple[int, Any]
"""A status, and a body: JSON, or a text that is sent as it is."""

_AZURE_WORDS = (
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please modify "
    "your prompt and retry."
)
_AZURE_INNER = {
    "code": "ResponsibleAIPolicyViolation",
    "content_filter_result": {"hate": {"filtered": True, "severity": "high"}},
}
_SAFETY = "Your request was rejected by the safety system. safety_violations=[sexual]."


def _error(message: str | None, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


REFUSALS: Mapping[str, Form] = {
    "openai images": (400, _error(_SAFETY, type="image_generation_user_error", param=None, code="moderation_blocked")),
    "openai as a type": (400, _error("Not allowed.", type="content_policy_violation", param=None, code=None)),
    "openai invalid_prompt": (
        400,
        _error("Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
               type="invalid_request_error", code="invalid_prompt"),
    ),
    "azure images": (400, {"created": 1, **_error("Your task failed as a result of our safety system.", code="contentFilter")}),
    "azure output": (
        400,
        _error("Your request was rejected.", type="invalid_request_error", code="BadRequest",
               inner_error={"code": "ResponsibleAIPolicyViolation", "content_filter_results": {"jailbreak": {}}}),
    ),
    "azure chat": (400, _error(_AZURE_WORDS, code="content_filter", status=400, innererror=_AZURE_INNER)),
    "azure inner alone": (400, _error("Bad request", code="400", innererror=_AZURE_INNER)),
    "litellm proxy": (
        400,
        _error(f"litellm.BadRequestError: litellm.ContentPolicyViolationError: AzureException - {_AZURE_WORDS}\n"
               "model=azure/gpt-image-2. content_policy_fallback=None.", type=None, param=None, code="400",
               provider_specific_fields={"innererror": _AZURE_INNER}),
    ),
    "litellm proxy, words": (
        400,
        _error("litellm.BadRequestError: litellm.ContentPolicyViolationError: OpenAIException - Not allowed",
               type=None, param=None, code="400"),
    ),
    "litellm proxy, 500": (
        500, _error("litellm.APIError: OpenAIException - Your request was rejected by the safety system.", code="500")
    ),
    "litellm proxy, stability": (
        400, _error("litellm.APIError: StabilityException - Content was filtered by Stability AI safety systems", code="400")
    ),
    "xai 400": (
        400,
        {"code": "Client specified an invalid argument", "error": "Generated image rejected by content moderation.",
         "usage": {"cost_in_usd_ticks": 200000000}},
    ),
    "xai 403": (
        403,
        {"code": "The caller does not have permission to execute the specified operation",
         "error": "Content violates usage guidelines. Team: 1, Failed check: SAFETY_CHECK_TYPE_BIO"},
    ),
    "openrouter input": (
        403,
        _error('openai/gpt-5.4 requires moderation on OpenAI. Your input was flagged for "violence".', code=403,
               metadata={"reasons": ["violence"], "flagged_input": "...", "provider_name": "OpenAI"}),
    ),
    "openrouter raw": (
        400,
        _error("Provider returned error", code=400,
               metadata={"raw": json.dumps(_error("No.", code="content_policy_violation")), "provider_name": "Azure"}),
    ),
    "error in 200": (200, _error("Your task failed as a result of our safety system.", code="contentFilter")),
    "fal": (422, {"detail": [{"loc": ["body", "prompt"], "msg": "Not allowed", "type": "content_policy_violation"}]}),
    "stability": (403, {"name": "content_moderation", "errors": ["Your request was flagged by our moderation system"]}),
    "black forest labs": (200, {"error": {"id": "1", "status": "Request Moderated", "message": "no sample"}}),
    "alibaba": (400, _error("Input data may contain inappropriate content.", code="DataInspectionFailed")),
    "bytedance": (
        400, _error("The request failed.", code="OutputImageSensitiveContentDetected.PolicyViolation", type="BadRequest")
    ),
    "several": (400, _error("Your request was flagged as potentially harmful. Try another prompt.", code="400")),
    "replicate": (422, {"detail": "NSFW content detected. Try running it again, or try a different prompt."}),
    "ideogram": (422, _error("Prompt provided failed safety check due to the inclusion of prohibited content.")),
}  # fmt: skip

OTHER_ERRORS: Mapping[str, Form] = {
    "key without permission": (403, _error("The caller does not have permission", code=403, status="PERMISSION_DENIED")),
    "xai permission": (
        403,
        {"code": "The caller does not have permission to execute the specified operation",
         "error": "Access to the image endpoint is denied. Please ensure you're using the correct credentials."},
    ),
    "prompt too long": (400, _error("Invalid 'prompt': string too long. It violates the limit of 32000.",
                                    code="string_above_max_length", param="prompt")),
    "invalid_prompt": (400, _error("Invalid prompt: it is empty.", code="invalid_prompt")),
    "image that cannot be read": (
        400, _error("Invalid image file or mode for image 3.", type="image_generation_user_error", code="invalid_image_file")
    ),
    "safety_settings": (400, _error("safety_settings is not supported by this model.", code="unsupported_parameter")),
    "moderation parameter": (
        400, _error("Invalid value: 'off'. Supported values are: 'low' and 'auto'.", param="moderation", code="invalid_value")
    ),
    "content_filter parameter": (400, _error("Unknown parameter: 'content_filter'.", code="unknown_parameter")),
    "fal safety_tolerance": (
        422,
        {"detail": [{"loc": ["body", "safety_tolerance"], "msg": "Input should be less than or equal to 6",
                     "type": "less_than_equal", "input": {"type": "content_filter"}}]},
    ),
    "blocked account": (
        403,
        _error("Your resource has been temporarily blocked because we detected behavior that may violate our content "
               "policy.", code="Forbidden"),
    ),
    "terms of a router": (
        403, _error("The request is prohibited due to a violation of provider Terms Of Service.", code=403)
    ),
    "unverified organization": (403, _error("Your organization must be verified to use the model.", code=None)),
    "unknown model": (404, _error("The model `moderation-blocked` does not exist", code="model_not_found")),
    "page of a gateway": (403, "<html><head><title>Access blocked by content filter</title></head></html>"),
    "text of a gateway": (403, "Blocked by content policy of your organization"),
    "page of a gateway in JSON": (
        403, _error("OpenAIException - <!doctype html><title>Access blocked by content filter</title>", code="403")
    ),
    "raw page of a gateway": (
        403,
        _error("Provider returned error", code=403,
               metadata={"raw": "<html><body>Access blocked by content filter</body></html>", "provider_name": "X"}),
    ),
    "repeated prompt": (
        422,
        {"detail": [{"loc": ["body", "prompt"], "msg": "String should have at most 8 characters", "type": "string_too_long",
                     "input": "a sign: NSFW content detected"}]},
    ),
    "flag of a load balancer": (500, "The request was flagged for retry by the load balancer"),
    "flag of a load balancer in JSON": (500, _error("The request was flagged for retry by the load balancer")),
    "overloaded filter": (503, _error("The content filter is temporarily unavailable.", code="service_unavailable")),
    "web page": (502, "<html><head><title>502 Bad Gateway</title></head><body>safety system</body></html>"),
}  # fmt: skip

CANNOT = "I can't help with\nthat request."


def gemini(reason: str | None, text: str = "", *images: str, **fields: Any) -> dict[str, Any]:
    """An answer of Gemini. ``images`` are in base64; one that begins with ``thought:`` is a draft."""
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    for image in images:
        data = {"inlineData": {"mimeType": "image/png", "data": image.removeprefix("thought:")}}
        parts.append({**data, "thought": True} if image.startswith("thought:") else data)
    candidate = {"content": {"parts": parts}, "finishReason": reason, "index": 0, **fields}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3}}


GEMINI_REASONS = (
    "SAFETY", "IMAGE_SAFETY", "PROHIBITED_CONTENT", "IMAGE_PROHIBITED_CONTENT", "RECITATION", "IMAGE_RECITATION",
    "BLOCKLIST", "SPII", "MODEL_ARMOR", "IMAGE_SAFETY_OF_A_NEWER_API",
)  # fmt: skip
GEMINI_REFUSALS: Mapping[str, Form] = {
    **{f"finish {reason}": (200, gemini(reason)) for reason in GEMINI_REASONS},
    "finish with words": (200, gemini("IMAGE_SAFETY", CANNOT, finishMessage="Unable to show the image.")),
    "blocked prompt": (200, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}),
    "blocked by a new reason": (200, {"promptFeedback": {"blockReason": "BRAND_NEW", "blockReasonMessage": "no"}}),
    "responsible ai": (
        400,
        _error("The prompt could not be submitted. This prompt contains sensitive words that violate Google's "
               "Responsible AI practices. Support codes: 1", code=400, status="INVALID_ARGUMENT"),
    ),
}  # fmt: skip
GEMINI_ERRORS: Mapping[str, Form] = {
    "STOP": (200, gemini("STOP", CANNOT)),
    "NO_IMAGE": (200, gemini("NO_IMAGE", finishMessage="The model\ncould not.")),
    "IMAGE_OTHER": (200, gemini("IMAGE_OTHER")),
    "OTHER": (200, gemini("OTHER", CANNOT * 20)),
    "A_NEW_REASON": (200, gemini("A_NEW_REASON")),
    "no reason": (200, gemini(None, CANNOT)),
    "safety_settings": (400, _error("safety_settings is not supported", code=400, status="INVALID_ARGUMENT")),
}


@contextmanager
def answering(forms: Mapping[str, Form]) -> Iterator[str]:
    """A server that answers a request with the form whose name the request has in brackets; yields its URL."""

    class FormHandler(QuietHandler):
        def post(self) -> None:
            text = self.body().decode("utf-8", "replace")
            status, answer = next(form for name, form in forms.items() if f"[{name}]" in text)
            data = answer if isinstance(answer, str) else json.dumps(answer)
            self.reply(data.encode(), status, "text/html" if isinstance(answer, str) else "application/json")

    with serving(FormHandler) as url:
        yield url
