"""Loading suites and stored runs into plans, and the checks that a resumed run needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_parts import info_of, plan_of
from toys import Toy

from visioneval import RunFormatError, RunInfo, SuiteError
from visioneval.running.loading import (
    SuiteOptions,
    load_plan,
    load_plans,
    load_stored_plan,
    secrets_to_give,
)

SECRET = "hunter2-hunter2"
TRUSTED = SuiteOptions(trust=True)
WITH_SECRET: dict[str, Any] = {"vars": {"site_token": "none", "color": "red"}}


def test_a_plan_of_code_needs_trust(toy: Toy) -> None:
    with pytest.raises(SuiteError, match="--trust-suite"):
        load_plan(toy.write(), SuiteOptions())


def test_variables_and_judges_replace_those_of_the_suite(toy: Toy) -> None:
    judges = {"default": {"provider": "openai", "model": "gpt-5.4"}}
    path = toy.write({"prompt": "a {{ color }} tree"}, vars={"color": "red"}, judges=judges)
    options = SuiteOptions(variables={"color": "blue"}, judges={"default": "gemini:gemini-4-argon"}, trust=True)
    plan = load_plan(path, options)
    assert [call.prompt for call in plan.calls()] == ["a blue tree"]
    assert plan.suite.judges["default"].title == "gemini:gemini-4-argon"


def test_plans_report_the_problems_of_all_suites(toy: Toy) -> None:
    paths = [toy.write(name="a.yaml", color=1), toy.write(name="b.yaml"), toy.write(name="c.yaml", shape=1)]
    with pytest.raises(SuiteError) as failure:
        load_plans(paths, TRUSTED)
    assert [Path(problem.file).name for problem in failure.value.problems] == ["a.yaml", "c.yaml"]
    assert [suite.loaded.path.name for suite in load_plans(paths[1:2], TRUSTED)] == ["b.yaml"]


def test_plans_name_a_path_that_does_not_exist(toy: Toy) -> None:
    with pytest.raises(SuiteError, match=r"no\.yaml"):
        load_plans([toy.write(), Path("no.yaml")], TRUSTED)


def test_a_folder_without_a_run_has_no_stored_plan(toy: Toy) -> None:
    with pytest.raises(RunFormatError, match=r"run\.json"):
        load_stored_plan(toy.folder, TRUSTED)


class TestSecretsToGive:
    """Secret variables of a run that must be given again for a suite from a file."""

    @pytest.fixture
    def info(self, toy: Toy) -> RunInfo:
        return info_of(plan_of(toy.write(**WITH_SECRET), variables={"site_token": SECRET}))

    def test_a_variable_that_the_suite_lost_is_not_needed(self, toy: Toy, info: RunInfo) -> None:
        assert secrets_to_give(info, plan_of(toy.write(vars={"color": "red"}))) == []

    def test_a_variable_that_the_suite_sets_to_a_key_is_not_needed(
        self, toy: Toy, info: RunInfo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SITE_KEY", SECRET)
        assert secrets_to_give(info, plan_of(toy.write(vars={"site_token": SECRET}))) == []
