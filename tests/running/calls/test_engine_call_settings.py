"""Opening the calls of a run, and the checks of its budget, cache and log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_parts import plan_of
from toys import Toy

from visioneval import BudgetError, UsageError
from visioneval.running.calls.calls import Reuse
from visioneval.running.calls.settings import CallSettings, budget_of, check_budget, check_session, open_calls
from visioneval.running.keys import RateLimitKey
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


class TestCheckBudget:
    """The budget is checked before a run starts."""

    def test_unknown_prices_are_named_in_order(self, toy: Toy) -> None:
        code = toy.folder / "mine.py"
        code.write_text(code.read_text() + "class Other(Generate): pass\n")
        models = [{"provider": name, "label": name} for name in ("mine:Other", "mine:Generate")]
        plan = plan_of(toy.write(models=models))
        with pytest.raises(UsageError, match=r"unknown: mine:Generate, mine:Other\..*'prices: \{mine:Generate: "):
            check_budget(plan, CallSettings(budget_usd=9))

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
