"""The desk that raters sit at: it hands out items, keeps answers, and takes them back. Safe from several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from visioneval.errors import UsageError
from visioneval.label.asking import Ask, asks, swap_sides
from visioneval.label.images import MediaStore
from visioneval.label.item_view import ItemView
from visioneval.label.raters import Place
from visioneval.label.sampling import Item, Sampling, SubjectKey, deal
from visioneval.label.sittings import LabelStep, SessionEntry, append_entries, growing_entries
from visioneval.label.work import Work
from visioneval.records.labels import LABELS, Answer, Label, Seen, append_labels, growing_labels, is_of

Clock = Callable[[], datetime]
Did = Literal["answered", "skipped", "undone", "reopened"]
MAX_SECONDS = 24 * 3600.0


class UnknownItemError(UsageError):
    """A page names an item that this rater was never given: it comes from another session."""


def _now() -> datetime:
    return datetime.now(UTC)


class Labeling:
    """One run on the table. What is answered is on disk before a method returns, or it raises ``StorageError``."""

    def __init__(self, work: Work, now: Clock = _now) -> None:
        self._work = work
        self._now = now
        self._lock = threading.RLock()
        self.shelf = MediaStore(work.session.seed)
        self._viewer = ItemView(work.info, work.folder, work.other, self.shelf)
        self._pairs = [each.key for each in work.asked] if work.session.pairs is not None else []
        self._decks: dict[str, Sampling] = {}
        self._subjects = {each.key: each for each in (*work.subjects, *work.anchors)}
        self._places: dict[str, Place] = {}
        self._answers: dict[tuple[str, SubjectKey], dict[str, Answer]] = {}
        self._taken_back: dict[tuple[str, SubjectKey], dict[str, Answer]] = {}
        self._steps, self._labels = growing_entries(work.folder), growing_labels(work.folder / LABELS)
        self._catch_up()

    def next(self, rater: str) -> dict[str, Any]:
        """What the page shows now: the rater's item, or none at the end, and how far he is."""
        with self._lock:
            self._catch_up()
            deck, place, now = self._deck(rater), self._place(rater), self._now()
            ahead = place.ahead(deck, now, 2)
            return {
                "rater": rater,
                "total": len(deck),
                "done": place.through(deck, now),
                "skipped": len(place.passed_over(deck)),
                "can_undo": place.last(deck) is not None,
                "item": self._shown(rater, ahead[0], place) if ahead else None,
                "soon": self._viewer.outputs(ahead[1]) if len(ahead) > 1 else [],
            }

    def answer(self, rater: str, key: str, given: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Keeps the answers to an item and goes on. Raises ``UsageError`` where one is missing or does not fit."""
        with self._lock:
            item = self._item(rater, key)
            asked = asks(self._work.asked, item)
            strange = sorted(given.keys() - {ask.key for ask in asked})
            if strange:
                raise UsageError(f"{strange[0]}: is not asked here")
            answers = {ask.key: ask.answer(given.get(ask.key)) for ask in asked}
            self._keep(rater, item, swap_sides(item, answers, self._pairs), seconds)
            self._step(rater, item, "answered")
            return self.next(rater)

    def skip(self, rater: str, key: str, seconds: float) -> dict[str, Any]:
        """Passes an item over: a question that has no answer yet is kept as skipped. An answer that counts stays."""
        with self._lock:
            self._catch_up()
            item = self._item(rater, key)
            known = self._answers.get((rater, item.key[:4]), {})
            unanswered = [ask.key for ask in asks(self._work.asked, item) if ask.key not in known]
            self._keep(rater, item, dict.fromkeys(unanswered), seconds)
            self._step(rater, item, "skipped")
            return self.next(rater)

    def undo(self, rater: str) -> dict[str, Any]:
        """Takes the last item back: its answers count no more, and it is asked again with them filled in."""
        with self._lock:
            self._catch_up()
            place = self._place(rater)
            item = place.last(self._deck(rater))
            if item is None:
                raise UsageError("there is nothing to undo")
            known = self._answers.get((rater, item.key[:4]), {})
            if not place.skipped(item):
                self._keep(rater, item, dict.fromkeys(known), None)
            self._step(rater, item, "undone")
            return self.next(rater)

    def reopen(self, rater: str) -> dict[str, Any]:
        """Asks again what this rater skipped."""
        with self._lock:
            self._catch_up()
            place = self._place(rater)
            for item in place.passed_over(self._deck(rater)):
                self._step(rater, item, "reopened")
            return self.next(rater)

    def _catch_up(self) -> None:
        """Takes in what is new on disk: this desk's own lines, and those of other servers over the same run."""
        entries, anew = self._steps.new()
        if anew:
            self._places.clear()
        for entry in entries:
            if entry.step is not None and self._is_current(entry.step.key[:4], entry.step):
                self._place(entry.step.rater).take(entry.step, entry.at)
        labels, anew = self._labels.new()
        if anew:
            self._answers.clear()
            self._taken_back.clear()
        for label in labels:
            if self._is_current((*label.cell, label.other), label):
                self._count(label)

    def _is_current(self, about: SubjectKey, seen: Seen) -> bool:
        """Whether the images that it is about are still those of the run."""
        subject = self._subjects.get(about)
        return subject is None or is_of(subject.outputs, seen)

    def _place(self, rater: str) -> Place:
        return self._places.setdefault(rater, Place())

    def _deck(self, rater: str) -> Sampling:
        if rater not in self._decks:
            work = self._work
            items = deal(work.subjects, work.anchors, rater, work.session.seed, work.session.repeat)
            self._decks[rater] = Sampling(items)
        return self._decks[rater]

    def _item(self, rater: str, key: str) -> Item:
        found = self._deck(rater).by_id.get(key)
        if found is None:
            raise UnknownItemError("this page is from another session: reload it")
        return found

    def _shown(self, rater: str, item: Item, place: Place) -> dict[str, Any]:
        recalled = item.key in place.recalled
        before = self._taken_back.get((rater, item.key[:4]), {}) if recalled else {}
        shown: list[Ask] = asks(self._work.asked, item)
        known = {ask.key for ask in shown}
        given = {key: answer for key, answer in swap_sides(item, before, self._pairs).items() if key in known}
        return {**self._viewer.item(item), "asks": [ask.shown() for ask in shown], "given": given}

    def _keep(self, rater: str, item: Item, answers: Mapping[str, Answer], seconds: float | None) -> None:
        record = item.subject.record
        mine, other = item.subject.outputs
        at = self._now().isoformat(timespec="milliseconds")
        labels = [
            Label(
                rater=rater,
                test_id=record.test_id,
                model_label=record.model_label,
                sample_index=record.sample_index,
                artifact_sha256=mine,
                other=item.subject.other_name,
                other_sha256=other,
                question=question,
                answer=answer,
                seconds=None if seconds is None else round(min(max(seconds, 0.0), MAX_SECONDS), 1),
                at=at,
                source="anchor" if item.turn == "anchor" else "page",
            )
            for question, answer in answers.items()
        ]
        append_labels(self._work.folder / LABELS, labels)
        self._catch_up()

    def _count(self, label: Label) -> None:
        about = (label.rater, (*label.cell, label.other))
        counted = self._answers.setdefault(about, {})
        if label.answer is not None:
            counted[label.question] = label.answer
        elif label.question in counted:
            self._taken_back.setdefault(about, {})[label.question] = counted.pop(label.question)

    def _step(self, rater: str, item: Item, did: Did) -> None:
        test_id, model_label, sample_index, other, turn = item.key
        mine, others = item.subject.outputs
        step = LabelStep(
            rater=rater,
            test_id=test_id,
            model_label=model_label,
            sample_index=sample_index,
            artifact_sha256=mine,
            other=other,
            other_sha256=others,
            turn=turn,
            did=did,
        )
        at = self._now().isoformat(timespec="milliseconds")
        append_entries(self._work.folder, [SessionEntry(at=at, step=step)])
        self._catch_up()
