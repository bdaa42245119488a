"""A cluster of two nodes on this machine, a fake API and an S3, shared by all tests here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from api_runs import ApiRun, images_for, quality
from buckets import fill_s3, s3_server
from fake_api import FakeAPI, JudgeRequest, Script
from gecko_script import judge
from ray.cluster_utils import Cluster
from ray_clusters import GRADERS, WHERE, running_cluster
from stores import FaultyStore, Machines, faulty, forget_stores

AWS = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nobody", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="session")
def api() -> Iterator[FakeAPI]:
    script = Script().generate(images_for)
    questions = judge(lambda *_: "yes")

    def answer(asked: JudgeRequest) -> Mapping[str, Any]:
        wanted = (asked.schema or {}).get("properties", {})
        if "quality" in wanted:
            return {"quality": quality(asked.images[0].data), "reason": "as it is", "verdict": "PASS"}
        return questions(asked) if {"keywords", "answers"} & wanted.keys() else {"answer": "tie", "reason": "alike"}

    script.judge(answer)
    with FakeAPI(script) as server:
        yield server


@pytest.fixture(autouse=True)
def quiet_api(api: FakeAPI) -> None:
    """Forgets the requests of the test before."""
    api.requests.clear()
    api.paid_by_digest.clear()
    api.latency.clear()
    api.faults.clear()
    api.paid.clear()


@pytest.fixture(scope="session")
def s3() -> Iterator[FaultyStore]:
    """moto's S3 behind a proxy that can fail."""
    with s3_server() as url, faulty(url) as proxy:
        fill_s3(url, "bkt", {})
        yield proxy


@pytest.fixture(scope="session")
def cluster(api: FakeAPI, s3: FaultyStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes of one core, beside a head without any."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**AWS, "AWS_ENDPOINT_URL": s3.url}.items():
            patch.setenv(name, value)
        with running_cluster(api, 2, tmp_path_factory.mktemp("nodes")) as (nodes, _):
            yield nodes


@pytest.fixture
def api_run(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ApiRun]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    (tmp_path / "where.py").write_text(WHERE)
    return lambda cells, **suite: ApiRun(tmp_path, api, cells, **{"graders": GRADERS, **suite})


@pytest.fixture
def machines(s3: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """Machines that share nothing but the store, which works. The driver is machine ``a``."""
    s3.reset()
    for name, value in {**AWS, "AWS_ENDPOINT_URL": s3.url}.items():
        monkeypatch.setenv(name, value)
    machines = Machines(tmp_path / "machines", monkeypatch)
    machines.use("a")
    yield machines
    forget_stores()
