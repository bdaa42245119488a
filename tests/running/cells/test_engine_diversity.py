"""Comparing the samples of each case after a run: the plan, and an early end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_parts import calls_for, open_services, plan_of, recorded
from toys import Toy

from visioneval import TaskType
from visioneval.analysis.summary.summary import Compared, summarize
from visioneval.graders.pixels import DiversityGrader
from visioneval.records.between_cells import read_diversity
from visioneval.running.calls.cache import Cache
from visioneval.running.cells.measurements import Measurements
from visioneval.running.estimate import estimate
from visioneval.running.execution import Outcome, Progress, run_to_end
from visioneval.running.pairs import pairwise_plan
from visioneval.running.runner import measure_diversity

SPREAD: dict[str, Any] = {"key": "spread", "type": "diversity"}


def suite(toy: Toy, samples: int = 3) -> Path:
    graders = [{"key": "props", "type": "properties"}, SPREAD]
    models = [{"provider": "mock", "label": "m"}]
    return toy.write({}, {}, models=models, graders=graders, verdict=["props"], samples=samples)


def test_the_plan_counts_its_pairs_and_they_are_free(toy: Toy) -> None:
    work = estimate(plan_of(suite(toy, samples=4)))
    assert work.local_measurements == 2 * 4 + 2 * 6
    assert work.costs == ()


def test_it_is_no_grader_for_the_command_pairwise(toy: Toy) -> None:
    (config,) = pairwise_plan(plan_of(suite(toy)), "eye=openai:gpt-5.4").suite.graders
    assert (config.key, config.type_name) == ("pairwise", "pairwise")


def test_an_interrupt_leaves_the_remaining_pairs(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visioneval.running.runner.processors", lambda: 1)
    parts = plan_of(suite(toy))
    with open_services(parts) as context:
        for record in recorded(context.writer.folder, parts):
            context.writer.append(record)
        progress = Progress(context.calls)
        progress.stop()  # the one worker ends after its pair

        async def measure() -> Outcome:
            await measure_diversity(context, parts.suite.graders[1], progress)
            return Outcome(complete=progress.left == 0)

        assert not run_to_end(measure, progress, print).complete
        assert progress.left == 5
        assert read_diversity(context.writer.folder) == []


def test_an_interrupted_comparison_is_no_error_of_its_case(toy: Toy) -> None:
    parts = plan_of(suite(toy))
    cache = Cache(toy.folder / "cache")
    with open_services(parts, calls_for(parts, cache=cache), measurements=Measurements(cache)) as context:
        for record in recorded(context.writer.folder, parts):
            context.writer.append(record)
        progress = Progress(context.calls, measurements=context.measurements)
        progress.interrupt()

        async def measure() -> Outcome:
            await measure_diversity(context, parts.suite.graders[1], progress)
            return Outcome(complete=progress.left == 0)

        assert not run_to_end(measure, progress, print).complete
        assert progress.left == 6
        assert read_diversity(context.writer.folder) == []


def test_a_pair_that_cannot_be_measured_is_the_error_of_its_case(toy: Toy) -> None:
    parts = plan_of(suite(toy))
    with open_services(parts) as context:
        folder = context.writer.folder
        records = recorded(folder, parts)
        for record in records:
            context.writer.append(record)
        (folder / str(records[0].artifact_path)).write_bytes(b"changed")
        progress = Progress(context.calls)

        async def measure() -> Outcome:
            said = await measure_diversity(context, parts.suite.graders[1], progress)
            assert said == "spread: 1 of 2 sets of samples compared; 6 pairs measured"
            return Outcome(complete=progress.left == 0)

        assert run_to_end(measure, progress, print).complete
        bad, good = read_diversity(folder)
        assert (bad.test_id, bad.distance, bad.delta_e) == ("case0", None, None)
        assert bad.error == "0.png: was changed after it was generated"
        assert good.error is None
        assert 0 < (good.distance or 0) < 0.5  # plain images of different brightness
        summary = summarize(context.writer.info, records, Compared(samples=[bad, good]))
        assert (summary.diversity[0].failed, summary.exit_code) == (1, 3)
        assert summary.diversity[0].delta_e.n == 1


def test_videos_are_not_compared(toy: Toy) -> None:
    case = plan_of(suite(toy)).suite.cases[0]
    assert DiversityGrader(**SPREAD).is_for(case)
    assert not DiversityGrader(**SPREAD).is_for(case.model_copy(update={"task": TaskType.VIDEO_GENERATION}))
