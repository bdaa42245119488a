"""Grading a cell: exceptions and invalid results of graders become errors and never scores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from broken_images import encoded
from engine_parts import open_services, plan_of
from toys import LOOK, SECOND, Toy

from visioneval.errors import (
    AuthError,
    BudgetError,
    ClosingError,
    GraderError,
    ImageError,
    ProviderError,
    QuotaError,
    StorageError,
)
from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.measures import Measure
from visioneval.providers.base import CellRef, Question, Reply
from visioneval.running.calls.judges import raise_if_stopping
from visioneval.running.cells.grading import CellGrades, GradedOutput, checked_scores, grade
from visioneval.running.cells.services import Components, Listener
from visioneval.running.sanitize import Sanitizer
from visioneval.threads import processors
from visioneval.types import Metric

FINE = Grade(scores={"fine": True, "level": 0.5})
JUDGED: dict[str, Any] = {
    "judges": {"default": {"provider": "mine:Judge"}},
    "graders": [{**LOOK, "judge": "default"}],
    "prices": {"mine:Judge": {"per_call": 0.25}},
}
Work = Callable[[GradingContext], Awaitable[Grade]]


@dataclass
class Scripted:
    """A grader that returns a grade, raises an error, or runs a function."""

    result: Grade | Exception | Work | Any = field(default_factory=lambda: FINE)

    async def grade(self, context: GradingContext) -> Grade:
        if isinstance(self.result, Exception):
            raise self.result
        return await self.result(context) if callable(self.result) else self.result  # type: ignore[return-value]


class StubJudge:
    """A judge that answers ``yes``, or raises an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.about: list[CellRef] = []

    async def ask(self, question: Question, about: CellRef) -> Reply:
        self.about.append(about)
        if self.error is not None:
            raise self.error
        return Reply("yes", "judge-1", usage={"input_tokens": 3})


JUDGE = """
class Judge:
    def __init__(self, config): ...
    def ask(self, question, about): ...
"""


def graded(
    toy: Toy, *graders: Any, case: dict[str, Any] | None = None, judge: StubJudge | None = None,
    seconds: float = 60, debug: Callable[[BaseException], None] = lambda _: None, **suite: Any,
) -> CellGrades:  # fmt: skip
    """The grades of a cell without an image, by graders with these results."""
    results = [Scripted(grader) for grader in graders]
    (toy.folder / "mine.py").write_text((toy.folder / "mine.py").read_text() + JUDGE)
    prepared = plan_of(toy.write(case or {}, **suite))
    keys = [grader.key for grader in prepared.suite.graders]
    components = Components({}, dict(zip(keys, results, strict=True)), {"default": judge} if judge else {})
    (call,) = prepared.calls()

    async def scenario() -> CellGrades:
        with open_services(prepared, components=components, listener=Listener(debug=debug)) as context:
            return await grade(
                GradedOutput(call, 0, None, {"size": "8x8"}, asyncio.get_running_loop().time() + seconds), context
            )

    return asyncio.run(scenario())


def test_scores_reasons_and_tags_of_all_graders_are_combined(toy: Toy) -> None:
    first = Grade(scores={"fine": True, "level": 0.5}, reasons={"fine": "bright"}, failure_tags=("a", "b"))
    second = Grade(scores={"second": False}, reasons={"second": "dark"}, failure_tags=("b", "c"))
    grades = graded(toy, first, second, graders=[LOOK, SECOND])
    assert grades.scores == {"fine": True, "level": 0.5, "second": False}
    assert (grades.reasons, grades.failure_tags) == ({"fine": "bright", "second": "dark"}, ("a", "b", "c"))
    assert [(record.key, record.type, record.error) for record in grades.graders] == [
        ("look", "mine:Look", None), ("second", "mine:Second", None)
    ]  # fmt: skip
    assert grades.error is None


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (GraderError("too dark"), "unmeasured", "look: too dark"),
        (ImageError("cut"), "unmeasured", "look: cut"),
        (GraderError(), "unmeasured", "look: GraderError"),
        (ProviderError("the judge is out", kind="transient"), "transient", "look: the judge is out"),
        (BudgetError("used up"), "budget", "look: used up"),
        (RuntimeError("a bug"), "internal", "look: RuntimeError: a bug"),
        (TimeoutError("no answer from my service"), "internal", "look: TimeoutError: no answer from my service"),
        (SystemExit(3), "internal", "look: it called exit(3)"),
        (asyncio.CancelledError(), "internal", "look: it cancelled itself"),
    ],
)
def test_an_exception_of_a_grader_becomes_an_error(toy: Toy, error: Any, kind: str, message: str) -> None:
    async def fail(context: GradingContext) -> Grade:
        raise error

    grades = graded(toy, fail, Grade(scores={"second": True}), graders=[LOOK, SECOND])
    assert grades.error is not None
    assert (grades.error.stage, grades.error.kind, grades.error.message) == ("grade", kind, message)
    assert grades.scores == {"fine": None, "level": None, "second": True}


@pytest.mark.parametrize("error", [AuthError("refused"), StorageError("disk full"), ClosingError("stopping")])
def test_an_error_that_stops_the_run_is_raised(toy: Toy, error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        graded(toy, error)


def test_only_unexpected_exceptions_are_debugged(toy: Toy) -> None:
    seen: list[BaseException] = []
    bug = RuntimeError("a bug")
    graded(toy, bug, GraderError("too dark"), graders=[LOOK, SECOND], debug=seen.append)
    assert seen == [bug]


def test_the_cell_timeout_is_an_error_of_the_grader(toy: Toy) -> None:
    async def wait_forever(context: GradingContext) -> Grade:
        await asyncio.Event().wait()
        return FINE

    grades = graded(toy, wait_forever, seconds=0, cell_timeout_s=5.0)
    assert grades.error is not None
    assert (grades.error.kind, grades.error.message) == (
        "timeout",
        "look: exceeded the cell timeout of 5 s (cell_timeout_s)",
    )


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "it returned NoneType, not Grade"),
        ({"fine": True}, "it returned dict, not Grade"),
        (Grade(scores={}), "fine was not measured; level was not measured"),
        (Grade(scores={"fine": True}), "level was not measured"),
        (Grade(scores={"fine": 1, "level": 0.5}), "fine is 1, not true or false"),
        (Grade(scores={"fine": True, "level": True}), "level is True, not a number"),
        (Grade(scores={"fine": True, "level": "0.5"}), "level is '0.5', not a number"),
        (Grade(scores={"fine": True, "level": 7}), "level is 7, outside the range 0 to 1"),
        (Grade(scores={"fine": True, "level": float("nan")}), "level is nan, not a number"),
        (Grade(scores={"fine": True, "level": 0.5, "mood": 1}), "wrote the undeclared metric 'mood'"),
        (Grade(scores={"fine": True, "level": None}, error="no scale"), "no scale"),
        (Grade(scores=None), "'NoneType' object is not iterable"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_result_is_an_error(toy: Toy, result: Any, message: str) -> None:
    async def return_result(context: GradingContext) -> Any:
        return result

    grades = graded(toy, return_result)
    assert grades.error is not None
    assert message in grades.error.message
    assert "mood" not in grades.scores
    assert all(value is None or value is True or value == 0.5 for value in grades.scores.values())


@pytest.mark.parametrize(("stated", "recorded"), [(0.0, 0.0), (-0.25, None), (float("inf"), None), (True, None)])
def test_a_cost_of_a_custom_grader_that_is_impossible_is_unknown(
    toy: Toy, stated: float, recorded: float | None
) -> None:
    usage = {"input_tokens": 5, "output_tokens": -5 if recorded is None else 5}
    grade = Grade(scores={"fine": True, "level": 0.5}, cost_usd=stated, usage=usage)
    (record,) = graded(toy, grade).graders
    assert (record.error, record.cost_usd, record.usage) == (None, recorded, None if recorded is None else usage)


def test_invalid_details_are_converted_to_plain_data(toy: Toy) -> None:
    odd = Grade(
        scores={"fine": True, "level": 0.5}, details={"at": Path("x"), 1: float("inf")}, reasons={"fine": 3},  # type: ignore[dict-item]
        failure_tags="blurred", usage={"a": "b", "c": 2.0}, cost_usd="much",  # type: ignore[arg-type,dict-item]
    )  # fmt: skip
    grades = graded(toy, odd)
    (record,) = grades.graders
    assert (record.error, record.details, record.usage, record.cost_usd) == (
        None,
        {"at": "x", "1": None},
        {"c": 2},
        None,
    )
    assert (grades.reasons, grades.failure_tags) == ({"fine": "3"}, ("blurred",))


def test_secrets_are_removed_from_results(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_TOKEN", "hunter2-hunter2")
    leak = Grade(
        scores={"fine": True, "level": 0.5}, reasons={"fine": "hunter2-hunter2!"}, details={"a": ["hunter2-hunter2"]}
    )
    grades = graded(toy, leak)
    assert (grades.reasons, grades.graders[0].details) == ({"fine": "***!"}, {"a": ["***"]})
    failed = graded_again(toy, GraderError("with hunter2-hunter2"))
    assert failed.error is not None
    assert failed.error.message == "look: with ***"


def graded_again(toy: Toy, result: Any) -> CellGrades:
    """Grades in another folder of runs."""
    (toy.folder / "runs").rename(toy.folder / "earlier")
    return graded(toy, result)


def test_graders_see_the_cell_but_not_the_model(toy: Toy) -> None:
    seen: list[GradingContext] = []

    async def record_context(context: GradingContext) -> Grade:
        seen.append(context)
        return FINE

    rules = ["fine", {"rule": "level > 0.1", "level": "warn"}]
    graded(toy, record_context, case={"prompt": "a boat"}, verdict=rules, vars={"color": "red"})
    (context,) = seen
    assert (context.prompt, context.requested_size, context.output) == ("a boat", "8x8", None)
    assert context.variables == {"color": "red"}
    assert not {"model", "rules"} & {name for name in dir(context) if not name.startswith("_")}


def test_a_grader_saves_files_beside_the_output(toy: Toy) -> None:
    data = encoded()

    async def save(context: GradingContext) -> Grade:
        return replace(FINE, details={"map": context.save("map.png", data)})

    (record,) = graded(toy, save).graders
    assert record.details == {"map": "artifacts/case0/toy/0.map.png"}
    assert (toy.folder / "runs" / "r" / "artifacts/case0/toy/0.map.png").read_bytes() == data


def test_a_grader_cannot_replace_an_image_of_another(toy: Toy) -> None:
    async def save(context: GradingContext) -> Grade:
        context.save("map.png", encoded())
        return FINE

    error = graded(toy, save, save, graders=[LOOK, SECOND]).error
    assert error is not None
    assert "save('map.png'): a grader of this cell has already saved this name" in error.message


@pytest.mark.parametrize("name", ["png", ".png", "png."])
def test_a_saved_file_needs_an_extension(toy: Toy, name: str) -> None:
    async def save(context: GradingContext) -> Grade:
        context.save(name, b"image")
        return FINE

    error = graded(toy, save).error
    assert error is not None
    assert f"save({name!r}): the name must have only letters" in error.message


class TestJudges:
    """Questions of a grader to its judge."""

    @staticmethod
    async def ask_twice(context: GradingContext) -> Grade:
        await context.ask_judge("default", Question(("?",)))
        await context.ask_judge("default", Question(("again?",)))
        return FINE

    def test_usage_and_cost_are_those_of_the_judge(self, toy: Toy) -> None:
        judge = StubJudge()
        (record,) = graded(toy, self.ask_twice, judge=judge, **JUDGED).graders
        assert (record.usage, record.cost_usd, record.cached) == ({"input_tokens": 6}, 0.5, False)
        assert record.fingerprint.judge_model == "judge-1"
        assert set(judge.about) == {CellRef("case0", "toy", 0)}

    def test_an_answer_does_not_wait_for_measurements(self, toy: Toy) -> None:
        """Although every slot is taken until it is there."""
        answered = threading.Event()

        class ThreadedJudge(StubJudge):
            async def ask(self, question: Question, about: CellRef) -> Reply:
                reply = await super().ask(question, about)
                await asyncio.to_thread(answered.set)
                return reply

        def wait() -> Grade:
            assert answered.wait(30)
            return FINE

        async def ask_behind_measurements(context: GradingContext) -> Grade:
            measuring = [context.measure(Measure(f"slow{at}", {}, wait, Grade)) for at in range(processors() + 1)]
            grades = await asyncio.gather(*measuring, self.ask_twice(context))
            return grades[-1]

        assert graded(toy, ask_behind_measurements, judge=ThreadedJudge(), **JUDGED).error is None

    def test_a_refused_key_stops_the_run(self, toy: Toy) -> None:
        judge = StubJudge(ProviderError("401", kind="auth"))
        with pytest.raises(AuthError, match="the judge 'default': the provider refused the API key: 401"):
            graded(toy, self.ask_twice, judge=judge, **JUDGED)

    def test_a_failed_question_is_an_error_of_its_kind(self, toy: Toy) -> None:
        judge = StubJudge(ProviderError("bad request", kind="invalid"))
        error = graded(toy, self.ask_twice, judge=judge, **JUDGED).error
        assert error is not None
        assert (error.kind, error.message) == ("invalid", "look: bad request")

    def test_an_unknown_judge_is_an_error(self, toy: Toy) -> None:
        error = graded(toy, self.ask_twice).error
        assert error is not None
        assert error.message.startswith("look: no judge 'default': set it on the grader")


@pytest.mark.parametrize(
    ("value", "metric", "score"),
    [
        (0, Metric(type="number", range=(0, 1)), 0),
        (1.0, Metric(type="number", range=(0, 1)), 1.0),
        (1.0000001, Metric(type="number", range=(0, 1)), None),
        (10**6, Metric(type="number", range=(0, None)), 10**6),
        (-1, Metric(type="number", range=(0, None)), None),
        (-5, Metric(type="number"), -5),
        (2**64, Metric(type="number"), None),
        (float("-inf"), Metric(type="number"), None),
        (0, Metric(type="bool"), None),
        ("true", Metric(type="bool"), None),
    ],
)
def test_scores_outside_type_or_range_are_not_measured(value: Any, metric: Metric, score: Any) -> None:
    scores, problems = checked_scores({"a": value}, {"a": metric})
    assert scores == {"a": score}
    assert bool(problems) == (score is None)


def test_only_a_refused_key_and_a_spent_quota_are_raised() -> None:
    raise_if_stopping(ProviderError("slow down", kind="rate_limit"), "m", "openai", Sanitizer())
    secrets = Sanitizer(("sk-12345678",))
    with pytest.raises(AuthError, match=r"^m: the provider refused the API key: key \*\*\*$") as refused:
        raise_if_stopping(ProviderError("key sk-12345678", kind="auth"), "m", "openai", secrets)
    assert not isinstance(refused.value, QuotaError)
    text = r"^m: the quota at openai is spent: of \*\*\* x{293}; add credit or raise the limit there, then resume$"
    with pytest.raises(QuotaError, match=text):
        raise_if_stopping(ProviderError(f"of sk-12345678 {'x' * 999}", kind="quota"), "m", "openai", secrets)
