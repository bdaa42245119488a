"""What a run does after its cells: the work of each kind of grader that compares outputs with each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from visioneval.running.cells.services import Services
from visioneval.running.execution import Progress
from visioneval.running.pairs import judge_pairs_within
from visioneval.running.samples import measure_diversity
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.kinds import PAIR, SAMPLES, Kind

WORK: Mapping[Kind, Callable[[Services, BaseGrader, Progress], Awaitable[str | None]]] = {
    PAIR: judge_pairs_within,
    SAMPLES: measure_diversity,
}
"""Makes and records the comparisons that are not recorded yet, and returns a note for the user, if any. An early end is
in the ``Progress``."""


async def compare_outputs(services: Services, progress: Progress) -> None:
    """Does the work of all graders of a run that compare outputs with each other, in suite order."""
    for grader in services.plan.suite.graders:
        if not grader.kind.grades_cells and (note := await WORK[grader.kind](services, grader, progress)):
            services.listener.note(note)
