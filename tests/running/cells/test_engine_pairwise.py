"""Pairwise judgements: pairing images within a run and of two runs, and asking about pairs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine_parts import StubJudge, calls_for, info_of, open_services, plan_of, record_of, recorded
from toys import LOOK, Toy

from visioneval import (
    AuthError,
    GraderError,
    GradingContext,
    Output,
    PairwiseResult,
    ProviderError,
    Question,
    UsageError,
)
from visioneval.analysis.run_lookup import read_side
from visioneval.graders.base import Choice
from visioneval.judging.ask import Ask
from visioneval.records.between_cells import Preference, append_preferences, read_preferences
from visioneval.records.writer import OutputWriter, RunWriter
from visioneval.running.calls.judges import JudgeMeters
from visioneval.running.cells.services import Components
from visioneval.running.execution import Progress
from visioneval.running.pairs import (
    Matchup,
    Matchups,
    PairJudging,
    RunPairs,
    contender,
    matchups_within,
    pair_runs,
    pairwise_plan,
)
from visioneval.running.plan import Plan
from visioneval.suite.entries.graders import PAIR, of_kind

PAIRWISE = {"key": "better", "type": "pairwise"}
JUDGE = {"provider": "openai", "model": "gpt-5.4"}


def suite(*labels: str, graders: Sequence[dict[str, Any]] = (LOOK, PAIRWISE), **changes: Any) -> dict[str, Any]:
    models = [{"provider": "mine:Generate", "label": label} for label in labels]
    return {"models": models, "graders": list(graders), "judges": {"default": JUDGE}, **changes}


class TestPairwisePlan:
    """The judge and the grader that compare two runs."""

    def test_the_grader_of_the_suite_is_used_for_all_model_runs(self, toy: Toy) -> None:
        grader = {**PAIRWISE, "models": ["a", "b"], "when": {"tags": ["x"]}}
        plan = pairwise_plan(plan_of(toy.write({"tags": ["x"]}, **suite("a", "b", graders=[LOOK, grader]))), None)
        (config,) = plan.suite.graders
        assert (config.key, config.judge_names, config.when, plan.generates) == ("better", ("default",), None, False)
        assert config.compared(["a", "c"]) == ["a", "c"]

    def test_a_suite_without_pairwise_grader_gets_a_default(self, toy: Toy) -> None:
        (config,) = pairwise_plan(plan_of(toy.write(**suite("a", graders=[LOOK]))), None).suite.graders
        assert (config.key, config.type_name, config.judge_names) == ("pairwise", "pairwise", ("default",))

    def test_a_judge_may_be_added_by_the_flag(self, toy: Toy) -> None:
        plan = pairwise_plan(plan_of(toy.write(**suite("a", graders=[LOOK]))), "eye=gemini:gemini-4-argon")
        assert list(plan.judges) == ["eye"]
        assert plan.judges["eye"].title == "gemini:gemini-4-argon"

    @pytest.mark.parametrize(
        ("judge", "message"),
        [
            ("defalt", r"no judge 'defalt'.*default.*add one with --judge defalt=PROVIDER:MODEL"),
            ("eye=openai", "write PROVIDER:MODEL"),
            ("people", "recorded answers cover single images only"),
        ],
    )
    def test_an_unusable_judge_is_refused(self, toy: Toy, judge: str, message: str) -> None:
        (toy.folder / "answers.csv").write_text("case,model,question,answer\ncase0,a,fine,true\n")
        judges = {"default": JUDGE, "people": {"provider": "recorded", "path": "answers.csv"}}
        plan = plan_of(toy.write(**suite("a", graders=[LOOK], judges=judges)))
        with pytest.raises(UsageError, match=message):
            pairwise_plan(plan, judge)


class TestContender:
    """The image of a record that a judge may see."""

    def test_an_image_in_the_run_is_shown(self, toy: Toy) -> None:
        plan = plan_of(toy.write())
        record = record_of(toy.folder, plan, next(plan.calls()))
        shown = contender(record, toy.folder, trusted=False)
        assert (shown.name, shown.output.path) == ("r@toy", toy.folder / str(record.artifact_path))

    def test_records_without_an_image_are_not_shown(self, toy: Toy) -> None:
        plan = plan_of(toy.write())
        call = next(plan.calls())
        assert contender(None, toy.folder, trusted=True) is None
        assert contender(record_of(toy.folder, plan, call, mime=None), toy.folder, trusted=True) is None
        assert contender(record_of(toy.folder, plan, call, artifact_path=None), toy.folder, trusted=True) is None

    def test_a_link_out_of_the_run_is_not_followed(self, toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> None:
        plan = plan_of(toy.write())
        record = record_of(toy.folder, plan, next(plan.calls()))
        image = toy.folder / str(record.artifact_path)
        outside = tmp_path_factory.mktemp("outside") / "a.png"
        image.rename(outside)
        image.symlink_to(outside)
        assert contender(record, toy.folder, trusted=True) is None


def pairs_within(toy: Toy, plan: Plan, **changes: Any) -> Matchups:
    """The pairs of a complete run whose records of case1 are changed."""
    records = [
        record.model_copy(update=changes if record.test_id == "case1" else {}) for record in recorded(toy.folder, plan)
    ]
    (config,) = of_kind(plan.suite.graders, PAIR)
    return matchups_within(plan, config, records, toy.folder)


def names(matchups: Matchups) -> list[tuple[str, int, str, str]]:
    return [(pair.call.case.id, pair.sample, pair.a.name, pair.b.name) for pair in matchups.pairs]


def test_all_model_runs_are_paired_cell_by_cell(toy: Toy) -> None:
    plan = plan_of(toy.write({}, **suite("a", "bb", "ccc", samples=2)))
    assert names(pairs_within(toy, plan)) == [
        ("case0", sample, f"r@{a}", f"r@{b}")
        for a, b in (("a", "bb"), ("a", "ccc"), ("bb", "ccc"))
        for sample in (0, 1)
    ]


def test_only_selected_model_runs_and_cases_are_paired(toy: Toy) -> None:
    grader = {**PAIRWISE, "models": ["a", "ccc"], "when": {"tags": ["x"]}}
    plan = plan_of(toy.write({}, {"tags": ["x"]}, **suite("a", "bb", "ccc", graders=[LOOK, grader])))
    assert names(pairs_within(toy, plan)) == [("case1", 0, "r@a", "r@ccc")]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mime": None}, "1 pair; 1 pair without an image"),
        ({"artifact_sha256": "0" * 64}, "1 pair; 1 pair with two identical images"),
        ({}, "2 pairs"),
    ],
)
def test_pairs_that_cannot_be_judged_are_counted(toy: Toy, changes: dict[str, Any], text: str) -> None:
    assert str(pairs_within(toy, plan_of(toy.write({}, {}, **suite("a", "bb"))), **changes)) == text


class TestPairRuns:
    """The pairs of two runs."""

    def store(self, toy: Toy, run_id: str, cases: int, **changes: Any) -> Path:
        """A complete run of model ``m`` with this many cases."""
        path = toy.write(*[changes] * cases, **suite("m" if run_id == "a" else "mm", graders=[LOOK]))
        prepared = plan_of(path)
        writer = RunWriter.create(Path("runs"), info_of(prepared, run_id))
        for record in recorded(writer.folder, prepared, run_id=run_id):
            writer.append(record)
        writer.finish("complete", "2025-01-01T00:00:00+00:00")
        return writer.folder

    def pair(self, toy: Toy, a: Path, b: Path) -> RunPairs:
        plan = pairwise_plan(plan_of(toy.folder / "suite.yaml"), None)
        sides = read_side(str(a), Path("runs")), read_side(str(b), Path("runs"))
        return pair_runs(plan, sides, (a, b), [])

    def test_cells_of_both_runs_are_paired(self, toy: Toy) -> None:
        pairs = self.pair(toy, self.store(toy, "a", 3), self.store(toy, "b", 2))
        assert names(pairs.matchups) == [("case0", 0, "a@m", "b@mm"), ("case1", 0, "a@m", "b@mm")]
        assert pairs.pair_keys == {("case0", 0, "a@m", "b@mm"), ("case1", 0, "a@m", "b@mm")}
        assert (pairs.only_a, pairs.only_b, pairs.other_prompt) == (1, 0, 0)
        assert str(pairs) == "2 pairs; 1 cells are only in A"

    def test_other_prompts_are_counted(self, toy: Toy) -> None:
        pairs = self.pair(toy, self.store(toy, "a", 1), self.store(toy, "b", 1, prompt="a boat"))
        assert pairs.other_prompt == 1
        assert [pair.call.prompt for pair in pairs.matchups.pairs] == ["a boat"]

    def test_a_run_is_not_paired_with_itself(self, toy: Toy) -> None:
        folder = self.store(toy, "a", 1)
        with pytest.raises(UsageError, match="A and B are the same run: select two model runs"):
            self.pair(toy, folder, folder)


@dataclass
class Choosing:
    """A pairwise grader that prefers the first image, or raises an error."""

    error: Exception | None = None
    wait: bool = False

    def question(self, context: GradingContext, first: Output, second: Output) -> Question:
        return Question((first.sha256, second.sha256))

    async def choose(self, ask: Ask, question: Question) -> Choice:
        if self.wait:
            await asyncio.Event().wait()
        await ask(question)
        if self.error is not None:
            raise self.error
        return Choice("first", "it is calm")


class TestPairJudging:
    """Questions about pairs, in both orders."""

    def judge(
        self, toy: Toy, chooser: Choosing | None = None, judge: StubJudge | None = None, *,
        refresh: bool = False, earlier: Sequence[Preference] = (),
        before: Callable[[list[Matchup]], None] = lambda _: None, **changes: Any,
    ) -> tuple[list[Preference], Progress]:  # fmt: skip
        """Judges the two pairs of a run. Returns the stored preferences and the progress."""
        plan = plan_of(toy.write({}, {}, **suite("a", "bb", **changes)))
        (config,) = of_kind(plan.suite.graders, PAIR)
        calls = calls_for(plan)
        components = Components({}, {"better": chooser or Choosing()}, {"default": judge or StubJudge()})  # type: ignore[dict-item]
        append_preferences(toy.folder, earlier)
        progress = Progress(calls)
        matchups = pairs_within(toy, plan).pairs
        before(matchups)
        with open_services(plan, calls, components, writer=OutputWriter(toy.folder, info_of(plan))) as services:
            asyncio.run(PairJudging(services, config).judge(matchups, progress, refresh=refresh))
        return read_preferences(toy.folder), progress

    def test_both_orders_are_asked(self, toy: Toy) -> None:
        judge = StubJudge()
        preferences, progress = self.judge(toy, judge=judge)
        assert sorted((line.test_id, line.first, str(line.answer)) for line in preferences) == [
            (case, first, first) for case in ("case0", "case1") for first in ("a", "b")
        ]
        assert {(line.a, line.b, line.judge, line.reason) for line in preferences} == {
            ("r@a", "r@bb", "openai:gpt-5.4", "it is calm")
        }
        assert (len(judge.asked), progress.left, progress.is_over) == (4, 0, False)

    @pytest.mark.parametrize(("error", "refresh", "asked"), [(None, False, 3), ("down", False, 4), (None, True, 4)])
    def test_stored_answers_are_not_asked_again(self, toy: Toy, error: str | None, refresh: bool, asked: int) -> None:
        answer: Any = None if error else "tie"
        earlier = Preference(
            test_id="case0", sample_index=0, a="r@a", b="r@bb", first="a", answer=answer, reason=None,
            judge="openai:gpt-5.4", error=error,
        )  # fmt: skip
        judge = StubJudge()
        preferences, _ = self.judge(toy, judge=judge, earlier=[earlier], refresh=refresh)
        assert (len(judge.asked), len(preferences)) == (asked, 4)

    def test_an_answer_counts_for_its_judge_alone(self, toy: Toy) -> None:
        earlier = Preference(
            test_id="case0", sample_index=0, a="r@a", b="r@bb", first="a", answer="tie", reason=None,
            judge="openai:gpt-5.4-mini", error=None,
        )  # fmt: skip
        judge = StubJudge()
        preferences, _ = self.judge(toy, judge=judge, earlier=[earlier])
        assert (len(judge.asked), len(preferences)) == (4, 5)

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (GraderError("unusable reply"), "unusable reply"),
            (ProviderError("bad request", kind="invalid"), "bad request"),
            (RuntimeError("a bug"), "RuntimeError: a bug"),
            (TimeoutError("my service"), "TimeoutError: my service"),
        ],
    )
    def test_a_failure_is_the_error_of_the_preference(self, toy: Toy, error: Exception, message: str) -> None:
        preferences, progress = self.judge(toy, Choosing(error))
        assert {(line.answer, line.error) for line in preferences} == {(None, message)}
        assert (len(preferences), progress.left) == (4, 0)

    def test_the_cell_timeout_is_the_error_of_the_preference(self, toy: Toy) -> None:
        preferences, _ = self.judge(toy, Choosing(wait=True), cell_timeout_s=0.05)
        assert {line.error for line in preferences} == {"exceeded the cell timeout of 0.05 s (cell_timeout_s)"}

    def test_a_refused_key_ends_the_judging(self, toy: Toy) -> None:
        judge = StubJudge(ProviderError("401", kind="auth"))
        limits = {"openai": {"max_concurrency": 1}}
        preferences, progress = self.judge(toy, judge=judge, limits=limits)
        assert (preferences, len(judge.asked)) == ([], 1)
        assert isinstance(progress.failure, AuthError)
        assert progress.left == 4

    @pytest.mark.parametrize(
        ("damage", "message"), [("changed", "0.png: was changed"), ("missing", "0.png: cannot be read")]
    )
    def test_a_damaged_image_is_the_error_of_the_preference(self, toy: Toy, damage: str, message: str) -> None:
        def harm(matchups: list[Matchup]) -> None:
            path = matchups[0].a.output.path
            path.write_bytes(b"another image") if damage == "changed" else path.unlink()

        preferences, _ = self.judge(toy, before=harm)
        errors = {(line.test_id, line.first): str(line.error) for line in preferences if line.error}
        assert sorted(errors) == [("case0", "a"), ("case0", "b")]
        assert all(text.startswith(message) for text in errors.values())


@pytest.mark.parametrize(
    ("complete", "out_of_budget", "code"), [(True, False, 0), (False, True, 3), (False, False, 130)]
)
def test_the_exit_code_of_judging_two_runs(complete: bool, out_of_budget: bool, code: int) -> None:
    assert PairwiseResult(complete, out_of_budget, (), JudgeMeters()).exit_code == code
