"""Faults of the server, and when they occur."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from .script import GenerationRequest, JudgeRequest

ModelRequest = GenerationRequest | JudgeRequest

KINDS: Final[Mapping[str, str]] = {
    "rate_limit": "any",
    "quota": "any",
    "server_error": "any",
    "bad_gateway": "any",
    "unavailable": "any",
    "unauthorized": "any",
    "forbidden": "any",
    "model_not_found": "any",
    "bad_request": "any",
    "reset": "any",
    "hang": "any",
    "truncated_body": "any",
    "html": "any",
    "bad_json": "any",
    "redirect": "any",
    "bad_chunk": "any",
    "bad_status_line": "any",
    "large": "any",
    "endless": "any",
    "endless_gzip": "any",
    "bomb": "any",
    "drip": "any",
    "error_in_200": "any",
    "refusal": "any",
    "truncated_base64": "generate",
    "empty_base64": "generate",
    "no_image": "generate",
    "not_an_image": "generate",
    "fewer_images": "generate",
    "off_schema": "judge",
    "fenced": "judge",
    "prose": "judge",
    "mangled": "judge",
    "empty": "judge",
    "max_tokens": "judge",
}
"""Each kind, and the calls that it can happen to: ``any``, ``generate`` or ``judge``."""

RAW: Final = frozenset({"redirect", "bad_chunk", "bad_status_line", "large", "endless", "endless_gzip", "bomb", "drip"})
"""Replies whose bytes ``wire.py`` writes: ``large`` has a content length, ``endless`` has none, ``bomb`` and
``endless_gzip`` grow a thousandfold when they are decompressed; ``drip`` is endless and slow."""
WIRE: Final = frozenset({"reset", "hang", "truncated_body", "html", "bad_json"}) | RAW
"""Transport faults of an answer: ``html`` is a 200 with a web page, as a wrong base URL gives; ``bad_json`` one
whose JSON ends early, though its length is right."""
STATUS: Final = frozenset(
    {
        "rate_limit",
        "quota",
        "server_error",
        "bad_gateway",
        "unavailable",
        "unauthorized",
        "forbidden",
        "model_not_found",
        "bad_request",
        "error_in_200",
    }
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    ``retry_after`` is in seconds: OpenAI's ``retry-after`` and ``retry-after-ms`` headers, Gemini's ``RetryInfo``.
    ``reason`` selects the refusal: for OpenAI ``content_filter`` or ``invalid_prompt`` instead of the usual form;
    for Gemini a ``BlockedReason`` with ``prompt:`` before it (the default is ``prompt:PROHIBITED_CONTENT``) or a
    ``FinishReason`` such as ``IMAGE_SAFETY``. ``text`` replaces the text of the refusal, error or answer.
    ``error_in_200`` sends the error that ``reason`` names, such as ``rate_limit``, with the status 200.

    ``retry_after_header`` is sent verbatim, and so are ``headers`` and the ``body`` of an error, with its ``status``.
    ``location`` is a redirect's; ``status`` and ``size`` (in megabytes, when decompressed) are of a reply in ``RAW``,
    ``coding`` its content encoding, ``layers`` how often it was compressed.
    """

    kind: str
    retry_after: float | None = None
    reason: str | None = None
    text: str | None = None
    retry_after_header: str | None = None
    location: str | None = None
    status: int | None = None
    size: int = 0
    coding: str | None = None
    layers: int = 1
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no such fault: {self.kind}; there are {', '.join(KINDS)}")

    def fits(self, asked: ModelRequest) -> bool:
        scope = KINDS[self.kind]
        return scope == "any" or scope == ("generate" if isinstance(asked, GenerationRequest) else "judge")


class Faults:
    """Which call gets which fault: a queue first, then predicates, then chance. Safe to change while it is in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: list[Fault | None] = []
        self._rules: list[tuple[Callable[[ModelRequest], bool], Fault]] = []
        self._rates: dict[Fault, float] = {}
        self._seed = 0
        self._tries: dict[str, int] = {}
        self.generated: list[str] = []

    def queue(self, *faults: Fault | None) -> None:
        """Each applies to the next call that it fits; ``None`` lets one call pass."""
        with self._lock:
            self._queue.extend(faults)

    def when(self, predicate: Callable[[ModelRequest], bool], fault: Fault) -> None:
        """Applies to every call for which the predicate is true."""
        with self._lock:
            self._rules.append((predicate, fault))

    def random(self, rates: Mapping[str | Fault, float], seed: int = 0) -> None:
        """A chance for each fault, or each kind of it, 0 to 1, their sum at most 1.

        The choice depends on the seed, the request and how often it came before, not on the order of requests: a
        concurrent run gets the same faults again.
        """
        if sum(rates.values()) > 1 or any(rate < 0 for rate in rates.values()):
            raise ValueError("fault rates are chances whose sum is at most 1")
        faults = {Fault(item) if isinstance(item, str) else item: rate for item, rate in rates.items()}
        with self._lock:
            self._rates = faults
            self._seed = seed

    def clear(self) -> None:
        with self._lock:
            self._queue.clear()
            self._rules.clear()
            self._rates.clear()

    def next(self, asked: ModelRequest, digest: str) -> Fault | None:
        """The fault of this call, taken from the queue where it came from there."""
        with self._lock:
            tries = self._tries[digest] = self._tries.get(digest, 0) + 1
            fault = self._pick(asked, digest, tries)
            if fault is not None:
                self.generated.append(fault.kind)
            return fault

    def _pick(self, asked: ModelRequest, digest: str, tries: int) -> Fault | None:
        for position, queued in enumerate(self._queue):
            if queued is None or queued.fits(asked):
                return self._queue.pop(position)
        for predicate, fault in self._rules:
            if fault.fits(asked) and predicate(asked):
                return fault
        return self._chance(asked, digest, tries)

    def _chance(self, asked: ModelRequest, digest: str, tries: int) -> Fault | None:
        if not self._rates:
            return None
        seed = f"{self._seed}:{digest}:{tries}".encode()
        left = int.from_bytes(hashlib.sha256(seed).digest()[:8]) / 2**64
        for fault, rate in self._rates.items():
            if left < rate:
                return fault if fault.fits(asked) else None
            left -= rate
        return None
