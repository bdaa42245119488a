"""The sweep: labels and parameters of every combination, in the grid's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite_text import suite

from visioneval.suite.entries.providers import grid_sweep
from visioneval.suite.files import split_run
from visioneval.suite.load import LoadedSuite
from visioneval.suite.loading.document import read_yaml
from visioneval.suite.runs import model_runs


def test_the_last_key_varies_fastest() -> None:
    runs = grid_sweep("m", {"n": 1}, {"quality": ["low", "high"], "size": ["1x1", "2x2"]})
    assert runs == [
        ("m,quality=low,size=1x1", {"n": 1, "quality": "low", "size": "1x1"}),
        ("m,quality=low,size=2x2", {"n": 1, "quality": "low", "size": "2x2"}),
        ("m,quality=high,size=1x1", {"n": 1, "quality": "high", "size": "1x1"}),
        ("m,quality=high,size=2x2", {"n": 1, "quality": "high", "size": "2x2"}),
    ]


def test_without_a_grid_there_is_one_run() -> None:
    assert grid_sweep("m", {"n": 1}, {}) == [("m", {"n": 1})]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("1.10", "1.10"),
        ("1.0", "1.0"),
        ("1e3", "1e3"),
        ("5", "5"),
        ("no", "no"),
        ("4:30", "4:30"),
        ("true", "true"),
        ("null", "null"),
        ("'a b'", "a b"),
        ("[1, é]", '[1,"é"]'),
        ("{a: 1}", '{"a":1}'),
    ],
)
def test_labels_show_values_as_written_in_the_suite(value: str, written: str) -> None:
    grid = read_yaml(f"x: [{value}]", "s")
    assert grid_sweep("m", {}, grid)[0][0] == f"m,x={written}"


GRIDS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True), max_size=3
)


@given(GRIDS, st.dictionaries(st.text("xyz", min_size=1, max_size=2), st.integers()))
def test_a_sweep_has_every_combination_once(grid: dict[str, list[int]], params: dict[str, Any]) -> None:
    runs = grid_sweep("m", params, grid)
    expected = 1
    for values in grid.values():
        expected *= len(values)
    assert len({label for label, _ in runs}) == len(runs) == expected
    for label, chosen in runs:
        assert chosen == {**params, **{key: chosen[key] for key in grid}}
        assert label == ",".join(["m", *(f"{key}={chosen[key]}" for key in grid)])


def test_a_model_run_has_no_grid_of_its_own(load: Callable[..., LoadedSuite]) -> None:
    loaded = load(suite(models="models: [{provider: mock, label: s, params: {seed: 1}, grid: {flaw: [none, typo]}}]"))
    runs = model_runs(loaded.suite.models[0], loaded.suite, loaded.folder, lambda run: [])
    assert [run.label for run in runs] == ["s,flaw=none", "s,flaw=typo"]
    again = [model_runs(run.config, loaded.suite, loaded.folder, lambda run: []) for run in runs]
    assert [[(run.label, dict(run.params)) for run in item] for item in again] == [
        [("s,flaw=none", {"seed": 1, "flaw": "none"})],
        [("s,flaw=typo", {"seed": 1, "flaw": "typo"})],
    ]


@pytest.mark.parametrize(
    ("text", "split"), [("r", ("r", None)), ("r@m", ("r", "m")), ("r@m@1", ("r", "m@1")), ("r@", ("r", None))]
)
def test_a_run_and_its_label(text: str, split: tuple[str, str | None]) -> None:
    assert split_run(text) == split
