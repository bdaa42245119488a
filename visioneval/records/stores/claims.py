"""Claims: who may write a run in a store. A claim that its writer no longer renews expires.

``claims/<n>.json`` is created exclusively. From then on only its writer replaces it: to renew it while it lives, and to
release the run. The highest number has the run.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from visioneval.errors import RunFormatError, StorageError, UsageError
from visioneval.records.stores.store import ObjectStore, StoredObject, no_exclusive_creation
from visioneval.types import Frozen

SETTINGS = {
    "VISIONEVAL_CLAIM_EXPIRY_S": (120, 2, 86_400),
    "VISIONEVAL_SEGMENT_CELLS": (200, 1, 1_000_000),
    "VISIONEVAL_SEGMENT_S": (30, 1, 86_400),
}
"""The default, the minimum and the maximum of the whole numbers in these environment variables:

- ``VISIONEVAL_CLAIM_EXPIRY_S``: Seconds after which a claim expires that its writer does not renew. Default: 120.
- ``VISIONEVAL_SEGMENT_CELLS``: A writer sends its outputs, then their records, after this many cells. Default: 200.
- ``VISIONEVAL_SEGMENT_S``: It also sends them after this many seconds. Default: 30.
"""
_NAME = re.compile(r"(\d{6})\.json")
_MAX_BYTES = 10_000
_RENEWALS_PER_EXPIRY = 4


def setting(name: str) -> int:
    """The number in an environment variable, or its default. Raises ``UsageError`` if it is not in its range."""
    default, minimum, maximum = SETTINGS[name]
    text = os.environ.get(name)
    if not text:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(maximum))
    if not is_number or not minimum <= int(text) <= maximum:
        raise UsageError(f"{name}={text!r:.40}: must be a whole number from {minimum} to {maximum:,}")
    return int(text)


class LostClaimError(StorageError):
    """Another process has taken over the run."""


class ClaimBody(Frozen):
    """What a claim says about its writer."""

    writer: Annotated[str, Field(max_length=200)]
    nonce: Annotated[str, Field(max_length=40)]
    since: Annotated[str, Field(max_length=40)]
    expiry_s: Annotated[float, Field(gt=0, le=86_400)]
    state: Literal["held", "released"] = "held"


@dataclass(frozen=True, slots=True)
class ClaimState:
    """The newest claim of a run, as the store has it."""

    number: int
    body: ClaimBody
    renewed_at: datetime
    """By the clock of the store."""

    def is_live(self, now: datetime) -> bool:
        """Whether its writer still holds the run."""
        return self.body.state == "held" and (now - self.renewed_at).total_seconds() <= self.body.expiry_s

    def __str__(self) -> str:
        last = self.renewed_at.astimezone(UTC).isoformat(timespec="seconds")
        return f"{self.body.writer} since {self.body.since}, last heard from at {last}"


def read_claim(store: ObjectStore, run_id: str) -> ClaimState | None:
    """The newest claim of a run; ``None`` if nobody ever wrote it from here. Raises ``RunFormatError``."""
    items = store.entries(f"{run_id}/claims")
    number = _newest(items)
    if not number:
        return None
    # an earlier version renewed its claim by <n>.beat.json
    times = [item.modified for item in items if item.name.startswith(f"{number:06d}.") and item.modified is not None]
    key = f"{run_id}/claims/{number:06d}.json"
    try:
        return ClaimState(number, ClaimBody.model_validate_json(store.read(key, _MAX_BYTES)), max(times))
    except (ValidationError, UsageError):
        raise RunFormatError(f"{store.url}/{key}: is not a claim: delete it if no process writes this run") from None


def _newest(items: Sequence[StoredObject]) -> int:
    return max((int(match[1]) for item in items if (match := _NAME.fullmatch(item.name))), default=0)


class RunClaim:
    """A run that this process may write, until it releases it: a thread renews the claim. Raises ``StorageError``."""

    def __init__(self, store: ObjectStore, run_id: str, number: int) -> None:
        """Claims nothing yet; ``acquire`` does. Raises ``UsageError`` for a bad setting."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.number = number
        self.key = f"{run_id}/claims/{number:06d}.json"
        self.body = ClaimBody(
            writer=f"process {os.getpid()} on {socket.gethostname()}",
            nonce=secrets.token_hex(8),
            since=now,
            expiry_s=setting("VISIONEVAL_CLAIM_EXPIRY_S"),
        )
        self.lost: LostClaimError | None = None
        """Set once another process is known to have taken over the run."""
        self._store, self._run_id = store, run_id
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="claim", daemon=True)

    @classmethod
    def acquire(cls, store: ObjectStore, run_id: str) -> RunClaim:
        """Claims a run. Raises ``UsageError`` if a live process has it, and for a store that cannot keep two apart."""
        state = read_claim(store, run_id)
        is_held = state is not None and state.is_live(_time_of_store(store, run_id))
        claim = cls(store, run_id, 1 if state is None else state.number + 1)
        if not is_held and not store.create(claim.key, claim.body.model_dump_json().encode()):
            is_held, state = True, read_claim(store, run_id)
        if is_held:
            expiry_s = (claim if state is None else state).body.expiry_s
            raise UsageError(
                f"{store.url}/{run_id}: is being written by {state or 'another process'}: wait for it to finish; if it"
                f" was killed, its claim expires {expiry_s:g} s after it was last heard from"
            )
        if store.create(claim.key, secrets.token_bytes(8)):  # a store that ignores the condition would overwrite it
            store.delete(claim.key)
            raise UsageError(no_exclusive_creation(store.url))
        claim._thread.start()
        return claim

    def check(self) -> None:
        """Raises ``LostClaimError`` if another process has claimed the run since."""
        if _newest(self._store.entries(f"{self._run_id}/claims")) != self.number:
            self.lost = LostClaimError(
                f"{self._store.url}/{self._run_id}: another process has taken over this run, because this one did not"
                f" reach the store for {self.body.expiry_s:g} s: what it wrote since is not in the store"
            )
            raise self.lost

    def renew(self) -> None:
        """Shows that the writer lives. Raises ``LostClaimError`` if another process has claimed the run since."""
        self.check()
        self._store.put(self.key, self.body.model_dump_json().encode())

    def stop(self) -> None:
        """Renews the claim no longer, so that it expires."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def release(self) -> None:
        """Lets other processes write the run."""
        self.stop()
        self._store.put(self.key, self.body.model_copy(update={"state": "released"}).model_dump_json().encode())

    def _keep(self) -> None:
        while not self._stopped.wait(self.body.expiry_s / _RENEWALS_PER_EXPIRY):
            try:
                self.renew()
            except LostClaimError:
                return
            except Exception:  # noqa: S112 - the writer reports that the store cannot be reached
                continue


def _time_of_store(store: ObjectStore, run_id: str) -> datetime:
    """The time by the clock of the store, which also dates the claims: clocks of machines differ."""
    key = f"{run_id}/claims/clock-{secrets.token_hex(4)}"
    store.put(key, b"")
    times = [item.modified for item in store.entries(f"{run_id}/claims") if item.key == key]
    store.delete(key)
    return next(filter(None, times), datetime.now(UTC))
