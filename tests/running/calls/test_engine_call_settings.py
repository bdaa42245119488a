"""Opening the calls of a run, and the checks of its budget, cache and log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engine_parts import plan_of
from toys import Toy

from visioneval import BudgetError, UsageError
from visioneval.running.calls.calls import Reuse
from visioneval.running.calls.limiters import RateLimitKey
from visioneval.running.calls.settings import (
    CallSettings,
    budget_of,
    check_budget,
    check_session,
    open_calls,
)
from visioneval.running.plan import Plan

FREE: dict[str, Any] = {
    "models": [{"provider": "mock"}],
    "graders": [{"key": "image", "type": "properties"}],
    "verdict": ["not image.blank"],
}
PRICED: dict[str, Any] = {"prices": {"mine:Generate": {"per_call": 2}}}
KEY = RateLimitKey("mine:Generate", None, "generate")


@pytest.fixture
def paid(toy: Toy) -> Plan:
    """A plan whose calls may cost money."""
    return plan_of(toy.write())


@pytest.fixture
def free(toy: Toy) -> Plan:
    """A plan without paid calls."""
    return plan_of(toy.write(**FREE, name="free.yaml"))


class TestOpenCalls:
    """The calls of a run, from the suite and the flags."""

    def test_calls_have_the_settings_of_suite_and_flags(self, toy: Toy) -> None:
        plan = plan_of(toy.write(limits={"mine:Generate": {"max_concurrency": 3}}, budget_usd=5, **PRICED))
        settings = CallSettings(max_concurrency=9, cache=toy.folder / "cache", reuse=Reuse("all"))
        with open_calls(plan, settings, "r", print) as calls:
            assert calls.throttle.max_calls(KEY) == 3
            assert calls.throttle.max_calls(RateLimitKey("other", None, "generate")) == 9
            assert (calls.budget.limit_usd, calls.reuse, calls.payer) == (5, Reuse("all"), "r")
            assert calls.prices.cost(KEY, None, 1) == 2

    def test_a_free_plan_that_measures_nothing_has_no_cache(self, toy: Toy) -> None:
        plan = plan_of(toy.write(models=FREE["models"]))
        with open_calls(plan, CallSettings(cache=toy.folder / "cache"), "r", print) as calls:
            assert calls.cache is None
        assert not (toy.folder / "cache").exists()

    def test_a_free_plan_with_local_graders_has_a_cache(self, free: Plan, toy: Toy) -> None:
        with open_calls(free, CallSettings(cache=toy.folder / "cache"), "r", print) as calls:
            assert calls.cache is not None

    def test_a_free_plan_runs_without_an_unusable_default_cache(
        self, free: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        warned: list[str] = []
        with open_calls(free, CallSettings(), "r", warned.append) as calls:
            assert calls.cache is None
        (line,) = warned
        assert line.startswith("measurements are not cached: ")
        with (
            pytest.raises(UsageError, match="cannot be used"),
            open_calls(free, CallSettings(cache=tmp_path / "file"), "r", print),
        ):
            pass

    def test_the_cache_is_open_only_inside_the_block(self, paid: Plan, toy: Toy) -> None:
        with open_calls(paid, CallSettings(cache=toy.folder / "cache"), "r", print) as calls:
            assert calls.cache is not None
            calls.cache.put("key", "judge", {"text": "yes"})
            entry = calls.cache.get("key")
            assert entry is not None
            assert (entry.run_id, entry.answer) == ("r", {"text": "yes"})
        with open_calls(paid, CallSettings(cache=toy.folder / "cache"), "s", print) as calls:
            assert calls.cache is not None
            assert calls.cache.get("key") is not None

    def test_log_and_cache_are_closed_after_an_error(self, paid: Plan, toy: Toy, tmp_path: Path) -> None:
        settings = CallSettings(cache=toy.folder / "cache", log_file=tmp_path / "calls.jsonl")
        with pytest.raises(ZeroDivisionError), open_calls(paid, settings, "r", print) as calls:
            1 / 0  # noqa: B018
        with pytest.raises(ValueError, match="closed file"):
            calls.log.hit(KEY, "key")

    def test_debug_prints_the_calls(self, free: Plan, capsys: pytest.CaptureFixture[str]) -> None:
        with open_calls(free, CallSettings(debug=True), "r", print) as calls:
            calls.log.hit(KEY, "key")
        assert json.loads(capsys.readouterr().err)["status"] == "cached"

    def test_secrets_of_the_suite_are_hidden(self, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SITE_TOKEN", "hunter2-hunter2")
        plan = plan_of(toy.write(vars={"my_token": "none"}), variables={"my_token": "four"})
        with open_calls(plan, CallSettings(cache=toy.folder / "cache"), "r", print) as calls:
            assert calls.sanitizer.text("four hunter2-hunter2") == "*** ***"


@pytest.mark.parametrize(
    ("suite", "flag", "budget"), [(None, None, None), (5, None, 5), (5, 2, 2), (None, 2, 2), (5, 0.0, 0.0)]
)
def test_the_flag_overrides_the_budget_of_the_suite(
    toy: Toy, suite: float | None, flag: float | None, budget: float | None
) -> None:
    plan = plan_of(toy.write(**({"budget_usd": suite} if suite else {})))
    assert budget_of(plan, CallSettings(budget_usd=flag)) == budget


class TestCheckSession:
    """The log and the cache are checked before a run starts."""

    def test_a_log_that_is_a_folder_is_refused(self, free: Plan, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"--log-file .*: cannot write"):
            check_session(free, CallSettings(log_file=tmp_path), print)

    def test_offline_needs_the_cache_that_is_named(self, paid: Plan, tmp_path: Path) -> None:
        settings = CallSettings(cache=tmp_path / "none", reuse=Reuse("all", offline=True))
        with pytest.raises(UsageError, match="--offline needs an existing cache"):
            check_session(paid, settings, print)
        assert not (tmp_path / "none").exists()

    def test_offline_may_create_the_default_cache(self, paid: Plan) -> None:
        check_session(paid, CallSettings(reuse=Reuse("all", offline=True)), print)

    def test_a_free_plan_needs_no_cache(self, free: Plan, tmp_path: Path) -> None:
        check_session(free, CallSettings(cache=tmp_path / "none", reuse=Reuse("all", offline=True)), print)
        assert not (tmp_path / "none").exists()

    def test_a_cache_that_is_a_file_is_refused(self, paid: Plan, tmp_path: Path) -> None:
        (tmp_path / "cache").write_text("")
        with pytest.raises(UsageError, match="cache"):
            check_session(paid, CallSettings(cache=tmp_path / "cache"), print)


class TestCheckBudget:
    """The budget is checked before a run starts."""

    def test_without_a_budget_prices_may_be_unknown(self, paid: Plan) -> None:
        check_budget(paid, CallSettings())

    def test_unknown_prices_are_named_in_order(self, toy: Toy) -> None:
        code = toy.folder / "mine.py"
        code.write_text(code.read_text() + "class Other(Generate): pass\n")
        models = [{"provider": name, "label": name} for name in ("mine:Other", "mine:Generate")]
        plan = plan_of(toy.write(models=models))
        with pytest.raises(UsageError, match=r"unknown: mine:Generate, mine:Other\..*'prices: \{mine:Generate: "):
            check_budget(plan, CallSettings(budget_usd=9))

    def test_offline_needs_no_prices(self, paid: Plan) -> None:
        check_budget(paid, CallSettings(budget_usd=0.01, reuse=Reuse("all", offline=True)))

    def test_a_budget_for_a_single_call_is_enough(self, toy: Toy) -> None:
        check_budget(plan_of(toy.write(budget_usd=2, **PRICED)), CallSettings())

    @pytest.mark.parametrize("generations", ["own", "all"])
    def test_cached_generations_may_need_no_budget(self, toy: Toy, generations: Any) -> None:
        plan = plan_of(toy.write(budget_usd=1, **PRICED))
        check_budget(plan, CallSettings(reuse=Reuse(generations)))
        with pytest.raises(BudgetError, match="too small for one call of mine:Generate"):
            check_budget(plan, CallSettings())

    def test_a_free_plan_fits_every_budget(self, free: Plan) -> None:
        check_budget(free, CallSettings(budget_usd=0.0))
