"""Questions pooled by type, from records to the summary's table."""

from __future__ import annotations

from typing import Any

from record_factory import info, record

from visioneval import Fingerprint, GraderRecord, Summary
from visioneval.analysis.scores import Estimate
from visioneval.analysis.summary.summary import summarize
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


def test_unknown_details_are_ignored() -> None:
    assert summary(("m", grader(questions="many"))).questions == {}
    assert summary(("m", grader(questions=[5]))).questions == {}
