"""Runs as JUnit XML for CI systems: one test suite per model run, one test case per cell. Comparisons: one per gate.

Valid against the schema of Jenkins' xUnit plugin (junit-10.xsd), which other readers accept too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.gates import GateResult, overall_state
from visioneval.analysis.summary.summary import in_order
from visioneval.records.model import Record, RunInfo
from visioneval.report.text import clean, one_line
from visioneval.types import Verdict

_INVALID_XML = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow."""


def junit_xml(runs: Iterable[tuple[Path, RunInfo, Sequence[Record]]]) -> str:
    """One document for all runs, each given with its folder."""
    root = ET.Element("testsuites", name="visioneval")
    for folder, info, records in runs:
        by_label: dict[str, list[Record]] = {str(entry.label): [] for entry in info.selected_suite.models}
        for record in in_order(info, records):
            by_label.setdefault(record.model_label, []).append(record)
        for label, label_records in by_label.items():
            _add_suite(root, folder, info, label, label_records)
    return _document(root)


def comparison_junit(comparison: Comparison, gates: Sequence[GateResult]) -> str:
    """A comparison: one test case per gate. A gate that cannot tell or was not measured is an error."""
    root = ET.Element("testsuites", name="visioneval")
    states = [gate.state for gate in gates]
    name = f"compare: {comparison.a.name}, {comparison.b.name}"
    is_incomplete = overall_state(comparison, gates) == "incomplete"
    suite = ET.SubElement(
        root,
        "testsuite",
        name=_text(name),
        tests=str(len(gates) + is_incomplete),
        failures=str(states.count("failed")),
        errors=str(states.count("unmeasured") + states.count("cannot_tell") + is_incomplete),
        skipped=str(states.count("not_applicable")),
    )
    for gate in gates:
        case = ET.SubElement(suite, "testcase", name=_text(gate.fail_on.text), classname=_text(name))
        if gate.state == "not_applicable":
            ET.SubElement(case, "skipped", message=_text(gate.message))
        elif gate.state != "passed":
            tag = "failure" if gate.state == "failed" else "error"
            ET.SubElement(case, tag, message=_text(gate.message), type=gate.state)
    if is_incomplete:
        case = ET.SubElement(suite, "testcase", name="complete", classname=_text(name))
        ET.SubElement(case, "error", message=_text(f"B is {comparison.b.state}"), type="incomplete")
    return _document(root)


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
        message = "; ".join(record.failed_rules) or ", ".join(record.failure_tags)
        ET.SubElement(case, "failure", message=_text(message), type="FAIL").text = _text(_failure_details(record))
    elif record.verdict is Verdict.ERROR:
        error = record.error
        kind = f"{error.stage}/{error.kind}" if error else "unknown"
        ET.SubElement(case, "error", message=_text(one_line(error.message) if error else kind), type=kind)
    elif record.verdict is Verdict.NONE:
        ET.SubElement(case, "skipped", message="the suite has no rules")
    if record.artifact_path:
        path = (folder / record.artifact_path).as_posix()
        ET.SubElement(case, "system-out").text = _text(f"[[ATTACHMENT|{path}]]")


def _failure_details(record: Record) -> str:
    lines = [f"{metric}: {reason}" for metric, reason in record.reasons.items() if reason]
    if record.failure_tags:
        lines.append(f"failure tags: {', '.join(record.failure_tags)}")
    return "\n".join(lines)


def _text(text: str) -> str:
    return _INVALID_XML.sub("\ufffd", clean(text))
