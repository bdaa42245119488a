"""Markdown: text of a model is no markup, link or mention, and does not break a table."""

from __future__ import annotations

import pytest
from record_factory import record, run_of
from tables import rows_of

from visioneval.analysis.summary.summary import summarize
from visioneval.report.markdown import code, report_markdown
from visioneval.report.run import run_report

rows = rows_of(__file__)


@pytest.mark.parametrize(("text", "shown"), rows("code_spans"))
def test_code_spans(text: str, shown: str) -> None:
    assert code(text) == shown


def test_a_run() -> None:
    info = run_of({"one": {}, "two": {}}, ["m|x"], [], {"fine": {"type": "bool"}})
    cells = [
        record(model_label="m|x", scores={"fine": True}),
        record(test_id="two", model_label="m|x", verdict="FAIL", failed_rules=("fine",), scores={"fine": False}),
    ]
    text = report_markdown(run_report(summarize(info, cells).model_copy(update={"suite": "@all <b>"})))
    assert text.startswith(
        "## visioneval: `@all <b>`: 1 of 3 gates failed\n\n2 of 2 cells, 1 PASS, **1 FAIL**, 0 ERROR"
    )
    assert "| **FAILED** | `pass_rate == 1` | all cells | 0.5 [0.09, 0.91] | 2 | 7 of 10 runs |" in text
    errors = [cells[0], record(test_id="two", model_label="m|x", verdict="ERROR")]
    text_of_errors = report_markdown(run_report(summarize(info, errors)))
    assert "| `pass_rate == 1` | all cells | 1 [0.21, 1.00] | 1 !1 |" in text_of_errors
    assert "| `error_rate == 0` | all cells | 0.5 [0.09, 0.91] | 2 |" in text_of_errors
    assert "| `m\\|x` | 50 % [9.5, 90.5] n=2 | **1** | 0 |" in text
    assert "| metric | `m\\|x` |\n| --- | ---: |\n| `fine` | 50 % [9.5, 90.5] (2) |" in text
    assert "| **1** | `fine` | `m\\|x` | `two` |  |" in text
