"""When Python searches for unreachable cycles of objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from visioneval.garbage import collect_new_objects, collect_seldom


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_loading_is_not_searched_and_what_a_run_leaves_behind_soon_is() -> None:
    collect_seldom()
    loading = gc.get_threshold()[0]
    collect_new_objects()
    assert gc.get_threshold()[0] * 10 < loading


def test_the_process_of_a_user_is_left_as_it_is(thresholds: tuple[int, int, int]) -> None:
    frozen = gc.get_freeze_count()
    collect_new_objects()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (thresholds, frozen)
