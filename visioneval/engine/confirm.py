"""Generates new samples of the cases of a comparison that are in doubt, until they decide."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.doubt import samples_in_doubt
from visioneval.analysis.compare.gates import REGRESSED, FailOn, cells_lost, check_gates, needs_all_cases
from visioneval.analysis.compare.must_pass import CaseKey, Confirmation, SampleCounts, must_pass_cases
from visioneval.analysis.compare.new_samples import why_not_continued
from visioneval.analysis.compare.sampled import ConfirmedCase, sampled_cases
from visioneval.counted import count_of
from visioneval.engine.call_settings import CallSettings, budget_of, check_budget, check_session, open_calls
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
from visioneval.types import MUST_PASS


@dataclass(frozen=True, slots=True)
class ConfirmationResult:
    """The new samples of the cases in doubt, as far as they exist, what they cost, and whether it was interrupted."""

    confirmation: Confirmation
    interrupted: bool = False
    spent_usd: float = 0.0


def confirm_comparison(
    comparison: Comparison, gates: Sequence[FailOn], samples: int, options: RunOptions, listener: Listener
) -> ConfirmationResult:
    """Generates up to ``samples`` new samples of each case of B that one of the ``gates`` needs to decide.

    First come the cases in doubt: those of ``must_pass`` that broke, and single cases. All compared cases follow only
    where a number over all of them is in doubt and no gate has failed by then. Both share one budget. Raises
    ``UsageError`` if B is no complete run, and ``UsageError`` or ``SuiteError`` if something is in doubt and B cannot
    be continued.
    """
    b = comparison.b
    if (why := why_not_continued(b)) or b.folder is None:
        raise UsageError(why)
    lost, names = cells_lost(comparison), {gate.text for gate in gates}
    must_pass = [case for case in must_pass_cases(comparison, lost) if case.b.total] if MUST_PASS in names else []
    is_compared = REGRESSED in names or any(gate.metric is not None for gate in gates)
    compared = sampled_cases(comparison) if is_compared else ()
    result = ConfirmationResult(Confirmation(samples, {}))
    candidates: list[ConfirmedCase] = [*must_pass, *compared]
    if not candidates:
        return result
    failed = _failed(comparison, gates, result.confirmation)
    first: list[ConfirmedCase] = [case for case in must_pass if case.state == "broken"]
    if REGRESSED in names and REGRESSED not in failed:
        first += samples_in_doubt(comparison)
    is_all_in_doubt = any(needs_all_cases(comparison, gate) for gate in gates)
    if first or (is_all_in_doubt and not failed):  # else it does not matter whether B could be continued
        folder = claim_run(b.folder)
        try:
            confirming = plan_confirmation(folder, read_info(folder), candidates, samples, options.suite)
            budget_usd = budget_of(confirming.plan, options.calls)  # that of a suite is for the whole command too
            settings = replace(options.calls, reuse=options.calls.reuse.with_own, budget_usd=budget_usd)
            result = confirm(confirming, first, settings, listener)
            failed = _failed(comparison, gates, result.confirmation)
            if is_all_in_doubt and not (failed or result.confirmation.stopped):
                every = [*first, *compared]
                result = confirm(confirming, every, settings, listener, is_all=True, spent_usd=result.spent_usd)
        finally:
            close_run(folder)
    result = replace(result, confirmation=replace(result.confirmation, failed=failed))
    _note_used(result.confirmation, {case.key for case in candidates}, listener)
    return result


def _note_used(confirmation: Confirmation, keys: Iterable[CaseKey], listener: Listener) -> None:
    used = sum(SampleCounts.of(verdicts).measured for verdicts in confirmation.verdicts.values())
    total = sum(map(confirmation.planned, keys))
    listener.note(f"used {used:,} of {total:,} new samples that would confirm every case")


def _failed(comparison: Comparison, gates: Sequence[FailOn], confirmation: Confirmation) -> tuple[str, ...]:
    """The gates that have failed, after which no new samples of all cases are generated."""
    results = check_gates(comparison, gates, confirmation)
    return tuple(item.fail_on.text for item in results if item.state == "failed")


def confirm(
    confirming: ConfirmationPlan,
    cases: Sequence[ConfirmedCase],
    settings: CallSettings,
    listener: Listener,
    *,
    is_all: bool = False,
    spent_usd: float = 0.0,
) -> ConfirmationResult:
    """Generates what is needed to decide about each of the cases, and appends it to the run's confirmations.

    ``is_all``: they are all compared cases, not only those in doubt. ``spent_usd`` is what the command has spent of the
    budget in ``settings``. What exists is not generated again. The result says what stopped it: a missing or refused
    API key, a spent quota, the budget, an error, an interrupt. Raises ``UsageError``, and ``StorageError`` if the run
    cannot be written.
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
            open_calls(plan, settings, confirming.info.payer, listener.say, spent_usd=spent_usd) as calls,
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
    result = _result(confirming, samples, calls.budget.refusal or _first_error(confirming, samples))
    return replace(result, spent_usd=calls.budget.spent)


def _first_error(confirming: ConfirmationPlan, samples: Sequence[CaseSamples]) -> str | None:
    """The first error that left a case undecided. The case is named where it may be one of several."""
    for cell, message in (item.error for item in samples if item.error is not None):
        label = f" on {cell[1]}" if len(confirming.plan.runs) > 1 else ""
        name = f"{cell[0]}{label}, " if len(samples) > 1 else ""
        return f"{name}sample {cell[2]}: {message}"
    return None


def _announcement(confirming: ConfirmationPlan, samples: Sequence[CaseSamples], *, is_all: bool) -> str:
    judged = [case for item in samples for case in item.judged]
    needed, number = len({case.key for case in judged if case.needed}), len({case.key for case in judged})
    cases = f"{count_of(needed, 'case')} in doubt"
    if is_all:
        cases = f"{'all' if needed == number else f'{needed:,} of'} {count_of(number, 'compared case')}"
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
