"""The parts of video generation that need no server: roles of images, lengths, files of the cache, written operations."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_api.video_bytes import video_bytes
from mock_outputs import request

from visioneval import CaseFiles, Generation, GenerationRequest, TaskType
from visioneval.media.images import sha256
from visioneval.media.video import seconds_of
from visioneval.providers.base import VIDEO_MS, OutputFile
from visioneval.providers.gemini import GeminiProvider
from visioneval.providers.openai import OpenAIProvider
from visioneval.records.outputs import OperationFile
from visioneval.records.writer import OutputWriter
from visioneval.running.calls.attempts import BrokenCodeError
from visioneval.running.calls.cache import Cache, clear_scratch
from visioneval.running.calls.outputs import OperationCall, check_media, with_video_length
from visioneval.running.calls.prices import Prices, bound_of, smallest_size
from visioneval.running.keys import RateLimitKey
from visioneval.running.sanitize import Sanitizer
from visioneval.scale.ray.worker import ExclusiveWriter
from visioneval.suite.entries.providers import Price, VideoInputs

VIDEO, IMAGE = TaskType.VIDEO_GENERATION, TaskType.IMAGE_GENERATION
CLOUD = {"project": "shop", "location": "us-central1"}


def gemini(model: str, **params: Any) -> GeminiProvider:
    return GeminiProvider.model_validate({"provider": "gemini", "google": CLOUD, "params": {"model": model, **params}})


def files(*roles: str) -> CaseFiles:
    return CaseFiles(images=tuple((role, Path(f"{number}.png")) for number, role in enumerate(roles)))


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ((), (None, None, [], [])),
        (("base", "base"), ("0.png", None, ["1.png"], [])),
        (("reference", "style", "reference"), (None, None, ["0.png", "2.png"], ["1.png"])),
        (("last_frame", "hero", "badge"), ("1.png", "0.png", ["2.png"], [])),
    ],
)
def test_images_have_the_part_that_their_role_says(roles: tuple[str, ...], expected: tuple[Any, ...]) -> None:
    inputs = VideoInputs.of(files(*roles).images)
    names = [None if path is None else path.name for path in (inputs.first_frame, inputs.last_frame)]
    assert (*names, [path.name for path in inputs.references], [path.name for path in inputs.styles]) == expected


@pytest.mark.parametrize(
    ("model", "is_video"),
    [
        ("veo-3.1-lite-generate-001", True),
        ("publishers/google/models/veo-3.1-lite-generate-001", True),
        ("gemini-omni-1.2-flash", True),
        ("gemini-nano-banana-2.1", False),
        ("naveo-1", False),
    ],
)
def test_a_gemini_model_generates_images_or_videos(model: str, *, is_video: bool) -> None:
    assert (gemini(model).does(VIDEO), gemini(model).does(IMAGE)) == (is_video, not is_video)


def test_an_openai_entry_generates_videos_only_where_it_says_so() -> None:
    entry = {"provider": "openai", "base_url": "https://films.example/v1", "api_key_env": "K", "params": {"model": "w"}}
    images, videos = (OpenAIProvider.model_validate({**entry, "api": api}) for api in ("images", "videos"))
    assert (images.does(VIDEO), images.does(IMAGE), videos.does(VIDEO), videos.does(IMAGE)) == (
        False,
        True,
        True,
        False,
    )
    assert images.key_options == videos.key_options == {"provider": "openai", "mask_mode": "send"}


@pytest.mark.parametrize(
    ("params", "expected"),
    [({}, 20.0), ({"seconds": 4}, 4.0), ({"seconds": "12"}, 12.0), ({"num_frames": 81}, 81 / 16),
     ({"num_frames": 48, "fps": 24}, 2.0)],
)  # fmt: skip
def test_the_longest_video_of_a_server(params: dict[str, Any], expected: float) -> None:
    assert OpenAIProvider(provider="openai").longest_video_s(params) == expected


@pytest.mark.parametrize(
    ("model", "params", "seconds", "tokens"),
    [
        ("veo-3.1-lite-generate-001", {}, 8, 48_000),
        ("gemini-omni-1.1-flash", {}, 10, 60_000),
        ("gemini-omni-1.2-flash", {}, 15, 90_000),
        ("gemini-omni-1.2-flash", {"duration_seconds": 4, "resolution": "1080p"}, 4, 54_000),
    ],
)
def test_a_budget_counts_the_longest_video(model: str, params: dict[str, Any], seconds: float, tokens: int) -> None:
    entry = gemini(model, **params)
    size = smallest_size(entry, entry.params, 1, VIDEO)
    assert (size.video_seconds, size.likely_output_tokens) == (seconds, tokens)
    bound = bound_of(Prices({model: Price(per_second=0.5)}), RateLimitKey("gemini", model, "generate"), size)
    assert (bound.usd, bound.is_strict) == (0.5 * seconds, True)
    if model.startswith("gemini-omni-1.1"):
        bound = bound_of(Prices(), RateLimitKey("gemini", model, "generate"), size)
        assert (bound.usd, bound.is_strict) == (pytest.approx(60_000 * 17.5e-6), False)


def test_a_price_per_second_needs_a_length() -> None:
    prices, key = (
        Prices({"gemini": Price(per_second=0.5)}),
        RateLimitKey("gemini", "veo-3.1-lite-generate-001", "generate"),
    )
    assert prices.cost(key, {VIDEO_MS: 2500}, 1) == 1.25
    assert prices.cost(key, {}, 1) is None
    assert prices.cost(key, None, 0) == 0  # a refusal


def test_the_length_is_what_the_provider_says_or_else_the_files(tmp_path: Path) -> None:
    path = tmp_path / "video"
    path.write_bytes(video_bytes(2.0))
    assert usage_of(video_bytes(1.0), OutputFile(path)) == {VIDEO_MS: 3000}
    assert usage_of(video_bytes(1.0), said={VIDEO_MS: 8000}) == {VIDEO_MS: 8000}
    assert usage_of(b"no video") is None
    assert seconds_of(path) == pytest.approx(2.0)


def usage_of(*outputs: Any, said: dict[str, int] | None = None) -> Any:
    return asyncio.run(with_video_length(Generation(outputs=outputs, usage=said))).usage


def test_a_downloaded_video_is_cached_without_reading_it_into_memory(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    with cache.scratch() as scratch:
        path = scratch / "video"
        path.write_bytes(video_bytes())
        media = check_media(OutputFile(path), VIDEO)
        assert (media.data, media.mime, media.width, media.sha256) == (None, "video/mp4", 64, sha256(video_bytes()))
        assert media.content == path
        cache.put("key", "generate", {}, [(media.sha256, path)])
        entry = cache.get("key")
        assert entry.image_bytes == len(video_bytes())
        assert cache.path(media.sha256).samefile(path)
    assert not scratch.exists()
    cache = Cache(tmp_path / "cache")
    assert cache.read(media.sha256) == video_bytes()


@pytest.mark.parametrize(
    ("data", "fault"), [(b"<html>", "not a supported video"), (None, "cannot be read: No such file")]
)
def test_a_download_that_is_no_video_is_a_fault(data: bytes | None, fault: str, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / "video").write_bytes(data)
    media = check_media(OutputFile(tmp_path / "video"), VIDEO)
    assert fault in str(media.fault)
    assert media.content is None


def test_what_a_killed_download_left_is_cleared_after_a_day(tmp_path: Path) -> None:
    for name, age in ((".download-old", 100_000), (".download-new", 0)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    clear_scratch(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".download-new"]


class StubOperations:
    """Returns what a test gives it."""

    def __init__(self, begun: Any, polled: Any) -> None:
        self._begun, self._polled = begun, polled

    async def begin(self, _: GenerationRequest) -> Any:
        return self._begun

    async def poll(self, _: str, __: GenerationRequest) -> Any:
        return self._polled


@pytest.mark.parametrize(
    ("begun", "polled", "message"),
    [
        (None, None, "begin() returned NoneType, not the name of an operation"),
        ("", None, "begin() returned a name of 0 characters: it must have 1 to 1,000"),
        ("v" * 2000, None, "begin() returned a name of 2,000 characters: it must have 1 to 1,000"),
        ("operations/a-secret-key", None, "begin() returned a name that contains a key: it cannot be written down"),
        ("operations/7", "done", "poll() returned str, not Generation or None"),
        ("operations/7", Generation(outputs=(b"1",), refused="no"), "it returned both outputs and a refusal: "),
    ],
)
def test_a_provider_that_returns_something_else_is_named(begun: Any, polled: Any, message: str, tmp_path: Path) -> None:
    file = OperationFile(OutputWriter(tmp_path, None), "fox", "m", "custom", (0,), "generate:1")  # type: ignore[arg-type]
    hides = Sanitizer(("a-secret-key",)).hides
    call = OperationCall(StubOperations(begun, polled), request({}), file, limit_s=1, hides=hides)
    with pytest.raises(BrokenCodeError) as error:
        asyncio.run(call.run())
    assert str(error.value).startswith(message)
    assert file.read() == (begun if polled else None)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"a-secret-key" in path.read_bytes()]


class TestOperationFiles:
    @pytest.fixture
    def file(self, tmp_path: Path) -> OperationFile:
        return OperationFile(OutputWriter(tmp_path, None), "fox", "m", "gemini", (0,), "generate:1")  # type: ignore[arg-type]

    def test_what_has_begun_is_read_until_it_has_ended(self, file: OperationFile) -> None:
        assert file.read() is None
        file.begin("operations/7")
        assert file.read() == "operations/7"
        file.end("operations/7")
        assert file.read() is None
        file.begin("operations/8")
        assert file.read() == "operations/8"

    def test_a_worker_of_a_cluster_replaces_no_file(self, tmp_path: Path) -> None:
        for by_content in (False, True):
            writer = ExclusiveWriter(tmp_path, None, by_content=by_content)  # type: ignore[arg-type]
            file = OperationFile(writer, "fox", "m", "gemini", (0,), "generate:1")
            file.begin(f"operations/{by_content}")
            file.end(f"operations/{by_content}")
            assert file.read() is None
        assert len(list(tmp_path.rglob("operation-0-*.json"))) == 4

    @pytest.mark.parametrize(
        "changes", [{"key": "generate:2"}, {"samples": (1,)}, {"provider": "openai"}, {"test_id": "hen"}]
    )
    def test_it_belongs_to_one_call(self, changes: dict[str, Any], file: OperationFile) -> None:
        file.begin("operations/7")
        assert replace(file, **changes).read() is None

    @pytest.mark.parametrize("content", ["", "{}", "[1]", "\xff", '{"key": "generate:1", "name": ""}'])
    def test_a_damaged_file_is_no_operation(self, content: str, file: OperationFile, tmp_path: Path) -> None:
        file.begin("operations/7")
        (path,) = tmp_path.rglob("operation-*")
        path.write_bytes(content.encode("latin-1"))
        assert file.read() is None

    def test_a_link_out_of_the_run_is_not_read(self, file: OperationFile, tmp_path: Path) -> None:
        file.begin("operations/7")
        (path,) = tmp_path.rglob("operation-*")
        outside = tmp_path.parent / f"{tmp_path.name}-outside.json"
        path.rename(outside)
        path.symlink_to(outside)
        assert file.read() is None
