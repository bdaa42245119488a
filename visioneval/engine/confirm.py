"""Generates new samples of the cases of a comparison that are in doubt, until they decide."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.doubt import cases_in_doubt
from visioneval.analysis.compare.gates import REGRESSED, FailOn, cells_lost, check_gates, needs_all_cases
from visioneval.analysis.compare.must_pass import CaseKey, Confirmation, MustPassCase, must_pass_cases
from visioneval.analysis.compare.new_samples import why_not_continued
from visioneval.analysis.compare.sampled import ConfirmedCase, sampled_cases
from visioneval.counted import count_of
from visioneval.engine.call_settings import CallSettings, check_budget, check_session, open_calls
from visioneval.engine.calls.calls import Calls
from visioneval.engine.calls.limit_keys import RateLimitKey, generation_limit_key
from visioneval.engine.cells.context import RunContext
from visioneval.engine.components import Components, build_components, missing_keys
from visioneval.engine.listener import Listener
from visioneval.engine.loop import run_to_end
from visioneval.engine.prepare.confirming import CaseSamples, ConfirmationPlan, narrowed_to, plan_confirmation
from visioneval.engine.prepare.runs import RunOptions
from visioneval.engine.run import CELLS_PER_CALL, finish_job, open_context
from visioneval.engine.shutdown import Outcome, Progress
from visioneval.errors import AuthError, BudgetError, UsageError
from visioneval.expansion.plan import Plan
from visioneval.records.confirmations import open_confirmations, read_confirmations
from visioneval.records.model import Record, read_info
from visioneval.records.stores.locations import display_name
from visioneval.records.stores.writing import claim_run, close_run
from visioneval.records.writer import RunWriter
from visioneval.types import MUST_PASS, Verdict


@dataclass(frozen=True, slots=True)
class ConfirmationResult:
    """The new samples of the cases in doubt, as far as they exist, and whether an interrupt stopped it."""

    confirmation: Confirmation
    interrupted: bool = False


def confirm_comparison(
    comparison: Comparison, gates: Sequence[FailOn], samples: int, options: RunOptions, listener: Listener
) -> ConfirmationResult:
    """Generates up to ``samples`` new samples of each case of B that one of the ``gates`` needs to decide.

    First come the cases in doubt: those of ``must_pass`` that broke, and single cases. All compared cases follow only
    where a number over all of them is in doubt and no gate has failed by then. Raises ``UsageError`` if B is no
    complete run, and ``UsageError`` or ``SuiteError`` if something is in doubt and B cannot be continued.
    """
    b = comparison.b
    if (why := why_not_continued(b)) or b.folder is None:
        raise UsageError(why)
    lost, names = cells_lost(comparison), {gate.text for gate in gates}
    must_pass = [case for case in must_pass_cases(comparison, lost) if case.b.total] if MUST_PASS in names else []
    is_compared = REGRESSED in names or any(gate.metric is not None for gate in gates)
    compared = sampled_cases(comparison) if is_compared else ()
    if not must_pass and not compared:
        return ConfirmationResult(Confirmation(samples, {}))
    nothing_new = ConfirmationResult(Confirmation(samples, {}))
    failed = _failed(comparison, gates, nothing_new)
    first = _in_doubt(comparison, must_pass, is_regressed=REGRESSED in names - failed)
    is_all_in_doubt = not failed and any(needs_all_cases(comparison, gate) for gate in gates)
    settings = replace(options.calls, reuse=options.calls.reuse.with_own)
    if not first and not is_all_in_doubt:
        # it does not matter whether B could be continued
        _note_used(nothing_new, samples, compared, listener)
        return nothing_new
    folder = claim_run(b.folder)
    try:
        candidates: list[ConfirmedCase] = [*must_pass, *compared]
        samples = max(samples, _stored(folder, candidates))
        confirming = plan_confirmation(folder, read_info(folder), candidates, samples, options.suite)
        result = confirm(confirming, first, settings, listener)
        is_over = result.interrupted or result.confirmation.stopped or _failed(comparison, gates, result)
        if is_all_in_doubt and not is_over:
            result = confirm(confirming, compared, settings, listener, is_all=True)
        _note_used(result, samples, compared, listener)
        return result
    finally:
        close_run(folder)


def _note_used(result: ConfirmationResult, samples: int, compared: Sequence[ConfirmedCase], listener: Listener) -> None:
    if compared:
        used = sum(map(len, result.confirmation.verdicts.values()))
        listener.note(f"used {used:,} of {samples * len(compared):,} new samples that would confirm every case")


def _in_doubt(
    comparison: Comparison, must_pass: Sequence[MustPassCase], *, is_regressed: bool
) -> Sequence[ConfirmedCase]:
    """The cases to sample first. A case of both gates gets all of its samples."""
    broken: dict[CaseKey, ConfirmedCase] = {case.key: case for case in must_pass if case.state == "broken"}
    if is_regressed:
        broken |= {case.key: case for case in cases_in_doubt(comparison)}
    return list(broken.values())


def _failed(comparison: Comparison, gates: Sequence[FailOn], result: ConfirmationResult) -> set[str]:
    """The gates that have failed, after which no new samples of all cases are generated."""
    results = check_gates(comparison, gates, result.confirmation)
    return {item.fail_on.text for item in results if item.state == "failed"}


def _stored(folder: Path, cases: Sequence[ConfirmedCase]) -> int:
    """The most new samples that one of these cases has: a smaller request must not choose among them."""
    keys = {case.key for case in cases}
    cells = {record.cell for record in read_confirmations(folder) if record.verdict is not Verdict.ERROR}
    return max(Counter(cell[:2] for cell in cells if cell[:2] in keys).values(), default=0)


def confirm(
    confirming: ConfirmationPlan,
    cases: Sequence[ConfirmedCase],
    settings: CallSettings,
    listener: Listener,
    *,
    is_all: bool = False,
) -> ConfirmationResult:
    """Generates what is needed to decide about each of the cases, and appends it to the run's confirmations.

    ``is_all``: they are all compared cases, not only those in doubt. What exists is not generated again. The result
    says what stopped it: a missing or refused API key, a spent quota, the budget, an error, an interrupt. Raises
    ``UsageError``, and ``StorageError`` if the run cannot be written.
    """
    samples = confirming.of_cases(cases, read_confirmations(confirming.folder))
    if not any(item.needed for item in samples):
        return _result(confirming, samples, None)
    plan = narrowed_to(confirming.plan, [item for item in samples if item.needed])
    if not settings.reuse.offline and (lines := missing_keys(plan)):
        return _result(confirming, samples, "; ".join(lines))
    try:
        check_budget(plan, settings)
        check_session(plan, settings, listener.say)
        components = build_components(plan, offline=settings.reuse.offline)
        with (
            open_confirmations(confirming.folder, confirming.info) as writer,
            open_calls(plan, settings, confirming.info.payer, listener.say) as calls,
        ):
            # again, now that no other process adds to them
            samples = confirming.of_cases(cases, read_confirmations(confirming.folder))
            listener.note(_announcement(confirming, samples, is_all=is_all))
            outcome = _generate(plan, components, samples, writer, calls, listener)
            for item in samples:
                if item.repeated_output is not None:
                    listener.say(item.repeated_output)
    except (AuthError, BudgetError) as error:
        return _result(confirming, samples, str(error))
    if not outcome.complete and not outcome.out_of_budget:
        return replace(_result(confirming, samples, "interrupted"), interrupted=True)
    errors = (item.error for item in samples if item.error is not None)
    return _result(confirming, samples, calls.budget.refusal or next(errors, None))


def _announcement(confirming: ConfirmationPlan, samples: Sequence[CaseSamples], *, is_all: bool) -> str:
    needed = [case.needed > 0 for item in samples for case in item.judged]
    cases = f"{count_of(sum(needed), 'case')} in doubt"
    if is_all:
        cases = f"{'all' if all(needed) else f'{sum(needed):,} of'} {count_of(len(needed), 'compared case')}"
    return (
        f"confirming {cases} with up to {confirming.samples} new"
        f" sample{'s' * (confirming.samples != 1)} each, into {display_name(confirming.folder)}"
    )


def _result(confirming: ConfirmationPlan, samples: Sequence[CaseSamples], stopped: str | None) -> ConfirmationResult:
    verdicts = {case.key: item.verdicts(case) for item in samples for case in item.cases}
    scores = {case.key: item.scores(case) for item in samples for case in item.cases}
    return ConfirmationResult(Confirmation(confirming.samples, verdicts, stopped, scores))


def _generate(
    plan: Plan,
    components: Components,
    samples: Sequence[CaseSamples],
    writer: RunWriter,
    calls: Calls,
    listener: Listener,
) -> Outcome:
    """Generates until every case is decided.

    The first interrupt lets running calls finish, the second cancels them. Raises ``AuthError`` and ``StorageError``.
    """
    progress = Progress(calls)

    async def generate() -> Outcome:
        with open_context(plan, components, writer, calls, listener) as context:
            progress.measurements = context.measurements
            async with asyncio.TaskGroup() as group:
                for limit_key, items in _by_limit_key(samples).items():
                    queue = iter(items)
                    for _ in range(min(calls.throttle.max_calls(limit_key) * CELLS_PER_CALL, len(items))):
                        group.create_task(_decide(queue, progress, context, listener))
        progress.check()
        return Outcome(not any(item.needed for item in samples), progress.out_of_budget)

    return run_to_end(generate, progress, listener.say, listener.started)


def _by_limit_key(samples: Sequence[CaseSamples]) -> dict[RateLimitKey, list[CaseSamples]]:
    by_key: dict[RateLimitKey, list[CaseSamples]] = {}
    for item in samples:
        run = item.chains[0][0].run
        by_key.setdefault(generation_limit_key(run.provider, run.params), []).append(item)
    return by_key


async def _decide(queue: Iterator[CaseSamples], progress: Progress, context: RunContext, listener: Listener) -> None:
    """Takes one case after the other, and generates rounds of samples until it is decided."""
    for item in queue:

        def add(record: Record, item: CaseSamples = item) -> None:
            item.add(record)
            listener.record(record)

        adding = replace(listener, record=add)
        while not progress.is_over and (jobs := list(item.jobs())):
            await asyncio.gather(*(finish_job(job, progress, context, adding) for job in jobs))
        if progress.is_over:
            return
