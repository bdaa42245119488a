"""What is believed of a reported usage: the limits of each number, on both of their sides."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from google.genai import types
from toys import Toy

from visioneval import RunFormatError, read_records
from visioneval.providers.base import MOST_VIDEO_MS, VIDEO_MS
from visioneval.providers.gemini.generator import token_counts
from visioneval.providers.openai.connection import flat_usage
from visioneval.providers.openai.generator import _usage as usage_of_job
from visioneval.records.baselines import BaselineLine
from visioneval.running.calls.outputs import CheckedMedia
from visioneval.running.calls.prices import MOST_TOKENS, Prices, checked_usage
from visioneval.running.keys import RateLimitKey

BOTH = {"input_tokens": 100, "output_tokens": 50}
CHAT = {"prompt_tokens": 100, "completion_tokens": 50}
GEMINI = {"prompt_token_count": 100, "candidates_token_count": 50}


@pytest.mark.parametrize(
    ("possible", "impossible"),
    [
        ({**BOTH, "output_tokens": 0}, {**BOTH, "output_tokens": -1}),
        ({**BOTH, "input_tokens": MOST_TOKENS}, {**BOTH, "input_tokens": MOST_TOKENS + 1}),
        ({**BOTH, "total_tokens": 2 * MOST_TOKENS}, {**BOTH, "total_tokens": 2 * MOST_TOKENS + 1}),
        ({**BOTH, "input_cached_tokens": 100}, {**BOTH, "input_cached_tokens": 101}),
        ({**BOTH, "input_cached_tokens": 0}, {**BOTH, "input_cached_tokens": -1}),
        ({**BOTH, "output_image_tokens": 50}, {**BOTH, "output_image_tokens": 51}),
        ({**BOTH, "output_video_tokens": 50}, {**BOTH, "output_video_tokens": 51}),
        (
            {**BOTH, "input_image_tokens": 40, "input_text_tokens": 60},
            {**BOTH, "input_image_tokens": 41, "input_text_tokens": 60},
        ),
        (
            {**BOTH, "input_cached_tokens": 9, "input_cached_image_tokens": 9},
            {**BOTH, "input_cached_tokens": 8, "input_cached_image_tokens": 9},
        ),
        ({**CHAT, "prompt_cached_tokens": 100}, {**CHAT, "prompt_cached_tokens": 101}),
        (
            {**GEMINI, "thoughts_token_count": 9, "candidates_image_tokens": 59},
            {**GEMINI, "thoughts_token_count": 9, "candidates_image_tokens": 60},
        ),
        ({**GEMINI, "tool_use_prompt_token_count": 0}, {**GEMINI, "tool_use_prompt_token_count": -1}),
        ({VIDEO_MS: MOST_VIDEO_MS}, {VIDEO_MS: MOST_VIDEO_MS + 1}),
        ({VIDEO_MS: 1}, {VIDEO_MS: 0}),
        ({"reasoning_tokens": 70, **BOTH}, {"reasoning_tokens": -70, **BOTH}),  # some count them beside the output
    ],
)
def test_one_impossible_number_makes_all_of_a_usage_unknown(
    possible: dict[str, int], impossible: dict[str, int]
) -> None:
    assert checked_usage(possible) == possible
    assert checked_usage(impossible) is None


@pytest.mark.parametrize("value", [True, False, "50", 50.0, float("nan"), float("inf"), 10**400, [50], {"n": 50}])
def test_a_token_count_is_a_whole_number(value: Any) -> None:
    assert checked_usage({**BOTH, "output_tokens": value}) is None


@pytest.mark.parametrize("usage", [None, {}, 7, "many", ["input_tokens"]])
def test_what_is_no_usage_is_unknown(usage: Any) -> None:
    assert checked_usage(usage) is None


def test_other_numbers_beside_the_counts_are_left_out_where_they_are_impossible() -> None:
    """Servers report times, prices and flags, which no price is computed from."""
    beside = {"cost": 0.01, "is_byok": False, "total_time": 1.5, "ticks": 37_756_000, "size": "low", "n": None}
    assert checked_usage({**BOTH, **beside, "images": np.int64(2), "n_tokens": None}) == {**BOTH, "images": 2}


@pytest.mark.parametrize(
    ("key", "most"),
    [
        (RateLimitKey("openai", "gpt-5.4-mini", "judge"), 400_000),
        (RateLimitKey("litellm", "openai/gpt-5.4-mini", "judge"), 400_000),
        (RateLimitKey("gemini", "gemini-3.5-flash", "judge"), 1_000_000),
        (RateLimitKey("openai", "a-model-that-no-list-has", "judge"), MOST_TOKENS),
        (RateLimitKey("mine:Judge", None, "judge"), MOST_TOKENS),
    ],
)
@pytest.mark.parametrize("name", ["input_tokens", "output_tokens"])
def test_a_call_has_no_more_tokens_than_the_context_window_of_its_model(
    key: RateLimitKey, most: int, name: str
) -> None:
    assert Prices().checked_usage(key, {**BOTH, name: most}, 0) == {**BOTH, name: most}
    assert Prices().checked_usage(key, {**BOTH, name: most + 1}, 0) is None


def test_a_host_of_ones_own_may_have_another_window_under_the_same_name() -> None:
    key = RateLimitKey("openai", "gpt-5.4-mini", "judge")
    usage = {**BOTH, "input_tokens": 128_001}
    assert Prices(custom_hosts=frozenset({key})).checked_usage(key, usage, 0) == usage


@pytest.mark.parametrize(("counts", "is_known"), [((500,), True), ((500, -400), False), ((100, 100), False)])
def test_a_modality_that_gemini_counts_twice_is_unknown(counts: tuple[int, ...], *, is_known: bool) -> None:
    """In the form of its answers, and in that of its SDK, which judges use."""
    details = [types.ModalityTokenCount(modality=types.MediaModality.IMAGE, token_count=count) for count in counts]
    metadata = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=9, candidates_token_count=500, candidates_tokens_details=details
    )
    for by_alias in (False, True):
        data = metadata.model_dump(mode="json", exclude_none=True, by_alias=by_alias)
        usage = checked_usage(token_counts(data))
        assert (usage or {}).get("candidates_image_tokens") == (500 if is_known else None)
        assert (usage is not None) == is_known


def test_nested_details_of_openai_are_checked_like_their_totals() -> None:
    details = {"cached_tokens": 20, "cached_tokens_details": {"image_tokens": 21}}
    assert checked_usage(flat_usage({**BOTH, "input_tokens_details": details})) is None
    assert checked_usage(flat_usage({**BOTH, "input_tokens_details": {**details, "cached_tokens": 21}}))


@pytest.mark.parametrize(
    ("seconds", "usage"),
    [
        ("3600", {VIDEO_MS: MOST_VIDEO_MS}),
        (8, {VIDEO_MS: 8000}),
        *((bad, None) for bad in ("3600.1", -8, "0", "nan", "1e308", True, [8], None)),
    ],
)
def test_seconds_of_a_video_that_are_impossible_are_measured_instead(seconds: Any, usage: Any) -> None:
    assert usage_of_job({"seconds": seconds}) == usage


@pytest.mark.parametrize("where", ["cell", "grader"])
@pytest.mark.parametrize(("cost", "is_read"), [(0.0, True), (-0.001, False)])
def test_a_record_with_a_negative_cost_is_refused(toy: Toy, where: str, cost: float, *, is_read: bool) -> None:
    toy.run()
    path = toy.latest / "results.jsonl"
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    (lines[0] if where == "cell" else lines[0]["graders"][0])["cost_usd"] = cost
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if is_read:
        assert len(list(read_records(toy.latest))) == len(lines)
    else:
        with pytest.raises(RunFormatError, match=r"results\.jsonl:1: .*cost_usd"):
            list(read_records(toy.latest))


def test_a_baseline_with_a_negative_cost_is_refused() -> None:
    line = {"test_id": "a", "model_label": "m", "sample_index": 0, "status": "COMPLETED", "verdict": "PASS"}
    with pytest.raises(ValueError, match="cost_usd"):
        BaselineLine.model_validate({**line, "cost_usd": -1.0})


@pytest.mark.parametrize(
    ("size", "is_checked"), [((9, 9), True), ((-9, 9), False), ((9, 0), False), ((9, 10**10), False)]
)
def test_a_cached_size_that_none_can_be_is_measured_again(size: tuple[Any, Any], *, is_checked: bool) -> None:
    media = CheckedMedia.from_cache({"sha256": "0", "width": size[0], "height": size[1], "decoded": True})
    assert media.is_checked == is_checked
