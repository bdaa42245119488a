"""The table of a comparison: both sides are read once, and each pair becomes a row of numbers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from math import inf, nan
from typing import TYPE_CHECKING, Any

from visioneval.analysis.cells import Cell, Cells, PooledCell
from visioneval.analysis.compare.pairing import CHANGES, CellPair, Pairs
from visioneval.analysis.scores import CaseNumbers
from visioneval.suite.counter_examples import match_keys
from visioneval.suite.turns import chain_of
from visioneval.types import MUST_PASS, Verdict

if TYPE_CHECKING:
    import numpy as np

    Rows = np.ndarray[Any, np.dtype[np.void]]
    Flags = np.ndarray[Any, np.dtype[np.bool_]]
    Numbers = np.ndarray[Any, np.dtype[Any]]

ABSENT = inf
"""The score of a metric that a cell does not have. Scores are finite; one that is ``null`` is nan."""
PASS, FAIL, ERROR, NONE, NO_CELL = range(5)
"""Verdicts as numbers. A run of a baseline may have no such cell."""
_VERDICTS = (Verdict.PASS, Verdict.FAIL, Verdict.ERROR, Verdict.NONE)
TagsOfPair = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PairTable:
    """What a comparison reads from its pairs, in their order.

    ``rows`` has these columns. ``case`` is the number of the case, which its turns share, and ``label`` that of the
    model run in B (-1 if flaky). ``verdict_a``, ``verdict_b`` and ``run_verdicts``, those of each run of A, are numbers
    such as ``PASS``, and ``change`` is one of ``CHANGES``. ``flaky`` is as A says, ``must_pass_a`` and ``must_pass_b``
    as each side says. ``same_output``: both outputs are the same file; ``same_output_broke``: that passed in A and
    fails in B. ``moved_by_rules`` and ``new_error`` (measured in A and not in B) are flags, as are ``no_output_a`` and
    ``no_output_b``: the generation failed. ``tags``, ``failure_tags`` and ``match_keys`` are positions in the tuples
    below.

    ``scores_a`` and ``scores_b`` are the scores of each of the ``metrics`` in each pair, and ``run_scores`` those of
    each run of A. ``cost_usd`` and ``seconds`` are those of A and of B, nan where unknown.
    """

    rows: Rows
    metrics: tuple[str, ...]
    scores_a: Numbers
    scores_b: Numbers
    run_scores: Numbers
    cost_usd: Numbers
    seconds: Numbers
    cases: Mapping[int, str]
    labels: tuple[str, ...]
    tags: tuple[TagsOfPair, ...]
    failure_tags: tuple[TagsOfPair, ...]
    match_keys: tuple[frozenset[str], ...]
    """The keys of graders whose scores differences leave out."""

    @property
    def stable(self) -> Rows:
        """The rows of cases that are not flaky: only these count in the numbers and can fail a gate."""
        stable: Rows = self.rows[~self.rows["flaky"]]
        return stable


def read_pairs(
    pairs: Pairs,
    metrics: Sequence[str],
    counter_examples: Collection[str],
    runs_of_a: int,
    also: Callable[[CellPair], None],
) -> PairTable:
    """Reads every pair once, and gives it to ``also`` too. Raises ``RunFormatError``.

    Differences of how well images match their prompts leave out ``counter_examples``.
    """
    import numpy as np

    names, cases = tuple(metrics), CaseNumbers()
    labels: dict[str, int] = {}
    tags: dict[TagsOfPair, int] = {}
    failure_tags: dict[TagsOfPair, int] = {}
    matching: dict[frozenset[str], int] = {frozenset(): 0}
    cost_usd, seconds = np.empty((2, 2, len(pairs)))  # None becomes nan
    scores_a, scores_b = np.empty((2, len(names), len(pairs)))
    run_scores = np.empty((runs_of_a, len(names), len(pairs))) if runs_of_a > 1 else scores_a[np.newaxis]

    def row(at: int, pair: CellPair) -> tuple[Any, ...]:
        a, b = pair.a, pair.b
        also(pair)
        same = pair.same_output_in_a
        left_out = match_keys((*a.graders, *b.graders)) if b.test_id in counter_examples else frozenset()
        cells: Sequence[Cell | None] = a.cells if isinstance(a, PooledCell) else (a,)
        scores_a[:, at], scores_b[:, at] = scores_of(a, names), scores_of(b, names)
        cost_usd[:, at], seconds[:, at] = (a.total_cost_usd, b.total_cost_usd), (a.seconds, b.seconds)
        if runs_of_a > 1:
            run_scores[:, :, at] = [scores_of(cell, names) for cell in cells]
        return (
            cases[b.test_id],
            -1 if pair.flaky else labels.setdefault(b.model_label, len(labels)),
            _VERDICTS.index(a.verdict),
            _VERDICTS.index(b.verdict),
            _verdicts(cells),
            CHANGES.index(pair.change),
            pair.flaky,
            MUST_PASS in a.tags,
            MUST_PASS in b.tags,
            same is not None,
            same is not None and same.verdict is Verdict.PASS and b.verdict is Verdict.FAIL,
            same is not None and pair.is_moved_by_rules,
            _is_incomplete(b) and not _is_incomplete(a),
            _has_no_output(a),
            _has_no_output(b),
            tags.setdefault((a.tags, b.tags), len(tags)),
            failure_tags.setdefault((a.failure_tags, b.failure_tags), len(failure_tags)),
            matching.setdefault(left_out, len(matching)),
        )

    columns = np.dtype([
        ("case", "i4"), ("label", "i4"), ("verdict_a", "i1"), ("verdict_b", "i1"), ("run_verdicts", "i1", (runs_of_a,)),
        ("change", "i1"), ("flaky", "?"), ("must_pass_a", "?"), ("must_pass_b", "?"), ("same_output", "?"),
        ("same_output_broke", "?"), ("moved_by_rules", "?"), ("new_error", "?"), ("no_output_a", "?"),
        ("no_output_b", "?"), ("tags", "i4"), ("failure_tags", "i4"), ("match_keys", "i4"),
    ])  # fmt: skip
    rows = np.fromiter(starmap(row, enumerate(pairs)), columns, len(pairs))
    case_names = {number: chain_of(case) for case, number in cases.items()}
    return PairTable(
        rows,
        names,
        scores_a,
        scores_b,
        run_scores,
        cost_usd,
        seconds,
        case_names,
        tuple(labels),
        tuple(tags),
        tuple(failure_tags),
        tuple(matching),
    )


def read_cells(cells: Cells, runs: int, also: Callable[[Cell], None]) -> Rows:
    """A row for each cell that only one side has, a baseline of some ``runs`` or a run.

    Its columns are ``verdict``, ``run_verdicts``, ``flaky`` and ``must_pass``. Each cell is given to ``also`` too.
    """
    import numpy as np

    def rows() -> Iterator[tuple[Any, ...]]:
        for cell in cells:
            also(cell)
            of_runs = cell.cells if isinstance(cell, PooledCell) else (cell,)
            yield _VERDICTS.index(cell.verdict), _verdicts(of_runs), cell.flaky, MUST_PASS in cell.tags

    columns = np.dtype([("verdict", "i1"), ("run_verdicts", "i1", (runs,)), ("flaky", "?"), ("must_pass", "?")])
    return np.fromiter(rows(), columns, len(cells))


def is_measured(verdicts: Numbers) -> Flags:
    """Which of these verdicts are PASS or FAIL."""
    measured: Flags = (verdicts == PASS) | (verdicts == FAIL)
    return measured


def _verdicts(cells: Sequence[Cell | None]) -> tuple[int, ...]:
    return tuple(NO_CELL if cell is None else _VERDICTS.index(cell.verdict) for cell in cells)


def scores_of(cell: Cell | None, metrics: Sequence[str]) -> list[float]:
    """The scores of a cell as numbers."""
    scores = {} if cell is None else cell.scores
    return [nan if (score := scores.get(name, ABSENT)) is None else score for name in metrics]


def _has_no_output(cell: Cell) -> bool:
    return cell.error is not None and cell.error.stage == "generate"


def _is_incomplete(cell: Cell) -> bool:
    return cell.verdict is Verdict.ERROR or cell.is_unmeasured
