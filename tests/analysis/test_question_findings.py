"""Questions pooled by type, from records to the summary's table."""

from __future__ import annotations

import io
from typing import Any

from record_factory import info, record
from rich.console import Console

from visioneval import Fingerprint, GraderRecord, Summary
from visioneval.analysis.scores import Estimate
from visioneval.analysis.summary.summary import summarize
from visioneval.report.run import run_report
from visioneval.report.terminal import print_report
from visioneval.suite.model import Suite


def grader(*questions: tuple[str, int | None], **details: Any) -> GraderRecord:
    asked = [
        {"id": f"q{at}", "question": f"Q{at}", "type": kind, "score": score}
        for at, (kind, score) in enumerate(questions)
    ]
    known = {"source": "pinned", "prompt_sha256": "a", "dropped": 0, "coverage": None, "questions": asked}
    return GraderRecord(
        key="gecko", type="gecko", details={**known, **details}, fingerprint=Fingerprint(config_sha256="0")
    )


def summary(*cells: tuple[str, GraderRecord]) -> Summary:
    suite = Suite.model_validate(
        {
            "name": "demo",
            "cases": [{"id": "one", "prompt": "a tree"}],
            "models": [{"provider": "mock", "label": label} for label in ("m", "n")],
            "graders": [{"key": "gecko", "type": "gecko"}],
            "verdict": ["gecko >= 0"],
        }
    )
    metrics = {name: {"type": "number", "range": [0, 1]} for name in ("gecko", "gecko.object", "gecko.shape")}
    records = [
        record(model_label=label, sample_index=at, graders=(graded,), scores={"gecko": 0.5, "gecko.object": 0.5})
        for at, (label, graded) in enumerate(cells)
    ]
    return summarize(info(suite=suite, metrics=metrics, state="complete", planned_cells=len(cells)), records)


def printed(pooled: Summary, width: int = 80) -> str:
    stream = io.StringIO()
    print_report(run_report(pooled), Console(file=stream, width=width, highlight=False, markup=False))
    return stream.getvalue()


def test_images_count_by_their_number_of_questions() -> None:
    pooled = summary(
        ("m", grader(("object", 1))),
        ("m", grader(("object", 0), ("object", 0), ("object", 0), ("color", 1))),
        ("n", grader(("object", None))),
    ).questions["gecko"]
    objects, every = pooled.models["m"].types["object"], pooled.models["m"].all
    assert (objects.value, objects.n, objects.cases, objects.unmeasured) == (0.25, 4, 1, 0)
    assert (every.value, every.n, every.cases, every.unmeasured) == (0.4, 5, 1, 0)
    assert pooled.models["n"].types == {"object": Estimate(unmeasured=1)}


def test_sets_of_questions_are_counted_once() -> None:
    first = {"source": "generated", "prompt_sha256": "a", "coverage": 0.5, "dropped": 2}
    second = {"source": "generated", "prompt_sha256": "b", "coverage": 1.0, "dropped": 1}
    pooled = summary(
        ("m", grader(("object", 1), **first)),
        ("n", grader(("object", 0), **first)),
        ("n", grader(("object", 0), **second)),
        ("n", grader(("object", 0), prompt_sha256="c")),
    ).questions["gecko"]
    assert (pooled.prompts, pooled.generated, pooled.coverage, pooled.dropped) == (3, 2, 0.75, 3)


def test_types_are_in_the_question_table_and_not_in_the_metrics() -> None:
    text = printed(summary(("m", grader(("spatial relation", 1), ("object", 0))), ("n", grader(("object", None)))))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "spatial relation 100 % [20.7, 100] (1) -" in lines
    assert "object 0 % [0, 79.3] (1) none !1" in lines
    assert "all questions 50 % [5.5, 94.5] (2) none !1" in lines
    assert "gecko 0.5 [0.003, 1.00] (1) 0.5 [0.003, 1.00] (1)" in lines
    assert "gecko.object" not in text
    assert any(line.startswith("questions for 2 prompts: 2 pinned; !n:") for line in lines)


def test_table_fits_a_narrow_terminal() -> None:
    text = printed(summary(("m", grader(("object", 1))), ("n", grader(("object", 0)))), 40)
    assert max(map(len, text.splitlines())) <= 40


def test_control_characters_in_types_are_removed() -> None:
    assert "\x1b" not in printed(summary(("m", grader(("\x1b[31mobject", 1)))))


def test_unknown_details_are_ignored() -> None:
    assert summary(("m", grader(questions="many"))).questions == {}
    assert summary(("m", grader(questions=[5]))).questions == {}
