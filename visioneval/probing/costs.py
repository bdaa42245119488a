"""What a probe costs at most: the estimate that it prints before it asks a judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from visioneval.analysis.past_costs import read_past_costs
from visioneval.probing.damage.kinds import COPY
from visioneval.probing.prepare import PreparedProbe
from visioneval.probing.subjects import LINES_TO_TRY
from visioneval.running.calls.budget import budget_warnings
from visioneval.running.calls.estimate import judging_costs, total_text
from visioneval.running.calls.settings import CallSettings, budget_of


def cost_lines(prepared: PreparedProbe, settings: CallSettings, runs: Path) -> Iterator[str]:
    """The estimate: the sum, each judge, and what the budget does not cover. None if no judge is asked."""
    if not prepared.request.judges or settings.reuse.offline:
        return
    costs = judging_costs(prepared.plan, gradings(prepared), cache(lambda: read_past_costs(runs)))
    yield f"cost if all changes can be planted and no answer is cached: {total_text(costs)}"
    yield from (f"  {cost}" for cost in costs)
    limit_usd = budget_of(prepared.plan, settings)
    if limit_usd is None:
        return
    yield from budget_warnings(prepared.plan, limit_usd)
    if sum(cost.usd or 0.0 for cost in costs) > limit_usd:
        yield f"this is over the budget of {limit_usd:g} USD: the probe stops when the budget is used up"


def gradings(prepared: PreparedProbe) -> Counter[str]:
    """How often each grader grades at most: every output as it is, with every change, and with a line set again."""
    controls = LINES_TO_TRY if any(kind.group == COPY for kind in prepared.kinds) else 0
    times: Counter[str] = Counter()
    for original in prepared.originals:
        times.update({grader.key: 1 + prepared.changes + controls for grader in original.call.grading.graders})
    return times
