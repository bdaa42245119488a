"""Plans of suites and of stored runs, and what ``run.json`` states about a new and a resumed run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from engine_parts import info_of, plan_of
from toys import Toy

from visioneval import RunFormatError, RunInfo, SuiteError, __version__
from visioneval.running.loading import SuiteOptions, load_plan, load_plans, load_stored_plan, secrets_to_give
from visioneval.running.plan import Plan
from visioneval.running.prepare import describe_run, new_run_id, now, resumed_info
from visioneval.suite.load import HIDDEN
from visioneval.suite.runs import Selection

SECRET = "hunter2-hunter2"
TRUSTED = SuiteOptions(trust=True)
WITH_SECRET: dict[str, Any] = {"vars": {"site_token": "none", "color": "red"}}


def test_the_time_is_iso_8601_in_utc_to_the_millisecond() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", now())


def test_a_run_id_contains_the_suite_in_safe_characters() -> None:
    ids = {new_run_id("my suite/ü") for _ in range(4)}
    assert all(re.fullmatch(r"\d{8}-\d{6}-my-suite---[0-9a-f]{4}", run_id) for run_id in ids)
    assert len(ids) > 1


def test_a_new_run_describes_its_plan(toy: Toy) -> None:
    suite = plan_of(toy.write({"tags": ["x"]}, {"tags": ["x"]}, {}, samples=3, experiment="spring"), tags=("x",))
    selection = Selection(tags=("x",))
    info = describe_run(suite, run_id="r", note="hello", command_line=("run", "s.yaml"))
    assert (info.run_id, info.state, info.planned_cells, info.selection) == ("r", "running", 6, selection)
    assert (info.experiment, info.note, info.command_line) == ("spring", "hello", ("run", "s.yaml"))
    assert (info.visioneval_version, info.suite_path) == (__version__, str(toy.folder / "suite.yaml"))
    assert (info.hidden_vars, info.suite) == ((), suite.whole_suite)
    assert [case.id for case in info.suite.cases] == ["case0", "case1", "case2"], "the whole suite is stored"
    assert info.selected_suite == suite.suite
    assert list(info.metrics) == ["fine", "level"]


def secret_suite(toy: Toy, **options: Any) -> Plan:
    path = toy.write({"prompt": "a tree {{ site_token }}"}, vars={"site_token": "none", "color": "red"})
    return plan_of(path, variables={"site_token": SECRET}, **options)


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        (("--var", f"site_token={SECRET}"), ("--var", "site_token=***")),
        ((f"--var=site_token={SECRET}",), ("--var=site_token=***",)),
        (("--var", "site_token=short"), ("--var", "site_token=***")),
        (("--var", "color=blue"), ("--var", "color=blue")),
        (("--note", f"about {SECRET}!"), ("--note", "about ***!")),
        (("--var", "my_site_token=other"), ("--var", "my_site_token=other")),
    ],
)
def test_values_of_hidden_variables_are_masked_in_the_command_line(
    toy: Toy, typed: tuple[str, ...], stored: tuple[str, ...]
) -> None:
    assert info_of(secret_suite(toy), typed=typed).command_line == stored


def test_the_commit_is_that_of_the_folder_of_the_suite(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(toy.folder.parent))
    suite = plan_of(toy.write())
    assert info_of(suite).git_commit is None
    git = ("git", "-C", str(toy.folder), "-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run([*git, "init", "--quiet"], check=True)
    assert info_of(suite).git_commit is None  # a repository without commits has a HEAD, and it names nothing
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "x"], check=True)
    commit = info_of(suite).git_commit
    assert commit is not None
    assert re.fullmatch("[0-9a-f]{40}", commit)


def test_without_git_there_is_no_commit(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(toy.folder))
    assert info_of(plan_of(toy.write())).git_commit is None


class TestResumedInfo:
    """``run.json`` after a resume."""

    def test_it_runs_again_and_notes_the_time(self, toy: Toy) -> None:
        stored = info_of(plan_of(toy.write())).model_copy(
            update={"state": "interrupted", "ended_at": now(), "stopped_by": "budget", "note": "first"}
        )
        again = resumed_info(stored, info_of(plan_of(toy.write()), note="second"), uses_stored_suite=False)
        assert (again.state, again.ended_at, again.stopped_by, len(again.resumed_at)) == ("running", None, None, 1)
        assert (again.run_id, again.started_at, again.note) == (stored.run_id, stored.started_at, "first")
        twice = resumed_info(again, stored, uses_stored_suite=False)
        assert twice.resumed_at[:1] == again.resumed_at
        assert len(twice.resumed_at) == 2

    def test_the_current_suite_replaces_the_stored_suite(self, toy: Toy) -> None:
        stored = info_of(plan_of(toy.write({}))).model_copy(update={"visioneval_version": "0.0.1"})
        current = info_of(plan_of(toy.write({}, {}, experiment="b", name="other.yaml")))
        again = resumed_info(stored, current, uses_stored_suite=False)
        assert (again.planned_cells, again.experiment, again.suite) == (2, "b", current.suite)
        assert (again.visioneval_version, again.suite_path) == (__version__, current.suite_path)
        assert (again.source_sha256, again.metrics) == (current.source_sha256, current.metrics)


def test_the_path_of_the_suite_is_free_of_secrets(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_TOKEN", SECRET)
    (toy.folder / SECRET).mkdir()
    path = toy.write(name=f"{SECRET}/suite.yaml", models=[{"provider": "mock"}], graders=[{"key": "i", "type": "properties"}], verdict=["not i.blank"])  # fmt: skip
    assert Path(info_of(plan_of(path)).suite_path).parts[-2:] == (HIDDEN, "suite.yaml")


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
