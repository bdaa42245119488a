"""Further samples of a run, until its gates are decided (``--until-decided``).

Each look reads the records, so a resumed run takes the same decisions as one that was not interrupted.

With other options, and in other cases:

- a spent budget, Ctrl-C: open gates cannot tell: exit 3 (or 130). `--budget` is for run and comparison together. A
  resumed run ends as one that was not stopped
- `--resume` of another run: it gets further samples
- `--offline`: the samples that the cache has. It says what is lacking, and open gates cannot tell
- `--case`, `--tag`, `--model`: a gate whose scope they leave out asks for nothing
- `grade`: the same samples. A gate counts those that all of its cases have
- a gate that leaves out too many cells: it gets no further samples, and exits 3 as ever
- turns, `output_of`: all cells of an output count as one
- several images per call: calls are whole
- `--shard`, `--ray`, existing outputs, recorded answers: exit 2
- no gate that samples decide, and no `--baseline`: exit 2
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace

from visioneval.analysis.summary.until import (
    decide_gates,
    next_samples,
    sampled_suite_problem,
    why_not_sampled,
)
from visioneval.errors import UsageError, count_of
from visioneval.records.baselines import baseline_path
from visioneval.records.model import RunInfo
from visioneval.records.reader import read_records
from visioneval.records.until import CaseSamples, UntilDecided
from visioneval.records.writer import RunWriter
from visioneval.running.cells.cell import Job
from visioneval.running.cells.services import Services
from visioneval.running.execution import Progress
from visioneval.running.jobs import Jobs, every_cell
from visioneval.running.keys import call_key
from visioneval.running.plan import Call, Plan
from visioneval.suite.runs import cell_problem


@dataclass(frozen=True, slots=True)
class UntilOptions:
    """At most how many samples a case may have, and the baseline with which the run is then compared, if any."""

    max_samples: int
    baseline: str | None = None


def with_most_samples(plan: Plan, max_samples: int) -> Plan:
    """The plan with the most samples of every case."""
    return replace(plan, suite=plan.suite.model_copy(update={"samples": max_samples}), case_samples={})


def check_until(plan: Plan, until: UntilOptions, info: RunInfo, *, is_on_cluster: bool) -> None:
    """Raises ``UsageError`` if no sample could decide anything about the run that ``info`` describes."""
    first, most = plan.suite.samples, until.max_samples
    if plan.selection.shard is not None:
        raise UsageError("--until-decided: a shard has no gates to decide: leave out --shard")
    if is_on_cluster:
        raise UsageError("--until-decided generates on this machine: leave out --ray")
    if most <= first:
        has = f"the run has {count_of(first, 'sample')} of each case already"
        raise UsageError(f"--until-decided: {has}: use --max-samples {first + 1} or more, or fewer --samples")
    if problem := sampled_suite_problem(plan.suite):
        raise UsageError(f"--until-decided: {problem}")
    if too_many := cell_problem(with_most_samples(plan, most).suite, plan.runs):
        raise UsageError(f"--max-samples {most}: {too_many}")
    if until.baseline is not None:
        _check_baseline(plan, until.baseline)
    else:
        _check_gates(plan, info)


def _check_baseline(plan: Plan, name: str) -> None:
    if not plan.suite.has_rules:
        raise UsageError("--baseline: the suite has no rules, so there is nothing to compare")
    if not (path := baseline_path(name)).is_file():
        raise UsageError(f"{path}: no such baseline: create one with 'visioneval baseline set RUN'")


def _check_gates(plan: Plan, info: RunInfo) -> None:
    if not plan.whole_suite.gates:
        raise UsageError("--until-decided: the suite has no gates: add 'gates:', or compare with --baseline NAME")
    reasons = {entry.rule: why_not_sampled(entry, info) for entry in plan.whole_suite.gates}
    if all(reasons.values()):
        listed = "; ".join(f"{rule}: {reason}" for rule, reason in reasons.items())
        raise UsageError(f"--until-decided: samples decide no gate of the suite ({listed})")


def first_record(plan: Plan, until: UntilOptions, stored: UntilDecided | None) -> UntilDecided:
    """What ``run.json`` says of the samples when a run begins, or is resumed with what it has ``stored``."""
    before = stored or UntilDecided(max_samples=until.max_samples, most_cells=0)
    cells = with_most_samples(plan, until.max_samples).cells
    return before.model_copy(update={"max_samples": until.max_samples, "baseline": until.baseline, "most_cells": cells})


RunCells = Callable[[Services, Jobs, Progress], Awaitable[bool]]


async def generate_until_decided(
    services: Services, progress: Progress, writer: RunWriter, run_cells: RunCells
) -> tuple[Services, bool]:
    """Generates one more sample at a time of the cases of open gates. Returns the services with the plan of all
    samples, and whether any jobs are left.
    """
    is_left = False
    while not (is_left or progress.left or progress.is_over or services.calls.budget.refused):
        plan = await _look(services, writer)
        if plan is None:
            break
        jobs, services = _jobs_since(services.plan), replace(services, plan=plan)
        is_left = await run_cells(services, jobs, progress)
        progress.check()
    return services, is_left


async def decide_graded(writer: RunWriter) -> None:
    """Writes what the samples of a run of ``grade`` decide: it gets no further ones, so open gates cannot tell."""
    info = writer.info
    if (until := info.until_decided) is not None:
        records = read_records(writer.folder)
        gates = await asyncio.to_thread(decide_gates, info, records, info.case_samples, until.max_samples)
        writer.update(info.model_copy(update={"until_decided": until.model_copy(update={"gates": gates})}))


async def _look(services: Services, writer: RunWriter) -> Plan | None:
    """The plan with the samples that the open gates need next, which ``run.json`` then has; ``None`` if none are."""
    plan, info = services.plan, writer.info
    until = info.until_decided
    assert until is not None
    records = read_records(writer.folder)
    gates = await asyncio.to_thread(decide_gates, info, records, plan.case_samples, until.max_samples)
    further = replace(plan, case_samples=next_samples(info, gates, plan.case_samples))
    lacking = await _not_cached(services, further) if services.calls.reuse.offline else None
    if lacking is not None:
        services.listener.say(f"offline: the cache has no further sample of {lacking}: nothing more is generated")
        further = plan
    case_samples = tuple(
        CaseSamples(test_id=case, model_label=label, samples=samples)
        for (case, label), samples in sorted(further.case_samples.items())
        if samples > info.suite.samples
    )
    update = {"gates": gates, "case_samples": case_samples}
    writer.update(
        info.model_copy(update={"planned_cells": further.cells, "until_decided": until.model_copy(update=update)})
    )
    if further.cells == plan.cells:
        return None
    services.listener.planned(further.cells - plan.cells)
    names = ", ".join(dict.fromkeys(gate.rule for gate in gates if gate.outcome == "open"))
    services.listener.note(f"not decided yet: {names}: {count_of(further.cells - plan.cells, 'further cell')}")
    return further


def _jobs_since(before: Plan) -> Jobs:
    """The jobs of the calls that an earlier plan has not."""
    counted = {(case.id, run.label): before.count(case, run)[1] for case in before.suite.cases for run in before.runs}

    def jobs(part: Plan) -> Iterator[Job]:
        return (job for job in every_cell(part) if _is_new(job.call, counted))

    return jobs


def _is_new(call: Call, counted: dict[tuple[str, str], int]) -> bool:
    return call.samples[0] >= counted.get((call.case.id, call.run.label), 0)


async def _not_cached(services: Services, further: Plan) -> str | None:
    """The first case of whose further samples the cache has no answer; ``None`` if it has all."""
    calls = services.calls
    for job in _jobs_since(services.plan)(further):
        call = job.call
        if call.run.config.is_free:
            continue
        await services.hash_of.prepare(call.key_files)
        key = call_key(call, services.hash_of)
        await calls.pull(key)
        if calls.cache is None or await asyncio.to_thread(calls.cache.get, key) is None:
            return f"{call.case.id!r} on {call.run.label!r}"
    return None
