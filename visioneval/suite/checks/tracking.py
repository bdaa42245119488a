"""Checks of where a suite sends its results."""

from __future__ import annotations

from collections.abc import Iterator

from visioneval.suite.loading.messages import Loc
from visioneval.suite.loading.paths import Trust
from visioneval.suite.model import Suite


def tracking_problems(suite: Suite, trust: Trust) -> Iterator[tuple[Loc, str]]:
    """A host, an account or a project that a suite without trust must not name."""
    problem = None if suite.tracking is None or trust.everything else suite.tracking.untrusted_option()
    if problem is not None:
        key, message = problem
        yield ("tracking", key), message
