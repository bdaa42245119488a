"""Every change of an output, of its image or of its prompt, in the order of kinds and strengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from visioneval.probing.counter_prompts import exchange_of
from visioneval.probing.damage.kinds import Kind, Level, planted
from visioneval.probing.damage.subject import CannotPlantError, PlantedFile, Subject
from visioneval.running.plan import Call


@dataclass(frozen=True, slots=True)
class Change:
    """A kind with a strength. ``image`` is the kind of image change; ``None`` for a counter-prompt."""

    name: str
    image: Kind | None = None
    level: int = 0

    @property
    def _level(self) -> Level | None:
        return None if self.image is None else self.image.levels[self.level]

    @property
    def strength(self) -> str:
        """Its strength in tables; empty if its kind has one strength only."""
        return self._level.label if self._level else ""

    @property
    def number(self) -> float:
        """Its strength as the number in tables."""
        return self._level.number if self._level else 1.0


@dataclass(frozen=True, slots=True)
class PlantedChange:
    """A changed file and the call that grades it. ``detail`` says what changed in a prompt."""

    file: PlantedFile
    call: Call
    detail: str = ""


def changes_of(kinds: Sequence[Kind], prompt_kinds: Sequence[str]) -> Iterator[Change]:
    """All changes: of the image, then of the prompt."""
    for kind in kinds:
        yield from (Change(kind.name, kind, level) for level in range(len(kind.levels)))
    yield from (Change(name) for name in prompt_kinds)


def planted_or_reason(change: Change, subject: Subject, call: Call, seed: str) -> PlantedChange | str:
    """The change of an output, or why it does not apply."""
    try:
        if change.image is not None:
            return PlantedChange(planted(change.image, change.image.levels[change.level], subject, seed), call)
        return _counter_prompt(change.name, subject, call, seed)
    except CannotPlantError as error:
        return str(error)


def _counter_prompt(name: str, subject: Subject, call: Call, seed: str) -> PlantedChange:
    """The unchanged output with a prompt, and criteria, in which a word is exchanged."""
    random = np.random.default_rng(int.from_bytes(sha256(f"{seed}\0{name}".encode()).digest()[:8]))
    exchange = exchange_of(name.partition(".")[2], call.case, call.graded_prompt, random)
    criteria = None if call.case.criteria is None else exchange.applied(call.case.criteria)
    prompt = exchange.applied(call.graded_prompt)
    case = call.case.model_copy(update={"prompt": prompt, "criteria": criteria})
    file = PlantedFile(subject.data, subject.mime)
    return PlantedChange(file, replace(call, case=case, graded_prompt=prompt), f"{exchange.old} -> {exchange.new}")
