"""Measures how much the samples of each case differ, after all cells are done, into ``diversity.jsonl``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from math import comb, fsum
from pathlib import Path
from typing import cast

from visioneval.errors import StoppedError
from visioneval.graders.base import SampleDistance, SampleGrader
from visioneval.records.between_cells import CaseDiversity, update_diversity
from visioneval.records.model import Record
from visioneval.records.reader import read_records
from visioneval.running.calls.judges import Meter
from visioneval.running.cells.services import Services
from visioneval.running.execution import Progress
from visioneval.running.pairs import contender
from visioneval.running.plan import Plan
from visioneval.suite.entries.graders import BaseGrader
from visioneval.threads import processors
from visioneval.types import Output

DIGITS = 4


@dataclass(slots=True)
class SampleGroup:
    """The images of one case on one model run, in the order of the samples, and the distances of their pairs."""

    case: str
    label: str
    outputs: list[Output] = field(default_factory=list)
    distances: list[SampleDistance] = field(default_factory=list)
    error: str | None = None

    @property
    def pairs(self) -> int:
        """The number of pairs of its images."""
        return comb(len(self.outputs), 2)

    @property
    def is_done(self) -> bool:
        """Whether it has pairs and all of them are measured, or one of them could not be."""
        return self.pairs > 0 and (self.error is not None or len(self.distances) == self.pairs)

    def line(self, grader: str) -> CaseDiversity:
        """The mean over the pairs, once all are measured."""

        def mean(values: Iterable[float]) -> float | None:
            return None if self.error else round(fsum(values) / len(self.distances), DIGITS)

        return CaseDiversity(
            grader=grader,
            test_id=self.case,
            model_label=self.label,
            outputs=tuple(output.sha256 for output in self.outputs),
            distance=mean(pair.distance for pair in self.distances),
            delta_e=mean(pair.delta_e for pair in self.distances),
            error=self.error,
        )


async def measure_diversity(services: Services, config: BaseGrader, progress: Progress) -> str | None:
    """Measures all pairs of samples of the plan, and stores the cases whose pairs are all measured.

    Returns a note for the user, or ``None`` if it is for no case. An early end is reported in ``progress``.
    """
    if config.key not in services.components.graders:
        return None
    folder, meter = services.writer.folder, Meter()
    groups = await asyncio.to_thread(sample_groups, services.plan, config, read_records(folder), folder)
    pairs = ((group, pair) for group in groups for pair in combinations(group.outputs, 2))

    async def measure(item: tuple[SampleGroup, tuple[Output, Output]]) -> None:
        group, pair = item
        try:
            group.distances.append(await _measure_pair(services, config, pair, meter))
        except StoppedError:  # not measured, which is no fault of the images
            raise
        except Exception as error:
            _, message = services.failure_of(error)
            group.error = group.error or message

    await progress.work_through(pairs, processors(), measure)
    progress.left += sum(1 for _ in pairs)
    done = [group for group in groups if group.is_done]
    await asyncio.to_thread(update_diversity, folder, [group.line(config.key) for group in done])
    measured, too_few = sum(group.error is None for group in done), sum(not group.pairs for group in groups)
    few = f", {too_few} with fewer than two images" if too_few else ""
    cached = f", {meter.cached_measurements} of them read from the cache" if meter.cached_measurements else ""
    compared = f"{measured} of {len(groups)} sets of samples compared{few}"
    return f"{config.key}: {compared}; {meter.measurements} pairs measured{cached}"


def sample_groups(plan: Plan, config: BaseGrader, records: Iterable[Record], folder: Path) -> list[SampleGroup]:
    """The samples of each case and model run of the plan that the grader is for, also where there are none."""
    contenders = {record.cell: contender(record, folder, trusted=False) for record in records}
    samples: dict[tuple[str, str], set[int]] = {}
    for call in plan.calls():
        if config.is_for(call.case):
            samples.setdefault((call.case.id, call.run.label), set()).update(call.samples)
    return [
        SampleGroup(
            case, label, [image.output for at in sorted(numbers) if (image := contenders.get((case, label, at)))]
        )
        for (case, label), numbers in samples.items()
    ]


async def _measure_pair(
    services: Services, config: BaseGrader, pair: tuple[Output, Output], meter: Meter
) -> SampleDistance:
    first, second = pair
    if first.sha256 == second.sha256:
        return SampleDistance(distance=0.0, delta_e=0.0)
    digests = {image.path: image.sha256 for image in pair}
    grader = cast("SampleGrader", services.components.graders[config.key])
    return await services.measurements(grader.measure(first, second), hash_of=digests.__getitem__, meter=meter)
