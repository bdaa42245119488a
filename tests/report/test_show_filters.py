"""``show --failed``, ``--case``, ``--tag`` and ``--model``."""

from __future__ import annotations

from typing import Any

import pytest
from toys import LOOK, SECOND, Toy

import visioneval as ve
from visioneval import UsageError

GRID: dict[str, Any] = {
    "models": [{"provider": "mine:Generate", "params": {"model": "m"}, "grid": {"q": ["low", "high"]}}]
}


@pytest.fixture
def swept(toy: Toy) -> Toy:
    """Of two model runs each: a good case, an error, one failed rule, two failed rules."""
    toy.run(
        {"id": "good", "tags": ["calm"]},
        {"id": "broken", "metadata": {"generate": "raises"}},
        {"id": "bad", "metadata": {"look": "bad"}, "tags": ["calm", "loud"]},
        {"id": "worse", "metadata": {"look": "bad", "second": "fails"}},
        graders=[LOOK, SECOND],
        verdict=["fine", "second"],
        **GRID,
    )
    return toy


def listed(toy: Toy, *words: str) -> list[tuple[str, str]]:
    result = toy("show", *words, COLUMNS="120")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith(("FAIL ", "ERROR "))]
    return [(row[0], f"{row[1]} {row[2]}") for row in rows]


def test_the_worst_cells_come_first_and_errors_last(swept: Toy) -> None:
    assert listed(swept, "--failed") == [
        ("FAIL", "worse m,q=low"),
        ("FAIL", "worse m,q=high"),
        ("FAIL", "bad m,q=low"),
        ("FAIL", "bad m,q=high"),
        ("ERROR", "broken m,q=low"),
        ("ERROR", "broken m,q=high"),
    ]
    printed = swept("show", "--failed", COLUMNS="120").stdout
    assert printed.startswith("4 FAIL and 2 ERROR of 8 cells, the worst first\n")
    assert "case [sample]" not in printed, "each case has one sample"
    assert "fine: all is ill" in printed
    assert "the model is on fire" in printed


def test_cells_in_a_failed_gate_come_before_those_with_more_failed_rules(toy: Toy) -> None:
    toy.run(
        {"id": "worse", "metadata": {"look": "bad", "second": "fails"}},
        {"id": "gated", "metadata": {"look": "bad"}},
        graders=[LOOK, SECOND],
        verdict=["fine", "second"],
        gates=[{"rule": "pass_rate == 1", "cases": ["gated"]}],
    )
    assert [name for _, name in listed(toy, "--failed")] == ["gated toy", "worse toy"]


def test_nothing_failed(toy: Toy) -> None:
    toy.run({})
    assert toy("show", "--failed").stdout == "0 FAIL and 0 ERROR of 1 cell\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--case", "b*"), {"bad", "broken"}),
        (("--case", "bad", "--case", "worse"), {"bad", "worse"}),
        (("--tag", "loud"), {"bad"}),
        (("--tag", "calm"), {"bad"}),
        (("--case", "b*", "--tag", "calm"), {"bad"}),
        ((), {"bad", "broken", "worse"}),
    ],
)
def test_filters_choose_among_the_failed(swept: Toy, words: tuple[str, ...], expected: set[str]) -> None:
    assert {name.split()[0] for _, name in listed(swept, "--failed", *words)} == expected
    assert {name for _, name in listed(swept, "--failed", *words, "--model", "*low")} == {
        f"{name} m,q=low" for name in expected
    }


def test_filters_leave_only_their_cells_in_the_summary(swept: Toy) -> None:
    assert "8 of 8 cells  2 PASS  4 FAIL  2 ERROR" in swept("show").stdout
    assert "4 of 4 cells  2 PASS  2 FAIL  0 ERROR" in swept("show", "--tag", "calm").stdout
    narrowed = swept("show", "--tag", "calm", "--model", "*high").stdout
    assert "2 of 2 cells  1 PASS  1 FAIL  0 ERROR" in narrowed
    assert "q=low" not in narrowed
    assert "loud" in narrowed
    assert swept("show", "latest@*high", "--tag", "calm").stdout == narrowed
    assert swept("show", "latest@*low", "--model", "*high").exit_code == 2


def test_filters_and_failed_choose_cells_of_a_case(swept: Toy) -> None:
    assert swept("show", "latest", "bad", "--model", "*low").stdout.count("sample 0") == 1
    assert swept("show", "latest", "bad", "--failed").stdout.count("sample 0") == 2
    for words in (("good", "--failed"), ("bad", "--case", "good"), ("good", "--tag", "loud")):
        result = swept("show", "latest", *words)
        assert (result.exit_code, result.stdout) == (2, ""), words
    assert swept("show", "latest", "good", "--failed").stderr == "'good': no matching cells in this run\n"


def test_a_run_that_was_stopped_says_how_to_get_the_rest(swept: Toy) -> None:
    info = swept.latest / "run.json"
    info.write_text(info.read_text().replace('"complete"', '"interrupted"'))
    assert "to resume: visioneval run --resume" in swept("show", "--failed").stderr


def test_the_api_reads_the_same_cells(swept: Toy) -> None:
    part = ve.load_run(cases=["b*"], models=["*low"])
    assert sorted(record.test_id for record in part.records) == ["bad", "broken"]
    assert (part.summary.counts.cells, part.summary.planned_cells) == (2, 2)
    assert len(ve.load_run(tags=["calm"]).records) == 4
    assert len(ve.load_run().records) == 8
    with pytest.raises(UsageError, match="cases, tags, models and redact must be lists of strings, not one string"):
        ve.load_run(cases="bad")
