"""The labeling service: serves items, saves answers and undoes them. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from visioneval.errors import UsageError
from visioneval.label.images import MediaStore
from visioneval.label.items import ItemView, PageQuestion, applicable_questions, swap_sides
from visioneval.label.progress import LabelStep, RaterProgress, SessionEntry, append_entries, growing_entries
from visioneval.label.sampling import Item, RaterQueue, SubjectKey, build_queue
from visioneval.label.work import LabelingTask
from visioneval.records.labels import LABELS, Answer, Label, Seen, append_labels, growing_labels, is_current

Clock = Callable[[], datetime]
Did = Literal["answered", "skipped", "undone", "reopened"]
MAX_SECONDS = 24 * 3600.0


class UnknownItemError(UsageError):
    """The page sent an item of another session."""


def _now() -> datetime:
    return datetime.now(UTC)


class Labeling:
    """Labels one run. Answers are on disk before a method returns, or it raises ``StorageError``."""

    def __init__(self, task: LabelingTask, now: Clock = _now) -> None:
        self._task = task
        self._now = now
        self._lock = threading.RLock()
        self.media = MediaStore(task.session.seed)
        self._view = ItemView(task.info, task.folder, task.other, self.media)
        self._pairs = [candidate.key for candidate in task.questions] if task.session.pairs is not None else []
        self._queues: dict[str, RaterQueue] = {}
        self._subjects = {candidate.key: candidate for candidate in (*task.subjects, *task.anchors)}
        self._progress_by_rater: dict[str, RaterProgress] = {}
        self._answers: dict[tuple[str, SubjectKey], dict[str, Answer]] = {}
        self._withdrawn: dict[tuple[str, SubjectKey], dict[str, Answer]] = {}
        self._steps, self._labels = growing_entries(task.folder), growing_labels(task.folder / LABELS)
        self._catch_up()

    def next(self, rater: str) -> dict[str, Any]:
        """The rater's next item, or ``None`` at the end, and the rater's progress."""
        with self._lock:
            self._catch_up()
            queue, progress, now = self._queue(rater), self._progress(rater), self._now()
            upcoming = progress.next_items(queue, now, 2)
            return {
                "rater": rater,
                "total": len(queue),
                "done": progress.count_done(queue, now),
                "skipped": len(progress.skipped_items(queue)),
                "can_undo": progress.last_item(queue) is not None,
                "item": self._item_data(rater, upcoming[0], progress) if upcoming else None,
                "soon": self._view.outputs(upcoming[1]) if len(upcoming) > 1 else [],
            }

    def answer(self, rater: str, key: str, values: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Saves the answers to an item and returns the next one. Raises ``UsageError`` if one is missing or invalid."""
        with self._lock:
            item = self._item(rater, key)
            questions = applicable_questions(self._task.questions, item)
            unexpected = sorted(values.keys() - {ask.key for ask in questions})
            if unexpected:
                raise UsageError(f"{unexpected[0]}: is not a question about this item")
            answers = {ask.key: ask.answer(values.get(ask.key)) for ask in questions}
            self._save(rater, item, swap_sides(item, answers, self._pairs), seconds)
            self._record_step(rater, item, "answered")
            return self.next(rater)

    def skip(self, rater: str, key: str, seconds: float) -> dict[str, Any]:
        """Skips an item: saves questions without an answer as skipped. Current answers stay valid."""
        with self._lock:
            self._catch_up()
            item = self._item(rater, key)
            current = self._answers.get((rater, item.key[:4]), {})
            unanswered = [ask.key for ask in applicable_questions(self._task.questions, item) if ask.key not in current]
            self._save(rater, item, dict.fromkeys(unanswered), seconds)
            self._record_step(rater, item, "skipped")
            return self.next(rater)

    def undo(self, rater: str) -> dict[str, Any]:
        """Undoes the last item: its answers are withdrawn, and it is shown again with them filled in."""
        with self._lock:
            self._catch_up()
            progress = self._progress(rater)
            item = progress.last_item(self._queue(rater))
            if item is None:
                raise UsageError("nothing to undo")
            current = self._answers.get((rater, item.key[:4]), {})
            if not progress.is_skipped(item):
                self._save(rater, item, dict.fromkeys(current), None)
            self._record_step(rater, item, "undone")
            return self.next(rater)

    def reopen(self, rater: str) -> dict[str, Any]:
        """Reopens the items that this rater skipped."""
        with self._lock:
            self._catch_up()
            progress = self._progress(rater)
            for item in progress.skipped_items(self._queue(rater)):
                self._record_step(rater, item, "reopened")
            return self.next(rater)

    def _catch_up(self) -> None:
        """Reads new lines on disk: those of this server and of other servers for the same run."""
        entries, restarted = self._steps.new()
        if restarted:
            self._progress_by_rater.clear()
        for entry in entries:
            if entry.step is not None and self._is_current(entry.step.key[:4], entry.step):
                self._progress(entry.step.rater).apply(entry.step, entry.at)
        labels, restarted = self._labels.new()
        if restarted:
            self._answers.clear()
            self._withdrawn.clear()
        for label in labels:
            if self._is_current((*label.cell, label.other), label):
                self._apply_label(label)

    def _is_current(self, key: SubjectKey, hashes: Seen) -> bool:
        """Whether the images are still those of the run."""
        subject = self._subjects.get(key)
        return subject is None or is_current(subject.outputs, hashes)

    def _progress(self, rater: str) -> RaterProgress:
        return self._progress_by_rater.setdefault(rater, RaterProgress())

    def _queue(self, rater: str) -> RaterQueue:
        if rater not in self._queues:
            task = self._task
            items = build_queue(
                task.subjects, task.anchors, rater, task.session.seed, task.session.repeat, is_draw=task.is_draw
            )
            self._queues[rater] = RaterQueue(items)
        return self._queues[rater]

    def _item(self, rater: str, key: str) -> Item:
        item = self._queue(rater).by_id.get(key)
        if item is None:
            raise UnknownItemError("this page belongs to another session: reload it")
        return item

    def _item_data(self, rater: str, item: Item, progress: RaterProgress) -> dict[str, Any]:
        is_recalled = item.key in progress.undone
        previous = self._withdrawn.get((rater, item.key[:4]), {}) if is_recalled else {}
        questions: list[PageQuestion] = applicable_questions(self._task.questions, item)
        keys = {ask.key for ask in questions}
        initial = {key: answer for key, answer in swap_sides(item, previous, self._pairs).items() if key in keys}
        return {**self._view.item(item), "asks": [ask.page_data() for ask in questions], "given": initial}

    def _save(self, rater: str, item: Item, answers: Mapping[str, Answer], seconds: float | None) -> None:
        record = item.subject.record
        output_hash, other_hash = item.subject.outputs
        at = self._now().isoformat(timespec="milliseconds")
        labels = [
            Label(
                rater=rater,
                test_id=record.test_id,
                model_label=record.model_label,
                sample_index=record.sample_index,
                artifact_sha256=output_hash,
                other=item.subject.other_name,
                other_sha256=other_hash,
                question=question,
                answer=answer,
                seconds=None if seconds is None else round(min(max(seconds, 0.0), MAX_SECONDS), 1),
                at=at,
                source="anchor" if item.turn == "anchor" else "page",
            )
            for question, answer in answers.items()
        ]
        append_labels(self._task.folder / LABELS, labels)
        self._catch_up()

    def _apply_label(self, label: Label) -> None:
        key = (label.rater, (*label.cell, label.other))
        answers = self._answers.setdefault(key, {})
        if label.answer is not None:
            answers[label.question] = label.answer
        elif label.question in answers:
            self._withdrawn.setdefault(key, {})[label.question] = answers.pop(label.question)

    def _record_step(self, rater: str, item: Item, did: Did) -> None:
        test_id, model_label, sample_index, other, turn = item.key
        output_hash, other_hash = item.subject.outputs
        step = LabelStep(
            rater=rater,
            test_id=test_id,
            model_label=model_label,
            sample_index=sample_index,
            artifact_sha256=output_hash,
            other=other,
            other_sha256=other_hash,
            turn=turn,
            did=did,
        )
        at = self._now().isoformat(timespec="milliseconds")
        append_entries(self._task.folder, [SessionEntry(at=at, step=step)])
        self._catch_up()
