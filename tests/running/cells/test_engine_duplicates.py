"""Comparing the outputs of different cases after a run: the plan, and an early end."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_parts import open_services, plan_of, recorded
from toys import Toy

from visioneval.records.between_cells import read_duplicates
from visioneval.running.duplicates import find_duplicates
from visioneval.running.estimate import estimate
from visioneval.running.execution import Outcome, Progress, run_to_end


def suite(toy: Toy) -> Path:
    graders = [{"key": "props", "type": "properties"}, {"key": "distinct", "type": "duplicates"}]
    return toy.write({}, {}, models=[{"provider": "mock", "label": "m"}], graders=graders, verdict=["props"])


def test_the_plan_counts_an_output_once_and_it_is_free(toy: Toy) -> None:
    work = estimate(plan_of(suite(toy)))
    assert (work.local_measurements, work.costs) == (2 + 2, ())


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_an_interrupt_leaves_the_run_incomplete_and_records_nothing(toy: Toy, is_interrupted: bool) -> None:
    parts = plan_of(suite(toy))
    with open_services(parts) as context:
        for record in recorded(context.writer.folder, parts):
            context.writer.append(record)
        progress = Progress(context.calls)
        if is_interrupted:
            progress.stop()

        async def find() -> Outcome:
            await find_duplicates(context, parts.suite.graders[1], progress)
            return Outcome(complete=progress.left == 0)

        assert run_to_end(find, progress, print).complete is not is_interrupted
        assert len(read_duplicates(context.writer.folder)) == (0 if is_interrupted else 2)
