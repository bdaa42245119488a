"""JUnit XML: the reported cells, and validity under the common schema."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from compare_factory import side, verdicts
from record_factory import UNMEASURED, record, run_of
from toys import Toy, at

from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.gates import check_gates, parse_fail_on
from visioneval.analysis.summary.summary import summarize
from visioneval.report.junit import comparison_junit, junit_xml

# What junit-10.xsd of Jenkins' xUnit plugin allows: attributes (the required ones first) and children of each element.
SCHEMA: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": (
        {"name"},
        {"time", "classname", "group"},
        {"skipped", "error", "failure", "rerunFailure", "rerunError", "flakyFailure", "flakyError", "system-out",
         "system-err"},
    ),
    "failure": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
    "skipped": (set(), {"type", "message"}, set()),
    "system-out": (set(), set(), set()),
}  # fmt: skip
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")


def check_schema(element: ET.Element) -> None:
    """Raises AssertionError where an element breaks the schema."""
    required, optional, children = SCHEMA[element.tag]
    assert required <= set(element.attrib) <= required | optional, element.attrib
    assert TIME.fullmatch(element.get("time", "0"))
    if children:
        assert not (element.text or "").strip()
    for child in element:
        assert child.tag in children, f"{child.tag} in {element.tag}"
        assert not (child.tail or "").strip()
        check_schema(child)


def junit_of(*records: Any, labels: tuple[str, ...] = ("m",)) -> ET.Element:
    """The suites of cells."""
    info = run_of({"one": {}, "two": {}}, list(labels), [], {"fine": {"type": "bool"}})
    root = ET.fromstring(junit_xml([(Path("runs/r"), info, records, summarize(info, records))]))
    check_schema(root)
    root.remove(root[-1])
    return root


def test_a_suite_per_model_run_and_a_case_per_cell() -> None:
    root = junit_of(
        record(model_label="new", test_id="two", seconds=1234.5),
        record(model_label="old", sample_index=1),
        record(model_label="old", verdict="FAIL", failed_rules=("fine", "level >= 3")),
        labels=("old", "new"),
    )
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in root] == [
        ("demo: old", "2", "1", "0"),
        ("demo: new", "1", "0", "0"),
    ]
    assert [(case.get("classname"), case.get("name")) for case in root.iter("testcase")] == [
        ("demo.old", "one [0]"),
        ("demo.old", "one [1]"),
        ("demo.new", "two [0]"),
    ]


def test_failed_rules_are_the_message_and_the_image_is_attached() -> None:
    cell = record(
        verdict="FAIL",
        failed_rules=("fine", "level >= 3"),
        scores={"fine": False, "level": 2},
        reasons={"fine": "two lines are gone"},
        failure_tags=("ill",),
        artifact_path="artifacts/one/m/0.png",
    )
    (case,) = junit_of(cell).iter("testcase")
    failure = case.find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type")) == ("fine; level 2 < 3", "FAIL")
    assert failure.text == "fine: two lines are gone\nfailure tags: ill"
    assert case.findtext("system-out") == "[[ATTACHMENT|runs/r/artifacts/one/m/0.png]]"


def test_refusal_is_a_failure() -> None:
    cell = record(verdict="FAIL", status="refused", failure_tags=("refused",), reasons={"refused": "no people"})
    (failure,) = junit_of(cell).iter("failure")
    assert (failure.get("message"), failure.text) == ("refused", "refused: no people\nfailure tags: refused")


def test_an_error_is_an_error() -> None:
    root = junit_of(record(verdict="ERROR", status="error", error=UNMEASURED))
    (error,) = root.iter("error")
    assert (error.get("type"), error.get("message")) == ("grade/unmeasured", "too dark")
    assert next(root.iter("testsuite")).get("errors") == "1"
    assert list(root.iter("failure")) == []


@pytest.mark.parametrize("text", ['<b> & "q"', "\x00\x1b[2J", "a\ufffeb\uffff", "]]> <!--"])
def test_any_judge_text_is_valid_xml(text: str) -> None:
    root = junit_of(record(verdict="FAIL", failed_rules=("fine",), reasons={"fine": text}))
    assert root.findtext(".//failure", "").startswith("fine: ")


def test_run_writes_one_report_for_all_suites(toy: Toy) -> None:
    good, bad = (
        toy.write({}, name="good.yaml"),
        toy.write({"metadata": {"look": "bad"}}, {"metadata": {"generate": "raises"}}),
    )
    result = toy("run", good, bad, "--trust-suite", "--junit", "out/all.xml", "--markdown", "out/all.md")
    assert result.exit_code == 3
    root = ET.parse(toy.folder / "out" / "all.xml").getroot()
    check_schema(root)
    assert [suite.get("name") for suite in root] == ["toy: toy", "gates: toy"] * 2
    assert [suite.get("tests") for suite in root] == ["1", "3", "2", "3"]
    assert [error.get("message") for error in root[2].iter("error")] == [
        f"RuntimeError: the model is on fire {at('the model is on fire')}"
    ]
    text = (toy.folder / "out" / "all.md").read_text()
    assert text.count("## visioneval: `toy`") == 2
    assert "| **1** | `fine` | `toy` | `case0` | `all is ill` |" in text
    example = f"`RuntimeError: the model is on fire {at('the model is on fire')}`"
    assert f"| **1** | `generate, internal` | `toy` | `case1` | {example} |" in text


FINE, BAD, ERROR = {}, {"metadata": {"look": "bad"}}, {"metadata": {"look": "raises"}}  # type: ignore[var-annotated]
RATE, LEVEL = "pass_rate >= 0.5", "mean(level) >= 0.4"
IMPLIED = {"unmeasured_rate == 0": ("", ""), "error_rate == 0": ("", "")}
UNMEASURED_RESULT = dict.fromkeys(IMPLIED, ("error", "failed"))
BOUND = {"rule": RATE, "decide": "bound"}


@pytest.mark.parametrize(
    ("cases", "gates", "flags", "code", "results"),
    [
        ([FINE, FINE], [RATE, LEVEL], (), 0, {RATE: ("", ""), LEVEL: ("", "")}),
        ([BAD, BAD], [RATE, LEVEL], (), 1, {RATE: ("failure", "failed"), LEVEL: ("failure", "failed")}),
        ([BAD, BAD], [{"rule": RATE, "models": ["t*"]}], (), 1, {f"{RATE} (models: t*)": ("failure", "failed")}),
        ([FINE, BAD], [BOUND], (), 3, {f"{RATE} (decide: bound)": ("error", "cannot_tell")}),
        ([FINE, ERROR], [RATE], (), 3, {RATE: ("error", "unmeasured"), **UNMEASURED_RESULT}),
        ([ERROR, ERROR], [LEVEL], (), 3, {LEVEL: ("error", "unmeasured"), **UNMEASURED_RESULT}),
        (
            [FINE, {**FINE, "tags": ["x"]}],
            [RATE, {"rule": LEVEL, "tags": ["x"]}],
            ("--case", "case0"),
            0,
            {RATE: ("", ""), f"{LEVEL} (tags: x)": ("skipped", "")},
        ),
        (
            [FINE, {**FINE, "tags": ["x"]}],
            [{"rule": LEVEL, "tags": ["x"]}],
            ("--case", "case0"),
            3,
            {f"{LEVEL} (tags: x)": ("skipped", ""), "complete": ("error", "incomplete")},
        ),
        ([FINE, BAD], [RATE], ("--shard", "1/2"), 0, dict.fromkeys((RATE, *IMPLIED), ("skipped", ""))),
    ],
    ids=["passed", "failed", "scope", "cannot tell", "unmeasured", "no value", "skipped", "all skipped", "shard"],
)
def test_a_run_has_a_case_per_gate(
    toy: Toy, cases: list[Any], gates: list[Any], flags: tuple[str, ...], code: int, results: dict[str, tuple[str, str]]
) -> None:
    result = toy("run", toy.write(*cases, gates=gates), "--trust-suite", "--junit", "x.xml", *flags)
    assert result.exit_code == code, result.output
    root = ET.parse(toy.folder / "x.xml").getroot()
    check_schema(root)
    suite = root[-1]
    assert suite.get("name") == "gates: toy"
    found = {case.get("name"): (case[0].tag, case[0].get("type", "")) if len(case) else ("", "") for case in suite}
    assert found == {**IMPLIED, **results}
    assert all(element.get("message") for case in suite for element in case)
    counts = [sum(kind == tag for kind, _ in found.values()) for tag in ("failure", "error", "skipped")]
    assert [suite.get(name) for name in ("failures", "errors", "skipped")] == list(map(str, counts))
    assert bool(counts[0] + counts[1]) is (code != 0), "a reader of the file alone sees each exit code that is not 0"


def test_a_dry_run_writes_no_report(toy: Toy) -> None:
    result = toy("run", toy.write({}), "--trust-suite", "--dry-run", "--junit", "x.xml")
    assert (result.exit_code, "--junit" in result.stderr) == (2, True)


def test_unwritable_report_stops_before_generation(toy: Toy) -> None:
    result = toy("run", toy.write({}), "--trust-suite", "--junit", "x.xml", "--markdown", ".")
    assert (result.exit_code, ".: cannot write" in result.stderr) == (2, True)
    assert not (toy.folder / "runs").exists()
    assert not (toy.folder / "x.xml").exists()


@pytest.mark.parametrize(
    ("after", "state", "results"),
    [
        ("PPP", "complete", {"must_pass": None, "broken": None}),
        ("PPF", "complete", {"must_pass": "failure", "broken": "failure"}),
        ("PP!", "complete", {"must_pass": "error", "broken": "error"}),
        ("PPP", "interrupted", {"must_pass": None, "broken": None, "complete": "error"}),
    ],
)
def test_a_comparison_has_a_case_per_gate(after: str, state: str, results: dict[str, str | None]) -> None:
    a, b = (side(verdicts(letters, tags=("must_pass",)), name) for letters, name in (("PPP", "a"), (after, "b\0")))
    compared = compare(a, replace(b, state=state))
    root = ET.fromstring(comparison_junit(compared, check_gates(compared, parse_fail_on(["must_pass", "broken"]))))
    check_schema(root)
    (suite,) = root
    assert {case.get("name"): case[0].tag if len(case) else None for case in suite.iter("testcase")} == results
    counts = [str(list(results.values()).count(kind)) for kind in ("failure", "error")]
    assert [suite.get("tests"), suite.get("failures"), suite.get("errors")] == [str(len(results)), *counts]
    messages = [element.get("message") or "" for element in suite.iter("failure")]
    assert any("c2 (failed 1 of 1)" in message for message in messages) is (after == "PPF")


def test_a_comparison_has_its_notes_in_junit_and_in_json(toy: Toy) -> None:
    """Those that the terminal prints, with escape sequences of names replaced, and none where there are none."""
    for name in ("a", "b"):
        assert toy("run", toy.write({"id": "x"}), "--trust-suite", "--run-id", name).exit_code == 0
    (toy.folder / "runs" / "b" / "confirmations.jsonl").write_text("{}\n")
    same = "A and B are the same run: this compares it with itself"
    unused = "B has new samples from an earlier --confirm: not used here"
    for a, b, expected in (("a", "a", [same]), ("a", "b", [unused]), ("b", "b", [same, unused]), ("b", "a", [])):
        result = toy("compare", a, b, "--json", "--junit", "notes.xml")
        assert json.loads(result.stdout)["notes"] == expected
        root = ET.parse(toy.folder / "notes.xml").getroot()
        check_schema(root)
        assert [item.text for item in root.iter("system-out")] == (["\n".join(expected)] if expected else [])
        printed = " ".join(toy("compare", a, b).stdout.split())
        assert [text for text in (same, unused) if text in printed] == expected
    moved = side(verdicts("PP"), "a"), side(verdicts("PP"), "b")
    compared = compare(*(replace(item, suite=name) for item, name in zip(moved, ("one", "t\x1b[2Jwo"), strict=True)))
    (note,) = ET.fromstring(comparison_junit(compared, ())).iter("system-out")
    assert note.text == "A is of the suite one, B of the suite t\ufffd[2Jwo"
