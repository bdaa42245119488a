"""Tables of values, functions and errors: their sentences are those of the code, and nothing can be missing."""

from __future__ import annotations

import inspect
import re
from typing import Any, Literal, get_args

import pytest
from test_docs_defaults import reference

import visioneval
from visioneval.analysis.compare.gates import ALLOWED, NAMES, State
from visioneval.errors import ExitCode

listings: Any = reference().listings
Wrong = Literal["good", "bad"]
"""Quality:

- ``good``: As it should be.
- ``worse``: Not so good.
"""
Bare = Literal["good"]
COLORS = ("red", "green")
"""Colors:

- ``red``: Of roses, and
  of tulips | poppies.
- ``green``: Of ``leaves``.
- ``#NUMBER``: Any other.

They are mixed.
"""


def rows(table: str) -> list[list[str]]:
    return [re.split(r"(?<!\\) \| ", line[2:-2]) for line in table.splitlines()[2:]]


def test_an_enumeration_has_the_docstrings_of_its_members() -> None:
    table = rows(listings.members("visioneval.errors.ExitCode"))
    assert [name for name, _ in table] == [f"`{code.value}`" for code in ExitCode]
    assert table[4][1] == "Interrupted."


@pytest.mark.parametrize(("name", "values"), [("NAMES", NAMES), ("State", get_args(State)), ("ALLOWED", ALLOWED)])
def test_a_list_of_names_has_the_list_in_the_docstring_below(name: str, values: tuple[str, ...]) -> None:
    table = rows(listings.members(f"visioneval.analysis.compare.gates.{name}"))
    assert [text.strip("`") for text, _ in table if text.islower()] == list(values)
    assert all(meaning.endswith(".") for _, meaning in table)


def test_a_meaning_can_have_several_lines_and_a_pattern_is_no_value() -> None:
    assert rows(listings.members(f"{__name__}.COLORS")) == [
        ["`red`", r"Of roses, and of tulips \| poppies."],
        ["`green`", "Of `leaves`."],
        ["`#NUMBER`", "Any other."],
    ]


@pytest.mark.parametrize("name", ["Wrong", "Bare"])
def test_a_value_without_a_meaning_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: its docstring has .*, and its values are"):
        listings.members(f"{__name__}.{name}")


class Counted:
    """What is counted:

    - pages, `a: b`: All of them,
      also | empty ones.
    - ``METRIC:1``: One.

    - A note is no item.
    """


def test_a_list_in_a_docstring_is_a_table() -> None:
    table = listings.listed(("what", "meaning"), Counted, listings.listed)
    assert rows(table) == [
        ["pages, `a: b`", r"All of them, also \| empty ones."],
        ["`METRIC:1`", "One."],
        ["what", "its meaning, which may have several lines"],
    ]
    assert table.startswith("| what | meaning |")


def test_a_docstring_without_a_list_is_refused() -> None:
    with pytest.raises(ValueError, match="no list in the docstring of rows"):
        listings.listed(("what", "meaning"), Counted, rows)


def test_every_public_function_is_listed_with_the_first_sentence_of_its_docstring() -> None:
    assert sorted(listings.FUNCTIONS) == [
        name for name in visioneval.__all__ if inspect.isfunction(getattr(visioneval, name))
    ]
    by_name = {cells[0]: cells[1:] for cells in rows(listings.functions())}
    assert by_name["[`await run_async(...)`](python.md#run_async)"] == [
        "Like `run`, without blocking the event loop.",
        "`FinishedRun`",
    ]
    assert by_name["[`load_run(...)`](python.md#load_run)"][1] == "`Run`"


def test_a_method_is_listed_as_it_is_called_and_a_property_without_parentheses() -> None:
    names = listings.python_names()
    assert "\n- `await ask(prompt: str, " in names
    assert "\n- `show(case: str)`: One case in full" in names
    assert "\n- `records`: One record per cell" in names


def test_every_error_that_a_function_raises_is_listed() -> None:
    codes = {name.strip("`"): code for name, _, code in rows(listings.errors())}
    assert codes.pop("VisionEvalError") == "2"
    assert (codes["SuiteError"], codes["QuotaError"]) == ("2", "3")
    assert {*codes, *listings.OF_PLUGINS, "VisionEvalError"} == {
        name for name in visioneval.__all__ if name.endswith("Error") and name != "CellError"
    }


def test_every_package_is_in_a_layer_with_the_beginning_of_its_docstring() -> None:
    table = rows(listings.layers())
    packages = {
        f"`visioneval.{path.stem}`"
        for path in (listings.ROOT / "visioneval").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert {name for _, name, _ in table} == packages - {"`visioneval.__init__`", "`visioneval.__main__`"}
    assert table[0][:2] == ["1", "`visioneval.cli`"]
    assert [about for *_, about in table if not about.endswith(".")] == []
    scale = "Many engines, one run: shards that several machines run, and `merge`, which unites them."
    assert ["3", "`visioneval.scale`", scale] in table
