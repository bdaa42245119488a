"""Machine credentials: which hosts they are sent to, and the trust that their use requires."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI
from pydantic import BaseModel, ValidationError
from tables import rows_of
from toys import Toy
from vertex import ProxyLog, vertex

from visioneval.suite.model import Suite
from visioneval.suite.remote import GeminiOptions, GoogleCloud, is_vertex_host

rows = rows_of(__file__)

CLOUD = {"project": "shop", "location": "europe-west4"}
TRUST = "pass --trust-suite if you trust this suite, or add the project 'shop' to VISIONEVAL_TRUSTED_PROJECTS"


@pytest.fixture
def google(
    api: FakeAPI, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ProxyLog]:
    server = api.gemini_base_url
    with vertex(server, api.key, tmp_path_factory.mktemp("google"), monkeypatch) as seen:
        yield seen


def suite(toy: Toy, cloud: dict[str, Any], *, model: bool = True, judge: bool = True, **more: Any) -> Path:
    """A suite whose model and judge are on Vertex AI, or one of them."""
    entry = {"provider": "gemini", "google": cloud, **more}
    generated = {"provider": "gemini", "params": {"model": "gemini-nano-banana-2.1"}, "google": cloud, **more}
    text = {
        "name": "v",
        "judges": {
            "default": {**entry, "model": "gemini-3.5-flash"} if judge else {"provider": "gemini", "model": "m"}
        },
        "cases": [{"id": "a", "prompt": "A bun."}],
        "models": [generated if model else {"provider": "mock"}],
        "graders": [{"key": "alignment", "type": "alignment"}],
        "verdict": ["alignment >= 0"],
        "gates": ["error_rate <= 1"],
    }
    path = toy.folder / "v.yaml"
    path.write_text(json.dumps(text, indent=1))
    return path


@pytest.mark.parametrize("where", ["model", "judge"])
@pytest.mark.parametrize("key", ["location", "project"])
def test_a_host_in_the_name_of_a_project_or_a_location_gets_no_token(
    toy: Toy, google: ProxyLog, api: FakeAPI, where: str, key: str
) -> None:
    path = suite(toy, {**CLOUD, key: "evil.example/"}, model=where == "model", judge=where == "judge")
    for arguments in (["validate"], ["plan"], ["run", "--trust-suite"]):
        result = toy(arguments[0], path, *arguments[1:], VISIONEVAL_TRUSTED_PROJECTS="shop,evil.example/")
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert line.endswith(f"{key}: 'evil.example/' is not valid: use a-z, 0-9 and '-'"), line
        assert line.startswith(f"{path}:"), line
    assert (google.hosts, google.tokens, api.requests) == ([], [], [])


@pytest.mark.parametrize("where", ["model", "judge"])
def test_an_untrusted_suite_does_not_use_machine_credentials(
    toy: Toy, google: ProxyLog, api: FakeAPI, where: str
) -> None:
    path = suite(toy, CLOUD, model=where == "model", judge=where == "judge")
    for command in ("validate", "plan", "run"):
        for projects in ("", "shops, sho", "*"):
            result = toy(command, path, VISIONEVAL_TRUSTED_PROJECTS=projects)
            assert (result.exit_code, TRUST in result.stderr) == (2, True), result.output
            assert result.stderr.startswith(f"{path}:")
            assert ":0:" not in result.stderr
    assert (google.hosts, google.tokens, api.requests) == ([], [], [])


@pytest.mark.parametrize(("arguments", "projects"), [(["--trust-suite"], ""), ([], "other, shop")])
def test_with_trust_or_the_projects_name_only_google_is_called(
    toy: Toy, google: ProxyLog, api: FakeAPI, arguments: list[str], projects: str
) -> None:
    result = toy("run", suite(toy, CLOUD), *arguments, VISIONEVAL_TRUSTED_PROJECTS=projects)
    assert result.exit_code in (0, 3), result.output
    assert set(google.hosts) == {"europe-west4-aiplatform.googleapis.com"}
    assert api.paid.keys() == {"vertex"}
    assert all("/projects/shop/locations/europe-west4/" in request.path for request in api.requests)
    assert {record.status for record in toy.records.values()} == {"completed"}


def test_a_resource_of_another_project_needs_that_project_too(toy: Toy, google: ProxyLog) -> None:
    path = suite(toy, CLOUD, model=False)
    path.write_text(path.read_text().replace('"gemini-3.5-flash"', '"projects/prod/locations/us/endpoints/1"'))
    result = toy("validate", path, VISIONEVAL_TRUSTED_PROJECTS="shop")
    assert (result.exit_code, "add the project 'prod' to VISIONEVAL_TRUSTED_PROJECTS" in result.stderr) == (2, True), (
        result.output
    )
    assert toy("validate", path, VISIONEVAL_TRUSTED_PROJECTS="shop,prod").exit_code == 0


@pytest.mark.parametrize(
    "url",
    ["https://evil.example", "http://aiplatform.googleapis.com", "https://aiplatform.googleapis.com.evil.example"],
)
def test_no_trust_sends_them_to_another_host(toy: Toy, google: ProxyLog, url: str) -> None:
    path = suite(toy, CLOUD, base_url=url)
    result = toy(
        "run", path, "--trust-suite", VISIONEVAL_TRUSTED_PROJECTS="shop", VISIONEVAL_TRUSTED_HOSTS="evil.example"
    )
    assert (result.exit_code, result.stderr.count("this machine's Google credentials are sent only to Vertex AI")) == (
        2,
        2,
    ), result.output
    assert (google.hosts, google.tokens) == ([], [])


def test_a_run_that_is_resumed_or_graded_needs_the_same_trust(toy: Toy, google: ProxyLog) -> None:
    assert toy("run", suite(toy, CLOUD), "--trust-suite", "--run-id", "r").exit_code in (0, 3)
    seen = len(google.hosts)
    for arguments in (["run", "--resume", "r"], ["grade", "r"], ["pairwise", "r", "r"]):
        result = toy(*arguments)
        assert (result.exit_code, TRUST in result.stderr) == (2, True), result.output
    info = toy.folder / "runs" / "r" / "run.json"
    info.write_text(info.read_text().replace('"europe-west4"', '"evil.example/"'))
    result = toy("run", "--resume", "r", "--trust-suite")
    assert (result.exit_code, "pattern" in result.stderr) == (2, True), result.output
    assert len(google.hosts) == seen


@pytest.mark.parametrize("value", ["", "a b", "a.b", "a/b", "A", "a\n", "\u0430", "a:b", "x" * 64])
def test_project_and_location_are_names(value: str) -> None:
    for key in ("project", "location"):
        with pytest.raises(ValidationError):
            GoogleCloud.model_validate({**CLOUD, key: value})


@pytest.mark.parametrize("location", ["global", "us", "eu", "europe-west4", "-", "a--b"])
def test_every_location_is_served_by_google(location: str) -> None:
    options = GeminiOptions(google=GoogleCloud(project="p", location=location))
    assert options.host_problem(trusted=False) is None


@pytest.mark.parametrize(("host", "custom"), rows("hosts_of_vertex_ai"))
def test_hosts_of_vertex_ai(host: str, custom: bool) -> None:
    assert is_vertex_host(host) is custom


def _models(model: type[BaseModel], seen: set[type[BaseModel]]) -> None:
    if model not in seen:
        seen.add(model)
        for hint in typing.get_type_hints(model, include_extras=True).values():
            _models_in(hint, seen)


def _models_in(hint: Any, seen: set[type[BaseModel]]) -> None:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        _models(hint, seen)
    for inner in typing.get_args(hint):
        _models_in(inner, seen)


def _patterns(metadata: Any) -> list[str]:
    return [result for item in metadata if (result := getattr(item, "pattern", None)) is not None]


def _patterns_of_each_level(hint: Any) -> Iterator[list[str]]:
    yield _patterns(getattr(hint, "__metadata__", ()))
    for inner in typing.get_args(hint):
        yield from _patterns_of_each_level(inner)


def test_no_pattern_overrides_another_silently() -> None:
    seen: set[type[BaseModel]] = set()
    _models(Suite, seen)
    assert {GoogleCloud, Suite} < seen
    for model in seen:
        for name, hint in typing.get_type_hints(model, include_extras=True).items():
            levels = [*_patterns_of_each_level(hint)]
            if name in model.model_fields:
                levels.append(_patterns(model.model_fields[name].metadata))
            assert max(map(len, levels)) < 2, f"{model.__name__}.{name}: only one of its patterns is looked at"


def test_the_documents_and_the_workflow_name_the_variable() -> None:
    root = Path(__file__).parents[3]
    for name in (
        "docs/how_to/keys_and_trust.md",
        "docs/reference/suite/trust.md",
        "docs/reference/action.md",
        "visioneval/cli/github.yml",
    ):
        assert "VISIONEVAL_TRUSTED_PROJECTS" in (root / name).read_text(encoding="utf-8"), name
