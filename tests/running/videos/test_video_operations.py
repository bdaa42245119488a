"""Operations that end badly, late or not at all, and runs that are killed while they wait for one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from fake_api import FakeAPI
from fake_api.http1 import ApiError, Reply
from fake_api.video_bytes import video_bytes
from fake_gcs import gcs_with_preconditions
from stores import forget_clients
from suite_runner import SuiteRunner
from vertex import ProxyLog
from video_suites import MODELS, entry, failed, resume, run, write

from visioneval.media.images import sha256
from visioneval.records.stores.store import ObjectStore

pytestmark = pytest.mark.slow

pytest_plugins = ("video_fixtures",)


class TestAnAddress:
    def test_omni_may_name_a_file(self, api: FakeAPI, runner: SuiteRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        api.videos.by_address = True
        write(runner, entry(api, "omni", params={"delivery": "uri"}))
        assert run(runner)["fox", 0].mime == "video/mp4"
        assert len(api.requests_to("files.download")) == 1

    def test_a_video_is_not_generated_again_to_arrive_in_another_way(self, api: FakeAPI, runner: SuiteRunner) -> None:
        api.videos.by_address = True
        write(runner, entry(api, "omni", params={"delivery": "uri"}))
        assert run(runner)["fox", 0].status == "completed"
        write(runner, entry(api, "omni", params={"delivery": "inline", "background": False}))
        assert resume(runner).run_params["delivery"] == "uri"
        assert run(runner, "--offline", run_id="again")["fox", 0].cached
        assert len(api.videos.created) == 1

    def test_an_operation_is_asked_for_where_it_delivers_only(self, api: FakeAPI, runner: SuiteRunner) -> None:
        api.videos.poll.append(ApiError(401, "no access", code="UNAUTHENTICATED"))
        write(runner, entry(api, "omni", params={"delivery": "uri"}))
        assert runner.run("--trust-suite").exit_code == 3
        write(runner, entry(api, "omni", params={"delivery": "inline"}))
        assert resume(runner).status == "completed"
        assert len(api.videos.created) == 2

    def test_an_expired_file_is_named_and_the_video_is_generated_again(self, api: FakeAPI, runner: SuiteRunner) -> None:
        api.videos.by_address = True
        api.videos.content.append(ApiError(404, "Requested entity was not found.", code="NOT_FOUND"))
        write(runner, entry(api, "omni"))
        message = failed(runner)
        assert "has expired or is unknown: 404: Requested entity was not found." in message
        assert resume(runner).status == "completed"
        assert len(api.videos.created) == 2

    def test_an_address_elsewhere_is_not_read(self, api: FakeAPI, runner: SuiteRunner) -> None:
        video = {"type": "video", "uri": "https://evil.example/film.mp4", "mime_type": "video/mp4"}
        api.videos.ends = {"steps": [{"type": "model_output", "content": [video]}]}
        write(runner, entry(api, "omni"))
        assert "names its video by an address that cannot be read" in failed(runner)


class TestABucket:
    @pytest.fixture
    def bucket(self, google: ProxyLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        forget_clients()
        with gcs_with_preconditions() as url:
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
            monkeypatch.setenv("NO_GCE_CHECK", "true")
            yield "gs://bkt/films"
        forget_clients()

    def test_veo_may_leave_its_video_there(self, api: FakeAPI, runner: SuiteRunner, bucket: str) -> None:
        ObjectStore(bucket).put("1.mp4", video_bytes())
        api.videos.ends = {"response": {"videos": [{"gcsUri": f"{bucket}/1.mp4", "mimeType": "video/mp4"}]}}
        write(runner, entry(api, "veo", params={"output_gcs_uri": bucket}))
        assert run(runner)["fox", 0].artifact_sha256 == sha256(video_bytes())
        assert api.videos.created[0].body["parameters"]["storageUri"] == bucket

    def test_an_object_that_is_gone_is_named(self, api: FakeAPI, runner: SuiteRunner, bucket: str) -> None:
        api.videos.ends = {"response": {"videos": [{"gcsUri": f"{bucket}/gone.mp4", "mimeType": "video/mp4"}]}}
        write(runner, entry(api, "veo", params={"output_gcs_uri": bucket}))
        assert "cannot be read from its bucket: there is no such file" in failed(runner)
        api.videos.ends = None
        assert resume(runner).status == "completed"
        assert len(api.videos.created) == 2

    @pytest.mark.parametrize("uri", ["gs://other/1.mp4", "gs://bkt/films-of-others/1.mp4", "gs://bkt/films/../1.mp4"])
    def test_an_object_elsewhere_is_not_read(
        self, uri: str, api: FakeAPI, runner: SuiteRunner, google: ProxyLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
        api.videos.ends = {"response": {"videos": [{"gcsUri": uri, "mimeType": "video/mp4"}]}}
        write(runner, entry(api, "veo", params={"output_gcs_uri": "gs://bkt/films"}))
        assert failed(runner).endswith("names its video by an address that is not below output_gcs_uri")

    @pytest.mark.parametrize("kind", ["veo", "omni"], indirect=True)
    def test_no_bucket_is_read_that_the_suite_does_not_name(self, kind: str, api: FakeAPI, runner: SuiteRunner) -> None:
        video = {"type": "video", "uri": "gs://bkt/films/1.mp4", "mime_type": "video/mp4"}
        of_omni = {"steps": [{"type": "model_output", "content": [video]}]}
        of_veo = {"response": {"videos": [{"gcsUri": video["uri"], "mimeType": "video/mp4"}]}}
        api.videos.ends = of_veo if kind == "veo" else of_omni
        write(runner, entry(api, kind))
        assert failed(runner).endswith("names its video by an address that is not below output_gcs_uri")


class TestEndings:
    def test_a_filtered_video_is_a_refusal(self, api: FakeAPI, runner: SuiteRunner, google: ProxyLog) -> None:
        api.videos.ends = {"response": {"raiMediaFilteredCount": 1, "raiMediaFilteredReasons": ["Violence. Code 1"]}}
        write(runner, entry(api, "veo"))
        record = run(runner, code=1)["fox", 0]
        assert (record.status, record.reasons) == ("refused", {"refused": "the video was filtered: Violence. Code 1"})
        assert record.cost_usd is None or record.cost_usd == 0
        assert resume(runner, code=1).status == "refused"
        assert len(api.videos.created) == 1

    @pytest.mark.parametrize(
        ("kind", "ends"),
        [
            (
                "veo",
                {"error": {"code": 3, "message": "The prompt violates Vertex AI's usage guidelines. Support codes: 1"}},
            ),
            ("omni", {"status": "failed", "errors": [{"code": "blocked", "message": "Blocked for safety"}]}),
            ("videos", {"status": "failed", "error": {"code": "moderation_blocked", "message": "Not allowed"}}),
        ],
        indirect=["kind"],
    )
    def test_a_blocked_prompt_is_a_refusal(
        self, kind: str, ends: dict[str, Any], api: FakeAPI, runner: SuiteRunner
    ) -> None:
        api.videos.ends = ends
        write(runner, entry(api, kind))
        assert run(runner, code=1)["fox", 0].status == "refused"
        assert len(api.videos.created) == 1

    @pytest.mark.parametrize(
        ("kind", "ends"),
        [
            ("veo", {"error": {"code": 3, "message": "The duration is not supported"}}),
            ("omni", {"status": "failed", "errors": [{"code": "bad", "message": "The duration is not supported"}]}),
            ("videos", {"status": "failed", "error": {"code": "bad", "message": "The duration is not supported"}}),
        ],
        indirect=["kind"],
    )
    def test_an_error_ends_the_operation_and_resuming_begins_another(
        self, kind: str, ends: dict[str, Any], api: FakeAPI, runner: SuiteRunner
    ) -> None:
        api.videos.ends = ends
        write(runner, entry(api, kind))
        message = failed(runner)
        assert message.startswith("invalid: the ")
        assert message.endswith("The duration is not supported")
        assert api.videos.created[0].name in message
        api.videos.ends = None
        assert resume(runner).status == "completed"
        assert len(api.videos.created) == 2

    def test_an_internal_error_is_tried_again(self, api: FakeAPI, runner: SuiteRunner, google: ProxyLog) -> None:
        api.videos.ends = {"error": {"code": 13, "message": "Internal error"}}
        write(runner, entry(api, "veo"), limits={"gemini": {"max_attempts": 3}})
        assert failed(runner).startswith("transient: ")
        assert len(api.videos.created) == 3

    @pytest.mark.parametrize(("kind", "ends"), [("veo", {"response": {}}), ("omni", {"steps": []})], indirect=["kind"])
    def test_an_end_without_a_video_is_an_error(
        self, kind: str, ends: dict[str, Any], api: FakeAPI, runner: SuiteRunner
    ) -> None:
        api.videos.ends = ends
        write(runner, entry(api, kind))
        assert failed(runner).startswith("unusable: images requested: 1, received: 0; the answer is in artifacts/")
        api.videos.ends = None
        assert resume(runner, code=3).status == "error"
        assert len(api.videos.created) == 1
        assert resume(runner, "--retry-unusable").status == "completed"
        assert len(api.videos.created) == 2

    def test_no_end_within_the_time_limit_keeps_the_operation(
        self, kind: str, api: FakeAPI, runner: SuiteRunner
    ) -> None:
        api.videos.held.set()
        limits = {MODELS[kind]: {"timeout_s": 0.2}}
        provider = "openai" if kind == "videos" else "gemini"
        write(runner, entry(api, kind), limits={f"{provider}:{name}": limit for name, limit in limits.items()})
        message = failed(runner)
        name = api.videos.created[0].name
        assert message == (
            f"pending: the operation {name} has not ended within 0.2 s (timeout_s); it is paid for, and --resume asks for it again"
        )
        api.videos.held.clear()
        assert resume(runner).status == "completed"
        assert len(api.videos.created) == 1


REFUSED = ApiError(401, "no access", code="UNAUTHENTICATED")
SPENT = ApiError(402, "no credit", code="PAYMENT_REQUIRED")


class TestPolling:
    @pytest.mark.parametrize(("kind", "status"), [("veo", 429), ("omni", 500), ("videos", 503)], indirect=["kind"])
    def test_errors_while_polling_do_not_pay_again(
        self, kind: str, status: int, api: FakeAPI, runner: SuiteRunner
    ) -> None:
        api.videos.poll.extend([ApiError(status, "later", code="UNAVAILABLE")] * 3)
        write(runner, entry(api, kind))
        record = run(runner)["fox", 0]
        assert (record.status, record.attempts) == ("completed", 1)
        assert len(api.videos.created) == 1

    def test_a_provider_that_never_answers_leaves_the_operation(self, api: FakeAPI, runner: SuiteRunner) -> None:
        api.videos.poll.extend([ApiError(500, "down", kind="server_error")] * 8)
        write(runner, entry(api, "videos"))
        name_start = "pending: the operation video_"
        message = failed(runner)
        assert message.startswith(name_start)
        assert "cannot be asked for: 500: down; it is paid for, and --resume asks for it again" in message
        assert resume(runner).status == "completed"
        assert len(api.videos.created) == 1

    @pytest.mark.parametrize(
        ("kind", "error", "message"),
        [
            ("veo", REFUSED, "the provider refused the API key: 401: no access"),
            ("omni", SPENT, " is spent: 402: no credit"),
            ("videos", REFUSED, "the provider refused the API key: 401: no access"),
            ("videos", SPENT, " is spent: 402: no credit"),
        ],
        indirect=["kind"],
    )
    def test_a_refused_key_and_a_spent_quota_end_the_run_and_resuming_asks_again(
        self, kind: str, api: FakeAPI, runner: SuiteRunner, error: ApiError, message: str
    ) -> None:
        api.videos.poll.append(error)
        write(runner, entry(api, kind))
        result = runner.run("--trust-suite")
        assert result.exit_code == 3
        assert message in result.output
        assert resume(runner).status == "completed"
        assert len(api.videos.created) == 1

    def test_a_forgotten_operation_is_an_error_then_begins_anew(
        self, kind: str, api: FakeAPI, runner: SuiteRunner
    ) -> None:
        api.videos.poll.append(ApiError(404, "not found", code="NOT_FOUND"))
        write(runner, entry(api, kind))
        message = failed(runner)
        assert message.startswith("invalid: the ")
        assert "has expired or is unknown: 404:" in message
        assert resume(runner).status == "completed"
        assert len(api.videos.created) == 2


class TestDownloads:
    def test_a_web_page_instead_of_a_video(self, api: FakeAPI, runner: SuiteRunner) -> None:
        api.videos.content.append(Reply(200, b"<!doctype html><p>Sign in</p>", content_type="text/html; charset=utf-8"))
        write(runner, entry(api, "videos"))
        assert "invalid: the server sends 'text/html' instead of the video video_" in failed(runner)
        assert resume(runner).status == "completed"
        assert len(api.videos.created) == 1

    def test_a_download_that_breaks_off_is_repeated(self, api: FakeAPI, runner: SuiteRunner) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: video/mp4\r\ncontent-length: 5000\r\n\r\n"
        api.videos.content.append(Reply(200, b"", raw=[head, b"x" * 100]))
        write(runner, entry(api, "videos"))
        assert run(runner)["fox", 0].status == "completed"
        assert (len(api.videos.created), len(api.requests_to("videos.content"))) == (1, 2)

    def test_bytes_that_are_no_video(self, api: FakeAPI, runner: SuiteRunner) -> None:
        api.videos.content.append(Reply(200, b"x" * 5000, content_type="video/mp4"))
        write(runner, entry(api, "videos"))
        assert failed(runner).startswith("unusable: not a supported video")
        (stored,) = (runner.out / "r/artifacts").rglob("*-reply.txt")
        assert stored.read_bytes() == b"x" * 5000
        assert resume(runner, code=3).status == "error"
        assert resume(runner, "--retry-unusable").status == "completed"
        assert len(api.videos.created) == 2

    @pytest.mark.parametrize("fields", ["content-length: 4294967296", "x-none: 0"])
    def test_a_video_of_four_gigabytes(
        self, fields: str, api: FakeAPI, runner: SuiteRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With and without a length. The limit is lowered, as the test would otherwise move 256 MB."""
        monkeypatch.setattr("visioneval.providers.replies.MAX_BYTES", 3_000_000)
        monkeypatch.setattr("visioneval.providers.replies.MEGABYTE", 1_000)
        monkeypatch.setattr("visioneval.providers.openai.generator.MAX_BYTES", 3_000_000)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: video/mp4\r\n{fields}\r\nconnection: close\r\n\r\n".encode()
        api.videos.content.append(Reply(200, b"", raw=[head, *[b"x" * 1_000_000] * 5]))
        write(runner, entry(api, "videos"))
        assert failed(runner) == "invalid: the video is over the limit of 3,000,000 bytes"
        assert resume(runner).status == "completed"
        assert len(api.videos.created) == 1
        assert list((runner.folder.parent / "cache").rglob(".download-*")) == []


def test_two_runs_ask_for_one_operation(api: FakeAPI, runner: SuiteRunner) -> None:
    """A copy of a run is resumed as well: both get the video, which was paid once."""
    api.videos.poll.append(ApiError(401, "no access"))
    write(runner, entry(api, "videos"))
    assert runner.run("--trust-suite").exit_code == 3
    shutil.copytree(runner.out / "r", runner.out / "copy")
    first = resume(runner)
    result = runner("run", "--resume", runner.out / "copy", "--runs", runner.out, "--trust-suite")
    assert result.exit_code == 0, result.output
    assert runner.records("copy")["fox", 0].artifact_sha256 == first.artifact_sha256
    assert len(api.videos.created) == 1


def test_identical_model_runs_have_operations_of_their_own(api: FakeAPI, runner: SuiteRunner) -> None:
    write(runner, entry(api, "videos"), entry(api, "videos", label="same"))
    run(runner)
    assert len(api.videos.created) == 2


@pytest.mark.parametrize("name", ["../../files/x", "a/b", "", "x" * 400])
def test_the_name_in_a_strangers_run_is_not_sent(name: str, api: FakeAPI, runner: SuiteRunner) -> None:
    api.videos.poll.append(ApiError(401, "no access"))
    write(runner, entry(api, "videos"))
    assert runner.run("--trust-suite").exit_code == 3
    (file,) = (runner.out / "r" / "artifacts").rglob("operation-*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "name": name}))
    seen = len(api.requests)
    code = 0 if name == "" else 3
    assert resume(runner, code=code).status == ("completed" if code == 0 else "error")
    assert not any(".." in request.path or "/a/b" in request.path for request in api.requests[seen:])
