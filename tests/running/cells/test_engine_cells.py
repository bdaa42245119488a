"""One job: generate, store and grade the cells of a call, and build their records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_parts import open_services, plan_of, record_of
from record_factory import generated_png
from toys import Toy

from visioneval import (
    AuthError,
    Fingerprint,
    Generation,
    GenerationRequest,
    Grade,
    GraderRecord,
    GradingContext,
    ProviderError,
    Record,
    Status,
    StorageError,
)
from visioneval.errors import ClosingError
from visioneval.running.cells.cell import Job, StoredOutput, run_job
from visioneval.running.cells.services import Components
from visioneval.running.plan import Call

PNG = generated_png("red")
COUNTER = {"id": "counter", "prompt": "three trees", "output_of": "case0"}
TWO_SAMPLES: dict[str, Any] = {
    "models": [{"provider": "openai", "label": "toy", "params": {"model": "gpt-image-2", "n": 2}}]
}


class StubProvider:
    """A provider that returns a generation or raises an error."""

    def __init__(self, result: Any = Generation(outputs=(PNG,), cost_usd=0.5, usage={"images": 1})) -> None:  # noqa: B008
        self.result = result
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> Generation:
        self.requests.append(request)
        if isinstance(self.result, BaseException):
            raise self.result
        if self.result == "wait":
            await asyncio.Event().wait()
        return self.result  # type: ignore[no-any-return]


class StubGrader:
    """A grader that returns good scores, or raises an error for the prompt ``refused``."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def grade(self, context: GradingContext) -> Grade:
        if self.error is not None and context.prompt == "refused":
            raise self.error
        return Grade(scores={"fine": True, "level": 0.5}, cost_usd=0.25)


def run(
    toy: Toy, path: Path, provider: StubProvider | None = None, *, job: Job | None = None, grader: StubGrader | None = None,
    records: list[Record] | None = None,
) -> list[Record]:  # fmt: skip
    """The records of the only call of a suite, or of a job, in the order of cases and samples."""
    suite = plan_of(path)
    components = Components({"toy": provider or StubProvider()}, {"look": grader or StubGrader()})
    collected = [] if records is None else records

    async def scenario() -> None:
        with open_services(suite, components=components) as context:
            todo = job or next(Job(call, call.samples) for call in suite.calls())
            async for record in run_job(todo, context):
                collected.append(record)

    asyncio.run(scenario())
    return sorted(collected, key=lambda record: (record.test_id, record.sample_index))


def error_of(record: Record) -> tuple[str, str, str]:
    assert record.error is not None
    return record.error.stage, record.error.kind, record.error.message


def test_a_generated_image_is_stored_and_graded(toy: Toy) -> None:
    provider = StubProvider()
    (record,) = run(toy, toy.write({"tags": ["x"]}, models=[{"provider": "mine:Generate", "label": "toy"}]), provider)
    assert (record.status, record.verdict, record.error) == ("completed", "PASS", None)
    assert (record.scores, record.cost_usd, record.usage, record.attempts) == (
        {"fine": True, "level": 0.5},
        0.5,
        {"images": 1},
        1,
    )
    assert record.total_cost_usd == 0.75
    assert (toy.folder / "runs" / "r" / str(record.artifact_path)).read_bytes() == PNG
    assert (record.mime, record.width, record.height, record.tags) == ("image/png", 32, 24, ("x",))
    (request,) = provider.requests
    assert (request.prompt, request.model_label, request.samples) == ("a tree", "toy", (0,))


def test_samples_of_a_call_share_its_cost(toy: Toy) -> None:
    provider = StubProvider(Generation(outputs=(PNG, generated_png("blue")), cost_usd=0.5))
    first, second = run(toy, toy.write(**TWO_SAMPLES), provider)
    assert (first.cost_usd, second.cost_usd) == (0.25, 0.25)
    assert first.artifact_sha256 != second.artifact_sha256
    assert len(provider.requests) == 1


def test_a_missing_output_is_an_error_of_its_sample(toy: Toy) -> None:
    first, second = run(toy, toy.write(**TWO_SAMPLES))
    assert first.verdict == "PASS"
    message = "images requested: 2, received: 1; --resume RUN --retry-unusable pays for another"
    assert error_of(second) == ("generate", "unusable", message)


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (ProviderError("bad request", kind="invalid"), ("generate", "invalid", "bad request")),
        (RuntimeError("a bug"), ("generate", "internal", "RuntimeError: a bug")),
        (TimeoutError("my service"), ("generate", "transient", "TimeoutError: my service")),
        (None, ("generate", "internal", "it returned NoneType, not Generation")),
        (
            Generation(outputs=("text",)),
            (
                "generate",
                "unusable",
                "the provider must return an image as bytes, not str; --resume RUN --retry-unusable pays for another",
            ),
        ),  # type: ignore[arg-type]
    ],
)
def test_a_failed_generation_is_an_error_of_the_cell(toy: Toy, result: Any, error: tuple[str, str, str]) -> None:
    (record,) = run(toy, toy.write(limits={"mine:Generate": {"max_attempts": 1}}), StubProvider(result))
    assert (record.status, record.verdict, record.artifact_path, record.scores) == ("error", "ERROR", None, {})
    assert error_of(record) == error


def test_the_cell_timeout_is_an_error_of_the_cell(toy: Toy) -> None:
    (record,) = run(toy, toy.write(cell_timeout_s=0.01), StubProvider("wait"))
    assert error_of(record) == ("generate", "timeout", "exceeded the cell timeout of 0.01 s (cell_timeout_s)")


@pytest.mark.parametrize("result", [Generation(refused="not that"), ProviderError("not that", kind="refused")])
@pytest.mark.parametrize(("expected", "verdict", "tags"), [(False, "FAIL", ("refused",)), (True, "PASS", ())])
def test_a_refusal_passes_only_if_it_is_expected(
    toy: Toy, result: Any, expected: bool, verdict: str, tags: Sequence[str]
) -> None:
    (record,) = run(toy, toy.write({"expect": {"refusal": expected}}), StubProvider(result))
    assert (record.status, record.verdict, record.failure_tags) == ("refused", verdict, tags)
    assert (record.reasons, record.skipped_rules, record.error) == ({"refused": "not that"}, ("fine",), None)


def test_an_image_fails_if_a_refusal_is_expected(toy: Toy) -> None:
    (record,) = run(toy, toy.write({"expect": {"refusal": True}}))
    assert (record.status, record.verdict, record.failed_rules) == ("completed", "FAIL", ("expect.refusal",))
    assert (record.scores, record.skipped_rules) == ({}, ("fine",))


def test_dependents_are_graded_from_the_new_image_for_free(toy: Toy) -> None:
    first, dependent = run(toy, toy.write({}, COUNTER))
    assert (dependent.prompt, dependent.artifact_sha256) == ("three trees", first.artifact_sha256)
    assert (dependent.cost_usd, dependent.usage, dependent.attempts, dependent.seconds) == (0.0, None, 0, 0.0)
    assert dependent.total_cost_usd == 0.25, "only its grading costs"


@pytest.mark.parametrize("error", [AuthError("refused key"), StorageError("disk full"), ClosingError("stopping")])
def test_an_error_that_stops_the_run_is_raised_after_the_other_cells(toy: Toy, error: Exception) -> None:
    records: list[Record] = []
    with pytest.raises(type(error), match=str(error)):
        run(toy, toy.write({}, {**COUNTER, "prompt": "refused"}), grader=StubGrader(error), records=records)
    assert [record.test_id for record in records] == ["case0"]


def test_a_refused_key_of_a_provider_stops_the_run(toy: Toy) -> None:
    with pytest.raises(AuthError, match="toy: the provider refused the API key: 401"):
        run(toy, toy.write(), StubProvider(ProviderError("401", kind="auth")))


class TestStoredOutputs:
    """Grading outputs that exist."""

    @pytest.fixture
    def call(self, toy: Toy) -> Call:
        return next(plan_of(toy.write()).calls())

    def stored(self, toy: Toy, call: Call, *, of_another_run: bool = False, **changes: Any) -> StoredOutput:
        """An output of another run in the folder ``source``."""
        plan = plan_of(toy.folder / "suite.yaml")
        record = record_of(toy.folder / "source", plan, call, cost_usd=0.5, attempts=2, seconds=3.0).model_copy(
            update=changes
        )
        return StoredOutput(call, record, toy.folder / "source", is_of_another_run=of_another_run)

    def regrade(self, toy: Toy, output: StoredOutput) -> Record:
        provider = StubProvider()
        (record,) = run(toy, toy.folder / "suite.yaml", provider, job=Job(output.call, (), (output,)))
        assert provider.requests == []
        return record

    def test_the_image_is_copied_and_the_generation_is_unchanged(self, toy: Toy, call: Call) -> None:
        output = self.stored(toy, call, prompt="an old prompt")
        record = self.regrade(toy, output)
        assert (record.verdict, record.prompt, record.scores["fine"]) == ("PASS", "a tree", True)
        assert (record.cost_usd, record.attempts, record.seconds) == (0.5, 2, 3.0)
        assert record.generation_key == output.record.generation_key
        copy = toy.folder / "runs" / "r" / str(record.artifact_path)
        assert copy.read_bytes() == (toy.folder / "source" / str(output.record.artifact_path)).read_bytes()

    def test_an_output_of_another_run_is_free(self, toy: Toy, call: Call) -> None:
        record = self.regrade(toy, self.stored(toy, call, of_another_run=True))
        assert (record.cost_usd, record.attempts, record.seconds) == (0.0, 0, 0.0)

    def test_the_stored_grades_of_another_run_are_free(self, toy: Toy, call: Call) -> None:
        times = {"cost_usd": 0.1, "seconds": 1.0, "waited_seconds": 2.0}
        grader = GraderRecord(key="look", type="mine:Look", fingerprint=Fingerprint(config_sha256="x"), **times)
        output = self.stored(toy, call, of_another_run=True, graders=(grader,), scores={"fine": True, "level": 0.5})
        (graded,) = self.regrade(toy, replace(output, graded=output.record)).graders
        assert (graded.cost_usd, graded.seconds, graded.waited_seconds) == (0.0, 0.0, 0.0)

    def test_an_unknown_cost_remains_unknown(self, toy: Toy, call: Call) -> None:
        assert self.regrade(toy, self.stored(toy, call, of_another_run=True, cost_usd=None)).cost_usd is None

    @pytest.mark.parametrize(
        ("damage", "message"),
        [("changed", "was changed after it was generated"), ("missing", "cannot be read: No such file"), ("link", "is a link to a file outside the run")],
    )  # fmt: skip
    def test_a_damaged_image_is_an_error(self, toy: Toy, call: Call, damage: str, message: str) -> None:
        output = self.stored(toy, call)
        path = output.folder / str(output.record.artifact_path)
        if damage == "changed":
            path.write_bytes(path.read_bytes() + b"x")
        else:
            path.unlink()
        if damage == "link":
            (toy.folder / "outside.png").write_bytes(PNG)
            path.symlink_to(toy.folder / "outside.png")
        record = self.regrade(toy, output)
        assert (record.status, record.verdict, record.scores) == ("error", "ERROR", {})
        assert error_of(record)[:2] == ("generate", "bad_image")
        assert message in error_of(record)[2]

    def test_a_stored_refusal_remains_a_refusal(self, toy: Toy, call: Call) -> None:
        output = self.stored(
            toy, call, status=Status.REFUSED, reasons={"refused": "not that"}, mime=None, artifact_path=None
        )
        record = self.regrade(toy, output)
        assert (record.status, record.verdict, record.reasons) == ("refused", "FAIL", {"refused": "not that"})

    def test_a_stored_error_without_an_image_remains_an_error(self, toy: Toy, call: Call) -> None:
        error = {"stage": "generate", "kind": "transient", "message": "down"}
        failed = Record(
            **{**self.stored(toy, call).record.model_dump(), "status": "error", "error": error, "mime": None}
        )
        record = self.regrade(toy, StoredOutput(call, failed, toy.folder / "source"))
        assert (record.verdict, error_of(record)) == ("ERROR", ("generate", "transient", "down"))
