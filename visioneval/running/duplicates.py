"""Near-duplicates between the outputs of different cases on one model run, found after all cells are done.

Each output is read once, for its signature. Only outputs whose signatures are alike are compared in full, and of these
only those that are not yet known to repeat the same image, so that n copies of an image take n - 1 comparisons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from visioneval.errors import ClosingError, GraderError, StoppedError, count_of
from visioneval.graders.base import DuplicateGrader
from visioneval.graders.measures import Measure, measure_directly
from visioneval.plugins import GRADERS, load_object
from visioneval.records.between_cells import CellDuplicate, update_duplicates
from visioneval.records.model import Record
from visioneval.records.reader import read_records
from visioneval.running.calls.attempts import describe_error
from visioneval.running.calls.judges import Meter
from visioneval.running.cells.services import Services
from visioneval.running.execution import Progress
from visioneval.running.pairs import contender
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.model import Suite
from visioneval.threads import processors
from visioneval.types import Output

MeasureAny = Callable[[Measure[Any], Sequence[Output]], Awaitable[Any]]
"""Makes a measure of these outputs, or reads it from the cache."""
MOST_DIFFERENT = 10
"""After so many outputs that are alike and no near-duplicates, the less alike ones are not compared with an output."""
Describe = Callable[[Exception], str]
"""Why an output could not be measured, in words."""


@dataclass(slots=True)
class Compared:
    """One output, and what is found about it."""

    case: str
    label: str
    sample: int
    origins: frozenset[str]
    output: Output
    thumbnail: Any = None
    error: str | None = None
    is_compared: bool = False
    """Whether there is an output of another case that it could repeat."""
    of: Compared | None = None
    distance: float | None = None
    delta_e: float | None = None

    def line(self, grader: str) -> CellDuplicate:
        """What is recorded of it."""
        is_known = self.error is None and (self.is_compared or self.of is not None)
        return CellDuplicate(
            grader=grader,
            test_id=self.case,
            model_label=self.label,
            sample_index=self.sample,
            output=self.output.sha256,
            is_duplicate=self.of is not None if is_known else None,
            of=self.of.case if self.of else None,
            of_sample=self.of.sample if self.of else 0,
            distance=self.distance,
            delta_e=self.delta_e,
            error=self.error,
        )


@dataclass(frozen=True, slots=True)
class Work:
    """The grader, and how its measures are made."""

    grader: DuplicateGrader
    measure: MeasureAny
    describe: Describe


@dataclass(slots=True)
class Search:
    """The search for near-duplicates among the outputs of one model run."""

    work: Work
    outputs: list[Compared] = field(default_factory=list)

    def lines(self, grader: str) -> list[CellDuplicate]:
        """What is recorded of each output."""
        return [item.line(grader) for item in self.outputs]

    async def read(self, item: Compared) -> None:
        """Makes the signature of an output. Raises ``StoppedError``."""
        try:
            measure = self.work.grader.signature(item.output)
            item.thumbnail = self.work.grader.thumbnail(await self.work.measure(measure, [item.output]))
        except StoppedError:
            raise
        except Exception as error:
            item.error = self.work.describe(error)

    async def compare(self) -> None:
        """Compares outputs whose signatures are alike. Raises ``StoppedError``."""
        items = [item for item in self.outputs if item.error is None]
        _mark_compared(items)
        if len(items) < 2:
            return
        vectors = self.work.grader.details([item.thumbnail for item in items])
        groups = list(range(len(items)))
        for row, item in enumerate(items):
            different = 0
            for other in self.work.grader.alike(vectors, row):
                second = items[other]
                if different == MOST_DIFFERENT or item.error is not None:
                    break
                is_known = groups[row] == groups[other] or second.error is not None
                if is_known or not item.origins.isdisjoint(second.origins):
                    continue
                if await self._are_duplicates(item, second):
                    joined = groups[other]
                    groups = [groups[row] if group == joined else group for group in groups]
                else:
                    different += 1

    async def _are_duplicates(self, first: Compared, second: Compared) -> bool:
        distance, delta_e = 0.0, 0.0
        if first.output.sha256 != second.output.sha256:
            try:
                pair = [first.output, second.output]
                likeness = await self.work.measure(self.work.grader.measure(*pair), pair)
            except StoppedError:
                raise
            except Exception as error:  # nobody knows which of them it is about
                first.error = second.error = self.work.describe(error)
                return False
            if not self.work.grader.is_duplicate(likeness):
                return False
            distance, delta_e = likeness.distance, likeness.delta_e
        for item, other in ((first, second), (second, first)):
            if item.of is None:
                item.of, item.distance, item.delta_e = other, distance, delta_e
        return True


def _mark_compared(items: Sequence[Compared]) -> None:
    """Marks outputs that have one of another origin to be compared with."""
    origins = {item.origins for item in items}
    apart = {first: any(first.isdisjoint(second) for second in origins) for first in origins}
    for item in items:
        item.is_compared = apart[item.origins]


def searches(work: Work, config: BaseGrader, suite: Suite, records: Iterable[Record], folder: Path) -> list[Search]:
    """A search for each model run with outputs of the cases of a suite that the grader is for, in suite order."""
    cases = {case.id: case for case in suite.cases if config.is_for(case)}
    by_model: dict[str, Search] = {str(model.label): Search(work) for model in suite.models}
    for record in records:
        image = contender(record, folder, trusted=False)
        if record.test_id in cases and record.model_label in by_model and image is not None:
            origins = cases[record.test_id].origins
            item = Compared(record.test_id, record.model_label, record.sample_index, origins, image.output)
            by_model[record.model_label].outputs.append(item)
    order = {case: at for at, case in enumerate(cases)}
    for search in by_model.values():
        search.outputs.sort(key=lambda item: (order[item.case], item.sample))
    return [search for search in by_model.values() if search.outputs]


async def find_duplicates(services: Services, config: BaseGrader, progress: Progress) -> str | None:
    """Finds the near-duplicates of each model run, and stores what is known of its outputs once it is done.

    Returns a note for the user, or ``None`` if it is for no case. An early end is reported in ``progress``. The outputs
    of a shard are compared with those of the others when all are merged.
    """
    info, folder, meter = services.writer.info, services.writer.folder, Meter()
    if config.key not in services.components.graders or info.selection.shard is not None:
        return None
    grader = cast("DuplicateGrader", services.components.graders[config.key])

    async def measure(work: Measure[Any], outputs: Sequence[Output]) -> Any:
        if progress.is_over:
            raise ClosingError("the run is being stopped")
        digests = {output.path: output.sha256 for output in outputs}
        return await services.measurements(work, hash_of=digests.__getitem__, meter=meter)

    model_searches = await asyncio.to_thread(
        lambda: searches(
            Work(grader, measure, lambda error: services.failure_of(error)[1]),
            config,
            info.selected_suite,
            read_records(folder),
            folder,
        )
    )
    reading = ((search, item) for search in model_searches for item in search.outputs)
    await progress.work_through(reading, processors(), lambda pair: pair[0].read(pair[1]))
    progress.left += sum(1 for _ in reading)
    if progress.left:
        return None
    comparing, done = iter(model_searches), list[Search]()

    async def compare(search: Search) -> None:
        await search.compare()
        done.append(search)

    await progress.work_through(comparing, processors(), compare)
    progress.left += sum(1 for _ in comparing)
    lines = [line for search in done for line in search.lines(config.key)]
    await asyncio.to_thread(update_duplicates, folder, lines)
    copies = sum(bool(line.is_duplicate) for line in lines)
    cached = f", {meter.cached_measurements} of them read from the cache" if meter.cached_measurements else ""
    return (
        f"{config.key}: {copies} of {count_of(len(lines), 'output')} repeat that of another case; "
        f"{count_of(meter.measurements, 'measurement')}{cached}"
    )


async def duplicates_in(
    config: BaseGrader, suite: Suite, records: Iterable[Record], folder: Path
) -> list[CellDuplicate]:
    """The same of a run whose files are complete, without a cache."""
    grader = cast("DuplicateGrader", load_object(GRADERS[config.type_name].work)(config))
    work = Work(grader, lambda measure, _: measure_directly(measure), _describe)
    model_searches = searches(work, config, suite, records, folder)
    for search in model_searches:
        for item in search.outputs:
            await search.read(item)
        await search.compare()
    return [line for search in model_searches for line in search.lines(config.key)]


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, GraderError) else describe_error(error)
