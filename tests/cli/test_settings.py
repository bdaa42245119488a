"""Each setting of runs means the same as a keyword, as a flag, in the docs and in the command that resumes a run."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import pytest
from toys import Toy

import visioneval as ve
from visioneval.api.options import run_options
from visioneval.running import prepare as runs
from visioneval.running.prepare import RunOptions
from visioneval.settings import ADVANCED, SETTINGS, Setting, as_words

FUNCTIONS = (ve.run, ve.plan, ve.grade, ve.probe, ve.compare, ve.pairwise)
NEEDED: dict[str, dict[str, Any]] = {
    "keep_errors": {"resume": "r"},
    "retry_unusable": {"reuse": "all"},
    "ray_address": {"ray": True},
    "workers": {"ray": True},
    "max_samples": {"until_decided": True},
    "baseline": {"until_decided": True},
}
"""What else must be set for a setting to be valid."""
VALUES = {"shard": "1/4", "resume": "r", "ray_address": "auto", "run_id": "r", "reuse": "all"}


def value_of(setting: Setting) -> Any:
    """A value that is not the default."""
    if setting.name in VALUES:
        return VALUES[setting.name]
    if setting.type is bool:
        return True
    if setting.is_list:
        return ["a", "b*"]
    if setting.is_mapping:
        return {"a": "openai:gpt-5.4", "b": "gemini:gemini-3.5-flash"}
    return 3 if setting.minimum is not None else "text"


@pytest.fixture
def parsed(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunOptions]:
    """The options that ``run`` makes of a command line, without the command line itself."""
    assert toy.run({}, arguments=("--run-id", "r")).exit_code == 0
    seen: list[RunOptions] = []

    def plan_runs(_: object, options: RunOptions) -> None:
        seen.append(replace(options, command_line=(), words=()))
        raise ve.UsageError("seen")

    monkeypatch.setattr(runs, "plan_runs", plan_runs)

    def parse(*words: str) -> RunOptions:
        assert toy("run", *words).stderr == "seen\n"
        return seen.pop()

    return parse


@pytest.mark.parametrize("name", SETTINGS)
def test_a_flag_means_what_its_keyword_means(name: str, parsed: Callable[..., RunOptions]) -> None:
    given: Any = {**NEEDED.get(name, {}), name: value_of(SETTINGS[name])}
    options = replace(run_options(**given), words=())
    assert parsed(*as_words(given)) == options
    without = {key: value for key, value in given.items() if key != name}
    assert options != replace(run_options(**without), words=())
    assert parsed(*as_words(without)) == replace(run_options(**without), words=())


def test_settings_with_their_default_are_no_words() -> None:
    assert list(as_words({name: setting.default for name, setting in SETTINGS.items()})) == []
    assert list(as_words({"variables": {"a": 1, "b": "no", "c": [True]}})) == [
        *("--var", "a=1", "--var", "b=no", "--var", "c=[true]")
    ]


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_the_range_of_a_setting_is_that_of_its_flag(setting: Setting, toy: Toy) -> None:
    needed = NEEDED.get(setting.name, {})
    for limit, step in ((setting.minimum, -1), (setting.maximum, 1)):
        if limit is None:
            continue
        given: Any = {**needed, setting.name: limit}
        run_options(**given)
        given[setting.name] += step * min(limit, 1)
        with pytest.raises(ve.UsageError, match="must be"):
            run_options(**given)
        result = toy("run", *as_words(given))
        assert (result.exit_code, f"visioneval run: {setting.flag}: " in result.stderr) == (2, True)


@pytest.mark.parametrize("command", ["run", "grade", "probe", "validate", "report"])
def test_help_shows_what_people_use_and_help_all_the_rest(toy: Toy, command: str) -> None:
    short, long = (toy(command, flag, COLUMNS="100").stdout for flag in ("--help", "--help-all"))
    shown = [group for group in ADVANCED if f"─ {group} ─" in long]
    assert "Bounds" in shown
    assert f"--help-all also shows the flags of these groups: {', '.join(shown)}." in short.strip().splitlines()[-1]
    assert not [group for group in ADVANCED if f"─ {group} ─" in short]
    assert set(re.findall(r"--[a-z-]+", short)) < set(re.findall(r"--[a-z-]+", long))
    assert "also shows" not in long
    assert toy(command, "--help", COLUMNS="100").stdout == short


def test_a_command_without_advanced_flags_has_no_help_all(toy: Toy) -> None:
    assert "--help-all" not in toy("show", "--help").stdout
    assert "No such option: --help-all" in toy("show", "--help-all").stderr


def keywords(function: Callable[..., Any]) -> set[str]:
    """The settings that a function of the API takes, as its own parameters or with others."""
    (taken,) = get_args(get_type_hints(function)["settings"])
    return {*inspect.signature(function).parameters, *get_type_hints(taken)}


@pytest.mark.parametrize("function", [function for function in FUNCTIONS if function is not ve.plan])
def test_a_command_has_a_flag_for_each_setting_of_its_function(function: Callable[..., Any], toy: Toy) -> None:
    """But ``plan``, which calls nothing: its function takes the settings of a run, so that both can get the same."""
    flags = set(re.findall(r"--[a-z-]+", toy(function.__name__, "--help-all", COLUMNS="100").stdout))
    assert [name for name in keywords(function) & SETTINGS.keys() if SETTINGS[name].flag not in flags] == []


def test_the_command_that_resumes_a_run_of_the_api_repeats_its_settings(toy: Toy) -> None:
    path = toy.write(
        {}, {"metadata": {"generate": "raises"}}, vars={"a": "x"}, prices={"mine:Generate": {"per_image": 1}}
    )
    run = ve.run(
        path, trust_suite=True, budget_usd=2.5, cache="c", reuse="all", samples=2, variables={"a": 1}, note="n"
    )
    assert json.loads((run.folder / "run.json").read_text())["command_line"] == []
    assert run.resume_hint == (
        f"to resume: visioneval run --resume runs/{run.folder.name} --trust-suite --budget 2.5 --cache c --reuse all"
    )
