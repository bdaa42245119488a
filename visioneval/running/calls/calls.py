"""Every provider call goes through here: the cache first, then budget, throttle, price and log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from visioneval.errors import NOT_CACHED, ProviderError, StorageError
from visioneval.providers.base import Generation, GenerationRequest, OperationGenerator, Reply
from visioneval.records.outputs import DownloadFiles, OperationFile
from visioneval.running.calls.attempts import Budget, CallLog, PaidCall, PricedAttempts, as_generation, generation_of
from visioneval.running.calls.cache import Cache, Content, content_digest
from visioneval.running.calls.cache_files import CacheEntry, Kind
from visioneval.running.calls.outputs import (
    CheckedMedia,
    CheckedOutputs,
    Downloads,
    OperationCall,
    check_media,
    check_outputs,
)
from visioneval.running.calls.prices import Prices, checked_usage, generation_size
from visioneval.running.calls.throttle import Throttle, Tries
from visioneval.running.keys import HashOf, call_key, generation_limit_key, operation_key
from visioneval.running.plan import Call
from visioneval.running.sanitize import Sanitizer, usd
from visioneval.settings import ReuseChoice
from visioneval.suite.entries.providers import OPERATION_TIMEOUT_S
from visioneval.threads import finish_in_thread
from visioneval.types import TaskType

T = TypeVar("T", Generation, Reply)


ReusedGenerations = Literal["none", "own", "all"]
"""Which cached generations may be reused: none, those that this run paid for, or all."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Which cached answers replace new calls."""

    generations: ReusedGenerations = "none"
    judgements: bool = True
    offline: bool = False
    retry_unusable: bool = False
    """Whether generations are asked for again whose answers lack an image that can be used."""

    @classmethod
    def of(cls, choice: ReuseChoice, *, offline: bool, resumes: bool, retry_unusable: bool = False) -> Reuse:
        """All answers if offline; a resumed run always reuses what it has paid for."""
        generations: ReusedGenerations = "all" if offline or choice == "all" else "own" if resumes else "none"
        return cls(generations, offline or choice != "none", offline, retry_unusable)

    def preferred(self, entries: Iterable[CacheEntry]) -> Iterable[CacheEntry]:
        """Cached generations, of which the newest comes first, by what counts: those with all images, then the others.

        Offline the newest counts, and no other is read.
        """
        if self.offline:
            return entries
        return sorted(entries, key=lambda entry: not entry.answer["whole"])

    @property
    def measurements(self) -> bool:
        """Whether cached measurements are reused, which depend on nothing but the files and the tools."""
        return self.judgements

    @property
    def with_own(self) -> Reuse:
        """The same, and what the run itself has paid for."""
        return replace(self, generations="own") if self.generations == "none" else self

    @property
    def choice(self) -> ReuseChoice | None:
        """What ``--reuse`` must be given to reuse the same answers; ``None`` if the default does."""
        if self.offline:
            return None
        if not self.judgements:
            return "none"
        return "all" if self.generations == "all" else None


@dataclass(frozen=True, slots=True)
class RunCells:
    """The case IDs and the labels of a run that is resumed; of any other, none.

    Two of its cells may send the same call, such as those of the same model on two servers. Each has its own output.
    """

    cases: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()

    @staticmethod
    def name(case: str, label: str) -> str:
        """How a cached generation names the cell that it was generated for."""
        return f"{label}\n{case}"

    def is_of_another(self, stored: object, case: str, label: str) -> bool:
        """Whether a generation was ``stored`` for another cell of the run, which is still in its suite."""
        if not isinstance(stored, str) or stored == self.name(case, label):
            return False
        stored_label, _, stored_case = stored.partition("\n")
        return stored_label in self.labels and stored_case in self.cases


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """The result of a generation call: its checked images, or the text of a refusal."""

    outputs: tuple[CheckedMedia, ...] = ()
    refused: str | None = None
    usage: Mapping[str, int] | None = None
    cost_usd: float | None = None
    run_params: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 1
    stored_at: str | None = None
    """When the answer was cached; ``None`` for a new answer."""
    problem: str | None = None
    """What of the answer cannot be used or was not asked for."""
    reply: bytes | Path | None = None
    """The raw answer if there is a problem, or the file with it."""
    was_paid: bool = False
    """Whether the answer is cached, and its run has paid for it: it was for all samples of the call."""


@dataclass(slots=True)
class Calls:
    """The calls of one run. ``cache`` is ``None`` if all calls are free."""

    throttle: Throttle
    prices: Prices
    budget: Budget
    log: CallLog
    cache: Cache | None = None
    reuse: Reuse = field(default_factory=Reuse)
    payer: str = ""
    """What the cache calls the run that pays."""
    cells: RunCells = field(default_factory=RunCells)
    """Between which ``own`` generations are not shared."""
    reused_since: str | None = None
    """When the oldest reused generation was cached."""
    sanitizer: Sanitizer = field(default_factory=Sanitizer)
    pending: dict[str, asyncio.Future[Reply]] = field(default_factory=dict)
    """The answers that judges are asked for now, by the key of the question."""
    broken: StorageError | None = None
    """The error that stopped caching. Answers so far still count, and no new generation starts."""

    async def generate(
        self,
        call: Call,
        hash_of: HashOf,
        provider: Any,
        request: GenerationRequest,
        tries: Tries | None = None,
        operation_of: Callable[[str], OperationFile] | None = None,
        files: DownloadFiles | None = None,
    ) -> GenerationResult:
        """Generates images, or returns cached ones. ``tries`` counts all attempts, failed ones included.

        ``operation_of`` returns where the operation of a call is written down, by the operation's key; ``files`` is
        where the URLs of outputs are that cannot be read yet. Raises ``ProviderError`` and ``BudgetError``.
        """
        tries = tries or Tries()
        limit_key = generation_limit_key(call.run.provider, call.run.params)
        if call.run.config.is_free:
            generation = await self.throttle.call(
                limit_key, lambda: generation_of(provider, call, request), tries=tries, limits_itself=True
            )
            checked = await asyncio.to_thread(check_outputs, generation, call.task_type, len(call.samples))
            generation = replace(generation, usage=checked_usage(generation.usage, outputs=len(checked.media)))
            return _generation_result(generation, checked, generation.cost_usd, tries.count)
        key = call_key(call, hash_of)
        downloads = None if files is None else Downloads(provider, files, call.task_type, self.sanitizer)
        cached = await self._cached_generation(key, call, downloads)
        if cached is not None:
            self.log.hit(limit_key, key)
            self.reused_since = min(filter(None, (self.reused_since, cached.stored_at)), default=None)
            return cached
        if self.reuse.offline:
            raise ProviderError(
                f"{NOT_CACHED}: the generation of {call.case.id!r} by {call.run.label!r}", kind="offline"
            )
        paid = PaidCall(
            limit_key=limit_key,
            key=key,
            work=lambda: generation_of(provider, call, request),
            as_answer=as_generation,
            size=lambda: generation_size(call),
            images=len(call.samples),
            tries=tries,
            limits_itself=hasattr(call.run.config, "timeout_s"),
        )
        is_video = call.task_type is TaskType.VIDEO_GENERATION
        if is_video and operation_of is not None and isinstance(provider, OperationGenerator):
            return await self._operate(paid, call, provider, request, operation_of(operation_key(call, hash_of)))
        attempts = self.attempts(paid)
        generation = await attempts.made()
        checked = await finish_in_thread(self._cache_generation, key, generation, attempts.cost, call)
        if downloads is not None:
            await downloads.write(generation)
        self.stop_if_broken()
        return _generation_result(generation, checked, attempts.cost, tries.count)

    async def _operate(
        self,
        paid: PaidCall[Generation],
        call: Call,
        provider: OperationGenerator,
        request: GenerationRequest,
        file: OperationFile,
    ) -> GenerationResult:
        """Generates a video by an operation, or takes the end of the one that a killed run has begun."""
        limit_s = self.throttle.timeout_s(paid.limit_key, OPERATION_TIMEOUT_S) or OPERATION_TIMEOUT_S
        with contextlib.nullcontext() if self.cache is None else self.cache.scratch() as scratch:
            operation = OperationCall(provider, replace(request, scratch=scratch), file, limit_s, self.sanitizer.hides)
            attempts = self.attempts(
                replace(paid, work=operation.run, is_operation=True, is_paid=lambda: file.read() is not None)
            )
            generation = await attempts.made()
            checked = await finish_in_thread(self._cache_generation, paid.key, generation, attempts.cost, call)
            if generation.refused is None and len(checked.media) < len(call.samples):
                await operation.forget()
        self.stop_if_broken()
        return _generation_result(generation, checked, attempts.cost, paid.tries.count)

    @property
    def is_shared(self) -> bool:
        """Whether caching makes requests, which the event loop must not wait for."""
        return self.cache is not None and self.cache.is_shared

    async def pull(self, key: str, usable: Callable[[Iterable[CacheEntry]], Iterable[CacheEntry]] = iter) -> None:
        """Looks for an answer on other machines. If that fails, no new call starts: its answer may be paid already."""
        if self.cache is None or not self.cache.is_shared:
            return
        try:
            await asyncio.to_thread(self.cache.pull, key, usable)
        except StorageError as error:
            self.broken = self.broken or error
            self.throttle.shut()
            raise

    def store(
        self, key: str, kind: Kind, answer: Mapping[str, Any], outputs: Sequence[tuple[str, Content]] = ()
    ) -> bool:
        """Caches an answer, and returns whether it is stored. If not, it still counts, as it is paid for."""
        if self.cache is None:
            return False
        try:
            self.cache.put(key, kind, answer, outputs)
        except StorageError as error:
            self.broken = self.broken or error
            return False
        return self.cache.is_writable

    def stop_if_broken(self) -> None:
        """Stops new generations after a caching error, as a resumed run would have to pay for them again.

        Outputs that exist are still judged: what is not cached is only in the records of their cells. A shared
        cache has stored what it could, here or elsewhere, and hands out no other answers: so no new call starts.
        """
        if self.broken is not None and self.is_shared:
            self.throttle.shut()
        elif self.broken is not None:
            self.throttle.close()

    def attempts(self, call: PaidCall[T]) -> PricedAttempts[T]:
        """What makes a call within the budget and the throttle, and logs every attempt."""
        return PricedAttempts(call, self.throttle, self.prices, self.budget, self.log)

    async def _cached_generation(self, key: str, call: Call, downloads: Downloads | None) -> GenerationResult | None:
        """The preferred usable generation in the cache; ``None`` if it must be generated."""
        if self.cache is None or self.reuse.generations == "none":
            return None
        usable = partial(self._usable, call)
        await self.pull(key, usable)
        found = await asyncio.to_thread(self._preferred, self.cache, key, usable, call.task_type)
        if found is None:
            return None
        entry, outputs = found
        if downloads is not None and not self.reuse.offline:
            outputs = await self._downloaded(key, entry, outputs, downloads)
        is_odd = not entry.answer["whole"] or any(image.fault for image in outputs)
        return None if is_odd and self.reuse.retry_unusable else self._from_cache(call, entry, outputs)

    def _preferred(
        self, cache: Cache, key: str, usable: Callable[[Iterable[CacheEntry]], Iterable[CacheEntry]], task: TaskType
    ) -> tuple[CacheEntry, tuple[CheckedMedia, ...]] | None:
        """The first answer all of whose images can be used, or else the first; offline, always the first."""
        first: tuple[CacheEntry, tuple[CheckedMedia, ...]] | None = None
        for entry in usable(cache.answers(key)):
            outputs = self._read_outputs(entry, cache, task)
            if outputs is None:
                continue
            if self.reuse.offline or (entry.answer["whole"] and not any(image.fault for image in outputs)):
                return entry, outputs
            first = first or (entry, outputs)
            if not entry.answer["whole"]:  # nor has any after it all images
                break
        return first

    async def _downloaded(
        self, key: str, entry: CacheEntry, outputs: tuple[CheckedMedia, ...], downloads: Downloads
    ) -> tuple[CheckedMedia, ...]:
        """The outputs of a cached answer after another attempt to read those that could not be read. Caches them."""
        if not any(image.download for image in outputs):
            return outputs
        tried = await downloads.read(outputs)
        if self.cache is None or [image.download for image in tried] == [image.download for image in outputs]:
            return tried
        answer = {**entry.answer, "outputs": [image.cached_fields for image in tried]}
        stored: dict[str, Content] = {digest: self.cache.path(digest) for digest in entry.files}
        stored |= {image.sha256: image.content for image in tried if image.content is not None}
        is_stored = await finish_in_thread(self.store, key, "generate", answer, tuple(stored.items()))
        return tuple(image if image.download else self._release_bytes(image, is_stored=is_stored) for image in tried)

    def _usable(self, call: Call, entries: Iterable[CacheEntry]) -> Iterable[CacheEntry]:
        """The cached generations that count, by their run and their cell, in the order in which they do."""
        is_own = self.reuse.generations == "own"
        return self.reuse.preferred(
            entry
            for entry in entries
            if not (is_own and entry.run_id != self.payer)
            and not self.cells.is_of_another(entry.answer.get("cell"), call.case.id, call.run.label)
        )

    def _from_cache(self, call: Call, entry: CacheEntry, outputs: tuple[CheckedMedia, ...]) -> GenerationResult:
        answer = entry.answer
        reply = self.cache.path(answer["reply"]) if self.cache is not None and answer.get("reply") else None
        cached = GenerationResult(
            outputs,
            refused=answer["refused"],
            run_params=answer["run_params"],
            problem=answer.get("problem"),
            reply=reply if reply is not None and reply.is_file() else None,
        )
        if self.reuse.generations == "own":  # this run paid for it, but has no record of it yet
            limit_key = generation_limit_key(call.run.provider, call.run.params)
            usage = self.prices.checked_usage(limit_key, answer["usage"], len(outputs))
            return replace(cached, usage=usage, cost_usd=usd(answer["cost_usd"]), was_paid=True)
        return replace(cached, cost_usd=0.0, attempts=0, stored_at=entry.stored_at)

    def _read_outputs(self, entry: CacheEntry, cache: Cache, task: TaskType) -> tuple[CheckedMedia, ...] | None:
        """The images of a cached generation; ``None`` if one of their files is missing or damaged.

        What was not usable on the machine that stored it is checked again.
        """
        outputs = []
        for stored in entry.answer["outputs"]:
            image = CheckedMedia.from_cache(stored)
            if image.download is None and not image.is_bad:
                data = cache.read(image.sha256)
                if data is None:
                    return None
                checked = image if image.is_checked else check_media(data, task)
                image = replace(checked, data=None, file=cache.path(image.sha256))
            outputs.append(image)
        return tuple(outputs)

    def _cache_generation(self, key: str, generation: Generation, cost: float | None, call: Call) -> CheckedOutputs:
        checked = check_outputs(generation, call.task_type, len(call.samples))
        reply = self.sanitizer.reply(checked.reply) if isinstance(checked.reply, bytes) else checked.reply
        digest = None if reply is None else content_digest(reply)
        answer = {
            "outputs": [output.cached_fields for output in checked.media],
            "refused": None if generation.refused is None else self.sanitizer.text(generation.refused),
            "usage": self.sanitizer.counts(generation.usage),
            "cost_usd": cost,
            "run_params": self.sanitizer.mapping(generation.run_params),
            "whole": generation.refused is not None or len(checked.media) == len(call.samples),
            "cell": self.cells.name(call.case.id, call.run.label),
            "problem": None if checked.problem is None else self.sanitizer.text(checked.problem),
            "reply": digest,
        }
        files = [(p.sha256, p.content) for p in checked.media if p.content is not None]
        files += [(digest, reply)] if digest is not None and reply is not None else []
        is_stored = self.store(key, "generate", answer, files)
        if self.cache is not None and digest is not None and is_stored and self.cache.has_file(digest):
            reply = self.cache.path(digest)
        elif isinstance(reply, Path):
            reply = reply.read_bytes()
        media = tuple(self._release_bytes(p, is_stored=is_stored) for p in checked.media)
        return replace(checked, media=media, reply=reply)

    def _release_bytes(self, image: CheckedMedia, *, is_stored: bool) -> CheckedMedia:
        """Replaces the bytes by the cached file, because a cell may wait long for its judges.

        Not where this output was not stored: the file of its name, if any, may be damaged.
        """
        if image.download is not None and not is_stored:  # a resumed run would not know that it is paid for
            return replace(image, fault_kind="bad_image")
        if self.cache is None or image.content is None:
            return image
        if not is_stored or not self.cache.has_file(image.sha256):  # a very small cache has deleted it already
            if image.fault is not None:  # nothing is there to be checked again
                image = replace(image, fault_kind="bad_image")
            return image if image.file is None else replace(image, data=image.file.read_bytes(), file=None)
        return replace(image, data=None, file=self.cache.path(image.sha256))


def _generation_result(
    generation: Generation, checked: CheckedOutputs, cost: float | None, attempts: int
) -> GenerationResult:
    return GenerationResult(
        checked.media,
        generation.refused,
        generation.usage,
        cost,
        generation.run_params,
        attempts,
        problem=checked.problem,
        reply=checked.reply,
    )
