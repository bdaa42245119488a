"""The progress of each rater, from ``labeling.jsonl``. No clock and no disk access."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from visioneval.label.sampling import Item, ItemKey, RaterQueue
from visioneval.label.sittings import LabelStep

ANCHOR_VALIDITY = timedelta(hours=12)
"""Anchors are asked again after this time."""


@dataclass(slots=True)
class RaterProgress:
    """One rater's progress. ``done`` maps items to their last step and its time; ``order`` is the order of steps."""

    done: dict[ItemKey, tuple[str, datetime]] = field(default_factory=dict)
    order: list[ItemKey] = field(default_factory=list)
    undone: list[ItemKey] = field(default_factory=list)

    def apply(self, step: LabelStep, at: str) -> None:
        """Applies one step."""
        if step.key in self.order:
            self.order.remove(step.key)
        if step.key in self.undone:
            self.undone.remove(step.key)
        if step.did in ("answered", "skipped"):
            self.order.append(step.key)
            self.done[step.key] = step.did, datetime.fromisoformat(at)
            return
        self.done.pop(step.key, None)
        if step.did == "undone":
            self.undone.append(step.key)

    def is_done(self, item: Item, now: datetime) -> bool:
        """Whether an item is done. Anchors expire after ``ANCHOR_VALIDITY``."""
        entry = self.done.get(item.key)
        return entry is not None and (item.turn != "anchor" or now - entry[1] < ANCHOR_VALIDITY)

    def is_skipped(self, item: Item) -> bool:
        """Whether the item was skipped."""
        return self.done.get(item.key, ("", None))[0] == "skipped"

    def count_done(self, queue: RaterQueue, now: datetime) -> int:
        """The number of done items in a queue."""
        return sum(self.is_done(queue.by_key[key], now) for key in self.done if key in queue.by_key)

    def skipped_items(self, queue: RaterQueue) -> list[Item]:
        """The skipped items of a queue, in order."""
        return [queue.by_key[key] for key in self.order if key in queue.by_key and self.is_skipped(queue.by_key[key])]

    def next_items(self, queue: RaterQueue, now: datetime, count: int) -> list[Item]:
        """The next items, at most ``count``: undone items first, then the order of the queue."""
        items = [queue.by_key[key] for key in reversed(self.undone) if key in queue.by_key][:count]
        for item in queue.items:
            if len(items) >= count:
                break
            if not self.is_done(item, now) and item not in items:
                items.append(item)
        return items

    def last_item(self, queue: RaterQueue) -> Item | None:
        """The last answered or skipped item of the queue, which *undo* reverts."""
        return next((queue.by_key[key] for key in reversed(self.order) if key in queue.by_key), None)
