"""Generates new samples of the cases of a comparison that are uncertain, until they decide."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from visioneval.analysis.compare.compare import Comparison, cells_lost
from visioneval.analysis.compare.confirm import (
    Confirmation,
    SampledCase,
    must_pass_cases,
    sampled_cases,
    why_not_continued,
    why_not_generated,
)
from visioneval.analysis.compare.gates import REGRESSED, FailOn, check_gates, needs_all_cases
from visioneval.analysis.compare.metrics import SampleCounts
from visioneval.analysis.compare.pairing import CaseKey
from visioneval.analysis.compare.regressed import samples_in_doubt
from visioneval.analysis.sides import built_in_scores
from visioneval.errors import AuthError, BudgetError, UsageError, count_of
from visioneval.records.key_parts import changed_parts, describe_parts
from visioneval.records.model import CellKey, Record, RunInfo, read_info
from visioneval.records.reader import read_records
from visioneval.records.stores.lookup import display_name
from visioneval.records.stores.writing import claim_run, close_run, open_confirmations, read_confirmations
from visioneval.running.calls.settings import CallSettings, budget_of, check_budget, check_session, open_calls
from visioneval.running.cells.cell import Job
from visioneval.running.cells.generation import call_on_records, is_edit_of
from visioneval.running.cells.services import Listener, Services, build_components, missing_keys
from visioneval.running.execution import Progress, execute
from visioneval.running.keys import FileHashes, HashOf, RateLimitKey, generation_key, generation_limit_key, grade_key
from visioneval.running.loading import SuiteOptions, load_stored_plan
from visioneval.running.plan import Call, Plan
from visioneval.running.prepare import RunOptions
from visioneval.running.runner import finish_job, work_by_model
from visioneval.suite.runs import Selection, narrowed_further
from visioneval.types import MUST_PASS, Score, Verdict


@dataclass(frozen=True, slots=True)
class ConfirmationResult:
    """The new samples of the uncertain cases, as far as they exist, what they cost, and whether it was interrupted."""

    confirmation: Confirmation
    interrupted: bool = False
    spent_usd: float = 0.0


def confirm_comparison(
    comparison: Comparison, gates: Sequence[FailOn], samples: int, options: RunOptions, listener: Listener
) -> ConfirmationResult:
    """Generates up to ``samples`` new samples of each case of B that one of the ``gates`` needs to decide.

    First come the uncertain cases: those of ``must_pass`` that broke, and single cases. All compared cases follow only
    where a number over all of them is uncertain and no gate has failed by then. Both share one budget. Raises
    ``UsageError`` if B is no complete run, and ``UsageError`` or ``SuiteError`` if something is uncertain and B cannot
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
    candidates: list[SampledCase] = [*must_pass, *compared]
    if not candidates:
        return result
    failed = _failed(comparison, gates, result.confirmation)
    first: list[SampledCase] = [case for case in must_pass if case.state == "broken"]
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
    used = sum(SampleCounts.of(verdicts).measured for verdicts in result.confirmation.verdicts.values())
    total = sum(map(result.confirmation.planned, {case.key for case in candidates}))
    listener.note(f"used {used:,} of {total:,} new samples that would confirm every case")
    return result


def _failed(comparison: Comparison, gates: Sequence[FailOn], confirmation: Confirmation) -> tuple[str, ...]:
    """The gates that have failed, after which no new samples of all cases are generated."""
    results = check_gates(comparison, gates, confirmation)
    return tuple(item.fail_on.text for item in results if item.state == "failed")


def confirm(
    confirming: ConfirmationPlan,
    cases: Sequence[SampledCase],
    settings: CallSettings,
    listener: Listener,
    *,
    is_all: bool = False,
    spent_usd: float = 0.0,
) -> ConfirmationResult:
    """Generates what is needed to decide about each of the cases, and appends it to the run's confirmations.

    ``is_all``: they are all compared cases, not only uncertain ones. ``spent_usd`` is what the command has spent of the
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
            outcome = execute(partial(decide_cases, samples), plan, components, writer, calls, listener)
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
    cases = count_of(needed, "uncertain case")
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


async def decide_cases(samples: Sequence[CaseSamples], services: Services, progress: Progress) -> bool:
    """Generates rounds of samples of each case until it is decided. Returns whether any is not."""

    async def decide(item: CaseSamples) -> None:
        def add(record: Record) -> None:
            item.add(record)
            services.listener.record(record)

        adding = replace(services, listener=replace(services.listener, record=add))
        while not progress.is_over and (jobs := list(item.jobs())):
            await asyncio.gather(*(finish_job(adding, progress, job) for job in jobs))

    by_key: dict[RateLimitKey, list[CaseSamples]] = {}
    for item in samples:
        run = item.chains[0][0].run
        by_key.setdefault(generation_limit_key(run.provider, run.params), []).append(item)
    await work_by_model(services, progress, {key: iter(items) for key, items in by_key.items()}, decide)
    return any(item.needed for item in samples)


_MAX_ERROR = 200


@dataclass(slots=True)
class CaseSamples:
    """New samples of the cases that share one output: a case that broke, cases with ``output_of`` it, and its turns.

    ``chains`` generate the new samples: a call, or the calls of all turns up to the last one that broke. ``samples``
    are the numbers of those that may count: all that exist, and others up to what was asked for. ``records`` are the
    records that exist, by cell. ``run_outputs`` are the hashes of the run's outputs.
    """

    cases: tuple[SampledCase, ...]
    chains: tuple[tuple[Call, ...], ...]
    samples: tuple[int, ...]
    run_outputs: frozenset[str | None]
    records: dict[CellKey, Record]

    def verdicts(self, case: SampledCase) -> list[Verdict]:
        """The verdicts of the new samples of a case."""
        cells = ((*case.key, sample) for sample in self.samples)
        return [self.records[cell].verdict for cell in cells if cell in self.records]

    def scores(self, case: SampledCase) -> list[Mapping[str, Score]]:
        """The scores of the new samples of a case that have a verdict."""
        cells = ((*case.key, sample) for sample in self.samples)
        found = (self.records[cell] for cell in cells if cell in self.records)
        return [{**built_in_scores(item), **item.scores} for item in found if item.verdict is not Verdict.ERROR]

    @property
    def judged(self) -> tuple[SampledCase, ...]:
        """The cases with their new samples."""
        return tuple(case.with_new(len(self.samples), self.verdicts(case)) for case in self.cases)

    @property
    def needed(self) -> int:
        """The smallest number of further samples after which more may be decided; 0 if all is."""
        return max(case.needed for case in self.judged)

    @property
    def error(self) -> tuple[CellKey, str] | None:
        """The first new sample that a case lacks to be decided, and its error."""
        undecided = {case.key for case in self.judged if case.state == "unmeasured"}
        for cell, record in sorted(self.records.items()):
            if record.error is not None and record.verdict is Verdict.ERROR and cell[:2] in undecided:
                message = " ".join(record.error.message.split())[:_MAX_ERROR]
                return cell, f"{record.error.kind}: {message}"
        return None

    @property
    def repeated_output(self) -> str | None:
        """A message if a new output is the same file as one of the run's own."""
        for (case, label, sample), record in sorted(self.records.items()):
            if record.artifact_sha256 is not None and record.artifact_sha256 in self.run_outputs:
                return (
                    f"{case} on {label}: sample {sample} is the same file as a sample of the run. It is counted, but"
                    " is no independent sample: where a model repeats itself, as with a fixed seed, do not rely on it"
                )
        return None

    def add(self, record: Record) -> None:
        """Adds a new record."""
        self.records[record.cell] = record

    def jobs(self) -> Iterator[Job]:
        """The calls that generate the samples that are needed, each with all of its samples and turns."""
        needed = self.needed
        for turns in self.chains:
            if needed <= 0:
                return
            missing = tuple(
                sample
                for sample in turns[0].samples
                if sample in self.samples and any((*case.key, sample) not in self.records for case in self.cases)
            )
            if missing:
                yield Job.of_turns([Job(call, missing) for call in turns])
            needed -= len(missing)


@dataclass(frozen=True, slots=True)
class ConfirmationPlan:
    """What ``--confirm`` may generate for a run: up to ``samples`` more samples of some cases.

    The plan has at least as many, and those that an earlier confirmation generated.
    """

    folder: Path
    info: RunInfo
    plan: Plan
    samples: int

    def of_cases(self, broken: Sequence[SampledCase], confirmations: Iterable[Record]) -> tuple[CaseSamples, ...]:
        """The new samples of the cases that broke. ``confirmations`` are the records that the run has of them.

        Such a record counts if it was generated and graded as the run would do now, and has a verdict. Raises
        ``UsageError`` if that is not how the run's cells were generated and graded.
        """
        if not broken:
            return ()
        cases, hash_of = dict[CaseKey, list[SampledCase]](), FileHashes(self.plan.folder)
        for case in broken:
            cases.setdefault(case.key, []).append(case)
        chains = list(self._chains(cases))
        keys = {key for source, _ in chains for turn in source for key in (_key(turn), *map(_key, turn.dependents))}
        of_run = {record.cell: record for record in read_records(self.folder) if record.cell[:2] in keys}
        outputs = frozenset(record.artifact_sha256 for cell, record in of_run.items() if cell[:2] in cases)
        by_cell = {record.cell: record for record in confirmations}
        samples = []
        for source, new in chains:
            judged = [call for turn in source for call in turn.with_dependents if _key(call) in cases]
            self._check_unchanged(source, {_key(call) for call in judged}, of_run, hash_of)
            numbers = [sample for turns in new for sample in turns[0].samples]
            valid = {
                cell: by_cell[cell]
                for turn in source
                for cell in _valid(turn, numbers, by_cell, self.folder, hash_of)
                if cell[:2] in cases
            }
            stored = {cell[2] for cell in valid}  # all count: a smaller number must not choose among them
            free = islice((sample for sample in numbers if sample not in stored), max(0, self.samples - len(stored)))
            counted = tuple(case for call in judged for case in cases[_key(call)])
            samples.append(CaseSamples(counted, new, tuple(sorted((*stored, *free))), outputs, valid))
        return tuple(samples)

    def _chains(self, keys: Collection[CaseKey]) -> Iterator[tuple[tuple[Call, ...], tuple[tuple[Call, ...], ...]]]:
        """For each output that these cases use: the first call with its turns, and those after the calls of the run."""
        by_case: dict[CaseKey, list[tuple[Call, ...]]] = {}
        for turns in self.plan.chains():
            calls = [replace(call, dependents=tuple(d for d in call.dependents if _key(d) in keys)) for call in turns]
            used = [number for number, call in enumerate(calls, 1) if call.dependents or _key(call) in keys]
            if used:
                by_case.setdefault(_key(calls[0]), []).append(tuple(calls[: used[-1]]))
        for chains in by_case.values():
            of_run = self.info.most_samples * self.plan.calls_per_sample(chains[0][0].run)
            yield chains[0], tuple(chains[of_run:])

    def _check_unchanged(
        self, source: Sequence[Call], keys: Collection[CaseKey], records: Mapping[CellKey, Record], hash_of: HashOf
    ) -> None:
        """Raises ``UsageError`` if a file or a grader is not what it was for the run's cells of these cases."""
        for planned in source:
            for record in records.values():
                turn = call_on_records(planned, record.sample_index, records, self.folder)
                call = next((c for c in turn.with_dependents if _key(c) == record.cell[:2]), None)
                if call is None or _key(call) not in keys:
                    continue
                generation, grading = generation_key(turn, record.sample_index, hash_of), grade_key(call, hash_of)
                changed = changed_parts(record.generation_key, generation) | changed_parts(record.grade_key, grading)
                if changed:
                    raise UsageError(
                        f"--confirm: {describe_parts(changed)} of {call.case.id!r} on {call.run.label!r} changed since"
                        f" {self.folder} was run, so new samples would not be like its own: run the suite again"
                    )


def _valid(
    planned: Call, samples: Iterable[int], records: Mapping[CellKey, Record], folder: Path, hash_of: HashOf
) -> Iterator[CellKey]:
    """The cells of a call and its dependents whose records count."""
    for sample in samples:
        turn = call_on_records(planned, sample, records, folder)
        for call in turn.with_dependents:
            record = records.get((*_key(call), sample))
            if record is None or record.verdict is Verdict.ERROR or not is_edit_of(turn, record):
                continue
            keys = generation_key(turn, sample, hash_of), grade_key(call, hash_of)
            if (record.generation_key, record.grade_key) == keys:
                yield record.cell


def _key(call: Call) -> CaseKey:
    return call.case.id, call.run.label


def plan_confirmation(
    folder: Path, info: RunInfo, cases: Sequence[SampledCase], samples: int, options: SuiteOptions
) -> ConfirmationPlan:
    """The plan for up to ``samples`` new samples of each of these cases of a run. Makes no call.

    Raises ``UsageError`` and ``SuiteError`` if the run cannot be continued by new samples, whatever broke.
    """
    labels = tuple(dict.fromkeys(case.model_label for case in cases))
    if why := why_not_generated(str(folder), info, [case.key for case in cases]):
        raise UsageError(why)
    if not options.variables.keys() <= set(info.hidden_vars):
        raise UsageError("--var changes the suite of B: with --confirm, give only the secret variables of its run")
    own = info.most_samples
    stored = (cell[2] + 1 - own for cell in (record.cell for record in read_confirmations(folder)))
    flags = Selection(cases=tuple(dict.fromkeys(case.test_id for case in cases)), models=labels)
    selection = narrowed_further(info.suite, info.selection, flags)
    most = own + max([samples, *stored])
    plan = load_stored_plan(folder, replace(options, selection=selection), samples=most)
    graders = tuple(grader for grader in plan.suite.graders if grader.kind.grades_cells)  # others compare the run's own
    plan = replace(plan, suite=plan.suite.model_copy(update={"graders": graders}))
    return ConfirmationPlan(folder, info, plan, samples)


def narrowed_to(plan: Plan, samples: Iterable[CaseSamples]) -> Plan:
    """The plan with the cases and model runs of these samples only."""
    calls = [call for item in samples for turns in item.chains for call in turns]
    ids = {item.case.id for call in calls for item in call.with_dependents}
    labels = {call.run.label for call in calls}
    suite = plan.suite.model_copy(
        update={
            "cases": tuple(case for case in plan.suite.cases if case.id in ids),
            "models": tuple(entry for entry in plan.suite.models if entry.label in labels),
        }
    )
    return replace(plan, suite=suite, runs=tuple(run for run in plan.runs if run.label in labels))
