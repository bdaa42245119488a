"""Logs each provider call as one line of JSON: its key, status, time and cost, never prompts, replies or images."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from visioneval.errors import UsageError
from visioneval.running.calls.limiters import RateLimitKey
from visioneval.running.calls.prices import tokens_of


class CallLog:
    """Appends calls to ``--log-file``, and prints them to ``echo`` if given."""

    def __init__(self, path: Path | None = None, echo: TextIO | None = None) -> None:
        """Raises ``UsageError`` if the file cannot be opened for writing."""
        self._echo = echo
        self._file: TextIO | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("a", encoding="utf-8", buffering=1)
            except OSError as error:
                raise UsageError(f"--log-file {path}: cannot write: {error.strerror or error}") from None

    def call(
        self,
        limit_key: RateLimitKey,
        key: str,
        status: str,
        attempt: int,
        seconds: float,
        *,
        usage: Mapping[str, int] | None = None,
        cost: float | None = None,
    ) -> None:
        """Logs one attempt of a call. ``status`` is ``ok`` or the kind of error, ``usage`` as the provider counts."""
        if self._is_on:
            tokens = {} if usage is None else tokens_of(usage)
            self._write(
                limit_key, key, status, attempt=attempt, seconds=round(seconds, 6), tokens=tokens, cost_usd=cost
            )

    def hit(self, limit_key: RateLimitKey, key: str) -> None:
        """Logs a reply from the cache."""
        if self._is_on:
            self._write(limit_key, key, "cached")

    @property
    def _is_on(self) -> bool:
        return self._file is not None or self._echo is not None

    def _write(self, limit_key: RateLimitKey, key: str, status: str, **more: object) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {
            "at": time,
            "provider": limit_key.provider,
            "model": limit_key.model,
            "kind": limit_key.kind,
            "status": status,
            **more,
        }
        text = json.dumps({**line, "key": key})
        if self._echo is not None:
            print(text, file=self._echo)
        try:
            if self._file is not None:
                print(text, file=self._file)
        except OSError as error:  # a failed log line must not discard a paid call
            self.close()
            self._file = None
            print(f"--log-file: cannot write; logging stopped: {error.strerror or error}", file=sys.stderr)

    def close(self) -> None:
        """Closes the log file."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
