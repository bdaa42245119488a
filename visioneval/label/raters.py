"""Where each rater is in his deck, from what ``labeling.jsonl`` says. No clock and no disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from visioneval.label.sampling import Item, ItemKey, Sampling
from visioneval.label.sittings import LabelStep

SITTING = timedelta(hours=12)
"""Anchors that a rater answered longer ago than this open the next sitting again."""


@dataclass(slots=True)
class Place:
    """One rater's progress. ``done`` says how and when each item was last dealt with; ``trail`` in what order."""

    done: dict[ItemKey, tuple[str, datetime]] = field(default_factory=dict)
    trail: list[ItemKey] = field(default_factory=list)
    recalled: list[ItemKey] = field(default_factory=list)

    def take(self, step: LabelStep, at: str) -> None:
        """Moves by one step."""
        if step.key in self.trail:
            self.trail.remove(step.key)
        if step.key in self.recalled:
            self.recalled.remove(step.key)
        if step.did in ("answered", "skipped"):
            self.trail.append(step.key)
            self.done[step.key] = step.did, datetime.fromisoformat(at)
            return
        self.done.pop(step.key, None)
        if step.did == "undone":
            self.recalled.append(step.key)

    def is_done(self, item: Item, now: datetime) -> bool:
        """Whether the rater is through with an item; an anchor only for one sitting."""
        found = self.done.get(item.key)
        return found is not None and (item.turn != "anchor" or now - found[1] < SITTING)

    def skipped(self, item: Item) -> bool:
        """Whether the item was passed over."""
        return self.done.get(item.key, ("", None))[0] == "skipped"

    def through(self, deck: Sampling, now: datetime) -> int:
        """How many items of a deck the rater is through with."""
        return sum(self.is_done(deck.by_key[key], now) for key in self.done if key in deck.by_key)

    def passed_over(self, deck: Sampling) -> list[Item]:
        """The items of a deck that were skipped, in the order in which they were."""
        return [deck.by_key[key] for key in self.trail if key in deck.by_key and self.skipped(deck.by_key[key])]

    def ahead(self, deck: Sampling, now: datetime, count: int) -> list[Item]:
        """The next items, at most ``count``: what was taken back last, then the deck's own order."""
        found = [deck.by_key[key] for key in reversed(self.recalled) if key in deck.by_key][:count]
        for item in deck.items:
            if len(found) >= count:
                break
            if not self.is_done(item, now) and item not in found:
                found.append(item)
        return found

    def last(self, deck: Sampling) -> Item | None:
        """What *undo* takes back: the last item of this deck that was dealt with."""
        return next((deck.by_key[key] for key in reversed(self.trail) if key in deck.by_key), None)
