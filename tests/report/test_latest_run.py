"""Commands about one run take the latest one without its name; a lone name is that of a run."""

from __future__ import annotations

import re
from typing import Any

import pytest
from toys import Toy

QUESTION = {"key": "usable", "ask": "Usable?", "type": "yes_no", "metric": "fine"}


@pytest.fixture
def two_runs(toy: Toy) -> Toy:
    """A run ``old`` in which a case failed, and a newer run ``new`` without it, of whose cells one has a label."""
    case: dict[str, Any] = {"id": "good", "metadata": {"generate": "fine"}}
    labels = {"questions": [QUESTION]}
    arguments = ("--runs", "runs")
    toy.run(case, {"id": "bad", "metadata": {"look": "bad"}}, labels=labels, arguments=(*arguments, "--run-id", "old"))
    toy.run(case, labels=labels, arguments=(*arguments, "--run-id", "new"))
    (toy.folder / "answers.csv").write_text("case,model,rater,usable\ngood,toy,ann,true\n")
    assert toy("label", "import", "answers.csv", "new").exit_code == 0
    return toy


@pytest.mark.parametrize(
    "words",
    [
        ("show",),
        ("show", "--failed"),
        ("export",),
        ("report",),
        ("agreement",),
        ("rank", "--json"),
        ("probe", "--kinds", "pixels.blank", "--trust-suite", "--json"),
        ("label", "export"),
    ],
    ids=" ".join,
)
def test_without_a_run_it_is_the_latest_and_a_lone_name_is_a_run(two_runs: Toy, words: tuple[str, ...]) -> None:
    def result(*names: str) -> tuple[int, str]:
        done = two_runs(*words, *names)
        return done.exit_code, re.sub(r"\d+\.\d+ s", "", done.output).replace("latest", "new")

    assert result() == result("latest") == result("new")
    assert result() != result("old")
    assert result("nope")[0] == 2
    assert "'nope': no such run in runs" in result("nope")[1]


def test_the_second_name_of_show_is_a_case(two_runs: Toy) -> None:
    assert "sample 0" in two_runs("show", "new", "good").stdout
    assert two_runs("show", "good").stderr.startswith("'good': no such run in runs")


def test_label_alone_opens_the_page_of_the_latest_run(two_runs: Toy) -> None:
    two_runs.run({"metadata": {"generate": "raises"}}, labels={"questions": [QUESTION]}, arguments=("--run-id", "bare"))
    for words in ((), ("--no-open",), ("bare",), ("page",), ("page", "bare")):
        result = two_runs("label", *words)
        assert (result.exit_code, result.stderr) == (2, "runs/bare: no images to label\n"), words


@pytest.mark.parametrize(
    "words", [("show",), ("report",), ("export",), ("label",), ("agreement",), ("rank",), ("probe",)]
)
def test_without_any_run_there_is_no_latest_one(toy: Toy, words: tuple[str, ...]) -> None:
    result = toy(*words)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, "runs: contains no runs")
