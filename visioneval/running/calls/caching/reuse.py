"""Which cached answers replace new calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from visioneval.running.calls.caching.layout import CacheEntry
from visioneval.settings import ReuseChoice

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
        by_images = sorted(entries, key=lambda entry: not entry.answer["whole"])
        return [entry for entry in by_images if entry.answer["whole"] or not self.retry_unusable]

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
