"""Objects in stores: exclusive creation, complete reads, and what a failing store looks like."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from stores import FaultyStore, Machines, forget_clients

from visioneval import StorageError, UsageError
from visioneval.media import network
from visioneval.records.stores import claims
from visioneval.records.stores import store as store_module
from visioneval.records.stores.claims import RunClaim, read_claim
from visioneval.records.stores.lookup import cache_folder, runs_folder
from visioneval.records.stores.store import MissingObjectError, ObjectStore

pytestmark = pytest.mark.slow


@pytest.fixture
def first_call(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No store has answered this process yet."""
    monkeypatch.setattr(store_module, "_ANSWERED", set())
    forget_clients()
    yield
    forget_clients()


def test_objects_are_written_listed_read_and_deleted(any_store: str) -> None:
    store = ObjectStore(any_store + "/")
    assert (store.url, store.entries()) == (any_store, [])
    store.check_readable()
    store.put("r/run.json", b"{}")
    store.put("r/artifacts/a b/ü.png", b"x" * 1000)
    folder, file = store.entries("r")
    assert (folder.key, folder.is_folder, file.key, file.is_folder, file.bytes) == (
        "r/artifacts",
        True,
        "r/run.json",
        False,
        2,
    )
    (output,) = store.walk("r/artifacts")
    assert (output.key, output.bytes, store.read_listed(output)) == ("r/artifacts/a b/ü.png", 1000, b"x" * 1000)
    version = file.version
    store.put("r/run.json", b'{"a": 1}')
    assert version
    assert store.entries("r")[1].version != version
    store.delete("r/run.json")
    store.delete("r/run.json")
    with pytest.raises(MissingObjectError, match=rf"^cannot read {any_store}/r/run.json: there is no such object$"):
        store.read("r/run.json")


def test_only_one_process_creates_an_object(any_store: str) -> None:
    store = ObjectStore(any_store)
    assert store.create("r/claims/000001.json", b"mine")
    assert not store.create("r/claims/000001.json", b"theirs")
    assert store.read("r/claims/000001.json") == b"mine"


def test_a_lost_reply_to_a_creation_is_no_other_creator(runs: str, s3: FaultyStore) -> None:
    fault = s3.add("lost", "PUT", "000001.json")
    assert ObjectStore(runs).create("r/claims/000001.json", b"mine")
    assert fault.seen == 1


def test_a_store_that_does_not_name_the_failed_condition(runs: str, s3: FaultyStore) -> None:
    store = ObjectStore(runs)
    store.put("a", b"theirs")
    fault = s3.add("412", "PUT", "/a")
    assert not store.create("a", b"mine")
    assert fault.seen == 1


@pytest.mark.parametrize("kind", ["503", "cut", "slow", "lost"])
def test_a_store_that_fails_for_a_while_is_asked_again(
    any_runs: str, request: pytest.FixtureRequest, kind: str
) -> None:
    proxy: FaultyStore = request.getfixturevalue("s3" if any_runs.startswith("s3") else "gcs")
    store = ObjectStore(any_runs)
    store.put("a.bin", b"x" * 10_000)
    (item,) = store.entries()
    fault = proxy.add(kind, "GET", "a.bin")
    assert store.read_listed(item) == b"x" * 10_000
    assert fault.seen == 1


def test_a_store_that_is_down_is_one_line(runs: str, s3: FaultyStore) -> None:
    assert ObjectStore(runs).entries() == []
    s3.add("503", "PUT", "a.bin", times=1000)
    with pytest.raises(StorageError, match=rf"^cannot write {runs}/a.bin: .*SlowDownForNow") as error:
        ObjectStore(runs).put("a.bin", b"x")
    assert "\n" not in str(error.value)
    assert sum(path.endswith("a.bin") for _, path in s3.requests) == 6


def test_a_store_that_never_answered_is_given_up_sooner(runs: str, s3: FaultyStore, first_call: None) -> None:
    s3.add("503", "GET", "list-type", times=1000)
    with pytest.raises(StorageError, match=rf"^cannot list {runs}: .*SlowDownForNow"):
        ObjectStore(runs).entries()
    assert len(s3.requests) == 3


def test_missing_credentials_are_known_at_once(
    runs: str, s3: FaultyStore, first_call: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    message = f"cannot list {runs}: there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or"
    with pytest.raises(UsageError, match=f"^{message}"):
        ObjectStore(runs).entries()
    assert s3.requests == []


def test_a_first_listing_has_a_time_limit(
    machines: Machines, first_call: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gcsfs repeats it for almost a minute."""
    monkeypatch.setattr(network, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(StorageError, match=r"^cannot list gs://bkt/runs: no answer in 0\.2 seconds: check the"):
            ObjectStore("gs://bkt/runs").entries()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://", "a URL needs a host or bucket"),
        (
            "s3://user:key@bkt/runs",
            r"^s3://\.\.\.: a store's URL must not contain credentials: set them in the environment$",
        ),
        ("hf://datasets/a/b/c", "runs and caches can be in a local folder, or at an s3:// or gs:// URL"),
        ("s3://bkt/a/../b", "write s3://BUCKET/FOLDER"),
        ("s3://bkt/a?versionId=1", "write s3://BUCKET/FOLDER"),
    ],
)
def test_a_url_that_is_no_store_is_refused(url: str, message: str) -> None:
    for parse in (runs_folder, cache_folder):
        with pytest.raises(UsageError, match=message):
            parse(url)


@pytest.mark.parametrize(
    "location", ["https://example.org/runs", Path("s3://bkt/runs"), "file:///tmp/runs", "S3://b/r"]
)
def test_a_location_that_is_no_folder_and_no_store_is_refused(location: Path | str) -> None:
    for parse in (runs_folder, cache_folder):
        with pytest.raises(UsageError, match="can be in a local folder, or at an s3:// or gs:// URL") as error:
            parse(location)
        assert str(error.value).endswith(", as a string") is isinstance(location, Path)
        assert str(error.value).endswith(": write s3://b/r") is (location == "S3://b/r")
        assert parse("a:b/c") == Path("a:b/c")


def test_denied_access_and_a_missing_bucket_are_usage_errors(runs: str, s3: FaultyStore) -> None:
    with pytest.raises(UsageError, match=r"^s3://nowhere/runs: there is no such bucket$"):
        ObjectStore("s3://nowhere/runs").check_readable()
    s3.add("403", "GET", "list-type", times=99)
    with pytest.raises(UsageError, match=rf"^cannot list {runs}: access denied"):
        ObjectStore(runs).check_readable()
    s3.add("403", "PUT", "x", times=99)
    with pytest.raises(UsageError, match=rf"^cannot create {runs}/x: access denied"):
        ObjectStore(runs).create("x", b"1")


def test_a_claim_keeps_a_second_writer_out_until_it_is_released(any_store: str) -> None:
    store = ObjectStore(any_store)
    claim = RunClaim.acquire(store, "r")
    with pytest.raises(
        UsageError, match=rf"^{any_store}/r: is being written by process \d+ on .* since 20.*, last heard"
    ):
        RunClaim.acquire(store, "r")
    claim.renew()
    claim.release()
    second = RunClaim.acquire(store, "r")
    assert (claim.number, second.number) == (1, 2)
    state = read_claim(store, "r")
    assert state is not None
    assert state.number == 2
    assert state.body.state == "held"
    with pytest.raises(StorageError, match="another process has taken over this run"):
        claim.renew()
    assert [item.name for item in store.entries("r/claims") if "clock" in item.name] == []


def test_a_claim_whose_writer_is_silent_expires(any_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(any_store)
    first = RunClaim.acquire(store, "r")
    first.renew()
    now = claims._time_of_store(store, "r")
    monkeypatch.setattr(claims, "_time_of_store", lambda *_: now + timedelta(seconds=110))
    with pytest.raises(UsageError, match="if it was killed, its claim expires 120 s after it was last heard from"):
        RunClaim.acquire(store, "r")
    monkeypatch.setattr(claims, "_time_of_store", lambda *_: now + timedelta(seconds=125))
    assert RunClaim.acquire(store, "r").number == 2
    with pytest.raises(StorageError, match="another process has taken over this run"):
        first.check()
