"""What a run has of the graders that compare outputs with each other: pairs that judges chose between, and how much
samples differ. Pure, but for reading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from visioneval.analysis.compare.preferences import PreferenceFinding, preferences_within
from visioneval.analysis.scores import Estimate, Scores, case_of
from visioneval.analysis.summary.counts import CostFinding, read_pair_costs
from visioneval.analysis.summary.judges import PairCard, read_pair_cards
from visioneval.records.between_cells import CaseDiversity, read_diversity
from visioneval.records.model import Record, RunInfo
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.kinds import SAMPLES, of_kind
from visioneval.types import Frozen, Metric

DISTANCE = Metric(type="number", range=(0, 2), better="none")
DELTA_E = Metric(type="number", range=(0, None), better="none")


@dataclass(frozen=True, slots=True)
class Compared:
    """The judged pairs of a run's own model runs, their judges and costs, and the distances of its samples."""

    pairs: Sequence[PreferenceFinding] = ()
    judges: Sequence[PairCard] = ()
    costs: Sequence[CostFinding] = ()
    samples: Sequence[CaseDiversity] = ()

    @classmethod
    def read(cls, folder: Path, info: RunInfo, *, has_pairs: bool = True, has_costs: bool = True) -> Compared:
        """Reads what a run has of these.

        ``has_pairs`` is false for a part of the cells of a run, which has no pairs of its own. ``has_costs`` is false
        for a single model run: the cost of a pair belongs to two. Raises ``RunFormatError``.
        """
        return cls(
            preferences_within(folder, info) if has_pairs else (),
            read_pair_cards(folder) if has_pairs else (),
            read_pair_costs(folder) if has_pairs and has_costs else (),
            read_diversity(folder),
        )


NOTHING_COMPARED = Compared()


class DiversityFinding(Frozen):
    """The mean distance of the samples of a case, over the cases of one model run.

    ``distance`` is 1 - SSIM, 0..2, and ``delta_e`` is CIEDE2000, 0 and up; 0 is identical. Both count cases with fewer
    than two images as unmeasured, and the ``failed`` ones too: those whose images exist but were not all measured.
    """

    grader: str
    model_label: str
    distance: Estimate
    delta_e: Estimate
    failed: int = 0
    is_optional: bool = False


class Diversities:
    """Collects the images of each case and model run, to match the lines of ``diversity.jsonl`` with them."""

    def __init__(self, info: RunInfo, lines: Iterable[CaseDiversity]) -> None:
        """Starts without cells."""
        suite = info.selected_suite
        self._graders = of_kind(suite.graders, SAMPLES)
        self._cases = {case.id: case for case in suite.cases}
        self._lines = {line.key: line for line in lines}
        self._images: dict[str, dict[str, dict[int, str]]] = {}

    def add(self, cell: Record) -> None:
        """Counts a cell, also without an image."""
        if not self._graders:
            return
        images = self._images.setdefault(cell.model_label, {}).setdefault(cell.test_id, {})
        if cell.mime is not None and cell.artifact_path is not None and cell.artifact_sha256 is not None:
            images[cell.sample_index] = cell.artifact_sha256

    def result(self, labels: Iterable[str]) -> tuple[DiversityFinding, ...]:
        """Returns a finding for each grader and each of these model runs that has any cases for it."""
        findings = [self._finding(grader, label) for grader in self._graders for label in labels]
        return tuple(finding for finding in findings if finding is not None)

    def _finding(self, grader: BaseGrader, label: str) -> DiversityFinding | None:
        distances, differences, failed = Scores(), Scores(), 0
        cases = [id_ for id_ in self._images.get(label, {}) if id_ in self._cases and grader.is_for(self._cases[id_])]
        for case in cases:
            images = tuple(digest for _, digest in sorted(self._images[label][case].items()))
            line = self._lines.get((grader.key, case, label))
            if line is not None and (line.outputs != images or line.error is not None):
                line = None
            failed += len(images) > 1 and line is None
            distances.add(line and line.distance, case_of(case))
            differences.add(line and line.delta_e, case_of(case))
        if not cases:
            return None
        return DiversityFinding(
            grader=grader.key,
            model_label=label,
            distance=distances.estimate(DISTANCE),
            delta_e=differences.estimate(DELTA_E),
            failed=failed,
            is_optional=bool(grader.optional),
        )


def unmeasured_groups(findings: Iterable[DiversityFinding]) -> int:
    """The number of sets of samples that a grader failed to measure, except optional graders."""
    return sum(finding.failed for finding in findings if not finding.is_optional)
