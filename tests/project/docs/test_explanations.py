"""The numbers and the pictures of the pages that explain are what the program computes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from compare_factory import side, verdicts
from typer.testing import CliRunner

from tests.calibration.designs import odds
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.gates import GateResult, decide, parse_criteria
from visioneval.analysis.planning import gate_rates, parse_detect, stated_noise
from visioneval.analysis.stats.intervals import CaseSums, rate_interval
from visioneval.cli import app
from visioneval.rules import parse_gate

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted((DOCS / "explanation").glob("*.md"))
SVG = "{http://www.w3.org/2000/svg}"


def page(name: str) -> str:
    """The text of a page, its lines joined."""
    return " ".join((DOCS / "explanation" / f"{name}.md").read_text(encoding="utf-8").split())


def texts(name: str) -> list[str]:
    """The texts in a picture."""
    return ["".join(item.itertext()) for item in ET.parse(DOCS / "images" / f"{name}.svg").iter(f"{SVG}text")]


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "160"}).output


@pytest.mark.parametrize("path", PAGES, ids=[path.stem for path in PAGES])
def test_each_page_is_short_and_has_one_picture_with_a_description(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    ((alt, image),) = re.findall(r"!\[([^]]*)\]\(([^)]*)\)", text)
    assert (path.parent / image).name == f"{path.stem}.svg"
    assert (path.parent / image).is_file()
    assert len(alt.split()) > 25
    assert len(text.split()) <= 700


def test_there_are_six_pages() -> None:
    assert [path.stem for path in PAGES] == ["cells", "gates", "intervals", "judges", "offline", "verdicts"]


@pytest.mark.parametrize("name", [path.stem for path in PAGES])
def test_a_picture_needs_nothing_from_elsewhere(name: str) -> None:
    text = (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8")
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") == 1
    assert "<image" not in text
    assert "url(" not in text


def percent(cases: CaseSums) -> tuple[str, str]:
    interval = rate_interval(cases)
    assert interval is not None
    return f"{100 * interval.low:.0f}", f"{100 * interval.high:.0f}"


CASES = {
    f"{passed} of {n}": [(1.0, 1)] * passed + [(0.0, 1)] * (n - passed)
    for passed, n in ((9, 10), (27, 30), (90, 100), (270, 300))
}


def test_the_intervals_are_those_of_the_program() -> None:
    alone = percent([(1.0, 1)] * 144 + [(0.0, 1)] * 16)
    clustered = percent([(8.0, 8)] * 18 + [(0.0, 8)] * 2)
    ends = {name: percent(sums) for name, sums in CASES.items()}
    text = page("intervals")
    for name, (low, high) in ends.items():
        assert re.search(rf"{name}( cases)?: {low} to {high} %", text), name
    assert (
        f"the interval would be {alone[0]} to {alone[1]} %. Over cases it is {clustered[0]} to {clustered[1]} %" in text
    )
    single, double = (rate_interval([(1.0, cells), (1.0 * cells - 1, cells)]) for cells in (1, 2))
    assert single is not None
    assert double is not None
    assert f"gives {100 * single.low:.0f} to {100 * single.high:.0f} %" in text
    assert f"wider: {100 * double.low:.0f} to {100 * double.high:.1f} %" in text
    numbers = [word for word in texts("intervals") if word.isdigit()]
    assert numbers == [end for pair in (*ends.values(), alone, clustered) for end in pair]


@pytest.mark.parametrize("correlation", [0, 0.3, 0.5, 0.8])
def test_intervals_over_cases_cover_and_those_over_outputs_do_not(correlation: float) -> None:
    random = np.random.default_rng(int(10 * correlation))
    runs = random.binomial(8, odds(0.8, correlation, (2000, 20), random)).tolist()
    alone = share_covered([(1.0, 1)] * sum(passed) + [(0.0, 1)] * (160 - sum(passed)) for passed in runs)
    clustered = share_covered([(float(count), 8) for count in passed] for passed in runs)
    (row,) = re.findall(rf"\| {correlation} \| (\d+) % \| (\d+) % \|", page("intervals"))
    # the page has the shares of these seeds; NumPy may draw others one day: three standard errors
    assert [float(value) for value in row] == pytest.approx([100 * alone, 100 * clustered], abs=3.3)


def share_covered(suites: Iterable[CaseSums]) -> float:
    intervals = [rate_interval(sums) for sums in suites]
    return sum(item is not None and item.low <= 0.8 <= item.high for item in intervals) / len(intervals)


def regressed(cases: int, broken: int) -> GateResult:
    """What the gate says of cases that all passed, of which some broke."""
    after = side(verdicts("P" * (cases - broken) + "F" * broken), "b")
    return decide(compare(side(verdicts("P" * cases)), after), parse_criteria(["regressed"]))[0]


def test_the_picture_of_gates_is_what_compare_decides() -> None:
    groups = ET.parse(DOCS / "images" / "gates.svg").iter(f"{SVG}g")
    drawn = {(int(g.attrib["data-cases"]), int(g.attrib["data-broken"])): g.attrib["class"].split()[1] for g in groups}
    assert drawn == {
        (cases, broken): regressed(cases, broken).state for cases in range(1, 13) for broken in range(cases + 1)
    }


def test_what_the_page_says_about_gates() -> None:
    text = page("gates")
    assert f"CANNOT TELL regressed {regressed(4, 4).message}" in text
    assert [regressed(200, broken).state for broken in (4, 5)] == ["passed", "failed"]
    (lost,) = re.findall(r"a drop below \d+ points can be missed", text)
    assert lost in regressed(12, 4).message
    row = next(
        row
        for row in gate_rates(parse_gate("pass_rate == 1"), 30, stated_noise(parse_detect(5, {}, []), None, 0)).rows
        if row.rate == 0.99
    )
    assert f"fails `pass_rate == 1` in {100 * row.fails[0]:.0f} % of runs with 30 cells" in text


JUDGED = """\
name: {judge}
judges:
  default: {{provider: recorded, path: {judge}.csv, fields: {{case: case, question: question, answer: answer}}}}
cases:
{cases}
models:
  - {{provider: mock, params: {{size: 64x64}}}}
graders:
  - key: look
    type: rubric
    metrics:
      {metric}: {{type: pass_fail, description: As it should be.}}
verdict:
{rules}
"""
LABELS = "labels:\n  questions: [{key: usable, type: yes_no, ask: Would you print it?, metric: usable}]\n"


def table(column: str, metric: str, answers: dict[str, bool]) -> str:
    rows = [
        f"{case},{'ana,' if column else ''}{metric},{'yes' if answer else 'no'}\n" for case, answer in answers.items()
    ]
    return f"case,{column}question,answer\n" + "".join(rows)


def test_two_judges_with_the_same_accuracy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of fifty outputs are bad; one judge says yes to all, the other finds six of them and rejects six good ones."""
    monkeypatch.chdir(tmp_path)
    ids = [f"p{at}" for at in range(50)]
    cases = "".join(f"  - {{id: {case}, prompt: A poster.}}\n" for case in ids)
    (tmp_path / "labels.csv").write_text(table("rater,", "usable", {case: at >= 10 for at, case in enumerate(ids)}))
    rows: dict[str, list[str]] = {"accuracy": [], "kappa": []}
    found = []
    for judge, noes in (("kind", []), ("careful", ids[:6] + ids[10:16])):
        suite = JUDGED.format(judge=judge, cases=cases, metric="usable", rules="  - usable\ngates: [pass_rate >= 0.5]")
        (tmp_path / f"{judge}.yaml").write_text(suite + LABELS)
        (tmp_path / f"{judge}.csv").write_text(table("", "usable", {case: case not in noes for case in ids}))
        assert "50 of 50 cells" in run("run", f"{judge}.yaml", "--run-id", judge)
        assert "labels added: 50" in run("label", "import", "labels.csv", judge)
        printed = run("agreement", judge)
        for measure, shown in rows.items():
            (numbers,) = re.findall(rf"^{measure} +([\d.]+ +\[[-\d., ]+\])", printed, re.MULTILINE)
            shown.append(" ".join(numbers.split()))
        (recall,) = re.findall(r"recall of FAIL +([\d.]+)", printed)
        found.append(f"{10 * float(recall):.0f} of 10")
        failed = CliRunner().invoke(app, ["agreement", judge, "--min", "usable:0.2"])
        assert failed.exit_code == 1
    text = page("judges")
    for measure, shown in rows.items():
        assert f"| {measure} | {shown[0]} | {shown[1]} |" in text
    assert f"(recall of FAIL) | {found[0]} | {found[1]} |" in text
    drawn = texts("judges")
    assert [word for word in drawn if word.endswith("of 10")] == found
    shown = [word for word in drawn if re.fullmatch(r"0\.\d\d", word)]
    assert [float(word) for word in shown] == pytest.approx(
        [float(rows[measure][at].split()[0]) for at in (0, 1) for measure in rows], abs=0.005
    )


def test_controls_tell_the_judges_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    right, wrong = ([f"{letter}{at}" for at in range(10)] for letter in "rw")
    cases = "".join(
        f"  - {{id: {r}, prompt: Two buns.}}\n  - {{id: {w}, prompt: Three buns., output_of: {r}, expect: {{aligned: false}}}}\n"
        for r, w in zip(right, wrong, strict=True)
    )
    rules = '  - {rule: matches, cases: ["r*"]}\n  - {rule: not matches, cases: ["w*"]}\ngates: [separation(matches) >= 0.5]'
    separations, areas = [], []
    for judge, noes in (("kind", []), ("careful", wrong[2:])):
        (tmp_path / f"{judge}.yaml").write_text(JUDGED.format(judge=judge, cases=cases, metric="matches", rules=rules))
        answers = {case: case not in noes for case in right + wrong}
        (tmp_path / f"{judge}.csv").write_text(table("", "matches", answers))
        printed = run("run", f"{judge}.yaml")
        assert ("All gates passed" in printed) is (judge == "careful")
        (separation,) = re.findall(r"separation\(matches\) >= 0.5 +all cells +([\d.]+ \[[-\d., ]+\])", printed)
        separations.append(separation)
        (area,) = re.findall(r"\] +([\d.]+) \[[\d., ]+\]$", printed, re.MULTILINE)
        areas.append(area)
    text = page("judges")
    assert f"| `separation(matches)` | {separations[0]} | {separations[1]} |" in text
    assert f"| AUROC | {areas[0]} | {areas[1]} |" in text
