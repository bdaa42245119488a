"""The command, its HTML page, the API and the page of ``view`` decide a comparison in the same way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from toys import Toy

import visioneval as ve
from visioneval.report.html.pages import PageFrame
from visioneval.serve.reports import render_comparison

FINE: list[dict[str, Any]] = [{"id": f"c{at}"} for at in range(6)]
LOST_IN_A = [{**case, "metadata": {"look": "raises"}} if at < 2 else case for at, case in enumerate(FINE)]
FLAKY = [{**case, "flaky": True} for case in FINE]
FAILED = [{**case, "metadata": {"look": "bad"}} for case in FINE]


STATES = {
    "passed": "passed",
    "FAILED": "failed",
    "NOT MEASURED": "unmeasured",
    "CANNOT TELL": "cannot_tell",
    "not applicable": "not_applicable",
}


def decided(page: str) -> tuple[str, list[tuple[str, str]]]:
    """The headline of a page, and the state and name of each gate."""
    (headline,) = re.findall(r"<h1>(.*?)</h1>", page)
    gates = re.findall(r'<th scope="row"><span class="\w+">(.*?)</span></th>\s*<td>([\w<>:-]*)</td>', page)
    return headline, [(STATES[state], name.replace("<wbr>", "")) for state, name in gates if state in STATES]


@pytest.mark.parametrize(
    ("a", "b", "of_b", "code", "headline"),
    [
        (LOST_IN_A, FINE, {}, 3, "A gate was not measured"),
        (FINE, LOST_IN_A, {}, 3, "A gate was not measured"),
        (LOST_IN_A, LOST_IN_A, {}, 0, "All gates passed"),
        (FINE, [{**FINE[0], "flaky": True}, *FINE[1:]], {}, 3, "A gate was not measured"),
        (FLAKY, FLAKY, {}, 3, "A gate was not measured"),
        (FINE, FINE, {"compare": {"must_detect": 5}}, 3, "A gate cannot tell"),
        ([{**FINE[0], "tags": ["must_pass"]}], [{**FAILED[0], "tags": ["must_pass"]}], {}, 1, "A gate failed"),
    ],
    ids=["lost in A", "lost in B", "lost in both", "excused", "flaky", "must_detect", "must_pass"],
)
def test_every_reader_decides_alike(
    toy: Toy, a: list[dict[str, Any]], b: list[dict[str, Any]], of_b: dict[str, Any], code: int, headline: str
) -> None:
    toy.run(*a, arguments=("--run-id", "a"))
    toy.run(*b, arguments=("--run-id", "b"), **of_b)
    done = toy("compare", "a", "b", "--html", "page.html")
    assert done.exit_code == code, done.output
    assert ve.compare("a", "b").exit_code == code
    page = decided((toy.folder / "page.html").read_text())
    runs = toy.folder / "runs"
    assert decided(render_comparison(Path(runs / "a"), Path(runs / "b"), PageFrame(()))) == page
    assert page[0] == headline
    assert [state for state, _ in page[1]] == [gate.state for gate in ve.compare("a", "b").gates]
