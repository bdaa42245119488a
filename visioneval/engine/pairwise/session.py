"""Shows pairs of images to a judge, each pair in both orders, and appends its answers to ``preferences.jsonl``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Literal, cast

from visioneval.engine.calls.asking import ask_judge
from visioneval.engine.calls.calls import Calls
from visioneval.engine.calls.cost.meter import JudgeMeters, Meter
from visioneval.engine.calls.limit_keys import judge_limit_key
from visioneval.engine.calls.user_code import describe_error
from visioneval.engine.cells.image_cache import ImageCache
from visioneval.engine.components import Components
from visioneval.engine.sanitize import Sanitizer
from visioneval.engine.shutdown import Progress
from visioneval.errors import NEVER_ASKED, GraderError, ImageError, ProviderError, StoppedError
from visioneval.expansion.plan import Call, Plan
from visioneval.graders.base import GradingContext, PairGrader
from visioneval.judging.ask import Ask
from visioneval.media import images
from visioneval.providers.base import CellRef, Question
from visioneval.records.files.links import is_inside
from visioneval.records.model import Record
from visioneval.records.preferences import ORDERS, Preference, PreferenceKey, append_preferences, read_preferences
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.remote_media import address_of
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
        notes = ((self.missing, "pairs lack an image"), (self.same, "pairs have two identical images"))
        return "; ".join([f"{len(self.pairs)} pairs", *(f"{count} {text}" for count, text in notes if count)])

    def add(self, call: Call, sample: int, a: Contender | None, b: Contender | None) -> None:
        """Adds a pair, or counts the reason to skip it."""
        if a is None or b is None:
            self.missing += 1
        elif a.output.sha256 and a.output.sha256 == b.output.sha256:
            self.same += 1
        else:
            self.pairs.append(Matchup(call, sample, a, b))


@dataclass(frozen=True, slots=True)
class PairwiseSession:
    """A pairwise grader with the calls of its judges, and the run folder that stores their answers."""

    plan: Plan
    config: BaseGrader
    components: Components
    calls: Calls
    folder: Path
    sanitizer: Sanitizer
    image_cache: ImageCache = field(default_factory=ImageCache)
    meters: JudgeMeters = field(default_factory=JudgeMeters)
    debug: Callable[[BaseException], None] = lambda _: None

    def judge(self, name: str) -> BaseJudge:
        """The config of one of its judges in the suite."""
        return self.plan.suite.judges[name]

    def template_sha256(self, call: Call) -> str:
        """The hash of the templates that ask about a pair of a case."""
        return self.plan.templates.digest(*self.config.templates(call.case, self.plan.suite.vars))

    @property
    def grader(self) -> PairGrader:
        """The grader that asks the judge."""
        return cast("PairGrader", self.components.graders[self.config.key])


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


async def judge_matchups(
    session: PairwiseSession, matchups: Sequence[Matchup], progress: Progress, *, refresh: bool = False
) -> None:
    """Asks every judge of the grader about every pair in both orders. Skips stored answers unless ``refresh``.

    An early end is reported in ``progress``; any other failure becomes the error of one preference.
    """
    stored = () if refresh else read_preferences(session.folder)
    answered = {preference.key: preference.template_sha256 for preference in stored if preference.error is None}
    turns_of = {name: _open_questions(session, matchups, name, answered) for name in session.config.judge_names}
    async with asyncio.TaskGroup() as group:
        for name, turns in turns_of.items():
            max_calls = session.calls.throttle.max_calls(judge_limit_key(session.judge(name)))
            for _ in range(min(max_calls, 2 * len(matchups))):
                group.create_task(_run_worker(session, name, turns, progress))
    progress.left += sum(1 for turns in turns_of.values() for _ in turns)


def _open_questions(
    session: PairwiseSession, matchups: Sequence[Matchup], judge: str, answered: Mapping[PreferenceKey, str | None]
) -> Iterator[tuple[Matchup, Literal["a", "b"]]]:
    """The questions without an answer, and those whose templates have changed since it was given."""
    title = session.judge(judge).title
    for matchup in matchups:
        valid = (None, session.template_sha256(matchup.call))
        for first in ORDERS:
            key = matchup.call.case.id, matchup.sample, matchup.a.name, matchup.b.name, title, first
            if key not in answered or answered[key] not in valid:
                yield matchup, first


async def _run_worker(
    session: PairwiseSession, judge: str, turns: Iterator[tuple[Matchup, Literal["a", "b"]]], progress: Progress
) -> None:
    for matchup, first in turns:
        try:
            preference = await _judge_pair(session, judge, matchup, first)
            await asyncio.to_thread(append_preferences, session.folder, [preference])
        except Exception as error:
            progress.leave(error)
        if progress.is_over:
            return


async def _judge_pair(session: PairwiseSession, judge: str, matchup: Matchup, first: Literal["a", "b"]) -> Preference:
    """Asks a judge about one pair in one order; an error replaces the answer."""
    limit = asyncio.timeout(session.plan.suite.cell_timeout_s)
    answer: Literal["a", "b", "tie"] | None = None
    reason = error = extra_keys = read = None
    kind = None
    meter = Meter(whole=session.meters.of(judge))
    try:
        async with limit:
            question = await asyncio.to_thread(_question, session, judge, matchup, first)
            choice = await session.grader.choose(_judge_asker(session, judge, matchup, meter), question)
        second: Literal["a", "b"] = "b" if first == "a" else "a"
        answers: Mapping[str, Literal["a", "b", "tie"]] = {"first": first, "second": second, "tie": "tie"}
        answer, reason = answers[choice.answer], session.sanitizer.text(choice.reason)
        extra_keys = session.sanitizer.texts(choice.extra_keys) or None
        read = None if choice.how == "json" else choice.how
    except StoppedError:
        raise
    except (GraderError, ProviderError, ImageError) as failure:
        error = session.sanitizer.text(str(failure) or type(failure).__name__)
        kind = failure.kind if isinstance(failure, ProviderError) else None
    except Exception as failure:
        if isinstance(failure, TimeoutError) and limit.expired():
            error = f"exceeded the cell timeout of {session.plan.suite.cell_timeout_s:g} s (cell_timeout_s)"
        else:  # includes a TimeoutError that the judge raised
            session.debug(failure)
            error = session.sanitizer.text(describe_error(failure))
    return Preference(
        test_id=matchup.call.case.id,
        sample_index=matchup.sample,
        a=matchup.a.name,
        b=matchup.b.name,
        first=first,
        answer=answer,
        reason=reason,
        judge=session.judge(judge).title,
        error=error,
        template_sha256=session.template_sha256(matchup.call),
        extra_keys=extra_keys,
        read=read,
        scaled=tuple(meter.scaled),
        refused=kind == "refused",
        never_asked=kind in NEVER_ASKED,
        cost_usd=meter.cost_usd if meter.calls else None,
        cached=meter.is_from_cache,
    )


def _question(session: PairwiseSession, judge: str, matchup: Matchup, first: Literal["a", "b"]) -> Question:
    call = matchup.call
    subject = GradingContext(
        case=call.case,
        task_type=call.task_type,
        prompt=call.prompt,
        requested_size=None,
        output=None,
        files=call.files,
        save=_refuse_save,
        variables=session.plan.suite.vars,
        templates=session.plan.templates,
        judge=judge,
        show=session.image_cache.show,
        watching=session.components.watching,
    )
    outputs = [side.output for side in (matchup.a, matchup.b)]
    for image in outputs:
        _check_unchanged(image)
    return session.grader.question(subject, *(outputs if first == "a" else outputs[::-1]))


def _refuse_save(name: str, data: bytes) -> str:  # noqa: ARG001 - a pair has no folder
    raise GraderError("a pairwise grader cannot save images")


def _check_unchanged(image: Output) -> None:
    if image.uri is not None:
        return
    try:
        data = image.path.read_bytes()
    except OSError as error:
        raise GraderError(f"{image.path.name}: cannot be read: {error.strerror}") from None
    if images.sha256(data) != image.sha256:
        raise GraderError(f"{image.path.name}: was changed after it was generated")


def _judge_asker(session: PairwiseSession, name: str, matchup: Matchup, meter: Meter) -> Ask:
    about = CellRef(matchup.call.case.id, matchup.b.name, matchup.sample)
    return partial(ask_judge, session.calls, name, session.judge(name), session.components.judges[name], about, meter)
