"""The labeling service: serves items, saves answers and undoes them. Thread-safe."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from visioneval.errors import UsageError
from visioneval.label.items import ItemView, MediaStore, applies, page_answer, page_question, swap_sides
from visioneval.label.sampling import Item, Queue, SubjectKey, build_queue
from visioneval.label.work import LabelingTask, LabelStep, RaterProgress, SessionEntry, append_entries, growing_entries
from visioneval.records.labels import LABELS, Answer, Label, Seen, append_labels, is_current
from visioneval.records.reader import GrowingFile
from visioneval.suite.labels import LabelQuestion

Clock = Callable[[], datetime]
Did = Literal["answered", "skipped", "undone", "reopened"]
_UTC_NOW: Clock = partial(datetime.now, UTC)
MAX_SECONDS = 24 * 3600.0


class UnknownItemError(UsageError):
    """The page sent an item of another session."""


class Labeling:
    """Labels one run. Answers are on disk before a method returns, or it raises ``StorageError``."""

    def __init__(self, task: LabelingTask, now: Clock = _UTC_NOW) -> None:
        self._task = task
        self._now = now
        self._lock = threading.RLock()
        self.media = MediaStore(task.session.seed)
        self._view = ItemView(task.info, task.folder, task.other, self.media)
        self._queues: dict[str, Queue] = {}
        self._subjects = {candidate.key: candidate for candidate in (*task.subjects, *task.anchors)}
        self._progress: defaultdict[str, RaterProgress] = defaultdict(RaterProgress)
        self._answers: dict[tuple[str, SubjectKey], dict[str, Answer]] = {}
        self._withdrawn: dict[tuple[str, SubjectKey], dict[str, Answer]] = {}
        self._steps, self._labels = growing_entries(task.folder), GrowingFile(task.folder / LABELS, Label, "label")
        self._catch_up()

    def next(self, rater: str) -> dict[str, Any]:
        """The rater's next item and progress; at the end no item, and what to do with the answers."""
        with self._lock:
            self._catch_up()
            queue, progress, now = self._queue(rater), self._progress[rater], self._now()
            upcoming = progress.next_items(queue, now, 2)
            return {
                "rater": rater,
                "total": len(queue),
                "done": len(progress.done(queue, now)),
                "skipped": len(progress.items(queue, "skipped")),
                "can_undo": progress.last_item(queue) is not None,
                "item": self._item_data(rater, upcoming[0]) if upcoming else None,
                "after": None if upcoming else self._task.after,
                "soon": self._view.outputs(upcoming[1]) if len(upcoming) > 1 else [],
            }

    def answer(self, rater: str, item: str, answers: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Saves the answers to an item and returns the next one. Raises ``UsageError`` if one is missing or invalid."""
        with self._lock:
            shown = self._item(rater, item)
            questions = self._questions(shown)
            if unexpected := sorted(answers.keys() - questions.keys()):
                raise UsageError(f"{unexpected[0]}: is not a question about this item")
            checked = {key: page_answer(question, answers.get(key)) for key, question in questions.items()}
            self._save(rater, shown, swap_sides(shown, checked, questions), seconds)
            return self._record_step(rater, "answered", [shown])

    def skip(self, rater: str, item: str, seconds: float) -> dict[str, Any]:
        """Skips an item: saves questions without an answer as skipped. Current answers stay valid."""
        with self._lock:
            self._catch_up()
            shown = self._item(rater, item)
            current = self._answers.get((rater, shown.subject.key), {})
            unanswered = [key for key in self._questions(shown) if key not in current]
            self._save(rater, shown, dict.fromkeys(unanswered), seconds)
            return self._record_step(rater, "skipped", [shown])

    def undo(self, rater: str) -> dict[str, Any]:
        """Undoes the last item: its answers are withdrawn, and it is shown again with them filled in."""
        with self._lock:
            self._catch_up()
            progress = self._progress[rater]
            item = progress.last_item(self._queue(rater))
            if item is None:
                raise UsageError("nothing to undo")
            if progress.did(item) != "skipped":
                self._save(rater, item, dict.fromkeys(self._answers.get((rater, item.subject.key), {})), None)
            return self._record_step(rater, "undone", [item])

    def reopen(self, rater: str) -> dict[str, Any]:
        """Reopens the items that this rater skipped."""
        with self._lock:
            self._catch_up()
            return self._record_step(rater, "reopened", self._progress[rater].items(self._queue(rater), "skipped"))

    def _catch_up(self) -> None:
        """Reads new lines on disk: those of this server and of other servers for the same run."""
        entries, restarted = self._steps.new()
        if restarted:
            self._progress.clear()
        for entry in entries:
            if entry.step is not None and self._is_current(entry.step.key[:4], entry.step):
                self._progress[entry.step.rater].apply(entry.step, entry.at)
        labels, restarted = self._labels.new()
        if restarted:
            self._answers.clear()
            self._withdrawn.clear()
        for label in labels:
            subject = (*label.cell, label.other)
            if not self._is_current(subject, label):
                continue
            answers = self._answers.setdefault((label.rater, subject), {})
            if label.answer is not None:
                answers[label.question] = label.answer
            elif label.question in answers:
                self._withdrawn.setdefault((label.rater, subject), {})[label.question] = answers.pop(label.question)

    def _is_current(self, key: SubjectKey, hashes: Seen) -> bool:
        """Whether the images are still those of the run."""
        subject = self._subjects.get(key)
        return subject is None or is_current(subject.outputs, hashes)

    def _queue(self, rater: str) -> Queue:
        if rater not in self._queues:
            task, session = self._task, self._task.session
            items = build_queue(task.subjects, task.anchors, rater, session.seed, session.repeat, is_draw=task.is_draw)
            self._queues[rater] = {item.key: item for item in items}
        return self._queues[rater]

    def _item(self, rater: str, id_: str) -> Item:
        item = next((item for item in self._queue(rater).values() if item.id == id_), None)
        if item is None:
            raise UnknownItemError("this page belongs to another session: reload it")
        return item

    def _questions(self, item: Item) -> dict[str, LabelQuestion]:
        """The questions about an item, by key."""
        questions = self._task.questions
        return {question.key: question for question in questions if applies(question, item.subject.record)}

    def _item_data(self, rater: str, item: Item) -> dict[str, Any]:
        is_recalled = self._progress[rater].did(item) == "undone"
        previous = self._withdrawn.get((rater, item.subject.key), {}) if is_recalled else {}
        questions = self._questions(item)
        given = swap_sides(item, previous, questions)
        asks = [page_question(question, item) for question in questions.values()]
        return {**self._view.item(item), "asks": asks, "given": given}

    def _save(self, rater: str, item: Item, answers: Mapping[str, Answer], seconds: float | None) -> None:
        about: dict[str, Any] = {
            **item.subject.named,
            "rater": rater,
            "at": self._time(),
            "seconds": None if seconds is None else round(min(max(seconds, 0.0), MAX_SECONDS), 1),
            "source": "anchor" if item.turn == "anchor" else "page",
        }
        labels = [Label(**about, question=question, answer=answer) for question, answer in answers.items()]
        append_labels(self._task.folder / LABELS, labels)

    def _record_step(self, rater: str, did: Did, items: Sequence[Item]) -> dict[str, Any]:
        """Records what a rater did with items, and returns the next one."""
        steps = [LabelStep(**item.subject.named, rater=rater, turn=item.turn, did=did) for item in items]
        append_entries(self._task.folder, [SessionEntry(at=self._time(), step=step) for step in steps])
        return self.next(rater)

    def _time(self) -> str:
        return self._now().isoformat(timespec="milliseconds")
