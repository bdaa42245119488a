"""Claims: who may write a run in a store. A claim that its writer no longer renews expires.

``claims/<n>.json`` is created exclusively and never changes; the highest number holds the run.
``claims/<n>.beat.json`` is overwritten while the writer lives, and when it releases the run.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from visioneval.errors import RunFormatError, StorageError, UsageError
from visioneval.records.stores.environment import CLAIM_EXPIRY_S
from visioneval.records.stores.store import MissingObjectError, ObjectStore, StoredObject, no_exclusive_creation
from visioneval.types import Frozen

_NAME = re.compile(r"(\d{6})\.json")
_MAX_BYTES = 10_000


class LostClaimError(StorageError):
    """Another process has taken over the run."""


class ClaimBody(Frozen):
    """What a claim says about its writer."""

    writer: Annotated[str, Field(max_length=200)]
    nonce: Annotated[str, Field(max_length=40)]
    since: Annotated[str, Field(max_length=40)]
    expiry_s: Annotated[float, Field(gt=0, le=86_400)]


_BODY: TypeAdapter[ClaimBody] = TypeAdapter(ClaimBody)


@dataclass(frozen=True, slots=True)
class ClaimState:
    """The newest claim of a run, as the store has it."""

    number: int
    body: ClaimBody
    beat_at: datetime
    is_released: bool

    def is_live(self, now: datetime) -> bool:
        """Whether its writer still holds the run."""
        return not self.is_released and (now - self.beat_at).total_seconds() <= self.body.expiry_s

    def __str__(self) -> str:
        last = self.beat_at.astimezone(UTC).isoformat(timespec="seconds")
        return f"{self.body.writer} since {self.body.since}, last heard from at {last}"


def read_claim(store: ObjectStore, run_id: str) -> ClaimState | None:
    """The newest claim of a run; ``None`` if nobody ever wrote it from here. Raises ``RunFormatError``."""
    items = store.entries(f"{run_id}/claims")
    number = _newest(items)
    if not number:
        return None
    by_name = {item.name: item for item in items}
    claim, beat = by_name[f"{number:06d}.json"], by_name.get(f"{number:06d}.beat.json")
    body = _read_body(store, claim)
    is_released = beat is not None and _is_released(store, beat)
    at = max(item.modified for item in (claim, beat) if item is not None and item.modified is not None)
    return ClaimState(number, body, at, is_released)


def _newest(items: Sequence[StoredObject]) -> int:
    return max((int(match[1]) for item in items if (match := _NAME.fullmatch(item.name))), default=0)


def _read_body(store: ObjectStore, item: StoredObject) -> ClaimBody:
    try:
        return _BODY.validate_json(store.read(item.key, _MAX_BYTES))
    except (ValidationError, UsageError):
        raise RunFormatError(
            f"{store.url}/{item.key}: is not a claim: delete it if no process writes this run"
        ) from None


def _is_released(store: ObjectStore, beat: StoredObject) -> bool:
    try:
        content: Any = json.loads(store.read(beat.key))
    except (ValueError, MissingObjectError):
        return False
    return isinstance(content, dict) and content.get("state") == "released"


@dataclass(frozen=True, slots=True)
class RunClaim:
    """A run that this process may write. Raises ``StorageError``."""

    store: ObjectStore
    run_id: str
    number: int
    body: ClaimBody

    @classmethod
    def acquire(cls, store: ObjectStore, run_id: str) -> RunClaim:
        """Claims a run. Raises ``UsageError`` if a live process has it, and for a store that cannot keep two apart."""
        body = ClaimBody(writer=_writer(), nonce=secrets.token_hex(8), since=_now(), expiry_s=CLAIM_EXPIRY_S.value)
        state = read_claim(store, run_id)
        if state is not None and state.is_live(_time_of_store(store, run_id)):
            raise UsageError(_refusal(store, run_id, state))
        claim = cls(store, run_id, 1 if state is None else state.number + 1, body)
        if not store.create(claim.key, body.model_dump_json().encode()):
            state = read_claim(store, run_id)
            raise UsageError(_refusal(store, run_id, state))
        if store.create(claim.key, secrets.token_bytes(8)):  # a store that ignores the condition would overwrite it
            store.delete(claim.key)
            raise UsageError(no_exclusive_creation(store.url))
        return claim

    @property
    def key(self) -> str:
        """The key of its object."""
        return f"{self.run_id}/claims/{self.number:06d}.json"

    def renew(self) -> None:
        """Shows that the writer lives. Raises ``LostClaimError`` if another process has claimed the run since."""
        self.check()
        self._beat("held")

    def check(self) -> None:
        """Raises ``LostClaimError`` if another process has claimed the run since."""
        if _newest(self.store.entries(f"{self.run_id}/claims")) != self.number:
            raise LostClaimError(
                f"{self.store.url}/{self.run_id}: another process has taken over this run, because this one did not"
                f" reach the store for {self.body.expiry_s:g} s: what it wrote since is not in the store"
            )

    def release(self) -> None:
        """Lets other processes write the run."""
        self._beat("released")

    def _beat(self, state: str) -> None:
        content = json.dumps({"nonce": self.body.nonce, "state": state, "at": _now()})
        self.store.put(f"{self.run_id}/claims/{self.number:06d}.beat.json", content.encode())


def _refusal(store: ObjectStore, run_id: str, state: ClaimState | None) -> str:
    holder = "another process" if state is None else str(state)
    expiry = CLAIM_EXPIRY_S.value if state is None else state.body.expiry_s
    return (
        f"{store.url}/{run_id}: is being written by {holder}: wait for it to finish; if it was killed, its claim"
        f" expires {expiry:g} s after it was last heard from"
    )


def _time_of_store(store: ObjectStore, run_id: str) -> datetime:
    """The time by the clock of the store, which also dates the claims: clocks of machines differ."""
    key = f"{run_id}/claims/clock-{secrets.token_hex(4)}"
    store.put(key, b"")
    items = [item for item in store.entries(f"{run_id}/claims") if item.key == key]
    store.delete(key)
    return items[0].modified if items and items[0].modified is not None else datetime.now(UTC)


def _writer() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
