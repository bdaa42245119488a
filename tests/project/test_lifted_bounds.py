"""What ``make newest`` makes of the bounds in pyproject.toml."""

from __future__ import annotations

import pytest
from newest import Bound, bounds, is_beyond, lifted, requirements_of_venv, rows


@pytest.mark.parametrize(
    ("requirement", "without_bound"),
    [
        ("typer>=0.20,<1", "typer>=0.20"),
        ("openai[aiohttp]>=3, <4", "openai[aiohttp]>=3"),
        ("rapidocr==3.10.*", "rapidocr>=3.10"),
        ("a~=1.4", "a>=1.4"),
        ("orjson>=3.10", "orjson>=3.10"),
        ("types-PyYAML", "types-PyYAML"),
    ],
)
def test_only_upper_bounds_are_lifted(requirement: str, without_bound: str) -> None:
    assert lifted(requirement) == without_bound


def test_every_bound_of_the_project_is_tried() -> None:
    all_bounds = bounds(requirements_of_venv())
    assert Bound("pydantic", ">=2.11,<3") in all_bounds
    assert Bound("rapidocr", "==3.10.*") in all_bounds
    assert "orjson" not in {bound.name for bound in all_bounds}


def test_the_table_says_what_is_beyond_a_bound_or_held_back() -> None:
    tried = {"a-b": "3.0", "c": "1.9", "d": "1.2.9"}
    all_bounds = [Bound("A_b", ">=1,<3"), Bound("c", "<2"), Bound("d", "==1.2.*")]
    assert list(rows(all_bounds, tried, {"a-b": "3.0", "c": "2.0", "d": "1.2.9"})) == [
        "| A_b | >=1,<3 | 3.0 | beyond the bound |",
        "| c | <2 | 1.9 | another package holds 2.0 back |",
        "| d | ==1.2.* | 1.2.9 |  |",
    ]


@pytest.mark.parametrize(
    ("version", "specifier", "is_expected"),
    [("1.99", ">=1,<2", False), ("2.0", ">=1,<2", True), ("3.11.0", "==3.10.*", True), ("3.10.4", "==3.10.*", False)],
)
def test_versions_beyond_a_bound(version: str, specifier: str, is_expected: bool) -> None:
    assert is_beyond(version, specifier) is is_expected
