"""Runs as JUnit XML for CI systems: a test suite per model run, with a test case per cell, and one with a test case per
gate. Comparisons: a test case per gate.

Valid against the schema of Jenkins' xUnit plugin (junit-10.xsd), which other readers accept too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as ET

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.gates import GateResult, overall_state
from visioneval.analysis.redaction import REDACTED
from visioneval.analysis.summary.gates import GateFinding
from visioneval.analysis.summary.summary import Summary, in_order
from visioneval.errors import ExitCode
from visioneval.records.model import Record, RunInfo
from visioneval.report.differences import notes
from visioneval.report.outcome import outcome
from visioneval.report.text import bound_note, clean, failed_text, gate_missing, gate_value, one_line
from visioneval.types import Verdict

_INVALID_XML = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow."""
_NO_RULES = "the suite has no rules"
_SKIPPED = {"skipped": "nothing in its scope was run", "deferred": "evaluated after merging"}


_Result = Literal["passed", "failure", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class _GateCase:
    """A gate, or whether a run is complete: how it ended, and why if it did not pass."""

    name: str
    result: _Result
    message: str = ""
    kind: str = ""


def junit_xml(runs: Iterable[tuple[Path, RunInfo, Sequence[Record], Summary]]) -> str:
    """One document for all runs, each given with its folder: its cells, then its gates."""
    root = ET.Element("testsuites", name="visioneval")
    for folder, info, records, summary in runs:
        by_label: dict[str, list[Record]] = {str(entry.label): [] for entry in info.selected_suite.models}
        for record in in_order(info, records):
            by_label.setdefault(record.model_label, []).append(record)
        for label, label_records in by_label.items():
            _add_suite(root, folder, info, label, label_records)
        cases = [_run_gate(gate, has_rules=not summary.counts.without_verdict) for gate in summary.gates]
        if summary.exit_code > ExitCode.GATE_FAILED and all(case.result != "error" for case in cases):
            cases.append(_GateCase("complete", "error", outcome(summary)[1], "incomplete"))
        _add_gates(root, f"gates: {info.suite.name}", cases)
    return _document(root)


def _run_gate(gate: GateFinding, *, has_rules: bool) -> _GateCase:
    name = f"{gate.rule} ({gate.scope})" if gate.scope else gate.rule
    if gate.state == "passed":
        return _GateCase(name, "passed")
    if gate.state in _SKIPPED:
        return _GateCase(name, "skipped", _SKIPPED[gate.state] if has_rules else _NO_RULES)
    value = ", ".join(filter(None, (gate_value(gate), f"n={gate.n}", gate_missing(gate)[1])))
    message = ": ".join(filter(None, (value, bound_note(gate) or gate.note)))
    return _GateCase(name, "error" if gate.is_incomplete else "failure", message, gate.state)


def comparison_junit(
    comparison: Comparison, gates: Sequence[GateResult], confirmation_notes: Sequence[str] = ()
) -> str:
    """A comparison: one test case per gate, and the notes. A gate that cannot tell or was not measured is an error."""
    root = ET.Element("testsuites", name="visioneval")
    results: dict[str, _Result] = {"passed": "passed", "failed": "failure", "not_applicable": "skipped"}
    cases = [_GateCase(gate.fail_on.text, results.get(gate.state, "error"), gate.message, gate.state) for gate in gates]
    if overall_state(comparison, gates) == "incomplete":
        cases.append(_GateCase("complete", "error", f"B is {comparison.b.state}", "incomplete"))
    suite = _add_gates(root, f"compare: {comparison.a.name}, {comparison.b.name}", cases)
    if lines := [*notes(comparison), *confirmation_notes]:
        ET.SubElement(suite, "system-out").text = _text("\n".join(lines))
    return _document(root)


def _add_gates(root: ET.Element, name: str, cases: Sequence[_GateCase]) -> ET.Element:
    results = [case.result for case in cases]
    suite = ET.SubElement(
        root,
        "testsuite",
        name=_text(name),
        tests=str(len(cases)),
        failures=str(results.count("failure")),
        errors=str(results.count("error")),
        skipped=str(results.count("skipped")),
    )
    for case in cases:
        element = ET.SubElement(suite, "testcase", name=_text(case.name), classname=_text(name))
        if case.result != "passed":
            result = ET.SubElement(element, case.result, message=_text(case.message))
            if case.result != "skipped":
                result.set("type", case.kind)
    return suite


def _document(root: ET.Element) -> str:
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add_suite(root: ET.Element, folder: Path, info: RunInfo, label: str, records: Sequence[Record]) -> None:
    verdicts = [record.verdict for record in records]
    suite = ET.SubElement(
        root,
        "testsuite",
        name=_text(f"{info.suite.name}: {label}"),
        tests=str(len(records)),
        failures=str(verdicts.count(Verdict.FAIL)),
        errors=str(verdicts.count(Verdict.ERROR)),
        time=f"{sum(record.seconds for record in records):.3f}",
        timestamp=info.started_at[:19],
    )
    if unjudged := verdicts.count(Verdict.NONE):
        suite.set("skipped", str(unjudged))
    for record in records:
        _add_case(suite, folder, info.suite.name, record)


def _add_case(suite: ET.Element, folder: Path, name: str, record: Record) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        name=_text(f"{record.test_id} [{record.sample_index}]"),
        classname=_text(f"{name}.{record.model_label}"),
        time=f"{record.seconds:.3f}",
    )
    if record.verdict is Verdict.FAIL:
        tags = ", ".join(record.failure_tags)
        message = "; ".join(failed_text(rule, record.scores) for rule in record.failed_rules) or tags
        details = [f"{metric}: {reason}" for metric, reason in record.reasons.items() if reason]
        text = "\n".join([*details, *([f"failure tags: {tags}"] if tags else [])])
        ET.SubElement(case, "failure", message=_text(message), type="FAIL").text = _text(text)
    elif record.verdict is Verdict.ERROR:
        error = record.error
        kind = f"{error.stage}/{error.kind}" if error else "unknown"
        ET.SubElement(case, "error", message=_text(one_line(error.message) if error else kind), type=kind)
    elif record.verdict is Verdict.NONE:
        ET.SubElement(case, "skipped", message=_NO_RULES)
    if record.artifact_path not in (None, REDACTED):
        path = (folder / record.artifact_path).as_posix()
        ET.SubElement(case, "system-out").text = _text(f"[[ATTACHMENT|{path}]]")


def _text(text: str) -> str:
    return _INVALID_XML.sub("\ufffd", clean(text))
