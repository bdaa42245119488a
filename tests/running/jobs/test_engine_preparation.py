"""Preparing a run: a new run, a resumed run, and a run that grades the outputs of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_parts import info_of, plan_of, recorded
from toys import SECOND, Toy

from visioneval import BudgetError, Record, UsageError, read_info, read_records
from visioneval.records.writer import RunWriter
from visioneval.running.calls.calls import Reuse
from visioneval.running.calls.settings import CallSettings
from visioneval.running.loading import SuiteOptions
from visioneval.running.plan import Plan
from visioneval.running.prepare import (
    PreparedRun,
    RunOptions,
    RunToGrade,
    check_runs,
    plan_runs,
    prepare_grading,
    prepare_run,
)
from visioneval.suite.selection.selection import Selection

OPENAI: dict[str, Any] = {"models": [{"provider": "openai", "label": "m", "params": {"model": "gpt-image-2"}}]}


def options(*, resume: Path | None = None, suite: SuiteOptions | None = None, **changes: Any) -> RunOptions:
    return RunOptions(
        suite=suite or SuiteOptions(trust=True), **{"run_id": None if resume else "r", "resume": resume, **changes}
    )


def finish(prepared: PreparedRun) -> None:
    prepared.writer.finish("interrupted", "2025-01-01T00:00:00+00:00")


def store(of: Plan, records: int | None = None, **info: Any) -> Path:
    """A stored run of this suite whose first cells are done, or all."""
    writer = RunWriter.create(
        Path("runs"), info_of(of, typed=("run", "suite.yaml", "--trust-suite")).model_copy(update=info)
    )
    for record in recorded(writer.folder, of)[:records]:
        writer.append(record)
    writer.finish("interrupted", "2025-01-01T00:00:00+00:00")
    return writer.folder


def jobs_of(prepared: PreparedRun) -> list[tuple[str, tuple[int, ...], int]]:
    """The case, the samples to generate, and the number of outputs to grade of every job."""
    return [(job.call.case.id, job.generate, len(job.regrade)) for job in prepared.jobs(prepared.plan)]


class TestPlanRuns:
    """Which suites a command runs."""

    def test_a_resumed_run_brings_its_suite_and_its_selection(self, toy: Toy) -> None:
        folder = store(plan_of(toy.write({}, {})), selection=Selection(cases=("case1",)))
        (suite,) = plan_runs([], options(resume=folder))
        assert (suite.loaded.is_from_run, [case.id for case in suite.suite.cases]) == (True, ["case1"])

    def test_a_suite_given_with_resume_replaces_the_stored_suite(self, toy: Toy) -> None:
        folder = store(plan_of(toy.write({})))
        (suite,) = plan_runs([toy.write({}, {})], options(resume=folder))
        assert (suite.loaded.is_from_run, suite.cells) == (False, 2)

    @pytest.mark.parametrize(
        ("suite", "message"),
        [
            (
                {"selection": Selection(cases=("case0",))},
                "leave out --case, --tag, --model, --grader, --limit and --shard",
            ),
            ({"selection": Selection(limit=1)}, "leave out --case, --tag, --model, --grader, --limit and --shard"),
            ({"variables": {"color": "red"}}, "--var and --judge change"),
            ({"judges": {"default": "openai:gpt-5.4"}}, "--var and --judge change"),
        ],
    )
    def test_flags_that_change_the_suite_are_refused(self, toy: Toy, suite: dict[str, Any], message: str) -> None:
        folder = store(plan_of(toy.write(vars={"color": "blue"})))
        with pytest.raises(UsageError, match=message):
            plan_runs([], options(resume=folder, suite=SuiteOptions(trust=True, **suite)))

    def test_a_secret_variable_may_be_given_without_the_suite(self, toy: Toy) -> None:
        secret = {"site_token": "hunter2-hunter2"}
        folder = store(plan_of(toy.write(vars={"site_token": "none"}), variables=secret))
        (suite,) = plan_runs([], options(resume=folder, suite=SuiteOptions(trust=True, variables=secret)))
        assert suite.secrets == secret

    def test_a_run_of_another_suite_is_refused(self, toy: Toy) -> None:
        suite = plan_of(toy.write())
        other = suite.suite.model_copy(update={"name": "other"})
        folder = store(suite, suite=other)
        with pytest.raises(UsageError, match="is a run of the suite 'other', not of 'toy'"):
            plan_runs([toy.write()], options(resume=folder))


class TestCheckRuns:
    """All runs are checked before the first starts."""

    def test_components_are_in_the_order_of_the_suites(self, toy: Toy) -> None:
        suites = [plan_of(toy.write()), plan_of(toy.write(graders=[SECOND], verdict=["second"]))]
        assert [list(parts.graders) for parts in check_runs(suites, options(), print)] == [["look"], ["second"]]

    def test_a_budget_needs_prices(self, toy: Toy) -> None:
        suite = plan_of(toy.write())
        with pytest.raises(UsageError, match=r"the budget needs the price of every call.*mine:Generate"):
            check_runs([suite], options(calls=CallSettings(budget_usd=1)), print)

    def test_a_budget_below_the_price_of_a_call_is_refused(self, toy: Toy) -> None:
        suite = plan_of(toy.write(prices={"mine:Generate": {"per_call": 2}}))
        with pytest.raises(BudgetError, match="the budget of 1 USD is too small"):
            check_runs([suite], options(calls=CallSettings(budget_usd=1)), print)

    def test_a_missing_key_is_refused_unless_offline(self, toy: Toy) -> None:
        suite = plan_of(toy.write(**OPENAI))
        with pytest.raises(UsageError, match="OPENAI_API_KEY"):
            check_runs([suite], options(), print)
        offline = CallSettings(reuse=Reuse("all", offline=True))
        assert [list(parts.providers) for parts in check_runs([suite], options(calls=offline), print)] == [["m"]]


class TestPrepareRun:
    """A new run, and a resumed run."""

    def prepare(self, suite: Plan, asked: RunOptions) -> PreparedRun:
        (components,) = check_runs([suite], asked, print)
        prepared = prepare_run(suite, components, asked)
        finish(prepared)
        return prepared

    def test_a_new_run_generates_every_cell(self, toy: Toy) -> None:
        prepared = self.prepare(plan_of(toy.write({}, {}, samples=2)), options(note="hello", words=("--trust-suite",)))
        assert (prepared.cells, len(jobs_of(prepared)), prepared.notes) == (4, 4, ())
        assert prepared.writer.folder == Path("runs/r")
        assert read_info(prepared.writer.folder).note == "hello"
        assert prepared.resume_hint == "to resume: visioneval run --resume runs/r --trust-suite"

    def test_the_hint_includes_needed_flags_and_asks_for_secrets(self, toy: Toy) -> None:
        secret = {"site_token": "hunter2-hunter2"}
        suite = plan_of(toy.write(vars={"site_token": "none"}), variables=secret)
        typed = ("run", "suite.yaml", "--trust-suite", "--var", "site_token=hunter2-hunter2")
        hint = self.prepare(suite, options(command_line=typed)).resume_hint
        assert hint == "to resume: visioneval run --resume runs/r --trust-suite --var 'site_token=***'"

    def test_a_taken_run_id_is_refused(self, toy: Toy) -> None:
        suite = plan_of(toy.write())
        self.prepare(suite, options())
        with pytest.raises(UsageError, match="already exists: use another --run-id"):
            self.prepare(suite, options())

    def test_a_resumed_run_has_only_the_remaining_cells(self, toy: Toy) -> None:
        folder = store(plan_of(toy.write({}, {})), records=1)
        asked = options(resume=folder, run_id=None)
        (suite,) = plan_runs([], asked)
        prepared = self.prepare(suite, asked)
        assert (prepared.cells, jobs_of(prepared)) == (1, [("case1", (0,), 0)])
        assert prepared.notes == (
            "resuming runs/r: to generate: 1 (1 not done yet); to grade again: 0; unchanged: 1",
        )  # fmt: skip
        info = read_info(folder)
        assert (info.run_id, len(info.resumed_at)) == ("r", 1)
        assert info.command_line == ("run", "suite.yaml", "--trust-suite"), "as of the stored suite"

    def test_stale_cells_move_out_of_the_results(self, toy: Toy) -> None:
        folder = store(plan_of(toy.write({}, {})))
        asked = options(resume=folder)
        (suite,) = plan_runs([toy.write({})], asked)
        prepared = self.prepare(suite, asked)
        assert prepared.notes[1:] == ("1 cells are no longer in the suite: moved to stale.jsonl",)
        assert [record.test_id for record in read_records(folder)] == ["case0"]
        assert '"case1"' in (folder / "stale.jsonl").read_text()

    def test_a_graded_run_cannot_be_resumed(self, toy: Toy) -> None:
        folder = store(plan_of(toy.write()), graded_from="source")
        asked = options(resume=folder)
        (suite,) = plan_runs([], asked)
        with pytest.raises(
            UsageError, match="grades the outputs of source: repeat that 'visioneval grade' command instead"
        ):
            self.prepare(suite, asked)


class TestPrepareGrading:
    """A run that grades the outputs of another run."""

    def prepare(self, source: RunToGrade, suite: Path | None = None, **asked: Any) -> PreparedRun:
        prepared = prepare_grading(source, suite, options(**{"run_id": "graded", **asked}), print)
        finish(prepared)
        return prepared

    def source(self, toy: Toy, *cases: dict[str, Any], label: str | None = None, **suite: Any) -> RunToGrade:
        folder = store(plan_of(toy.write(*cases, **suite)))
        return RunToGrade(folder, read_info(folder), label)

    def test_the_new_run_names_its_source_and_generates_nothing(self, toy: Toy) -> None:
        prepared = self.prepare(self.source(toy, {}, {}))
        assert read_info(prepared.writer.folder).graded_from == "r"
        assert (prepared.plan.generates, prepared.components.providers) == (False, {})
        assert jobs_of(prepared) == [("case0", (), 1), ("case1", (), 1)]
        assert (prepared.cells, prepared.notes) == (2, ())

    def test_a_label_grades_a_single_model_run(self, toy: Toy) -> None:
        models = [{"provider": "mine:Generate", "label": label} for label in ("a", "b")]
        prepared = self.prepare(self.source(toy, models=models, label="b"))
        assert [run.label for run in prepared.plan.runs] == ["b"]
        info = read_info(prepared.writer.folder)
        assert (info.graded_from, info.selection.models) == ("r@b", ("b",))
        assert prepared.notes == (
            "1 cells of the source run are skipped, because the suite or the flags exclude them",
        )  # fmt: skip

    def test_another_suite_may_grade_the_outputs(self, toy: Toy) -> None:
        source = self.source(toy, {}, {}, samples=2)
        other = toy.write({}, {}, {}, graders=[SECOND], verdict=["second"], name="other.yaml")
        prepared = self.prepare(source, other)
        assert list(prepared.components.graders) == ["second"]
        assert (prepared.plan.suite.samples, prepared.cells) == (2, 6)
        assert prepared.notes == (
            "2 cells are missing from the source run and become ERROR, because nothing is generated",
        )  # fmt: skip

    def test_the_selection_of_the_source_is_preserved(self, toy: Toy) -> None:
        source = self.source(toy, {}, {})
        narrow = replace(source, info=source.info.model_copy(update={"selection": Selection(cases=("case1",))}))
        by_suite = self.prepare(narrow, toy.write({}, {}), run_id="a")
        assert [case.id for case in by_suite.plan.suite.cases] == ["case1"]
        assert read_info(self.prepare(narrow, run_id="b").writer.folder).selection.cases == ("case1",)

    def test_no_key_of_a_provider_is_needed(self, toy: Toy) -> None:
        assert self.prepare(self.source(toy, **OPENAI)).components.providers == {}

    @pytest.mark.parametrize(
        ("asked", "needs_another_id", "asks_again"),
        [
            ({}, True, False),
            ({"run_id": None}, False, False),
            ({"calls": CallSettings(reuse=Reuse(judgements=False))}, True, True),
        ],
    )
    def test_the_hint_shows_how_to_grade_the_remaining_cells(
        self, toy: Toy, asked: dict[str, Any], needs_another_id: bool, asks_again: bool
    ) -> None:
        hint = self.prepare(self.source(toy), **asked).resume_hint
        assert ("another --run-id" in hint) == needs_another_id
        assert ("asks all judges again" in hint) == ("without --reuse none" in hint) == asks_again
        assert ("reuses cached judge answers" in hint) != asks_again

    def test_records_of_the_source_are_unchanged(self, toy: Toy) -> None:
        source = self.source(toy, {})
        before: list[Record] = list(read_records(source.folder))
        self.prepare(source)
        assert list(read_records(source.folder)) == before
