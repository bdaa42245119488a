"""``tracking:`` of a suite: what it may name without trust."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from visioneval.suite.load import LoadedSuite

BASE = """\
name: demo
cases: [{id: one, prompt: a tree}]
models: [{provider: mock}]
graders: [{key: image, type: properties}]
verdict: [not image.blank]
tracking: {}
"""
VIDEOS = """\
name: demo
task: {}
cases: [{id: one, prompt: a tree}, {id: two, prompt: a fox}]
models: [{provider: mock}]
graders: [{key: clip, type: GRADER}]
verdict: [not clip.blank]
"""
REFUSED = [
    ("{to: mlflow, uri: 'http://10.0.0.5:5000'}", "results would be sent to '10.0.0.5': pass --trust-suite, or add it to"),
    ("{to: mlflow, uri: '/tmp/mlruns'}", "'/tmp/mlruns' is not an http address: pass --trust-suite"),
    ("{to: mlflow, uri: databricks}", "'databricks' is not an http address: pass --trust-suite"),
    ("{to: wandb, entity: strangers}", "results would be sent to the account 'strangers': pass --trust-suite"),
    ("{to: vertex, project: theirs, location: us-central1}", "or add the project 'theirs' to VISIONEVAL_TRUSTED_PROJECTS"),
    ("{to: vertex, project: p, location: l, bucket: 'gs://theirs/x'}", "results would be written to 'gs://theirs/x'"),
]  # fmt: skip
ALLOWED = [
    "{to: mlflow}",
    "{to: mlflow, uri: 'http://127.0.0.1:5000', rows: 10, report: false, experiment: other}",
    "{to: wandb, project: trees}",
    "{to: wandb, entity: anyone, mode: offline}",
    "{to: vertex, project: mine, location: us-central1}",
]


@pytest.mark.parametrize(("entry", "message"), REFUSED)
def test_a_suite_without_trust_names_no_host_and_no_account(
    problems: Callable[..., list[str]], load: Callable[..., LoadedSuite], entry: str, message: str
) -> None:
    text = BASE.replace("{}", entry)
    (problem,) = problems(text)
    assert problem.startswith("suite.yaml:6:")
    assert message in problem
    assert load(text, trust=True).suite.tracking is not None


@pytest.mark.parametrize("entry", ALLOWED)
def test_what_the_environment_or_the_key_decides_needs_no_trust(
    load: Callable[..., LoadedSuite], entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("VISIONEVAL_TRUSTED_PROJECTS", "mine")
    assert load(BASE.replace("{}", entry)).suite.tracking is not None


def test_a_missing_client_is_a_warning_before_the_run(
    load: Callable[..., LoadedSuite], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("visioneval.suite.tracking.is_installed", lambda module: module != "wandb")
    assert load(BASE.replace("{}", "{to: mlflow}")).warnings == ()
    (warning,) = load(BASE.replace("{}", "{to: wandb}")).warnings
    assert str(warning).endswith(
        "suite.yaml:6:16: warning: wandb needs an extra: run pip install -e '.[wandb]' in a checkout of visioneval"
    )


def test_suites_of_videos_warn_where_videos_cannot_be_read(
    load: Callable[..., LoadedSuite], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = VIDEOS.replace("{}", "video_generation").replace("GRADER", "video").replace("not clip.blank", "clip")
    assert load(suite).warnings == ()
    monkeypatch.setattr("visioneval.suite.checks.suite.can_read_videos", lambda: False)
    (warning,) = load(suite).warnings
    assert str(warning).endswith(": videos need an extra: run pip install -e '.[video]' in a checkout of visioneval")
    assert load(VIDEOS.replace("{}", "image_generation").replace("GRADER", "properties")).warnings == ()
