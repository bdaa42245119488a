"""Printed output, at every width, in a pipe, and with hostile text of a model or a suite."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_factory import UNMEASURED, record, run_of
from rich.cells import cell_len
from rich.console import Console

from visioneval import Fingerprint, GraderRecord, Record, Summary
from visioneval.analysis.summary.gates import GateFinding
from visioneval.analysis.summary.summary import summarize
from visioneval.cli.results import last_lines
from visioneval.report.cell import print_case
from visioneval.report.html.overview import worst_failures
from visioneval.report.outcome import error_note, failing_cells, failure_examples, outcome, worst_first
from visioneval.report.run import run_report
from visioneval.report.sections import Column, Outcome, Value
from visioneval.report.terminal import outcome_line, print_report, print_sections, table
from visioneval.report.text import clean, one_line, show_usd

METRICS: dict[str, Any] = {
    "fine": {"type": "bool"},
    "text.cer": {"type": "number", "range": [0, None], "better": "lower"},
    "a_metric_with_quite_a_long_name": {"type": "number"},
}
HOSTILE = (
    "a\x1b[31mred\x1b]0;title\x07 [bold]b[/bold] [link=x]\r\n\u202eevil\u2066 \x9b2J \u2028 \u200f\ufeff\u0000 木🌳"
)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\u200e\u200f\ufeff]")


def rendered(width: int, *, terminal: bool = False, **options: Any) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, highlight=False, markup=False, **options)
    return console, out


def summary_of(models: int, label: str = "model,size=1024x1024,q={}", reason: str = "it is not") -> Summary:
    labels = [label.format(at) for at in range(models)]
    cases = {"flyer": {"tags": ["text"]}, "checkout_screen": {"tags": ["text", "screen"]}, "sign": {}}
    gates: list[Any] = ["pass_rate >= 0.9", {"rule": "mean(text.cer) <= 0.1", "models": [labels[0]]}]
    info = run_of(cases, labels, gates, METRICS)
    return summarize(info, [cell for label in labels for cell in cells_of(label, reason)])


def cells_of(label: str, reason: str) -> list[Record]:
    scores: dict[str, Any] = {"fine": False, "text.cer": 0.123456, "a_metric_with_quite_a_long_name": 1234567.0}
    return [
        record(
            test_id="flyer",
            model_label=label,
            verdict="FAIL",
            failed_rules=["fine"],
            reasons={"fine": reason},
            failure_tags=["blurred"],
            scores=scores,
            cost_usd=0.1234,
            seconds=12.345,
            tags=["text"],
        ),
        record(
            test_id="checkout_screen",
            model_label=label,
            verdict="ERROR",
            error=UNMEASURED,
            scores={"fine": None},
            warned_rules=["text.cer <= 0.05"],
            tags=["text", "screen"],
        ),
        record(test_id="sign", model_label=label, scores={**scores, "fine": True}),
    ]


def printed(summary: Summary, width: int, **options: Any) -> str:
    console, out = rendered(width, **options)
    print_report(run_report(summary), console, is_full=True)
    return out.getvalue()


LONG = "a long label of " + "x" * 150 + "{}"


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize(
    ("models", "label"), [(1, "m{}"), (8, "model,size=1024x1024,q={}"), (8, LONG), (40, "m{}"), (40, LONG)]
)
def test_no_line_is_too_long_and_no_number_is_cut(width: int, models: int, label: str) -> None:
    text = printed(summary_of(models, label), width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "\u2026" not in text
    assert text.count("50 % [9.5, 90.5] n=2") >= models
    assert text.count("0.123 (2)") == models
    assert text.count("1.23e+06 (2)") == models
    assert text.count("50 % [9.5, 90.5] (2) !1") == models
    assert text.count("0.1234") >= models
    folded = re.sub(r"\s+", "", text)
    for number in range(models):
        assert label.format(number) in folded or folded.count("x") >= models * label.count("x")
    for fact in ("FAILED", "blurred", "text.cer<=0.05", "checkout_screen", "toodark", "mean(text.cer)"):
        assert fact in folded


def test_the_headline_wraps_between_its_parts_and_cuts_only_a_name_that_is_longer_than_a_line() -> None:
    for name, first in (
        ("s" * 30, "s" * 30 + "  6 of 6 cells  2 PASS  2 FAIL  2 ERROR  run r"),
        ("s" * 200, "s" * 79 + "\u2026"),
    ):
        text = printed(summary_of(2, "m{}").model_copy(update={"suite": name}), 80)
        assert text.splitlines()[0].rstrip() == first
    changes = {"state": "interrupted", "reused_outputs": 3, "reused_since": "2025-01-01T10:00:00"}
    text = printed(summary_of(2, "m{}").model_copy(update=changes), 80)
    assert [line.rstrip() for line in text.splitlines()[:2]] == [
        "demo  6 of 6 cells  2 PASS  2 FAIL  2 ERROR  interrupted",
        "3 images from the cache, oldest from 2025-01-01 10:00 UTC  run r",
    ]


@pytest.mark.parametrize("width", range(20, 70))
def test_the_exit_code_is_on_one_line(width: int) -> None:
    text = outcome_line(Outcome("fail", "Incomplete: 3 cells ended in an error; 3 of 11 gates failed", 3), width).plain
    assert "(exit code 3)" in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    ("known", "unknown", "expected"),
    [(0.012, 0, "0.0120"), (0.012, 3, ">= 0.0120"), (0.0, 3, "unknown"), (None, 3, "unknown"), (0.0, 0, "0.0000"),
     (None, 0, "-")],
)  # fmt: skip
def test_incomplete_costs_are_marked(known: float | None, unknown: int, expected: str) -> None:
    assert show_usd(known, unknown) == expected


def test_a_long_case_id_is_broken_between_its_parts() -> None:
    name = "summer-sale-hero-banner-with-two-lines-of-copy-and-a-button"
    failed = record(
        test_id=name, verdict="FAIL", failed_rules=["fine"], reasons={"fine": "the image is 1024x1024, expected 10x10"}
    )
    lines = printed(summarize(run_of({name: {}}, ["m"], [], METRICS), [failed]), 80).splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("    1  fine"))
    parts = [line[lines[first].index("summer") :].split("  ")[0].strip() for line in lines[first : first + 4]]
    assert parts == ["summer-sale-hero-banner-", "with-two-lines-of-copy-", "and-a-button", ""]


def test_color_is_never_the_only_information() -> None:
    summary = summary_of(3)
    coloured = printed(summary, 80, terminal=True, color_system="standard")
    assert "\x1b[31m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == printed(summary, 80)


def test_respects_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(summary_of(1), 80, terminal=True)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", text)


@pytest.mark.parametrize("width", [40, 80])
def test_hostile_text_is_printed_as_text(width: int) -> None:
    label, case = HOSTILE.replace("\n", " "), "a"
    info = run_of({case: {"criteria": HOSTILE, "region": HOSTILE}}, ["m"], [], METRICS)
    hostile = record(
        test_id=case,
        model_label=label,
        prompt=HOSTILE,
        verdict="FAIL",
        failed_rules=["fine"],
        reasons={"fine": HOSTILE},
        failure_tags=[HOSTILE],
        warned_rules=["fine"],
        tags=[HOSTILE],
        run_params={HOSTILE: HOSTILE},
        scores={"fine": False},
        error={"stage": "grade", "kind": "k", "message": HOSTILE},
        graders=[
            GraderRecord(
                key="look",
                type=HOSTILE,
                error=HOSTILE,
                details={HOSTILE: [{HOSTILE: HOSTILE}]},
                fingerprint=Fingerprint(config_sha256=""),
            )
        ],
    )
    for terminal in (False, True):
        console, out = rendered(width, terminal=terminal, color_system=None)
        print_report(run_report(summarize(info, [hostile])), console)
        print_case([hostile], info, folder(), console)
        text = out.getvalue()
        assert not CONTROL.search(text)
        assert "[bold]b[/bold]" in re.sub(r"\s+", "", text).replace("\ufffd", "")
        assert "木🌳" in text
        assert max(map(cell_len, text.splitlines())) <= width
    summary = summarize(info, [hostile])
    assert not CONTROL.search("".join(last_lines(folder(), summary, folder())))


def folder() -> Any:
    from pathlib import Path

    return Path("runs")


@given(st.text(max_size=80))
def test_cleaned_text_moves_no_cursor(text: str) -> None:
    assert not CONTROL.search(clean(text).replace("\n", "").replace("\t", ""))
    assert "\n" not in one_line(text)
    assert clean(clean(text)) == clean(text)


@pytest.mark.parametrize(
    "text", ["Größe", "木", "👨\u200d👩\u200d👧", "क\u094d\u200cष", "a\tb\nc", "e\u0301", "🏳\ufe0f"]
)
def test_normal_text_is_unchanged(text: str) -> None:
    assert clean(text) == text


def test_long_reason_is_truncated_in_the_summary_only() -> None:
    reason = "very " * 200 + "blurred"
    summary = summary_of(1, reason=reason)
    assert printed(summary, 80).count("very") < 50
    console, out = rendered(80)
    print_case(cells_of("m", reason)[:1], run_of({"c": {}}, ["m"], [], METRICS), folder(), console)
    assert out.getvalue().count("very") == 200
    assert "blurred" in out.getvalue()


def test_shows_sample_numbers_for_several_samples() -> None:
    cells = [record(test_id="c", sample_index=at, verdict="FAIL", failed_rules=["fine"]) for at in (0, 3)]
    text = printed(summarize(run_of({"c": {}}, ["m"], [], METRICS), cells), 80)
    assert "c [0]" in text
    assert "c [3]" in text


def test_marks_mock_runs_and_interrupted_runs() -> None:
    info = run_of({"c": {}}, ["m"], [], METRICS, state="interrupted", planned_cells=9)
    mock = info.suite.models[0].model_validate({"provider": "mine:Generate", "label": "m"})
    assert "stand-in" not in printed(summarize(info, []), 80)
    from visioneval.providers.mock import MockProvider

    generated = MockProvider.model_validate({"provider": "mock", "label": "m"})
    stand_in = info.model_copy(update={"suite": info.suite.model_copy(update={"models": (generated, mock)})})
    complete = stand_in.model_copy(update={"state": "complete"})
    assert "which is not a model" in printed(summarize(complete, []), 80)
    text = printed(summarize(stand_in, []), 80)
    assert "0 of 9 cells" in text
    assert "interrupted" in text
    assert "metric" not in text, "a run without a cell has no tables"


def test_grader_details_hide_coordinates() -> None:
    details: dict[str, Any] = {
        "extract": "ocr",
        "lines": [
            {"text": "SNOW", "confidence": 0.98765, "box": [[1, 2], [3, 4]], "counted": True},
            {"text": "T·", "confidence": 0.4, "box": [[1, 2], [3, 4]], "counted": False},
        ],
        "found": [
            {"line": "SNOW", "read": "SNOW", "readings": [0]},
            {"line": "PLANE", "read": "PIANE", "readings": [1]},
        ],
        "missing": [],
        "nothing": None,
        "polygon": [[1, 2], [3, 4]],
        "limits": {"max_changed": 0.01, "none": None},
        "exact": False,
    }
    grader = GraderRecord(key="copy", type="text", details=details, fingerprint=Fingerprint(config_sha256=""))
    console, out = rendered(80)
    print_case([record(graders=[grader])], run_of({"c": {}}, ["m"], [], METRICS), folder(), console)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines[lines.index("copy (text)") :] == [
        "copy (text)",
        "extract  ocr",
        "lines    SNOW  (confidence 0.9877, counted)",
        "         T·  (confidence 0.4, not counted)",
        "found    SNOW",
        "         PLANE  (read PIANE)",
        "limits   max changed: 0.01",
        "exact    no",
    ]


def test_reason_of_a_grader_is_shown_under_its_key() -> None:
    grader = GraderRecord(key="look", type="own:Look", fingerprint=Fingerprint(config_sha256=""))
    console, out = rendered(80)
    print_case(
        [record(graders=[grader], scores={"fine": True}, reasons={"look": "all is well"})],
        run_of({"c": {}}, ["m"], [], METRICS),
        folder(),
        console,
    )
    assert re.search(r"fine\s+yes\s*\n", out.getvalue())
    assert re.search(r"look\s+all is well", out.getvalue())


cells = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)


@given(st.lists(st.tuples(cells, cells, st.integers(0, 10**9)), min_size=1, max_size=4), st.integers(24, 120))
def test_a_table_never_cuts_a_number(rows: list[tuple[str, str, int]], width: int) -> None:
    columns = (Column("name", min_width=6), Column("why", min_width=6), Column("n", is_number=True))
    console, out = rendered(width)
    console.print(table(columns, [(name, text, str(number)) for name, text, number in rows], width))
    assert max(map(cell_len, out.getvalue().splitlines())) <= width
    for _, _, number in rows:
        assert re.search(rf"\b{number}\b", out.getvalue())


def failing_summary(reasons: list[str], **changes: Any) -> Summary:
    """A run of two model runs in which one cell failed for each reason, on the first model run but for the last."""
    cases = {f"case{at}": {} for at in range(len(reasons))}
    cells = [
        record(
            test_id=f"case{at}",
            model_label="b" if at == len(reasons) - 1 else "a",
            verdict="FAIL",
            failed_rules=[reason.split(":")[0]],
            reasons={reason.split(":")[0]: reason.split(":")[1]},
            scores={reason.split(":")[0]: False},
        )
        for at, reason in enumerate(reasons)
    ]
    metrics = {reason.split(":")[0]: {"type": "bool"} for reason in reasons}
    return summarize(run_of(cases, ["a", "b"], [], metrics), cells).model_copy(update=changes)


def test_failures_are_counted_by_reason_and_their_examples_differ() -> None:
    text = printed(failing_summary(["copy:typo", "copy:typo", "copy:missing", "mask:spill", "copy:typo"]), 80)
    rows = [line.split() for line in text.splitlines() if line.strip()]
    start = next(at for at, row in enumerate(rows) if row[:2] == ["cells", "reason"])
    assert rows[start + 2 : start + 5] == [
        ["4", "copy", "1", "case0", "typo"],
        ["1", "case2", "missing"],
        ["2", "case4", "typo"],
    ]
    assert rows[start + 6] == ["1", "mask", "1", "case3", "spill"]


@pytest.mark.parametrize(("names", "shown"), [(("s/1", "s/2"), ["s/1", "s/2"]), (("s", "t"), ["t", "s"])])
def test_turns_are_in_order_also_where_a_later_one_says_more(names: tuple[str, str], shown: list[str]) -> None:
    summary = failing_summary(["copy:typo", "copy:typo", "copy:missing", "copy:typo"])
    first, early, late, last = summary.failing
    early, late = (cell.model_copy(update={"test_id": name}) for cell, name in zip((early, late), names, strict=True))
    late = late.model_copy(update={"failed_rules": ("copy", "mask")})
    summary = summary.model_copy(update={"failing": (first, early, late, last)})
    examples = failure_examples(summary, 10)["copy"]
    assert [cell.test_id for cell, _ in examples if cell.test_id in names] == shown
    assert [cell.test_id for cell in worst_first(summary) if cell.test_id in names] == shown


@pytest.mark.parametrize("reasons", [1, 9, 30])
def test_at_most_ten_examples_are_shown_and_rare_reasons_get_one(reasons: int) -> None:
    text = printed(failing_summary([f"rule{at % reasons}:text{at}" for at in range(60)]), 100)
    assert sum(bool(re.search(r"case\d+ +text\d+", line)) for line in text.splitlines()) == 10
    assert all(f"rule{at} " in text for at in range(min(reasons, 20)))
    assert ("... and 10 more reasons" in text) is (reasons == 30)


def scored_summary(gates: list[Any], *, reasons: dict[str, str] | None = None) -> Summary:
    """A run in which model run ``a`` fails a rule over a score, and ``b`` fails that and one over copy."""
    cells = [
        record(
            test_id="flyer",
            model_label="a",
            verdict="FAIL",
            failed_rules=["design >= 3"],
            scores={"design": 2.0, "copy": True},
        ),
        record(
            test_id="flyer",
            model_label="b",
            verdict="FAIL",
            failed_rules=["design >= 3", "copy"],
            reasons=reasons or {"copy": "a typo"},
            scores={"design": 1.5, "copy": False},
        ),
    ]
    metrics: dict[str, Any] = {"design": {"type": "number", "range": [1, 5]}, "copy": {"type": "bool"}}
    return summarize(run_of({"flyer": {}}, ["a", "b"], gates, metrics), cells)


def test_a_failed_rule_shows_its_score_and_its_limit() -> None:
    summary = scored_summary(["pass_rate >= 0"])
    text = printed(summary, 80)
    assert re.search(r"design >= 3 +1 +flyer +design 2 < 3 *\n", text)
    console, out = rendered(80)
    print_sections([failing_cells(summary)], console)
    assert re.search(r"FAIL +flyer +a +design 2 < 3 *\n", out.getvalue())


def test_examples_and_the_next_command_are_of_cells_that_a_failed_gate_counts() -> None:
    summary = scored_summary([{"rule": "pass_rate == 1", "models": ["b"]}, {"rule": "pass_rate >= 0", "models": ["a"]}])
    assert [cell.failed_gates for cell in summary.failing] == [(), ("pass_rate == 1",)]
    assert "next: visioneval show latest@b flyer" in last_lines(Path("runs/latest"), summary, Path("runs"))
    (first, _), *_ = failure_examples(summary, 2)["design >= 3"]
    assert first.model_label == "b"
    without = scored_summary(["pass_rate >= 0"])
    assert "next: visioneval show latest@a flyer" in last_lines(Path("runs/latest"), without, Path("runs"))


def test_a_tile_explains_itself_by_the_rule_that_has_a_reason() -> None:
    summary = scored_summary([{"rule": "pass_rate == 1", "models": ["b"]}])
    cell = summary.failing[1].model_copy(update={"reasons": {"copy": "a typo"}})
    summary = summary.model_copy(update={"failing": (summary.failing[0], cell)})
    (strip,) = worst_failures(summary, {("flyer", label, 0): "thumb" for label in "ab"})
    texts = [cell.text for cell in strip.tiles[0].caption if isinstance(cell, Value)]
    assert texts == ["FAIL", "design 1.5 < 3, copy", "b", "a typo"]


@pytest.mark.parametrize(
    ("errors", "unmeasured", "failed", "sentence"),
    [
        (2, 2, 0, "Incomplete: 2 cells could not be measured"),
        (2, 0, 0, "Incomplete: 2 cells ended in an error"),
        (0, 3, 0, "Incomplete: a grader failed on 3 outputs"),
        (1, 3, 2, "Incomplete: 1 cell ended in an error, a grader failed on 3 outputs; 2 of 3 gates failed"),
    ],
)
def test_an_incomplete_run_names_errors_failed_graders_and_failed_gates(
    errors: int, unmeasured: int, failed: int, sentence: str
) -> None:
    summary = scored_summary(["pass_rate >= 0"])
    gate = summary.gates[0]
    gates = [gate.model_copy(update={"rule": "pass_rate == 1", "state": "failed"})] * failed + [gate]
    counts = summary.counts.model_copy(update={"errors": errors, "unmeasured": unmeasured})
    changed = summary.model_copy(update={"exit_code": 3, "counts": counts, "gates": tuple(gates)})
    assert outcome(changed) == ("error", sentence)
    assert bool(error_note(changed)) is (errors != unmeasured)


def test_the_outcome_comes_first_then_gates_then_failures_then_numbers() -> None:
    text = printed(summary_of(2), 80)
    assert text.splitlines()[1].rstrip().endswith("(exit code 3)")
    parts = ["6 of 6 cells", "Incomplete: 2 cells ended in an error", "Gates", "Why cells", "Model runs", "By tag"]
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)


def test_metrics_that_decide_nothing_are_shown_only_in_full() -> None:
    console, out = rendered(80)
    print_report(run_report(summary_of(8)), console)
    assert "a_metric_with_quite_a_long_name" not in out.getvalue()
    assert "text.cer" in out.getvalue()
    assert "--full shows more: 1 metric that no rule or gate reads" in out.getvalue()
    assert "a_metric_with_quite_a_long_name" in printed(summary_of(8), 80)


def test_long_labels_break_between_their_parts() -> None:
    console, out = rendered(40)
    columns = [Column("model run", min_width=12)]
    console.print(table(columns, [["gpt-image-2,quality=high,size=1024x1024"]], 20))
    assert [line.strip() for line in out.getvalue().splitlines()[2:]] == [
        "gpt-image-2,",
        "quality=high,",
        "size=1024x1024",
    ]


SKIPPED = tuple(
    GateFinding(rule="pass_rate == 1", scope="", value=None, n=0, errors=0, state=state)
    for state in ("passed", "skipped")
)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"state": "interrupted"}, "Interrupted"),
        ({"stopped_by": "budget", "state": "interrupted"}, "Stopped by its budget"),
        ({"unjudged_pairs": 2}, "Incomplete: 2 pairs could not be judged"),
        ({"exit_code": 0}, "All gates passed"),
        ({"exit_code": 0, "left_out_graders": ("copy",)}, "All gates passed, without the graders left out: copy"),
        ({"exit_code": 0, "gates": SKIPPED}, "All gates passed, 1 skipped"),
        ({"exit_code": 0, "gates": SKIPPED, "left_out_graders": ("copy",)}, "All gates passed, 1 skipped, without the"),
        ({"exit_code": 1}, "1 of 3 gates failed"),
    ],
)
def test_outcome(changes: dict[str, Any], sentence: str) -> None:
    assert sentence in printed(failing_summary(["copy:typo"], **changes), 80).splitlines()[1]


def test_the_pass_rate_of_a_suite_without_rules_is_not_skipped_by_flags() -> None:
    summary = failing_summary(["copy:typo"], exit_code=0, gates=SKIPPED)
    counts = summary.counts.model_copy(update={"without_verdict": 1})
    text = printed(summary.model_copy(update={"counts": counts}), 80)
    assert "All gates passed: 1 failed" in text


def test_a_table_as_wide_as_the_console_has_a_header_a_rule_and_aligned_cells() -> None:
    console, out = rendered(13)
    console.print(table([Column("pass rate"), Column("n", is_number=True)], [["100.0% n=4", "4"]], 13))
    assert out.getvalue().splitlines() == ["pass rate   n", "─" * 13, "100.0% n=4  4"]


def test_names_are_not_broken_where_there_is_room() -> None:
    console, out = rendered(40)
    columns = [Column("metric", min_width=10), Column("why", min_width=10)]
    console.print(table(columns, [["magnification", "a reason of several words, which wraps"]], 40))
    assert "magnification " in out.getvalue()


def test_all_gates_passed_over_mostly_failed_cells_says_why() -> None:
    mostly, half = (scored_summary(gates) for gates in (["pass_rate == 0"], ["pass_rate >= 0"]))
    assert outcome(mostly)[1] == "All gates passed: 2 failed, as the gates expect"
    counts = half.counts.model_copy(update={"passed": 2})
    assert outcome(half.model_copy(update={"counts": counts}))[1] == "All gates passed"


def test_tags_are_not_pooled_over_model_runs() -> None:
    lines = [line.split() for line in printed(summary_of(2, "m{}"), 80).splitlines()]
    rows = lines[lines.index(["tag", "#", "pass", "rate", "[95%]", "fail", "error"]) + 2 :][:4]
    assert rows == [
        ["text", "1", "0", "%", "[0,", "79.3]", "n=1", "1", "1"],
        ["2", "0", "%", "[0,", "79.3]", "n=1", "1", "1"],
        ["screen", "1", "-", "n=0", "0", "1"],
        ["2", "-", "n=0", "0", "1"],
    ]


def test_answers_to_questions_are_a_table() -> None:
    answers: list[dict[str, Any]] = [
        {"question": "Are there cups?", "expected": "yes", "choice": "no", "right": False, "score": 0},
        {"question": "Are they red?", "expected": "yes", "choice": "yes", "right": True, "score": 0},
        {"question": "Is it day?", "expected": "yes", "choice": "yes", "right": True, "score": 1},
        {"question": "Is it warm?", "expected": "yes", "choice": None, "unanswered": "no answer", "score": None},
    ]
    details = {"source": "pinned", "questions": answers}
    grader = GraderRecord(key="asked", type="gecko", details=details, fingerprint=Fingerprint(config_sha256=""))
    console, out = rendered(80)
    print_case([record(graders=[grader])], run_of({"c": {}}, ["m"], [], METRICS), folder(), console)
    lines = [re.sub(r" +", " ", line).strip() for line in out.getvalue().splitlines()]
    assert lines[lines.index("asked: answers") + 3 :] == [
        "Are there cups? Answered no, expected yes.",
        "Are they red? Answered yes. Scored 0: its parent question failed.",
        "Is it day? Answered yes.",
        "Is it warm? Not answered: no answer.",
    ]
    assert "questions" not in lines, "the table replaces the list"


def test_a_table_of_answers_has_a_column_for_what_some_question_has() -> None:
    answer = {"question": "Is it a cup?", "expected": "yes", "choice": "yes", "right": True, "score": 1}
    noted = {"reason": ["It has a handle."], "justification": ["a cup"]}
    for names in ((), ("reason",), ("justification",), ("reason", "justification")):
        questions = [answer, {**answer, **{name: noted[name][0] for name in names}}]
        grader = GraderRecord(
            key="asked", type="gecko", details={"questions": questions}, fingerprint=Fingerprint(config_sha256="")
        )
        console, out = rendered(120)
        print_case([record(graders=[grader])], run_of({"c": {}}, ["m"], [], METRICS), folder(), console)
        lines = [re.sub(r" +", " ", line).strip() for line in out.getvalue().splitlines()]
        start = lines.index("asked: answers")
        assert lines[start + 1] == " ".join(("question", "answer", *names))
        assert lines[start + 4] == " ".join(("Is it a cup? Answered yes.", *(noted[name][0] for name in names)))
