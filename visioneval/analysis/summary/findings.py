"""The findings of a run, as written to ``summary.json`` and shown in reports. Built by ``summary``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from visioneval.analysis.alignments import AlignedCell
from visioneval.analysis.disagreements import Disagreement
from visioneval.analysis.never_asked import NeverAsked
from visioneval.analysis.rerouting import Rerouting
from visioneval.analysis.scores import Estimate
from visioneval.analysis.stats.measure import Statistic
from visioneval.analysis.summary.diversity import DiversityFinding
from visioneval.analysis.summary.judge_card import JudgeCard, PairCard
from visioneval.analysis.summary.questions import QuestionFindings
from visioneval.analysis.summary.separation import Separation
from visioneval.analysis.summary.variance import NoiseFinding
from visioneval.records.model import CellError, RunState, StoppedBy
from visioneval.records.untrusted_json import SCHEMA_VERSION
from visioneval.rules import parse_gate, show_failed
from visioneval.suite.meanings import Meaning
from visioneval.suite.selection.shards import Shard
from visioneval.types import Frozen, Score, Verdict

CostKind = Literal["generation", "judging", "pairwise"]
GateState = Literal["passed", "failed", "cannot_tell", "unmeasured", "skipped", "deferred"]
"""``cannot_tell`` if the value passes a gate that its bound decides, and the bound does not; ``skipped`` if a selection
left nothing in its scope; ``deferred`` in a shard, until all are merged.
"""


class Counts(Frozen):
    """Cells by verdict. ``refused`` cells also count in their verdict. ``pass_rate`` excludes errors.

    ``without_verdict`` counts the outputs in a suite without rules.
    ``unmeasured`` counts the cells with a failed grader that is not optional, whatever their verdict.
    """

    cells: int
    passed: int
    failed: int
    errors: int
    without_verdict: int = 0
    refused: int
    unmeasured: int
    pass_rate: Estimate

    @property
    def not_passed(self) -> int:
        """The number of cells that failed or are errors."""
        return self.failed + self.errors


class ModelFindings(Frozen):
    """The findings of one model run. ``seconds`` is the mean time of a generation.

    ``cost_usd`` is the sum of the known costs; ``unpriced`` counts generations and judgements without one.
    """

    label: str
    stand_in: bool
    counts: Counts
    metrics: dict[str, Estimate]
    cost_usd: float | None
    unpriced: int = 0
    seconds: float
    failure_tags: dict[str, int] = Field(default_factory=dict)
    """The number of its cells with each failure tag, most frequent first."""
    tags: dict[str, Counts] = Field(default_factory=dict)
    """Its cells by the tags of their cases, sorted."""


class CostFinding(Frozen):
    """The cost of a model run's generations, of a grader's judge, or of a judge of pairs.

    Its name is that of the model run, ``GRADER``, ``GRADER by JUDGE`` of a panel, or ``provider:model`` for pairs.
    ``unknown`` counts cells, or answers about pairs, without a known cost.
    """

    what: CostKind
    name: str
    usd: float
    paid: int
    cached: int
    unknown: int


class FailingCell(Frozen):
    """A cell that did not pass. ``reasons`` maps each failed rule, or ``refused``, to its reason, if it has one.

    ``scores`` are those that its failed rules read, by rule. ``failed_gates`` are the failed gates in which it counts.
    """

    test_id: str
    model_label: str
    sample_index: int
    verdict: Verdict
    failed_rules: tuple[str, ...]
    failure_tags: tuple[str, ...]
    reasons: dict[str, str]
    scores: dict[str, Score] = Field(default_factory=dict)
    failed_gates: tuple[str, ...] = ()
    error: CellError | None

    @property
    def explanations(self) -> dict[str, str]:
        """Why it did not pass: each failed rule, ``refused``, or the stage and kind of its error, with its text.

        The text of a rule begins with the score and the limit, such as ``hierarchy 2 < 3``.
        """
        rules = self.failed_rules or tuple(self.reasons)
        texts = {rule: ": ".join(filter(None, (self.shown(rule), self.reasons.get(rule)))) for rule in rules}
        if self.error is not None:
            texts[f"{self.error.stage}, {self.error.kind}"] = self.error.message
        return texts

    def shown(self, rule: str) -> str:
        """A failed rule with its score and its limit; empty if the rule itself says what was false."""
        return show_failed(rule, self.scores[rule]) if rule in self.scores else ""


class GateFinding(Frozen):
    """The result of a gate: its value over ``n`` measured cells, and the ``errors`` in its scope.

    ``low`` and ``high`` are its 95 % interval over cases. ``repeat_fails`` is the probability that a run of the same
    quality, with the same cases and samples, fails the gate; ``null`` if it is unknown, or the gate not decided.
    ``unmeasured`` counts the cells that it leaves out because they were not measured, and ``note`` is a sentence about
    them. ``is_unreliable`` if these are too many: the run exits 3, and the gate does not pass.
    """

    rule: str
    scope: str
    value: float | None
    low: float | None = None
    high: float | None = None
    repeat_fails: float | None = None
    n: int
    errors: int
    unmeasured: int = 0
    is_unreliable: bool = False
    note: str = ""
    state: GateState

    @property
    def is_incomplete(self) -> bool:
        """Whether the run exits 3 for it: it is undecided, or failed by what was not measured."""
        if self.state == "failed":
            return self.is_unreliable or parse_gate(self.rule).is_about_errors
        return self.state in ("unmeasured", "cannot_tell")


class PanelMetric(Frozen):
    """Agreement on one metric over the cells in which two or more judges measured it.

    ``alpha`` is Krippendorff's alpha, nominal for yes or no and interval for numbers, with a 95 % interval over the
    cases. ``split`` counts the cells without a score because as many judges said yes as no.
    """

    alpha: Statistic
    split: int


class PanelFinding(Frozen):
    """The panel of one grader. ``unanswered`` counts the cells in which a judge that was asked left out a metric."""

    judges: tuple[str, ...]
    cells: int
    metrics: dict[str, PanelMetric]
    unanswered: dict[str, int]


class Summary(Frozen):
    """The findings of a run, for ``summary.json`` and ``--json``."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    suite: str
    experiment: str | None
    state: RunState
    stopped_by: StoppedBy | None = None
    planned_cells: int
    shard: Shard | None = None
    """Which part of a run this is: gates are evaluated when all shards are merged."""
    left_out_graders: tuple[str, ...] = ()
    """The suite's graders that ``--grader`` left out: rules over their metrics were not evaluated."""
    counts: Counts
    models: tuple[ModelFindings, ...]
    metrics: dict[str, Meaning]
    tags: dict[str, Counts]
    failure_tags: dict[str, int]
    warned_rules: dict[str, int]
    judge_disagreements: dict[str, Disagreement]
    judges: tuple[JudgeCard, ...] = ()
    """What the records contain about the judge of each grader."""
    pair_judges: tuple[PairCard, ...] = ()
    """The judges that compared outputs of this run in pairs, with each other or with those of another run."""
    separations: dict[str, dict[str, Separation]]
    questions: dict[str, QuestionFindings]
    noise: tuple[NoiseFinding, ...] = ()
    """Where the variance of the pass rate and of each metric arises."""
    failing: tuple[FailingCell, ...]
    """The first 5,000 cells that did not pass, in suite order. ``counts`` has the number of all."""
    failure_reasons: dict[str, int] = Field(default_factory=dict)
    """How many cells did not pass for each reason: a failed rule, ``refused``, or the stage and kind of an error. A
    cell can have several. Most frequent first."""
    deciding_metrics: tuple[str, ...] = ()
    """The metrics that verdict rules and gates read, sorted."""
    alignments: tuple[AlignedCell, ...] = ()
    """The alignment of each cell, passing ones included; of more than 5,000, those with the lowest scores."""
    alignments_left_out: int = 0
    """How many more cells have an alignment."""
    gates: tuple[GateFinding, ...]
    optional_unmeasured: dict[str, int] = Field(default_factory=dict)
    """The number of cells that each optional grader could not measure."""
    never_asked: tuple[NeverAsked, ...] = ()
    """The judges and models that were not asked about some cells or pairs, which nothing excuses."""
    panels: dict[str, PanelFinding] = Field(default_factory=dict)
    """How far the judges of each panel agree, by grader key."""
    diversity: tuple[DiversityFinding, ...] = ()
    """How much the samples of a case differ, by grader and model run."""
    reroutings: tuple[Rerouting, ...] = ()
    """Judges that answered with another model than the one that was asked."""
    unjudged_pairs: int = 0
    """Pairs of the run's own model runs that no judge answered in both orders."""
    reused_outputs: int = 0
    reused_since: str | None = None
    costs: tuple[CostFinding, ...] = ()
    cost_usd: float | None
    """The sum of the known costs, with those of pairs."""
    pairwise_usd: float | None = None
    """The part of ``cost_usd`` that judges of pairs cost."""
    unpriced: int = 0
    exit_code: int

    @property
    def lacks_outputs(self) -> bool:
        """Whether a model was never asked for outputs."""
        return any(entry.what == "output" for entry in self.never_asked)
