"""Judges that answered with another model than the one that was asked. Pure.

Providers reroute the models that they retire, so that a run continues with a judge that nobody chose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from visioneval.analysis.cells import CellGrader
from visioneval.records.model import GraderRecord, RunInfo
from visioneval.types import Frozen

_SNAPSHOT = re.compile(r"[-@](\d{3,8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|\d{2}-\d{4}|preview[-\d]*|latest|exp[-\d]*)")


class Rerouting(Frozen):
    """A judge of the suite whose replies name another model, in ``cells`` cells of one grader."""

    grader: str
    judge: str
    asked: str
    answered: str
    cells: int


class Reroutings:
    """Counts the graders' answers by model."""

    def __init__(self, info: RunInfo | None) -> None:
        """Reads which model each grader of the run asks. Without a run, nothing is counted."""
        judges, graders = ({}, ()) if info is None else (info.suite.judges, info.suite.graders)
        self._models = {name: getattr(judge, "model", None) for name, judge in judges.items()}
        self._judges = {grader.key: grader.judge_names for grader in graders} if any(self._models.values()) else {}
        self._counts: Counter[tuple[str, str, str, str]] = Counter()

    def add_graders(self, graders: Iterable[GraderRecord | CellGrader]) -> None:
        """Counts the graders of a cell."""
        if not self._judges:
            return
        for grader in graders:
            names = self._judges.get(grader.key, ())
            replies = [(answer.judge, answer.model) for answer in grader.judges]
            for judge, answered in [(names[0], grader.fingerprint.judge_model)] if len(names) == 1 else replies:
                asked = self._models.get(judge)
                if asked and answered and not is_same_model(asked, answered):
                    self._counts[grader.key, judge, asked, answered] += 1

    def result(self) -> tuple[Rerouting, ...]:
        """Returns the reroutings, by grader."""
        return tuple(
            Rerouting(grader=grader, judge=judge, asked=asked, answered=answered, cells=cells)
            for (grader, judge, asked, answered), cells in sorted(self._counts.items())
        )


def is_same_model(asked: str, answered: str) -> bool:
    """Whether a reply may come from the model that was asked: it names that model, or a dated snapshot of it.

    An alias, which ends in ``-latest``, may stand for any model.
    """
    asked, answered = (name.rpartition("/")[2].lower() for name in (asked, answered))
    if asked == answered or asked.endswith("-latest"):
        return True
    return answered.startswith(asked) and _SNAPSHOT.fullmatch(answered[len(asked) :]) is not None
