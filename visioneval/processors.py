"""How many processors this process may use."""

from __future__ import annotations

import os
from functools import cache
from math import ceil
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_UNLIMITED = 1e6
"""Processors that no machine has."""


@cache
def processors() -> int:
    """The processors that this process may use, at least 1: in a container, often fewer than the machine has.

    By the affinity of the process, and the limit of its control group in Linux (version 2), rounded up.
    """
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(available, ceil(_quota(_CGROUPS, _OWN_CGROUP))))


def _quota(cgroups: Path, own: Path) -> float:
    """The least limit of a control group and of those around it, in processors; a very large number without any."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return _UNLIMITED
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    groups = [cgroups / path, *(cgroups / path).parents]
    return min(_limit(group / "cpu.max") for group in groups if group.is_relative_to(cgroups))


def _limit(path: Path) -> float:
    """What ``cpu.max`` says: microseconds of work, or ``max``, in a period of so many."""
    try:
        quota, period = path.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return _UNLIMITED
