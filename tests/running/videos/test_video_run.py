"""Videos graded whole: frames for a judge that watches none, the video or its address for one that does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from buckets import web_server
from clips import clip, colour_of
from fake_api import FakeAPI, JudgeRequest, SentFile
from typer.testing import CliRunner

from visioneval import Record, read_records
from visioneval.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("local_api")]

MODELS = {"openai": "gpt-5.4", "gemini": "gemini-3.5-flash"}
ALIGNMENT = {"key": "fit", "type": "alignment"}
RUBRIC = {"key": "look", "type": "rubric", "metrics": {"steady": {"type": "pass_fail", "description": "No flicker."}}}
GECKO = {"key": "claims", "type": "gecko", "media": "video"}
QUESTION = {"id": "q1", "question": "What colour comes first?", "choices": ["red", "blue"], "answer": "red"}


@pytest.fixture
def requests(api: FakeAPI) -> list[JudgeRequest]:
    seen: list[JudgeRequest] = []

    def judged(request: JudgeRequest) -> dict[str, Any]:
        seen.append(request)
        if "requirements" in request.schema["properties"]:
            item = {"requirement": "red first", "question": "Is it red first?", "analysis": "It is.", "gap": ""}
            return {"requirements": [{**item, "answer": True}], "score": 100}
        if "answers" in request.schema["properties"]:
            output = dict.fromkeys(request.schema["properties"]["answers"]["items"]["properties"], "a")
            return {"answers": [{**output, "id": "q1", "answer": "a"}]}
        return {"reason": "steady", "steady": True, "verdict": "PASS"}

    api.script.judge(judged)
    return seen


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    fsspec.get_filesystem_class("gs").clear_instance_cache()
    yield
    fsspec.get_filesystem_class("gs").clear_instance_cache()


def run(
    api: FakeAPI, folder: Path, judge: str, path: str, *graders: dict[str, Any], code: int = 0, **case: Any
) -> dict[str, Record]:
    url = api.openai_base_url if judge == "openai" else api.gemini_base_url
    suite = {
        "name": "clips",
        "task": "video_generation",
        "judges": {"default": {"provider": judge, "model": MODELS[judge], "base_url": url, "api_key_env": "LOCAL_KEY"}},
        "cases": [{"id": "one", "prompt": "Red, then blue", "questions": [QUESTION], **case}],
        "models": [{"provider": "files", "label": "m", "path": path}],
        "graders": list(graders),
        "verdict": [{"fit": "fit >= 80", "look": "steady", "claims": "claims >= 0.8"}[item["key"]] for item in graders],
    }
    (folder / "suite.yaml").write_text(json.dumps(suite))
    arguments = ["run", str(folder / "suite.yaml"), "--runs", str(folder / "runs"), "--trust-suite"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, done.output
    (run,) = (folder / "runs").iterdir()
    return {record.test_id: record for record in read_records(run)}


@pytest.mark.parametrize("grader", [ALIGNMENT, RUBRIC, GECKO], ids=lambda each: each["type"])
def test_a_judge_that_watches_no_videos_is_shown_frames(
    grader: dict[str, Any], api: FakeAPI, requests: list[JudgeRequest], tmp_path: Path
) -> None:
    clip(tmp_path / "one.mp4", ["red", "blue"], seconds_each=1)
    record = run(api, tmp_path, "openai", "{case}.mp4", {**grader, "frames": 4})["one"]
    assert (record.verdict, record.mime, record.width, record.height) == ("PASS", "video/mp4", 64, 48)
    assert str(record.artifact_path).endswith(".mp4")
    (request,) = requests
    colours = [colour_of(image.data) for image in request.images]
    assert colours == [(True, False, False)] * 2 + [(False, False, True)] * 2
    labels = [part for part in request.parts if isinstance(part, str) and part.startswith("output_")]
    assert labels[:2] == [
        "output_1: frame 1 of 4 of the video to judge, at 0.20 s",
        "output_2: frame 2 of 4 of the video to judge, at 0.70 s",
    ]


@pytest.mark.parametrize("grader", [ALIGNMENT, RUBRIC, GECKO], ids=lambda each: each["type"])
def test_gemini_gets_the_video_bytes(
    grader: dict[str, Any], api: FakeAPI, requests: list[JudgeRequest], tmp_path: Path
) -> None:
    path = clip(tmp_path / "one.mp4", ["red", "blue"])
    record = run(api, tmp_path, "gemini", "{case}.mp4", grader)["one"]
    assert record.verdict == "PASS"
    (request,) = requests
    assert [(image.data, image.mime) for image in request.images] == [(path.read_bytes(), "video/mp4")]


@pytest.mark.parametrize("judge", ["gemini", "openai"])
def test_no_judge_sees_a_part_of_a_video_that_is_cut_off(
    judge: str, api: FakeAPI, requests: list[JudgeRequest], tmp_path: Path
) -> None:
    data = clip(tmp_path / "whole.mkv", ["red", "blue"], seconds_each=3).read_bytes()
    (tmp_path / "one.mkv").write_bytes(data[: len(data) * 2 // 3])
    record = run(api, tmp_path, judge, "{case}.mkv", RUBRIC, code=3)["one"]
    assert (record.verdict, record.scores["steady"], requests) == ("ERROR", None, [])
    assert "cut off" in str(record.graders[0].error)


@pytest.mark.parametrize("name", ["clips/one.mp4", "clips/one.png"])
def test_gemini_gets_a_url_without_a_download(
    name: str, api: FakeAPI, requests: list[JudgeRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no bucket: reading it would fail."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    task = "video_generation" if name.endswith("mp4") else "image_generation"
    graders = [ALIGNMENT, RUBRIC]
    record = run(api, tmp_path, "gemini", f"gs://eval/{name}", *graders, task=task)["one"]
    mime = "video/mp4" if name.endswith("mp4") else "image/png"
    assert (record.verdict, record.artifact_path, record.artifact_sha256, record.mime) == ("PASS", None, None, mime)
    assert record.run_params == {"path": f"gs://eval/{name}", "mime": mime, "by_address": True}
    assert [request.files for request in requests] == [(SentFile(f"gs://eval/{name}", mime),)] * 2


def test_another_judge_gets_the_bytes(api: FakeAPI, requests: list[JudgeRequest], tmp_path: Path) -> None:
    path = clip(tmp_path / "source.mp4", ["red", "blue"])
    with web_server({"one.mp4": path.read_bytes()}) as url:
        record = run(api, tmp_path, "openai", f"{url}/{{case}}.mp4", ALIGNMENT)["one"]
    assert record.verdict == "PASS"
    assert len(requests[0].images) == 8


def test_a_counter_example_may_use_a_url(
    api: FakeAPI, requests: list[JudgeRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    run(api, tmp_path, "gemini", "gs://eval/a.mp4", ALIGNMENT)
    suite = json.loads((tmp_path / "suite.yaml").read_text())
    suite["cases"].append({"id": "other", "prompt": "Blue, then red", "output_of": "one", "expect": {"aligned": False}})
    (tmp_path / "suite.yaml").write_text(json.dumps(suite))
    done = CliRunner().invoke(
        app, ["run", str(tmp_path / "suite.yaml"), "--runs", str(tmp_path / "again"), "--trust-suite"]
    )
    assert done.exit_code == 0, done.output
    assert [request.files for request in requests] == [(SentFile("gs://eval/a.mp4", "video/mp4"),)] * 2
    assert ["Blue, then red" in request.text for request in requests] == [False, True]  # the first answer was cached


@pytest.mark.parametrize(
    ("data", "expected_message"),
    [
        (b"\0\0\0\x18ftypisom" + b"\0" * 3000, "the video cannot be decoded"),
        (
            b"no video at all",
            "not a supported video (supported: .mp4, .mov, .webm, .mkv, .avi, and animations as GIF, WebP and APNG)",
        ),
        (b"", "not a supported video (supported: .mp4, .mov, .webm, .mkv, .avi, and animations as GIF, WebP and APNG)"),
    ],
)
def test_a_bad_video_is_an_error_of_its_cell(api: FakeAPI, tmp_path: Path, data: bytes, expected_message: str) -> None:
    (tmp_path / "one.mp4").write_bytes(data)
    error = run(api, tmp_path, "openai", "{case}.mp4", ALIGNMENT, code=3)["one"].error
    assert (error.stage, error.kind) == ("generate", "bad_image")
    assert expected_message in error.message


def test_a_video_of_two_gigabytes_is_not_read(api: FakeAPI, tmp_path: Path) -> None:
    with (tmp_path / "one.mp4").open("wb") as file:
        file.write(b"\0\0\0\x18ftypisom")
        file.truncate(2 * 1024**3)
    error = run(api, tmp_path, "openai", "{case}.mp4", ALIGNMENT, code=3)["one"].error
    assert (error.kind, "over the limit of 268,435,456 bytes" in error.message) == ("bad_image", True)
