"""Checks of what refers to something else in the suite: scopes, verdict rules and gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from visioneval.rules import parse_gate, parse_rule
from visioneval.suite.messages import Loc, did_you_mean
from visioneval.suite.model import Suite
from visioneval.suite.scope import Scope, VerdictRule, When, any_glob
from visioneval.types import Metric, ModelRun

Found = Iterator[tuple[Loc, str]]


@dataclass(frozen=True)
class View:
    """A suite and its model runs, with what several checks ask of them worked out once."""

    suite: Suite
    runs: Sequence[ModelRun]

    @cached_property
    def metrics(self) -> list[dict[str, list[Metric]]]:
        """For each case its metrics, with one entry for every grader that writes it."""
        found: list[dict[str, list[Metric]]] = []
        for case in self.suite.cases:
            written: dict[str, list[Metric]] = {}
            for grader in self.suite.graders:
                if grader.when is None or grader.when.fits(case.id, case.task_type, case.tags):
                    for name, metric in grader.metrics(case).items():
                        written.setdefault(name, []).append(metric)
            found.append(written)
        return found

    @cached_property
    def metric_names(self) -> set[str]:
        """Every metric that some case gets."""
        return {name for written in self.metrics for name in written}

    @cached_property
    def labels(self) -> list[tuple[str, frozenset[str]]]:
        """Label and tasks of each model run."""
        tasks = {case.task_type for case in self.suite.cases}
        return [(run.label, frozenset(t for t in tasks if run.config.does(t))) for run in self.runs]

    def cases_in(self, scope: Scope) -> list[int]:
        """Indices of the cases that have at least one cell in the scope."""
        tasks = {
            task for label, tasks in self.labels if not scope.models or any_glob(scope.models, label) for task in tasks
        }
        return [
            index
            for index, case in enumerate(self.suite.cases)
            if case.task_type in tasks and scope.fits(case.id, case.task_type, case.tags)
        ]


def rule_problems(view: View) -> Found:
    """Problems of every scope, verdict rule and gate."""
    yield from _scopes(view)
    for index, rule in enumerate(view.suite.verdict):
        judged = [at for at in view.cases_in(rule) if view.suite.cases[at].verdict is None]
        yield from ((("verdict", index), message) for message in _rule(view, rule, judged))
    for at, case in enumerate(view.suite.cases):
        for index, rule in enumerate(case.verdict or ()):
            yield from ((("cases", at, "verdict", index), message) for message in _rule(view, rule, [at]))
    yield from _unjudged(view)
    yield from _gates(view)


def _scopes(view: View) -> Found:
    for index, grader in enumerate(view.suite.graders):
        if grader.when is not None:
            yield from ((("graders", index, "when"), message) for message in _empty_scope(view, grader.when))
    for key, entries in (("verdict", view.suite.verdict), ("gates", view.suite.gates)):
        for index, entry in enumerate(entries):
            yield from (((key, index), message) for message in _empty_scope(view, entry))


def _empty_scope(view: View, scope: When) -> Iterator[str]:
    cases = view.suite.cases
    ids, labels = [case.id for case in cases], [label for label, _ in view.labels]
    tags = {tag for case in cases for tag in case.tags}
    for tag in scope.tags:
        if tag not in tags:
            yield f"no case has the tag {tag!r}{did_you_mean(tag, tags)}"
    for pattern in scope.cases:
        if not any(any_glob([pattern], case_id) for case_id in ids):
            yield f"no case is called {pattern!r}{did_you_mean(pattern, ids[:200])}"
    for task in scope.tasks:
        if not any(case.task_type == task for case in cases):
            yield f"no case is of the task {task}"
    for pattern in getattr(scope, "models", ()):
        if not any(any_glob([pattern], label) for label in labels):
            yield f"no model run is labelled {pattern!r}{did_you_mean(pattern, labels[:200])}"


def _rule(view: View, rule: VerdictRule, judged: Sequence[int]) -> Iterator[str]:
    parsed = parse_rule(rule.rule)
    yield from _metric(view, parsed.metric, judged, "bool" if parsed.op is None else "number", rule.rule)


def _metric(view: View, name: str, cases: Sequence[int], wanted: str, text: str) -> Iterator[str]:
    written = [view.metrics[index][name] for index in cases if name in view.metrics[index]]
    if not written:
        if name in view.metric_names:
            yield f"{text!r}: no grader writes {name!r} for any case that this is for"
        else:
            yield f"{text!r}: no grader writes {name!r}{did_you_mean(name, view.metric_names)}"
        return
    if any(len(metrics) > 1 for metrics in written):
        yield f"{text!r}: two graders write {name!r}"
    if any(metric.type != wanted for metrics in written for metric in metrics):
        article = "a yes or no" if wanted == "number" else "a number"
        advice = "write it alone or with 'not'" if wanted == "number" else "compare it: 'METRIC >= NUMBER'"
        yield f"{text!r}: {name!r} is {article}; {advice}"


def _unjudged(view: View) -> Found:
    """Cells to which no rule applies: they could only ever be errors."""
    parsed = [(rule, parse_rule(rule.rule).metric) for rule in view.suite.verdict if rule.level == "fail"]
    for at, case in enumerate(view.suite.cases):
        if case.expect.refusal:
            continue
        own = case.verdict
        rules = parsed if own is None else [(r, parse_rule(r.rule).metric) for r in own if r.level == "fail"]
        about = [rule for rule, metric in rules if metric in view.metrics[at]]
        bare = next(
            (
                label
                for label, tasks in view.labels
                if case.task_type in tasks
                and not any(rule.covers(case.id, case.task_type, case.tags, label) for rule in about)
            ),
            None,
        )
        if bare is not None:
            yield ("cases", at), f"no verdict rule applies to the case {case.id!r} on {bare!r}"


def _gates(view: View) -> Found:
    for index, entry in enumerate(view.suite.gates):
        gate = parse_gate(entry.rule)
        cases = view.cases_in(entry)
        if not cases and not list(_empty_scope(view, entry)):
            yield ("gates", index), f"{entry.rule!r} is for no cell of this suite"
        elif gate.metric is not None and cases:
            wanted = "number" if gate.fn == "mean" else "bool"
            for message in _metric(view, gate.metric, cases, wanted, entry.rule):
                yield ("gates", index), message
