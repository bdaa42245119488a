"""Shows pairs of images to a judge, each pair in both orders: of one run, or of two.

The answers are appended to ``preferences.jsonl``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import TypeAdapter

from visioneval.analysis.compare.pairing import pair_cells, parse_map
from visioneval.analysis.preferences import PreferenceFinding, panels_of, summarize_preferences, unjudged
from visioneval.analysis.sides import Side
from visioneval.errors import NEVER_ASKED, ExitCode, GraderError, StoppedError, UsageError, count_of, did_you_mean
from visioneval.graders.base import GradingContext, PairGrader
from visioneval.media import images
from visioneval.plugins import GRADERS, config_of
from visioneval.providers.base import CellRef, Question
from visioneval.records.between_cells import ORDERS, Preference, PreferenceKey, append_preferences, read_preferences
from visioneval.records.model import Record, read_info
from visioneval.records.reader import read_records
from visioneval.records.untrusted import is_inside
from visioneval.records.writer import OutputWriter
from visioneval.running.calls.judges import JudgeMeters, Meter
from visioneval.running.calls.settings import CallSettings, check_budget, check_session, open_calls
from visioneval.running.cells.services import Listener, Services, build_components
from visioneval.running.execution import Progress, execute
from visioneval.running.keys import judge_limit_key
from visioneval.running.plan import Call, Plan
from visioneval.suite.entries.graders import PAIR, BaseGrader, of_kind
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.load import judge_of_flag
from visioneval.suite.model import JudgeEntry
from visioneval.suite.plugins import with_declarations
from visioneval.suite.runs import address_of
from visioneval.types import Output


@dataclass(frozen=True, slots=True)
class Contender:
    """One image of a pair. ``name`` is ``RUN_ID@label``."""

    name: str
    output: Output


@dataclass(frozen=True, slots=True)
class Matchup:
    """Two images of one cell. ``call`` is the request for the images."""

    call: Call
    sample: int
    a: Contender
    b: Contender


@dataclass(slots=True)
class Matchups:
    """Pairs for a judge. Excludes pairs that lack an image (``missing``) or have two identical images (``same``)."""

    pairs: list[Matchup] = field(default_factory=list)
    missing: int = 0
    same: int = 0

    def __str__(self) -> str:
        notes = ((self.missing, "without an image"), (self.same, "with two identical images"))
        skipped = (f"{count_of(count, 'pair')} {text}" for count, text in notes if count)
        return "; ".join([count_of(len(self.pairs), "pair"), *skipped])

    def add(self, call: Call, sample: int, a: Contender | None, b: Contender | None) -> None:
        """Adds a pair, or counts the reason to skip it."""
        if a is None or b is None:
            self.missing += 1
        elif a.output.sha256 and a.output.sha256 == b.output.sha256:
            self.same += 1
        else:
            self.pairs.append(Matchup(call, sample, a, b))


def contender(record: Record | None, folder: Path, *, trusted: bool) -> Contender | None:
    """The image of a record in ``folder``, if it has one. Links that leave the folder are not followed.

    Images in buckets are read with the user's credentials, so only if the suite is ``trusted``.
    """
    if record is None or record.mime is None:
        return None
    address = address_of(record.run_params) if trusted else None
    if record.artifact_path is None and address is None:
        return None
    if record.artifact_path and not is_inside(folder, record.artifact_path):
        return None
    path = folder / record.artifact_path if record.artifact_path else Path()
    size = record.width or 0, record.height or 0
    image = Output(path, record.artifact_sha256 or "", record.mime, *size, address)
    return Contender(f"{record.run_id}@{record.model_label}", image)


def matchups_within(plan: Plan, config: BaseGrader, records: Iterable[Record], folder: Path) -> Matchups:
    """Pairs all selected model runs of a run, cell by cell. Skips cases that generate nothing."""
    contenders = {record.cell: contender(record, folder, trusted=plan.trusted) for record in records}
    matchups = Matchups()
    labels = config.compared(run.label for run in plan.runs)
    samples: dict[str, dict[str, tuple[Call, set[int]]]] = {}
    for call in plan.calls():
        if call.run.label in labels and config.is_for(call.case):
            samples.setdefault(call.case.id, {}).setdefault(call.run.label, (call, set()))[1].update(call.samples)
    for case, by_label in samples.items():
        for a, b in combinations(by_label, 2):
            for sample in sorted(by_label[a][1] & by_label[b][1]):
                matchups.add(
                    by_label[b][0], sample, contenders.get((case, a, sample)), contenders.get((case, b, sample))
                )
    return matchups


def matchups_of(
    plan: Plan, config: BaseGrader, pairs: Iterable[tuple[Record, Record]], folders: tuple[Path, Path]
) -> Matchups:
    """Pairs the records of two runs; the requests come from the plan of B."""
    calls = {call.case.id: call for call in plan.calls()}
    matchups = Matchups()
    for a, b in pairs:
        if b.test_id in calls and config.is_for(calls[b.test_id].case):
            sides = (
                contender(record, folder, trusted=plan.trusted) for record, folder in zip((a, b), folders, strict=True)
            )
            matchups.add(calls[b.test_id], b.sample_index, *sides)
    return matchups


async def judge_pairs_within(services: Services, config: BaseGrader, progress: Progress) -> str:
    """Asks about the pairs of a run's own outputs. Returns a note for the user; an early end is in ``progress``."""
    plan, folder, judging = services.plan, services.writer.folder, PairJudging(services, config)
    matchups = await asyncio.to_thread(matchups_within, plan, config, read_records(folder), folder)
    await judging.judge(matchups.pairs, progress)
    return f"{config.key}: {matchups}; {judging.meters}"


@dataclass(frozen=True, slots=True)
class PairJudging:
    """A pairwise grader, and the services that its questions go through. The run that is written stores the answers."""

    services: Services
    config: BaseGrader
    meters: JudgeMeters = field(default_factory=JudgeMeters)

    async def judge(self, matchups: Sequence[Matchup], progress: Progress, *, refresh: bool = False) -> None:
        """Asks every judge of the grader about every pair in both orders. Skips stored answers unless ``refresh``.

        An early end is reported in ``progress``; any other failure becomes the error of one preference.
        """
        stored = () if refresh else read_preferences(self.services.writer.folder)
        answered = {preference.key: preference.template_sha256 for preference in stored if preference.error is None}
        turns_of = {name: self._open_questions(matchups, name, answered) for name in self.config.judge_names}
        async with asyncio.TaskGroup() as group:
            for name, turns in turns_of.items():
                max_calls = self.services.calls.throttle.max_calls(judge_limit_key(self._config_of(name)))
                workers = min(max_calls, 2 * len(matchups))
                group.create_task(progress.work_through(turns, workers, partial(self._ask_about, name)))
        progress.left += sum(1 for turns in turns_of.values() for _ in turns)

    def _config_of(self, judge: str) -> BaseJudge:
        return self.services.plan.suite.judges[judge]

    def _template_sha256(self, call: Call) -> str:
        """The hash of the templates that ask about a pair of a case."""
        plan = self.services.plan
        return plan.templates.digest(*self.config.templates(call.case, plan.suite.vars))

    def _open_questions(
        self, matchups: Sequence[Matchup], judge: str, answered: Mapping[PreferenceKey, str | None]
    ) -> Iterator[tuple[Matchup, Literal["a", "b"]]]:
        """The questions without an answer, and those whose templates have changed since it was given."""
        title = self._config_of(judge).title
        for matchup in matchups:
            valid = (None, self._template_sha256(matchup.call))
            for first in ORDERS:
                key = matchup.call.case.id, matchup.sample, matchup.a.name, matchup.b.name, title, first
                if key not in answered or answered[key] not in valid:
                    yield matchup, first

    async def _ask_about(self, judge: str, turn: tuple[Matchup, Literal["a", "b"]]) -> None:
        """Asks a judge about one pair in one order, and stores the answer or the error."""
        matchup, first = turn
        services, call = self.services, matchup.call
        limit = asyncio.timeout(services.plan.suite.cell_timeout_s)
        answer: Literal["a", "b", "tie"] | None = None
        reason = error = extra_keys = read = kind = None
        meter = Meter(whole=self.meters.of(judge))
        about = CellRef(call.case.id, matchup.b.name, matchup.sample)
        grader = cast("PairGrader", services.components.graders[self.config.key])
        try:
            async with limit:
                question = await asyncio.to_thread(self._question, grader, judge, matchup, first)
                choice = await grader.choose(lambda asked: services.judges.ask(judge, asked, about, meter), question)
            second: Literal["a", "b"] = "b" if first == "a" else "a"
            answers: Mapping[str, Literal["a", "b", "tie"]] = {"first": first, "second": second, "tie": "tie"}
            answer, reason = answers[choice.answer], services.sanitizer.text(choice.reason)
            extra_keys = services.sanitizer.texts(choice.extra_keys) or None
            read = None if choice.how == "json" else choice.how
        except StoppedError:
            raise
        except Exception as failure:
            kind, error = services.failure_of(failure, limit)
        preference = Preference(
            test_id=call.case.id,
            sample_index=matchup.sample,
            a=matchup.a.name,
            b=matchup.b.name,
            first=first,
            answer=answer,
            reason=reason,
            judge=self._config_of(judge).title,
            error=error,
            template_sha256=self._template_sha256(call),
            extra_keys=extra_keys,
            read=read,
            scaled=tuple(meter.scaled),
            refused=kind == "refused",
            never_asked=kind in NEVER_ASKED,
            cost_usd=meter.cost_usd if meter.calls else None,
            cached=meter.is_from_cache,
        )
        await asyncio.to_thread(append_preferences, services.writer.folder, [preference])

    def _question(self, grader: PairGrader, judge: str, matchup: Matchup, first: Literal["a", "b"]) -> Question:
        call, plan = matchup.call, self.services.plan

        def refuse_save(name: str, data: bytes) -> str:  # noqa: ARG001 - a pair has no folder
            raise GraderError("a pairwise grader cannot save images")

        subject = GradingContext(
            case=call.case,
            task_type=call.task_type,
            prompt=call.prompt,
            requested_size=None,
            output=None,
            files=call.files,
            save=refuse_save,
            variables=plan.suite.vars,
            templates=plan.templates,
            judge=judge,
            show=self.services.image_cache.show,
            watching=self.services.components.watching,
        )
        outputs = [side.output for side in (matchup.a, matchup.b)]
        for image in outputs:
            if image.uri is not None:
                continue
            try:
                data = image.path.read_bytes()
            except OSError as error:
                raise GraderError(f"{image.path.name}: cannot be read: {error.strerror}") from None
            if images.sha256(data) != image.sha256:
                raise GraderError(f"{image.path.name}: was changed after it was generated")
        return grader.question(subject, *(outputs if first == "a" else outputs[::-1]))


PairKey = tuple[str, int, str, str]
"""The key of a pair: case, sample, and both sides as ``RUN_ID@label``."""
_ENTRY: TypeAdapter[Any] = TypeAdapter(JudgeEntry)


@dataclass(frozen=True, slots=True)
class RunPairs:
    """The pairs of two runs. ``only_a`` and ``only_b`` count cells without a counterpart.

    ``other_prompt`` counts pairs with different prompts, which are judged by the prompt of B, and ``later_turns`` cells
    of B that are left out. ``pair_keys`` contains every selected pair, including pairs that cannot be shown to a judge.
    """

    matchups: Matchups
    pair_keys: frozenset[PairKey]
    only_a: int
    only_b: int
    other_prompt: int
    later_turns: int

    def __str__(self) -> str:
        notes = (
            (self.only_a, "cells are only in A"),
            (self.only_b, "cells are only in B"),
            (self.other_prompt, "pairs have different prompts and are judged with the prompt of B"),
            (self.later_turns, "cells of later turns are left out: their two outputs edit different images"),
        )
        return "; ".join([str(self.matchups), *(f"{count} {text}" for count, text in notes if count)])


@dataclass(frozen=True, slots=True, repr=False)
class PairwiseResult:
    """The outcome of judging the pairs of two runs: all preferences so far, and the calls and cost of this time."""

    complete: bool
    out_of_budget: bool
    preferences: tuple[PreferenceFinding, ...]
    meters: JudgeMeters

    @property
    def exit_code(self) -> int:
        """0 if complete, 3 if a pair was not judged, 130 after an interrupt."""
        if not self.complete and not self.out_of_budget:
            return int(ExitCode.INTERRUPTED)
        has_gaps = not self.complete or unjudged(self.preferences) > 0
        return int(ExitCode.INCOMPLETE if has_gaps else ExitCode.PASSED)

    def __repr__(self) -> str:
        return f"PairwiseResult({count_of(len(self.preferences), 'preference')}, exit code {self.exit_code})"


def pairwise_plan(plan: Plan, judge: str | None) -> Plan:
    """The plan with one pairwise grader only: that of the whole suite, or else a new one for ``judge``.

    ``judge`` is ``NAME`` or ``NAME=PROVIDER:MODEL``. Raises ``UsageError`` for an unusable judge.
    """
    graders = of_kind(plan.whole_suite.graders, PAIR)
    name, _, model = (judge or "").partition("=")
    names = (name,) if name else graders[0].judge_names if graders else ("default",)
    judges: dict[str, Any] = dict(plan.suite.judges)
    if model:
        judges[name] = _ENTRY.validate_python(judge_of_flag(name, model))
    for name in names:
        if name not in judges:
            hint = did_you_mean(name, judges) if judges else ""
            advice = f"add one with --judge {name}=PROVIDER:MODEL"
            raise UsageError(f"--judge: B's suite has no judge {name!r}{hint}; {advice}")
        if judges[name].is_recorded:
            raise UsageError(f"--judge {name}: recorded answers cover single images only: use another judge for pairs")
    config = next(
        (grader for grader in graders if set(names) <= {*grader.judge_names}), graders[0] if graders else None
    )
    config = config or config_of(GRADERS, "pairwise")(key="pairwise", type="pairwise")
    config = config.with_judge(names[0]) if len(names) == 1 else config
    config = config.model_copy(update={"when": None, "models": ()})
    suite = plan.suite.model_copy(update={"graders": (config,), "judges": judges})
    # a new judge may be a plug-in; whatever is wrong with its class is reported when the judge is built
    suite, _ = with_declarations(suite, plan.folder, trust=plan.trusted, is_from_run=True)
    return replace(plan, suite=suite, generates=False)


def pair_runs(plan: Plan, sides: tuple[Side, Side], folders: tuple[Path, Path], renamed: Sequence[str]) -> RunPairs:
    """Pairs the cells of two runs by case, model run and sample, as ``compare`` does.

    Raises ``UsageError`` if there are no pairs.
    """
    later_turns = {case.id for case in plan.whole_suite.cases if case.previous_turn is not None}
    left_out = later_turns | {case.id for case in plan.whole_suite.cases if case.output_of is not None}
    of_run = {case.id for case in read_info(folders[1]).selected_suite.cases}
    left_out |= of_run - {case.id for case in plan.suite.cases}
    a, b = (replace(side, cells=side.cells.where(lambda cell: cell[0] not in left_out)) for side in sides)
    pairing = pair_cells(a, b, parse_map(renamed, a, b))
    if folders[0].resolve() == folders[1].resolve() and any(pair.a == pair.b for pair in pairing.pairs):
        raise UsageError("A and B are the same run: select two model runs, as RUN@LABEL")
    records = [{record.cell: record for record in read_records(folder)} for folder in folders]
    pairs = [(records[0][pair.a.key], records[1][pair.b.key]) for pair in pairing.pairs]
    (config,) = plan.suite.graders
    a_id, b_id = (read_info(folder).run_id for folder in folders)
    return RunPairs(
        matchups_of(plan, config, pairs, folders),
        frozenset(
            (pair.b.test_id, pair.b.sample_index, f"{a_id}@{pair.a.model_label}", f"{b_id}@{pair.b.model_label}")
            for pair in pairing.pairs
        ),
        only_a=len(pairing.only_a),
        only_b=len(pairing.only_b),
        other_prompt=sum(record_a.prompt != record_b.prompt for record_a, record_b in pairs),
        later_turns=sum(case in later_turns for case, _, _ in sides[1].cells.names()),
    )


def compare_runs(
    plan: Plan, pairs_of_runs: RunPairs, folder: Path, settings: CallSettings, listener: Listener
) -> PairwiseResult:
    """Asks the judge about the pairs, and stores its answers in ``folder``, the folder of run B."""
    (config,) = plan.suite.graders
    check_budget(plan, settings)
    check_session(plan, settings, listener.say)
    components = build_components(plan, offline=settings.reuse.offline)
    info, meters = read_info(folder), JudgeMeters()

    async def judge(services: Services, progress: Progress) -> bool:
        judging = PairJudging(services, config, meters)
        await judging.judge(pairs_of_runs.matchups.pairs, progress, refresh=not settings.reuse.judgements)
        progress.check()
        if services.calls.budget.refusal is not None:
            services.listener.say(services.calls.budget.refusal)
        return False

    with open_calls(plan, settings, info.payer, listener.say) as calls:
        ended = execute(judge, plan, components, OutputWriter(folder, info), calls, listener)
    titles = {plan.suite.judges[name].title for name in config.judge_names}
    judged = (line for line in read_preferences(folder) if line.judge in titles)
    lines = (line for line in judged if (line.test_id, line.sample_index, line.a, line.b) in pairs_of_runs.pair_keys)
    preferences = summarize_preferences(lines, panels_of(plan.suite))
    return PairwiseResult(ended.complete, ended.out_of_budget, preferences, meters)
