"""Lets a process open as many files as its calls need: each call in flight has a connection."""

from __future__ import annotations

import resource
from contextlib import suppress

OPEN_FILES = 10_000
"""Enough for the highest ``--max-concurrency`` for a generator and a judge, and within the most that macOS allows."""


def allow_open_files() -> None:
    """Raises the limit of open files to ``OPEN_FILES`` if the system allows it, or else as far as it does.

    Shells often set 1,024, or 256 on macOS. A call beyond the limit would fail as if its server could not be reached.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        with suppress(OSError, ValueError):  # a sandbox may refuse it
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
