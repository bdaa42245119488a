"""What a run found: the findings as they are shown and written. ``summary`` makes them."""

from __future__ import annotations

from typing import Literal

from visioneval.analysis.disagreements import Disagreement
from visioneval.analysis.questions import QuestionFindings
from visioneval.analysis.separation import Separation
from visioneval.analysis.stats.basic import wilson_interval
from visioneval.records.model import SCHEMA_VERSION, CellError, RunState
from visioneval.types import Frozen, Metric, Verdict

GateState = Literal["holds", "unmet", "unmeasured", "skipped"]


class Rate(Frozen):
    """A share of ``n`` with its 95 % Wilson interval; ``null`` where ``n`` is 0."""

    value: float | None
    low: float | None
    high: float | None
    n: int


class Counts(Frozen):
    """Cells by verdict; ``refused`` ones are counted in their verdict too. ``pass_rate`` leaves errors out."""

    cells: int
    passed: int
    failed: int
    errors: int
    refused: int
    pass_rate: Rate


class MetricFinding(Frozen):
    """The mean of a number or the rate of a yes over the ``n`` cells that were measured."""

    value: float | None
    n: int
    unmeasured: int


class ModelFindings(Frozen):
    """What one model run did. ``seconds`` is the mean time of a generation.

    ``cost_usd`` is the sum of what is known; ``unpriced`` generations and judgements are not.
    """

    label: str
    stand_in: bool
    counts: Counts
    metrics: dict[str, MetricFinding]
    cost_usd: float | None
    unpriced: int = 0
    seconds: float


class CostFinding(Frozen):
    """What the generations of a model run, or the judges of a grader, cost. ``unknown`` cells have no known cost."""

    what: Literal["generation", "judging"]
    name: str
    usd: float
    paid: int
    cached: int
    unknown: int


class FailingCell(Frozen):
    """A cell that did not pass. ``reasons`` are those of its failed rules, by rule, or of its refusal."""

    test_id: str
    model_label: str
    sample_index: int
    verdict: Verdict
    failed_rules: tuple[str, ...]
    failure_tags: tuple[str, ...]
    reasons: dict[str, str]
    error: CellError | None


class GateFinding(Frozen):
    """What a gate found: its value over ``n`` counted cells, beside ``errors`` cells of its scope."""

    rule: str
    scope: str
    value: float | None
    n: int
    errors: int
    state: GateState


class Summary(Frozen):
    """The findings of a run: ``summary.json`` and ``--json``."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    suite: str
    experiment: str | None
    state: RunState
    stopped_by: Literal["budget"] | None = None
    planned_cells: int
    counts: Counts
    models: tuple[ModelFindings, ...]
    metrics: dict[str, Metric]
    tags: dict[str, Counts]
    failure_tags: dict[str, int]
    warned_rules: dict[str, int]
    judge_disagreements: dict[str, Disagreement]
    separations: dict[str, dict[str, Separation]]
    questions: dict[str, QuestionFindings]
    failing: tuple[FailingCell, ...]
    gates: tuple[GateFinding, ...]
    unjudged_pairs: int = 0
    """Pairs of the run's own model runs that no judge answered in both orders."""
    reused_outputs: int = 0
    reused_since: str | None = None
    costs: tuple[CostFinding, ...] = ()
    cost_usd: float | None
    unpriced: int = 0
    exit_code: int


def rate(successes: int, n: int) -> Rate:
    """A rate with its interval; all ``null`` where there is nothing to count."""
    if n == 0:
        return Rate(value=None, low=None, high=None, n=0)
    low, high = wilson_interval(successes, n)
    return Rate(value=successes / n, low=low, high=high, n=n)
