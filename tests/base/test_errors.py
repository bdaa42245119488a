"""Errors that a user sees."""

from __future__ import annotations

import pytest

from visioneval import Problem, ProviderError


def test_a_problem_is_one_printable_line() -> None:
    """A file name of a stranger must neither move the cursor nor look like another line."""
    problem = Problem("suite.yaml", 3, 5, "no file 'a\x1b[2Jb\nsuite.yaml:1:1: all is well\u202e'")
    assert str(problem) == "suite.yaml:3:5: no file 'a\\x1b[2Jb\\nsuite.yaml:1:1: all is well\\u202e'"
    assert str(Problem("suite.yaml", 0, 0, "größer als 5 €")) == "suite.yaml: größer als 5 €"


@pytest.mark.parametrize(
    ("wait", "taken"),
    [(None, None), (0.5, 0.5), (-1.0, 0.0), (float("inf"), None), (float("nan"), None), (1e12, 30 * 86_400.0)],
)
def test_a_wait_is_bounded(wait: float | None, taken: float | None) -> None:
    assert ProviderError("busy", kind="rate_limit", retry_after=wait).retry_after == taken
