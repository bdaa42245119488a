"""Which answers are refusals: decided here alone, by what providers document and send.

A refusal is about the content: the prompt, the inputs or the output. A bad parameter, a key without permission, a
prompt that is too long and a blocked account are none, also where their words mention safety.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from visioneval.providers.error_replies import ErrorReply

CODES: Mapping[str, str] = {
    "moderationblocked": "OpenAI's images and videos",
    "contentpolicyviolation": "OpenAI, Azure; fal has it as a type, LiteLLM's proxy in its words",
    "imagecontentpolicyviolation": "OpenAI's Responses",
    "contentfilter": "Azure: content_filter in chat, contentFilter for images",
    "responsibleaipolicyviolation": "Azure, as an inner code",
    "contentfiltered": "Stability, as a finish reason",
    "contentmoderation": "Stability",
    "contentmoderated": "Black Forest Labs, as a status",
    "requestmoderated": "Black Forest Labs, as a status",
    "datainspectionfailed": "Alibaba",
    "ipinfringementsuspect": "Alibaba",
}
"""Codes, types and inner codes that mean a refusal, without case and punctuation."""
_SENSITIVE = "sensitivecontentdetected"
"""In ByteDance's codes: ``OutputImageSensitiveContentDetected.PolicyViolation``."""
_ENDINGS = re.compile("safety|prohibited|recitation|blocklist|spii|modelarmor|contentfilter|refusal|moderat")
"""In the reasons for which a refused answer ended, without case and punctuation, so that new ones are recognized too:
Gemini's ``IMAGE_SAFETY``, ``content_filter: RECITATION`` of chat completions, Anthropic's ``refusal``."""
_MAX_QUOTED = 200
_NEVER = (401, 402, 429)
"""The statuses of the key, of money and of limits: no code makes one of them a refusal."""
_REJECTED = (200, 400, 403, 422, 451, 500)
"""The statuses with which words alone can mean a refusal, in JSON; proxies turn a provider's 400 into a 500."""
WORDS: Mapping[str, str] = {
    r"content_policy_violation|ContentPolicyViolationError|ResponsibleAIPolicyViolation|moderation_blocked": "proxies",
    r"(rejected|blocked|flagged|filtered) (by|as a result of|because of|due to) ((the|our|its) )?"
    r"((\w+ ){0,2}moderation|(\w+ ){0,2}safety (system|filter|check)|(\w+ )?content (filter|policy))": "several",
    r"content management policy": "Azure",
    r"violat\w+ [^.]{0,60}(usage guidelines|usage polic|content polic|prohibited use|responsible ai)": "several",
    r"responsible ai practices|support codes?: ?\d|(blocked|filtered) for safety": "Google",
    r"safety_check_type_": "xAI",
    r"flagged as (sensitive|potentially)|nsfw content (was )?detected": "OpenAI, Replicate",
    r"input was flagged for": "OpenRouter",
    r"(request|content) was (flagged|filtered) (as|for) [^.]{0,40}(inappropriate|harmful|sensitive|unsafe)": "several",
    r"(request|content) (was )?moderated": "Black Forest Labs",
    r"blocked by our content filters": "AWS",
    r"failed (the |our )?safety check": "Ideogram",
}
"""What providers write of content that they refuse, where no code of theirs says so, and who does."""
_WORDS = re.compile("|".join(WORDS), re.IGNORECASE)
_ACCOUNT = re.compile(
    r"\b(resource|account|organi[sz]ation|project|subscription|api key|access|user) (has been|have been|was|is|are)"
    r" [^.]{0,30}(block|suspend|disabl|bann|terminat|revok|restrict|deactivat)",
    re.IGNORECASE,
)
"""Words about the account: the next call of any content fails too."""


def is_refusal(status: int, error: ErrorReply) -> bool:
    """Whether a failed call was refused for its content, by its codes, else by the words of an error in JSON.

    A gateway that blocks a call answers with a page or a bare text: the model was never asked.
    """
    if status in _NEVER:
        return False
    plain = [_plain(code) for code in error.codes]
    if any(code in CODES or _SENSITIVE in code for code in plain):
        return True
    if status not in _REJECTED or not error.is_json or any(map(_ACCOUNT.search, error.words)):
        return False
    return any(map(_WORDS.search, error.words))


def is_refusing_end(finish_reason: object) -> bool:
    """Whether an answer ended as a refusal."""
    return _ENDINGS.search(_plain(str(finish_reason or ""))) is not None


def end_of_answer(reason: object, message: object, text: str) -> str:
    """Why an answer ended, the message about it, and the first words of what it says, on one line."""
    words, why = " ".join(text.split()), " ".join(str(message or "").split())
    quoted = f"; it says {words[:_MAX_QUOTED]!r}{'...' if len(words) > _MAX_QUOTED else ''}" if words else ""
    return f"{reason or 'no finish reason'}{f' ({why[:_MAX_QUOTED]})' if why else ''}{quoted}"


def moderated(output: object) -> str | None:
    """Why an image or video of an answer with status 200 is refused; ``None`` if it is not."""
    if isinstance(output, Mapping) and output.get("respect_moderation") is False:  # xAI
        return "the output did not pass the provider's moderation (respect_moderation: false)"
    return None


def moderated_images(images: object) -> str | None:
    """Why an answer with a list of images is a refusal; ``None`` if one of them is not withheld."""
    reasons = [moderated(image) for image in images] if isinstance(images, Sequence) else []
    return reasons[0] if reasons and all(reasons) else None


def _plain(code: str) -> str:
    return re.sub(r"[^a-z0-9]", "", code.lower())
