"""Builds runs with pairwise answers of judges and of people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from record_factory import record, run_of

from visioneval.analysis.agreement.answers import LabeledRun
from visioneval.records.between_cells import Preference, append_preferences
from visioneval.records.labels import LABELS, Label, append_labels
from visioneval.records.writer import RunWriter

METRICS: dict[str, Any] = {"look": {"type": "bool"}}
JUDGE = "openai:gpt-5.4"


def preference(case: str, a: str, b: str, first: str, answer: Any, **more: Any) -> Preference:
    """An answer in one order; ``a`` and ``b`` are labels of the run ``r`` unless they contain ``@``."""
    sides = {name: side if "@" in side else f"r@{side}" for name, side in (("a", a), ("b", b))}
    defaults = {"sample_index": 0, "judge": JUDGE, "reason": None, "error": None if answer else "down"}
    return Preference.model_validate({"test_id": case, **sides, "first": first, "answer": answer, **defaults, **more})


def judged(case: str, a: str, b: str, answer: Any, second: Any = "same", **more: Any) -> list[Preference]:
    """The answers about a pair in both orders."""
    return [
        preference(case, a, b, "a", answer, **more),
        preference(case, a, b, "b", answer if second == "same" else second, **more),
    ]


def label(case: str, rater: str, a: str, other: str, answer: Any, **more: Any) -> Label:
    """A human label of a pair: ``a`` is a label of the run itself, ``other`` is ``RUN_ID@label``."""
    defaults = {"sample_index": 0, "question": "better", "at": "2025-06-01T12:00:00+00:00", "source": "page"}
    fields = {"test_id": case, "rater": rater, "model_label": a, "other": other, "answer": answer}
    return Label.model_validate({**fields, **defaults, **more})


def answered(
    preferences: Sequence[Preference] = (),
    labels: Sequence[Label] = (),
    *,
    run_id: str = "r",
    cases: Iterable[str] = (),
    models: Sequence[str] = ("x", "y", "z"),
    tags: dict[str, list[str]] | None = None,
    selected: Iterable[str] | None = None,
    hashes: dict[str, str] | None = None,
    **changes: Any,
) -> LabeledRun:
    """A run in memory. Its cases are those of the answers and ``cases``; ``hashes`` are image hashes by label."""
    ids = dict.fromkeys([*cases, *(line.test_id for line in (*preferences, *labels))]) or {"one": None}
    suite = {case: {"tags": (tags or {}).get(case, [])} for case in ids}
    info = run_of(suite, list(models), [], METRICS, run_id=run_id, **changes)
    records = [
        record(run_id=run_id, test_id=case, model_label=model, artifact_sha256=(hashes or {}).get(model))
        for case in ids
        for model in models
    ]
    return LabeledRun(info, records, labels, preferences=preferences, ranked=frozenset(selected or ()))


def save(root: Path, run: LabeledRun) -> Path:
    """Writes a run with its answers. Returns its folder."""
    writer = RunWriter.create(root, run.info.model_copy(update={"state": "running"}))
    for entry in run.records:
        writer.append(entry)
    writer.finish("complete", "2025-01-01T00:02:03+00:00")
    if run.preferences:
        append_preferences(writer.folder, run.preferences)
    if run.labels:
        append_labels(writer.folder / LABELS, run.labels)
    return writer.folder
