"""Whether new samples of run B can be generated, which ``compare --confirm`` needs and its advice presumes. Pure."""

from __future__ import annotations

from collections.abc import Collection

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.must_pass import CaseKey
from visioneval.analysis.compare.sampled import sampled_cases
from visioneval.analysis.sides import Side
from visioneval.records.model import RunInfo


def can_be_sampled(comparison: Comparison) -> bool:
    """Whether B is a run of which ``--confirm`` can generate new samples of all compared cases."""
    b = comparison.b
    if why_not_continued(b) or b.info is None:
        return False
    return not why_not_generated(b.name, b.info, [case.key for case in sampled_cases(comparison)])


def why_not_continued(b: Side) -> str:
    """Why B is no run that can get new samples; empty if it is one."""
    if b.folder is None:
        return f"--confirm generates new samples of B, but {b.name} is not a run"
    if b.state != "complete":
        return f"--confirm needs a complete run B, but {b.name} is {b.state}: resume it, or run it again"
    return ""


def why_not_generated(name: str, info: RunInfo, keys: Collection[CaseKey]) -> str:
    """Why a run cannot generate and grade new samples of these cases on these model runs; empty if it can."""
    if info.graded_from is not None:
        return f"--confirm: {name} grades the outputs of {info.graded_from} and generates nothing: confirm that run"
    cases, labels = {case for case, _ in keys}, {label for _, label in keys}
    for entry in info.suite.models:
        if entry.label in labels and entry.reads_outputs:
            return (
                f"--confirm: {entry.label!r} in {name} reads existing outputs: only a model that generates can"
                " give new samples (B@LABEL selects a model run)"
            )
    suite = info.selected_suite
    for grader in suite.graders:
        recorded = [key for key, judge in suite.judges.items() if judge.is_recorded and key in grader.judge_names]
        if recorded and not grader.after_run:  # those compare the run's own outputs
            graded = (case for case in suite.cases if case.id in cases and grader.is_for(case))
            if any(grader.metrics(case) for case in graded):
                return (
                    f"--confirm: the judge {recorded[0]!r} of {name} looks up recorded answers: it has none about new"
                    " samples"
                )
    return ""
