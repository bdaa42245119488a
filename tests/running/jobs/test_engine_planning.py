"""Loading suites and stored runs into plans, and the checks that a resumed run needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_parts import info_of, plan_of
from toys import Toy

from visioneval import RunFormatError, RunInfo, SuiteError, UsageError
from visioneval.records.writer import RunWriter
from visioneval.running.loading import (
    Plan,
    SuiteOptions,
    check_same_suite,
    check_secrets,
    load_plan,
    load_plans,
    load_stored_plan,
    secrets_to_give,
)
from visioneval.suite.selection.selection import Selection

SECRET = "hunter2-hunter2"
TRUSTED = SuiteOptions(trust=True)
WITH_SECRET: dict[str, Any] = {"vars": {"site_token": "none", "color": "red"}}


def store(suite: Plan, run_id: str = "r") -> Path:
    """The folder of a stored run of this suite."""
    writer = RunWriter.create(Path("runs"), info_of(suite, run_id))
    writer.finish("interrupted", "2025-01-01T00:00:00+00:00")
    return writer.folder


def secret_run(toy: Toy) -> Path:
    """The folder of a run whose variable ``site_token`` is a secret."""
    return store(plan_of(toy.write(**WITH_SECRET), variables={"site_token": SECRET}))


def test_a_plan_has_the_selected_cells(toy: Toy) -> None:
    path = toy.write({}, {"tags": ["x"]}, {"tags": ["x"]})
    options = SuiteOptions(selection=Selection(tags=("x",), limit=1, samples=2), trust=True)
    suite = load_plan(path, options)
    assert [case.id for case in suite.suite.cases] == ["case1"]
    assert (suite.cells, len(suite.loaded.suite.cases)) == (2, 3)


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


def test_a_stored_plan_equals_the_original(toy: Toy) -> None:
    suite = plan_of(toy.write({}, {}, samples=2))
    stored = load_stored_plan(store(suite), TRUSTED)
    assert stored.loaded.is_from_run
    assert not suite.loaded.is_from_run
    assert (stored.suite, stored.whole_suite, stored.cells) == (
        suite.suite,
        suite.whole_suite,
        4,
    )
    assert stored.loaded.source_sha256 == suite.loaded.source_sha256


def test_a_stored_plan_may_select_less(toy: Toy) -> None:
    options = SuiteOptions(selection=Selection(cases=("case1",)), trust=True)
    assert load_stored_plan(store(plan_of(toy.write({}, {}))), options).cells == 1


def test_a_folder_without_a_run_has_no_stored_plan(toy: Toy) -> None:
    with pytest.raises(RunFormatError, match=r"run\.json"):
        load_stored_plan(toy.folder, TRUSTED)


def test_a_stored_plan_needs_its_secrets_again(toy: Toy) -> None:
    folder = secret_run(toy)
    with pytest.raises(UsageError, match="--var site_token=VALUE"):
        load_stored_plan(folder, TRUSTED)
    options = SuiteOptions(variables={"site_token": SECRET}, trust=True)
    plan = load_stored_plan(folder, options)
    assert (plan.suite.vars["site_token"], plan.secrets) == (SECRET, {"site_token": SECRET})


def test_all_missing_secrets_are_named() -> None:
    options = SuiteOptions(variables={"b": "x"})
    with pytest.raises(UsageError, match=r"^runs/r: .* --var a=VALUE --var c=VALUE$"):
        check_secrets(Path("runs/r"), ["a", "b", "c"], options)


@pytest.mark.parametrize("names", [[], ["b"]])
def test_secrets_that_are_given_are_not_missing(names: list[str]) -> None:
    check_secrets(Path("runs/r"), names, SuiteOptions(variables={"b": "x"}))


class TestSecretsToGive:
    """Secret variables of a run that must be given again for a suite from a file."""

    @pytest.fixture
    def info(self, toy: Toy) -> RunInfo:
        return info_of(plan_of(toy.write(**WITH_SECRET), variables={"site_token": SECRET}))

    def test_a_variable_without_its_value_must_be_given(self, toy: Toy, info: RunInfo) -> None:
        assert secrets_to_give(info, plan_of(toy.write(**WITH_SECRET))) == ["site_token"]

    def test_a_variable_that_the_suite_lost_is_not_needed(self, toy: Toy, info: RunInfo) -> None:
        assert secrets_to_give(info, plan_of(toy.write(vars={"color": "red"}))) == []

    def test_a_variable_that_is_given_is_not_needed(self, toy: Toy, info: RunInfo) -> None:
        plan = plan_of(toy.write(**WITH_SECRET), variables={"site_token": "another-secret"})
        assert secrets_to_give(info, plan) == []

    def test_a_variable_that_the_suite_sets_to_a_key_is_not_needed(
        self, toy: Toy, info: RunInfo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SITE_KEY", SECRET)
        assert secrets_to_give(info, plan_of(toy.write(vars={"site_token": SECRET}))) == []


def test_a_run_of_the_same_suite_may_be_resumed(toy: Toy) -> None:
    folder = store(plan_of(toy.write({})))
    check_same_suite(folder, plan_of(toy.write({}, {}, {}, samples=2)), TRUSTED)


def test_a_run_of_another_suite_may_not_be_resumed(toy: Toy) -> None:
    folder = store(plan_of(toy.write()))
    other = toy.write(name="b.yaml")
    other.write_text(other.read_text().replace('"toy"', '"other"', 1))
    with pytest.raises(UsageError, match=r"is a run of the suite 'toy', not of 'other'"):
        check_same_suite(folder, plan_of(other), TRUSTED)


def test_a_resumed_suite_needs_its_secrets_again(toy: Toy) -> None:
    folder = secret_run(toy)
    plan = plan_of(toy.write(**WITH_SECRET))
    with pytest.raises(UsageError, match="--var site_token=VALUE"):
        check_same_suite(folder, plan, TRUSTED)
    check_same_suite(folder, plan, SuiteOptions(variables={"site_token": SECRET}))
