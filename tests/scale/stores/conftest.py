"""Stores for tests: S3 by moto, and a Google Cloud Storage with preconditions; machines of their own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import fsspec
import pytest
from buckets import fill_s3, s3_server
from fake_gcs import gcs_with_preconditions
from stores import FaultyStore, Machines, faulty, forget_clients, forget_stores

from visioneval.records.stores import store
from visioneval.records.stores.claims import RunClaim
from visioneval.records.stores.store import ObjectStore

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def _s3() -> Iterator[FaultyStore]:
    forget_clients()
    with s3_server() as url, faulty(url) as proxy:
        fill_s3(url, "bkt", {})
        yield proxy


@pytest.fixture(scope="session")
def _gcs() -> Iterator[FaultyStore]:
    forget_clients()
    with gcs_with_preconditions() as url, faulty(url) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def claims_of_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the renewal of claims that the test has not released, as the end of their processes would."""
    acquire, claims = RunClaim.acquire, list[RunClaim]()

    def noted(target: ObjectStore, run_id: str) -> RunClaim:
        claims.append(acquire(target, run_id))
        return claims[-1]

    monkeypatch.setattr(RunClaim, "acquire", noted)
    yield
    for claim in claims:
        claim._stopped.set()


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """Machines that share nothing but stores. The process is machine ``a``."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "nobody")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # else gcsfs looks for a metadata server for a minute
    monkeypatch.setattr(store, "FIRST_WAIT_S", 0.01)
    monkeypatch.chdir(tmp_path)
    result = Machines(tmp_path / "machines", monkeypatch)
    result.use("a")
    yield result
    forget_stores()


@pytest.fixture
def s3(_s3: FaultyStore, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    """moto's S3 behind a proxy that can fail."""
    _s3.reset()
    monkeypatch.setenv("AWS_ENDPOINT_URL", _s3.url)
    return _s3


@pytest.fixture
def gcs(_gcs: FaultyStore, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    """A Google Cloud Storage behind a proxy that can fail."""
    _gcs.reset()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", _gcs.url)
    return _gcs


@pytest.fixture
def runs(s3: FaultyStore) -> str:
    """The URL of a folder of runs of its own."""
    return f"s3://bkt/runs{next(_NUMBERS)}"


@pytest.fixture(params=["s3", "gs"])
def any_runs(request: pytest.FixtureRequest) -> str:
    """The URL of a folder of runs of its own, in each kind of store."""
    request.getfixturevalue("s3" if request.param == "s3" else "gcs")
    return f"{request.param}://bkt/runs{next(_NUMBERS)}"


@pytest.fixture(params=["s3", "gs", "memory", "file"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL in each kind of store that fsspec has, also in a folder and in memory."""
    if request.param in ("s3", "gs"):
        request.getfixturevalue("s3" if request.param == "s3" else "gcs")
        return f"{request.param}://bkt/runs{next(_NUMBERS)}"
    monkeypatch.setitem(fsspec.config.conf, "file", {"auto_mkdir": True})
    return f"{request.param}://{tmp_path}/runs{next(_NUMBERS)}"
