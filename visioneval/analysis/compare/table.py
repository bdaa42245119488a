"""The table of a comparison: both sides are read once, and each pair becomes a row. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import TYPE_CHECKING, Any, TypeVar

from visioneval.analysis.cells import MEASURED, Cell, PooledCell
from visioneval.analysis.compare.pairing import CellPair, Change, Pairs
from visioneval.suite.filters import chain_of
from visioneval.suite.metrics import match_keys
from visioneval.types import MUST_PASS, Metric, Verdict

if TYPE_CHECKING:
    import numpy as np

    Flags = np.ndarray[Any, np.dtype[np.bool_]]
    Numbers = np.ndarray[Any, np.dtype[Any]]

ABSENT = inf
"""The score of a metric that a cell does not have. Scores are finite; one that is ``null`` is nan."""
NO_WORDS: Mapping[str, Metric] = {}
ValueT = TypeVar("ValueT")
TagsOfPair = tuple[tuple[str, ...], tuple[str, ...]]
CaseKey = tuple[str, str]
"""A case and its model run, by the label in B."""
RunVerdicts = tuple[Verdict | None, ...]
"""The verdicts of a cell in the runs of a side, ``None`` in a run that lacks the cell."""


@dataclass(slots=True)
class PairRow:
    """What a comparison reads from a pair, without its scores.

    All turns of a case are one ``case``, and ``label`` is that of the model run in B. ``run_verdicts`` are those of
    each run of A. ``flaky`` is as A says, ``must_pass`` as either side says. ``same_output``: both outputs are the same
    file; ``same_output_broke``: that passed in A and fails in B. ``new_error``: measured in A and not in B.
    ``no_output_a`` and ``no_output_b``: the generation failed. ``match_keys`` are the keys of graders whose scores
    differences leave out.
    """

    test_id: str
    case: str
    label: str
    verdict_a: Verdict
    verdict_b: Verdict
    run_verdicts: RunVerdicts
    change: Change
    flaky: bool
    must_pass: bool
    same_output: bool
    same_output_broke: bool
    moved_by_rules: bool
    new_error: bool
    no_output_a: bool
    no_output_b: bool
    tags: TagsOfPair
    failure_tags: TagsOfPair
    match_keys: Collection[str]

    @property
    def is_measured(self) -> bool:
        """Whether both verdicts are PASS or FAIL."""
        return self.verdict_a in MEASURED and self.verdict_b in MEASURED


@dataclass(frozen=True, slots=True)
class PairTable:
    """What a comparison reads from its pairs: a row for each, in their order.

    ``scores_a`` and ``scores_b`` are the scores of each of the ``metrics`` in each pair, and ``run_scores`` those of
    each run of A. ``cost_usd`` and ``seconds`` are those of A and of B, of the pairs in which both are known.
    """

    metrics: tuple[str, ...]
    scores_a: Numbers
    scores_b: Numbers
    run_scores: Numbers
    rows: list[PairRow] = field(default_factory=list)
    cost_usd: list[tuple[float, float]] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)

    @property
    def stable(self) -> list[PairRow]:
        """The rows of cases that are not flaky: only these count in the numbers and can fail a gate."""
        return [row for row in self.rows if not row.flaky]

    def flags(self, is_true: Callable[[PairRow], bool]) -> Flags:
        """Which rows a condition is true for."""
        import numpy as np

        return np.fromiter(map(is_true, self.rows), bool, len(self.rows))


def case_numbers(rows: Sequence[PairRow]) -> Numbers:
    """A number for the case of each row, the same for the same case."""
    import numpy as np

    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(row.case, len(numbers)) for row in rows], int)


def read_pairs(
    pairs: Pairs,
    metrics: Mapping[str, Metric],
    counter_examples: Collection[str],
    runs_of_a: int,
    also: Callable[[CellPair], None],
) -> PairTable:
    """Reads every pair once, and gives it to ``also`` too. Raises ``RunFormatError``.

    Differences of how well images match their prompts leave out ``counter_examples``.
    """
    import numpy as np

    names, words = tuple(metrics), {name: metric for name, metric in metrics.items() if metric.choices}
    scores_a, scores_b = np.empty((2, len(metrics), len(pairs)))
    run_scores = np.empty((runs_of_a, len(metrics), len(pairs))) if runs_of_a > 1 else scores_a[np.newaxis]
    table = PairTable(names, scores_a, scores_b, run_scores)
    known: dict[Any, Any] = {}

    def shared(value: ValueT) -> ValueT:
        """The same object for equal values."""
        return known.setdefault(value, value)  # type: ignore[no-any-return]

    for at, pair in enumerate(pairs):
        a, b = pair.a, pair.b
        also(pair)
        scores_a[:, at], scores_b[:, at] = scores_of(a, names, words), scores_of(b, names, words)
        if runs_of_a > 1:
            run_scores[:, :, at] = [scores_of(cell, names, words) for cell in cells_of_runs(a)]
        for amounts, of_a, of_b in (
            (table.cost_usd, a.total_cost_usd, b.total_cost_usd),
            (table.seconds, a.seconds, b.seconds),
        ):
            if of_a is not None and of_b is not None:
                amounts.append((of_a, of_b))
        same = pair.same_output_in_a
        table.rows.append(
            PairRow(
                test_id=shared(b.test_id),
                case=shared(chain_of(b.test_id)),
                label=shared(b.model_label),
                verdict_a=a.verdict,
                verdict_b=b.verdict,
                run_verdicts=shared(run_verdicts(a)),
                change=pair.change,
                flaky=pair.flaky,
                must_pass=pair.must_pass,
                same_output=same is not None,
                same_output_broke=same is not None and same.verdict is Verdict.PASS and b.verdict is Verdict.FAIL,
                moved_by_rules=same is not None and pair.is_moved_by_rules,
                new_error=_is_incomplete(b) and not _is_incomplete(a),
                no_output_a=_has_no_output(a),
                no_output_b=_has_no_output(b),
                tags=shared((a.tags, b.tags)),
                failure_tags=shared((a.failure_tags, b.failure_tags)),
                match_keys=match_keys((*a.graders, *b.graders)) if b.test_id in counter_examples else (),
            )
        )
    return table


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """The samples of a case on one model run, by verdict."""

    passed: int = 0
    failed: int = 0
    errors: int = 0

    @classmethod
    def of(cls, verdicts: Sequence[Verdict | None]) -> SampleCounts:
        """Counts verdicts."""
        return cls(verdicts.count(Verdict.PASS), verdicts.count(Verdict.FAIL), verdicts.count(Verdict.ERROR))

    @property
    def measured(self) -> int:
        """The samples with a verdict."""
        return self.passed + self.failed

    @property
    def total(self) -> int:
        """All samples, measured or not."""
        return self.measured + self.errors

    def fewest_to_decide(self, passes: int, failures: int, left: int) -> int:
        """The smallest number of further samples that may reach one of these counts; 0 if ``left`` do not."""
        fewest = min(passes - self.passed, failures - self.failed)
        return fewest if fewest <= left else 0

    def __add__(self, other: SampleCounts) -> SampleCounts:
        return SampleCounts(self.passed + other.passed, self.failed + other.failed, self.errors + other.errors)


NO_SAMPLES = SampleCounts()


@dataclass(slots=True)
class TaggedCase:
    """The samples of a case on one model run, those of A in all of its runs.

    ``must_pass`` is as either side says, ``flaky`` as A says.
    """

    a: SampleCounts = NO_SAMPLES
    b: SampleCounts = NO_SAMPLES
    is_in_a: bool = False
    is_in_b: bool = False
    must_pass: bool = False
    flaky: bool = False

    def add(self, a: Cell | None, b: Cell | None) -> None:
        """Counts a sample of the case that is on both sides, or on one."""
        if a is not None:
            self.is_in_a = True
            self.a += SampleCounts.of(run_verdicts(a))
            self.flaky |= a.flaky
        if b is not None:
            self.is_in_b = True
            self.b += SampleCounts.of((b.verdict,))
        self.must_pass |= any(cell is not None and MUST_PASS in cell.tags for cell in (a, b))


def cells_of_runs(cell: Cell) -> tuple[Cell | None, ...]:
    """The same cell in each run of its side, ``None`` in a run that lacks it."""
    return cell.cells if isinstance(cell, PooledCell) else (cell,)


def run_verdicts(cell: Cell) -> RunVerdicts:
    """The verdicts of a cell in the runs of its side."""
    return tuple(None if item is None else item.verdict for item in cells_of_runs(cell))


def scores_of(cell: Cell | None, metrics: Sequence[str], words: Mapping[str, Metric] = NO_WORDS) -> list[float]:
    """The scores of a cell as numbers, a word as its place among the choices. ``words`` are the metrics of words."""
    scores: Mapping[str, Any] = {} if cell is None else cell.scores
    numbers = [nan if (score := scores.get(name, ABSENT)) is None else score for name in metrics]
    if words or str in map(type, numbers):
        return [_code(number, words.get(name)) for name, number in zip(metrics, numbers, strict=True)]
    return numbers


def _code(score: Any, words: Metric | None) -> float:
    """A score as a number; nan for an unknown word, for one in the place of a number, and the other way round."""
    if isinstance(score, str):
        return words.choices.index(score) if words is not None and score in words.choices else nan
    return nan if words is not None and score != ABSENT else float(score)


def _has_no_output(cell: Cell) -> bool:
    return cell.error is not None and cell.error.stage == "generate"


def _is_incomplete(cell: Cell) -> bool:
    return cell.verdict is Verdict.ERROR or cell.is_unmeasured
