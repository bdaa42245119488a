"""How much the samples of a case differ, for each model run. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from visioneval.analysis.scores import CaseNumbers, Estimate, Scores
from visioneval.records.diversity import CaseDiversity
from visioneval.records.model import Record, RunInfo
from visioneval.suite.entries.graders import BaseGrader
from visioneval.types import Frozen, Metric

DISTANCE = Metric(type="number", range=(0, 2), better="none")
DELTA_E = Metric(type="number", range=(0, None), better="none")


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

    def __init__(self, info: RunInfo, lines: Iterable[CaseDiversity], numbers: CaseNumbers) -> None:
        """Starts without cells."""
        suite = info.selected_suite
        self._graders = [grader for grader in suite.graders if grader.compares_samples]
        self._cases = {case.id: case for case in suite.cases}
        self._lines = {line.key: line for line in lines}
        self._numbers = numbers
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
            is_measured = line is not None and line.outputs == images and line.error is None
            failed += len(images) > 1 and not is_measured
            distances.add(line.distance if line is not None and is_measured else None, self._numbers[case])
            differences.add(line.delta_e if line is not None and is_measured else None, self._numbers[case])
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
