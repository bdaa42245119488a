"""Flags, settings and exit codes that several commands share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import visioneval as ve
from visioneval import ExitCode, UsageError
from visioneval.api.options import run_options
from visioneval.bounds import CELLS, Bound
from visioneval.cli.options import exit_with, pairs
from visioneval.errors import count_of


@pytest.mark.parametrize(
    ("codes", "worst"), [((0, 0), 0), ((0, 1), 1), ((1, 3), 3), ((3, 1, 0), 3), ((3, 2), 2), ((2, 130, 1), 130)]
)
def test_the_worst_of_several_exit_codes_counts(codes: tuple[int, ...], worst: int) -> None:
    """What was not measured outweighs what failed."""
    assert ExitCode.most_severe(codes) == worst


def test_no_fail_changes_failed_gates_only() -> None:
    assert [exit_with(code, no_fail=True).exit_code for code in (0, 1, 2, 3, 130)] == [0, 0, 2, 3, 130]
    assert [exit_with(code, no_fail=False).exit_code for code in (0, 1, 2, 3, 130)] == [0, 1, 2, 3, 130]


def test_pairs_are_named_once() -> None:
    assert pairs("--var", "NAME=VALUE", ["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for texts, message in (
        (["a=1", "a=2"], "--var a: given twice"),
        (["a"], "--var 'a': write NAME=VALUE"),
        (["=1"], "--var '=1': write NAME=VALUE"),
    ):
        with pytest.raises(UsageError) as error:
            pairs("--var", "NAME=VALUE", texts)
        assert str(error.value) == message


@pytest.mark.parametrize(("number", "text"), [(0, "0 cells"), (1, "1 cell"), (1200, "1,200 cells")])
def test_counts(number: int, text: str) -> None:
    assert count_of(number, "cell") == text


VARIABLE = "VISIONEVAL_MAX_CELLS"


def test_a_flag_outweighs_the_environment_and_that_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = Bound(replace(CELLS.setting, default=7))
    assert bound.limit == 7
    monkeypatch.setenv(VARIABLE, "9")
    assert bound.limit == 9
    bound.override = 8
    assert bound.limit == 8


@pytest.mark.parametrize("text", ["0", "-1", "1e3", "٣", "many", "9" * 20])
def test_an_invalid_limit_in_the_environment_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(UsageError, match=f"^{VARIABLE}='{text}': must be a whole number from 1 to "):
        _ = CELLS.limit


def test_settings_of_new_samples_need_confirm() -> None:
    with pytest.raises(UsageError, match=r"^budget_usd, offline: only for new samples, so only with confirm$"):
        ve.compare("a", "b", budget_usd=1, offline=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cases": "one"}, "cases must be a list of strings, not one string"),
        ({"graders": "look"}, "graders must be a list of strings, not one string"),
        ({"variables": ["a"]}, "variables must be a dictionary"),
        ({"budget_usd": 0}, "the budget must be a positive number of US dollars, not 0"),
        ({"budget_usd": -1.5}, "the budget must be a positive number of US dollars, not -1.5"),
        ({"budget_usd": float("nan")}, "the budget must be a positive number of US dollars, not nan"),
        ({"budget_usd": float("inf")}, "the budget must be a positive number of US dollars, not inf"),
        ({"limit": 0}, "limit must be at least 1, not 0"),
        ({"samples": 1001}, "samples must be from 1 to 1000, not 1001"),
        ({"max_concurrency": 0}, "max_concurrency must be from 1 to 4096, not 0"),
        ({"reuse": "some"}, "reuse: 'some' is not valid: use all, judges, none"),
        ({"shard": "3/2"}, "--shard 3/2: use I/N, such as 1/4, with I from 1 to N"),
        ({"workers": 2}, "--workers needs --ray"),
        (
            {"offline": True, "reuse": "none"},
            "offline takes all answers from the cache, and reuse 'none' takes none: leave out one of them",
        ),
    ],
)
def test_an_invalid_setting_is_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        run_options(**settings)
    assert str(error.value) == message
