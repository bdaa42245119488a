"""Reads the pairs of a comparison once, and adds up what it needs from each. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from visioneval.analysis.alignments import ALIGNMENT
from visioneval.analysis.compare.comparability import GradingTally
from visioneval.analysis.compare.pairing import CellPair, Pairing
from visioneval.analysis.compare.tallies.excuses import ExcuseTally
from visioneval.analysis.compare.tallies.marks import CellMarks, PairMarks
from visioneval.analysis.compare.tallies.metrics import AlignmentPairs, AlignmentScores, AmountTally, MetricTally
from visioneval.analysis.compare.tallies.verdicts import VerdictTally
from visioneval.analysis.rerouting import Reroutings
from visioneval.analysis.scores import CaseNumbers

GECKO = "gecko"


class Tally:
    """All that a comparison adds up."""

    def __init__(
        self,
        metrics: Mapping[str, frozenset[str]],
        pairing: Pairing,
        excuses: ExcuseTally,
        counter_examples: Collection[str] = (),
    ) -> None:
        """Has read nothing. ``metrics`` are those that are compared, each with the tags that it reads.

        Differences of how well images match their prompts leave out ``counter_examples``.
        """
        self._pairing = pairing
        self.verdicts = VerdictTally()
        self.scores = MetricTally(metrics, counter_examples)
        self.gradings = GradingTally()
        self.excuses = excuses
        self.cost_usd, self.seconds = AmountTally(), AmountTally()
        self.marks, self.marks_of_only_a, self.marks_of_only_b = PairMarks(), CellMarks(), CellMarks()
        self.gecko_keys: set[str] = set()
        self._alignments: dict[str, AlignmentScores] = {}

    def read(self, reroutings: tuple[Reroutings, Reroutings]) -> None:
        """Reads every cell of both sides, and counts the judges that answered. Raises ``RunFormatError``."""
        cases, (of_a, of_b) = CaseNumbers(), reroutings
        for at, pair in enumerate(self._pairing.pairs):
            case = cases[pair.b.test_id]
            if not pair.flaky:
                self.verdicts.add(case, pair)
            self.scores.add(case, pair)
            self.gradings.add(pair)
            self.excuses.add(pair)
            self.cost_usd.add(pair.a.total_cost_usd, pair.b.total_cost_usd)
            self.seconds.add(pair.a.seconds, pair.b.seconds)
            self.marks.add(pair)
            self._add_graders(at, pair)
            of_a.add_graders(pair.a.graders)
            of_b.add_graders(pair.b.graders)
        for cells, marks, counts in (
            (self._pairing.only_a, self.marks_of_only_a, of_a),
            (self._pairing.only_b, self.marks_of_only_b, of_b),
        ):
            for cell in cells:
                marks.add(cell)
                counts.add_graders(cell.graders)

    def _add_graders(self, at: int, pair: CellPair) -> None:
        for grader in pair.a.graders:
            if grader.type == GECKO:
                self.gecko_keys.add(grader.key)
        for grader in pair.b.graders:
            if grader.type == GECKO:
                self.gecko_keys.add(grader.key)
            elif grader.type == ALIGNMENT and grader.key not in self._alignments:
                self._alignments[grader.key] = self._earlier_alignments(at, grader.key)
        for key, scores in self._alignments.items():
            scores.add(at, key, pair)

    def _earlier_alignments(self, pairs: int, grader: str) -> AlignmentScores:
        """The scores of a grader in earlier pairs, none of which it graded in B: other graders may have its metric."""
        scores = AlignmentScores()
        for at, pair in enumerate(self._pairing.pairs[:pairs]):
            scores.add(at, grader, pair)
        return scores

    def alignments(self, changed: Container[str]) -> AlignmentPairs:
        """The scores of alignment graders, without those of ``changed`` metrics."""
        scores = {key: scores for key, scores in self._alignments.items() if key not in changed}
        return AlignmentPairs(self._pairing.pairs, scores)
