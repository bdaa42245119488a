"""Plans new samples of cases of a run: by its stored suite, and numbered after the samples that it has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from visioneval.analysis.compare.must_pass import CaseKey
from visioneval.analysis.compare.new_samples import why_not_generated
from visioneval.analysis.compare.sampled import ConfirmedCase
from visioneval.analysis.sides import built_in_scores
from visioneval.engine.cells.cell import Job
from visioneval.engine.cells.turns import call_on_records, is_edit_of
from visioneval.engine.prepare.planning import SuiteOptions, load_stored_plan
from visioneval.errors import UsageError
from visioneval.expansion.file_hashes import FileHashes
from visioneval.expansion.keys import HashOf, generation_key, grade_key
from visioneval.expansion.plan import Call, Plan
from visioneval.records.confirmations import read_confirmations
from visioneval.records.keys import changed_parts, describe_parts
from visioneval.records.model import CellKey, Record, RunInfo, read_records
from visioneval.suite.selection.selection import Selection, narrowed_further
from visioneval.types import Score, Verdict

_MAX_ERROR = 200


@dataclass(slots=True)
class CaseSamples:
    """New samples of the cases that share one output: a case that broke, cases with ``output_of`` it, and its turns.

    ``chains`` generate the new samples: a call, or the calls of all turns up to the last one that broke. ``samples``
    are the numbers of those that may count: all that exist, and others up to what was asked for. ``records`` are the
    records that exist, by cell. ``run_outputs`` are the hashes of the run's outputs.
    """

    cases: tuple[ConfirmedCase, ...]
    chains: tuple[tuple[Call, ...], ...]
    samples: tuple[int, ...]
    run_outputs: frozenset[str | None]
    records: dict[CellKey, Record]

    def verdicts(self, case: ConfirmedCase) -> list[Verdict]:
        """The verdicts of the new samples of a case."""
        cells = ((*case.key, sample) for sample in self.samples)
        return [self.records[cell].verdict for cell in cells if cell in self.records]

    def scores(self, case: ConfirmedCase) -> list[Mapping[str, Score]]:
        """The scores of the new samples of a case that have a verdict."""
        cells = ((*case.key, sample) for sample in self.samples)
        found = (self.records[cell] for cell in cells if cell in self.records)
        return [{**built_in_scores(item), **item.scores} for item in found if item.verdict is not Verdict.ERROR]

    @property
    def judged(self) -> tuple[ConfirmedCase, ...]:
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
                    f"{case} on {label}: sample {sample} is the same file as a sample of the run: a model that repeats"
                    " itself, as with a fixed seed, confirms nothing"
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

    def of_cases(self, broken: Sequence[ConfirmedCase], confirmations: Iterable[Record]) -> tuple[CaseSamples, ...]:
        """The new samples of the cases that broke. ``confirmations`` are the records that the run has of them.

        Such a record counts if it was generated and graded as the run would do now, and has a verdict. Raises
        ``UsageError`` if that is not how the run's cells were generated and graded.
        """
        if not broken:
            return ()
        cases, hash_of = dict[CaseKey, list[ConfirmedCase]](), FileHashes(self.plan.folder)
        for case in broken:
            cases.setdefault(case.key, []).append(case)
        chains = list(self._chains(cases))
        keys = {key for source, _ in chains for turn in source for key in (_key(turn), *map(_key, turn.dependents))}
        of_run = {record.cell: record for record in read_records(self.folder) if record.cell[:2] in keys}
        outputs = frozenset(record.artifact_sha256 for cell, record in of_run.items() if cell[:2] in cases)
        by_cell = {record.cell: record for record in confirmations}
        samples = []
        for source, new in chains:
            judged = [call for turn in source for call in (turn, *turn.dependents) if _key(call) in cases]
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
            of_run = self.info.suite.samples * self.plan.calls_per_sample(chains[0][0].run)
            yield chains[0], tuple(chains[of_run:])

    def _check_unchanged(
        self, source: Sequence[Call], keys: Collection[CaseKey], records: Mapping[CellKey, Record], hash_of: HashOf
    ) -> None:
        """Raises ``UsageError`` if a file or a grader is not what it was for the run's cells of these cases."""
        for planned in source:
            for record in records.values():
                turn = call_on_records(planned, record.sample_index, records, self.folder)
                call = next((c for c in (turn, *turn.dependents) if _key(c) == record.cell[:2]), None)
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
        for call in (turn, *turn.dependents):
            record = records.get((*_key(call), sample))
            if record is None or record.verdict is Verdict.ERROR or not is_edit_of(turn, record):
                continue
            keys = generation_key(turn, sample, hash_of), grade_key(call, hash_of)
            if (record.generation_key, record.grade_key) == keys:
                yield record.cell


def _key(call: Call) -> CaseKey:
    return call.case.id, call.run.label


def plan_confirmation(
    folder: Path, info: RunInfo, cases: Sequence[ConfirmedCase], samples: int, options: SuiteOptions
) -> ConfirmationPlan:
    """The plan for up to ``samples`` new samples of each of these cases of a run. Makes no call.

    Raises ``UsageError`` and ``SuiteError`` if the run cannot be continued by new samples, whatever broke.
    """
    labels = tuple(dict.fromkeys(case.model_label for case in cases))
    if why := why_not_generated(str(folder), info, [case.key for case in cases]):
        raise UsageError(why)
    if not options.variables.keys() <= set(info.hidden_vars):
        raise UsageError("--var changes the suite of B: with --confirm, give only the secret variables of its run")
    own = info.suite.samples
    stored = (cell[2] + 1 - own for cell in (record.cell for record in read_confirmations(folder)))
    flags = Selection(cases=tuple(dict.fromkeys(case.test_id for case in cases)), models=labels)
    selection = narrowed_further(info.suite, info.selection, flags)
    most = own + max([samples, *stored])
    plan = load_stored_plan(folder, replace(options, selection=selection), samples=most).plan
    graders = tuple(grader for grader in plan.suite.graders if not grader.after_run)  # they compare the run's own
    plan = replace(plan, suite=plan.suite.model_copy(update={"graders": graders}))
    return ConfirmationPlan(folder, info, plan, samples)


def narrowed_to(plan: Plan, samples: Iterable[CaseSamples]) -> Plan:
    """The plan with the cases and model runs of these samples only."""
    calls = [call for item in samples for turns in item.chains for call in turns]
    ids = {item.case.id for call in calls for item in (call, *call.dependents)}
    labels = {call.run.label for call in calls}
    suite = plan.suite.model_copy(
        update={
            "cases": tuple(case for case in plan.suite.cases if case.id in ids),
            "models": tuple(entry for entry in plan.suite.models if entry.label in labels),
        }
    )
    return replace(plan, suite=suite, runs=tuple(run for run in plan.runs if run.label in labels))
