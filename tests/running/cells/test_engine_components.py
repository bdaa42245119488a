"""Building the providers, graders and judges of a plan."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from engine_parts import plan_of
from toys import LOOK, SECOND, Toy

from visioneval import ProviderError, UsageError
from visioneval.running.cells.services import OfflineStub, build_components

OPENAI = {"provider": "openai", "label": "m", "params": {"model": "gpt-image-2"}}
JUDGE = {"provider": "openai", "model": "gpt-5.4"}
RUBRIC = {"key": "rubric", "type": "rubric", "metrics": {"good": {"type": "pass_fail", "description": "good?"}}}
PAID: dict[str, Any] = {"models": [OPENAI], "graders": [RUBRIC], "judges": {"default": JUDGE}, "verdict": ["good"]}


def test_components_are_keyed_by_label_and_key(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefgh")
    models = [{"provider": "mine:Generate", "label": label} for label in ("a", "b")]
    suite = {"models": models, "graders": [LOOK, RUBRIC], "judges": {"default": JUDGE, "unused": JUDGE}}
    built = build_components(plan_of(toy.write(**suite)))
    assert (list(built.providers), list(built.graders), list(built.judges)) == (
        ["a", "b"],
        ["look", "rubric"],
        ["default"],
    )
    assert type(built.providers["a"]).__name__ == "Generate"
    assert built.providers["a"] is not built.providers["b"]


def test_a_grader_that_applies_to_no_case_is_not_built(toy: Toy) -> None:
    plan = plan_of(toy.write({}, {"tags": ["x"]}, graders=[LOOK, {**SECOND, "when": {"tags": ["x"]}}]))
    assert list(build_components(plan).graders) == ["look", "second"]
    plan = plan_of(toy.folder / "suite.yaml", cases=("case0",))
    assert [grader.key for grader in plan.suite.graders] == ["look", "second"]
    assert list(build_components(plan).graders) == ["look"]


def test_a_plan_that_generates_nothing_has_no_providers(toy: Toy) -> None:
    plan = replace(plan_of(toy.write(models=[OPENAI])), generates=False)
    assert build_components(plan).providers == {}


def test_judges_that_watch_videos_are_named(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefgh")
    monkeypatch.setenv("GEMINI_API_KEY", "abcdefgh")
    judges = {"a": JUDGE, "b": {"provider": "gemini", "model": "gemini-3.5-flash"}}
    graders = [{**RUBRIC, "key": f"by_{name}", "judge": name} for name in judges]
    metrics = [{**grader, "metrics": {f"good_{at}": RUBRIC["metrics"]["good"]}} for at, grader in enumerate(graders)]  # type: ignore[index]
    plan = plan_of(toy.write(judges=judges, graders=metrics, verdict=["good_0"]))
    assert build_components(plan).watching == {"b"}


class TestKeys:
    """API keys are checked before anything is built."""

    def test_a_missing_key_is_reported_with_its_users(self, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "")
        with pytest.raises(UsageError) as failure:
            build_components(plan_of(toy.write(**PAID)))
        assert str(failure.value) == (
            "set the environment variable OPENAI_API_KEY, or put it into a file and run 'visioneval --env-file FILE ...': required by m, the judge 'default'"
        )  # fmt: skip

    def test_every_missing_key_has_a_line(self, toy: Toy) -> None:
        judges = {"default": {**JUDGE, "api_key_env": "OTHER_KEY"}}
        with pytest.raises(UsageError) as failure:
            build_components(plan_of(toy.write(**{**PAID, "judges": judges})))
        assert [line.partition(",")[0].split()[-1] for line in str(failure.value).splitlines()] == [
            "OPENAI_API_KEY", "OTHER_KEY"
        ]  # fmt: skip

    def test_offline_needs_no_key_and_makes_no_call(self, toy: Toy) -> None:
        built = build_components(plan_of(toy.write(**PAID)), offline=True)
        stub = built.providers["m"]
        assert isinstance(stub, OfflineStub)
        for call in (stub.generate(None), stub.edit(None), built.judges["default"].ask(None, None)):  # type: ignore[arg-type]
            with pytest.raises(ProviderError, match="no calls are made offline") as failure:
                asyncio.run(call)  # type: ignore[arg-type]
            assert failure.value.kind == "offline"

    def test_free_providers_are_built_offline(self, toy: Toy) -> None:
        built = build_components(plan_of(toy.write(models=[{"provider": "mock"}])), offline=True)
        assert not isinstance(built.providers["mock"], OfflineStub)


class TestTasks:
    """A provider must have a method for each task of the suite."""

    @pytest.fixture(autouse=True)
    def code(self, toy: Toy) -> None:
        code = "class Draw:\n    def __init__(self, config): ...\n    def generate(self, request): ...\n"
        (toy.folder / "drawing.py").write_text(code)
        toy.outputs("base.png")

    def test_a_missing_method_is_reported(self, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
        models = [{"provider": "drawing:Draw", "api_key_env": "DRAW_KEY"}]  # a check without its key builds no class
        plan = plan_of(toy.write({"images": ["base.png"]}, models=models))
        monkeypatch.setenv("DRAW_KEY", "sk-0123456789")
        with pytest.raises(UsageError, match="drawing:Draw: has no method 'edit', so it cannot do image_editing"):
            build_components(plan)

    def test_a_provider_restricted_to_its_tasks_is_built(self, toy: Toy) -> None:
        models = [
            {"provider": "drawing:Draw", "label": "d", "tasks": ["image_generation"]},
            {"provider": "mine:Generate"},
        ]
        plan = plan_of(toy.write({"images": ["base.png"]}, {}, models=models))
        assert list(build_components(plan).providers) == ["d", "mine:Generate"]


def test_a_class_that_cannot_be_built_is_reported(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    (toy.folder / "breaking.py").write_text("class Break:\n    def __init__(self, config): raise OSError('no disk')\n")
    plan = plan_of(toy.write(models=[{"provider": "breaking:Break", "api_key_env": "BREAK_KEY"}]))
    monkeypatch.setenv("BREAK_KEY", "sk-0123456789")
    with pytest.raises(UsageError, match="breaking:Break: cannot be created: OSError: no disk"):
        build_components(plan)
