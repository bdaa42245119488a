"""What a run of a plan would do, and what it would cost as far as anybody knows. Nothing is called."""

from __future__ import annotations

from dataclasses import dataclass

from visioneval.plan import Plan
from visioneval.urls import is_url


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would do, and what it lacks."""

    calls: int
    cells: int
    grader_calls: int
    unpriced: tuple[str, ...]
    """Model runs and judges that may cost something that nobody here knows; the rest works for nothing."""
    missing_files: tuple[str, ...]


def estimate(plan: Plan) -> Estimate:
    """Counts the work of a plan."""
    calls = cells = grader_calls = 0
    missing: list[str] = []
    for call in plan.calls():
        calls += 1
        cells += call.cells
        grader_calls += len(call.samples) * sum(len(each.graders) for each in (call, *call.lookers))
        path = call.params.get("path") if call.run.provider == "files" else None
        if path is not None and not (is_url(path) or (path and (plan.folder / path).is_file())):
            missing.append(path or call.params.get("row") or f"a picture of {call.case.id!r} by {call.run.label!r}")
    return Estimate(
        calls=calls,
        cells=cells,
        grader_calls=grader_calls,
        unpriced=(
            *(run.label for run in plan.runs if not run.config.is_free),
            *(f"judge {name}" for name, judge in plan.judges.items() if not judge.is_free),
        ),
        missing_files=tuple(missing),
    )
