"""Videos through LiteLLM: begun once, polled, downloaded, resumed and priced by their seconds."""

from __future__ import annotations

from typing import Any

from fake_api import FakeAPI
from fake_api.http1 import ApiError, json_reply
from suite_runner import SuiteRunner
from video_suites import PRICE, case_with, failed, image, resume, run, write

MODEL = "hosted_vllm/wan2.2-t2v"


def entry(api: FakeAPI, **params: Any) -> dict[str, Any]:
    host = {"provider": "litellm", "api": "videos", "base_url": api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    return {**host, "label": "m", "params": {"model": MODEL, **params}}


def test_a_video_is_generated_from_its_first_frame_and_replayed(api: FakeAPI, runner: SuiteRunner) -> None:
    prices = {f"litellm:{MODEL}": PRICE}
    write(runner, entry(api, seconds=4, size="1280x720"), cases=[case_with(runner, "base")], prices=prices)
    (record,) = run(runner).values()
    assert (record.status, record.mime, record.width, record.height) == ("completed", "video/mp4", 64, 48)
    assert (record.usage, record.cost_usd) == ({"video_milliseconds": 4000}, 2.0)
    (job,) = api.videos.created
    assert (job.model, job.prompt, job.polls) == ("wan2.2-t2v", "A fox runs", 2)
    assert (job.body["seconds"], job.body["size"]) == ("4", "1280x720")
    assert job.images == (image(runner, "base").read_bytes(),)
    run(runner, "--offline", run_id="again")
    assert len(api.videos.created) == 1


def test_a_video_that_was_begun_is_not_paid_again(api: FakeAPI, runner: SuiteRunner) -> None:
    write(runner, entry(api))
    api.videos.poll.append(ApiError(503, "down for a moment"))
    api.videos.poll.append(ApiError(404, "no such video"))
    assert failed(runner).startswith("invalid: the video ")
    assert len(api.videos.created) == 1
    assert resume(runner).status == "completed"
    assert len(api.videos.created) == 2


def test_a_job_that_is_moderated_is_a_refusal(api: FakeAPI, runner: SuiteRunner) -> None:
    write(runner, entry(api))
    error = {"code": "content_policy_violation", "message": "The prompt was flagged."}
    api.videos.poll.append(json_reply(200, {"id": "v", "object": "video", "status": "failed", "error": error}))
    (record,) = run(runner, code=1).values()
    assert (record.status, record.verdict) == ("refused", "FAIL")
    assert "The prompt was flagged." in record.model_dump_json()


def test_a_video_of_two_frames_is_refused_before_it_is_paid(api: FakeAPI, runner: SuiteRunner) -> None:
    write(runner, entry(api), cases=[case_with(runner, "base", "last_frame")])
    result = runner.run("--trust-suite")
    assert result.exit_code == 2
    assert "takes one image, the first frame" in result.output
    assert api.videos.created == []
