"""Checks of what refers to something else in the suite: scopes, verdict rules and gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from visioneval.rules import parse_gate, parse_rule
from visioneval.suite.filters import Scope, VerdictRule, When, any_glob
from visioneval.suite.loading.messages import Loc, did_you_mean
from visioneval.suite.model import Suite
from visioneval.types import Metric, ModelRun

Found = Iterator[tuple[Loc, str]]
_WANTED = {"mean": "number", "rate": "bool"}


@dataclass(frozen=True)
class SuiteContext:
    """A suite and its model runs, with what several checks ask of them worked out once."""

    suite: Suite
    runs: Sequence[ModelRun]

    @cached_property
    def written(self) -> list[dict[str, list[tuple[int, Metric]]]]:
        """For each case its metrics, with every grader (by its index) that writes it."""
        found: list[dict[str, list[tuple[int, Metric]]]] = []
        for case in self.suite.cases:
            written: dict[str, list[tuple[int, Metric]]] = {}
            for index, grader in enumerate(self.suite.graders):
                if grader.when is None or grader.when.fits(case.id, case.task_type, case.tags):
                    for name, metric in grader.metrics(case).items():
                        written.setdefault(name, []).append((index, metric))
            found.append(written)
        return found

    @cached_property
    def metric_names(self) -> set[str]:
        """Every metric that some case gets."""
        return {name for written in self.written for name in written}

    @cached_property
    def labels(self) -> list[tuple[str, frozenset[str]]]:
        """Label and tasks of each model run."""
        tasks = {case.task_type for case in self.suite.cases}
        return [(run.label, frozenset(t for t in tasks if run.config.does(t))) for run in self.runs]

    @cached_property
    def has_cells(self) -> bool:
        """Whether any model run takes any case."""
        return any(tasks for _, tasks in self.labels)

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


def rule_problems(view: SuiteContext, *, complete: bool = True) -> Found:
    """Problems of every scope, verdict rule and gate. ``complete`` says that no verdict rule is missing here."""
    found = [*_scopes(view), *_twice(view), *_suite_rules(view), *_case_rules(view)]
    yield from found
    if complete:
        yield from _unjudged(view, wrong={loc[: 1 + (loc[0] == "cases")] for loc, _ in found})
    yield from _gates(view)


def _suite_rules(view: SuiteContext) -> Found:
    for index, rule in enumerate(view.suite.verdict):
        cases = view.cases_in(rule)
        if not cases and view.has_cells and not any(_empty_scope(view, rule)):
            yield ("verdict", index), f"{rule.rule!r} is for no cell of this suite"
        judged = [at for at in cases if view.suite.cases[at].verdict is None]
        yield from ((("verdict", index), message) for message in _rule(view, rule, judged))


def _case_rules(view: SuiteContext) -> Found:
    for at, case in enumerate(view.suite.cases):
        for index, rule in enumerate(case.verdict or ()):
            messages = [*_unknown_labels(view, rule), *_rule(view, rule, [at])]
            yield from ((("cases", at, "verdict", index), message) for message in messages)


def _scopes(view: SuiteContext) -> Found:
    for index, grader in enumerate(view.suite.graders):
        if grader.when is not None:
            yield from ((("graders", index, "when"), message) for message in _empty_scope(view, grader.when))
    for key, entries in (("verdict", view.suite.verdict), ("gates", view.suite.gates)):
        for index, entry in enumerate(entries):
            yield from (((key, index), message) for message in _empty_scope(view, entry))


def _empty_scope(view: SuiteContext, scope: When) -> Iterator[str]:
    cases = view.suite.cases
    tags = {tag for case in cases for tag in case.tags} if scope.tags else set()
    for tag in scope.tags:
        if tag not in tags:
            yield f"no case has the tag {tag!r}{did_you_mean(tag, tags)}"
    ids = {case.id for case in cases} if scope.cases else set()
    for pattern in scope.cases:
        if pattern not in ids and not any(any_glob([pattern], case_id) for case_id in ids):
            yield f"no case is called {pattern!r}{did_you_mean(pattern, ids)}"
    for task in scope.tasks:
        if not any(case.task_type == task for case in cases):
            yield f"no case is of the task {task}"
    yield from _unknown_labels(view, scope)


def _unknown_labels(view: SuiteContext, scope: When) -> Iterator[str]:
    labels = [label for label, _ in view.labels]
    for pattern in getattr(scope, "models", ()):
        if not any(any_glob([pattern], label) for label in labels):
            yield f"no model run is labeled {pattern!r}{did_you_mean(pattern, labels)}"


def _twice(view: SuiteContext) -> Found:
    """Metrics that two graders write for one case: a cell has one score of a name."""
    told: set[tuple[int, str]] = set()
    for written in view.written:
        for name, writers in written.items():
            for index, _ in writers[1:]:
                first = view.suite.graders[writers[0][0]].key
                if (index, name) not in told and view.suite.graders[index].key != first:
                    told.add((index, name))
                    yield ("graders", index), f"writes the metric {name!r}, which the grader {first!r} writes too"


def _rule(view: SuiteContext, rule: VerdictRule, judged: Sequence[int]) -> Iterator[str]:
    parsed = parse_rule(rule.rule)
    yield from _metric(view, parsed.metric, judged, "bool" if parsed.op is None else "number", rule.rule)


def _metric(view: SuiteContext, name: str, cases: Sequence[int], wanted: str | None, text: str) -> Iterator[str]:
    if name not in view.metric_names:
        why = _lacking(view, name) or did_you_mean(name, view.metric_names)
        yield f"{text!r}: no grader writes {name!r}{why}"
        return
    types = {metric.type for at in cases for _, metric in view.written[at].get(name, ())}
    if cases and not types:
        yield f"{text!r}: no grader writes {name!r} for any case that this is for{_lacking(view, name)}"
    if wanted is not None and types - {wanted}:
        article = "a yes or no" if wanted == "number" else "a number"
        alone = "use rate(METRIC)" if "mean(" in text else "write it alone or with 'not'"
        compared = "use mean(METRIC)" if "rate(" in text else "compare it: 'METRIC >= NUMBER'"
        advice = alone if wanted == "number" else compared
        yield f"{text!r}: {name!r} is {article}; {advice}"


def _lacking(view: SuiteContext, name: str) -> str:
    """What cases would have to hold for a metric that a grader of this suite could write; empty where none could."""
    for grader in view.suite.graders:
        needed = grader.needs.get(name.removeprefix(grader.key)) if name.startswith(grader.key) else None
        if needed is not None:
            return f": the grader {grader.key!r} writes it for cases with {needed}, and there is none"
    return ""


def _unjudged(view: SuiteContext, wrong: set[Loc]) -> Found:
    """Cases to which no rule applies: they could only ever be errors. Rules that are wrong are told of already."""
    of_suite = _failing(view.suite.verdict)
    for at, case in enumerate(view.suite.cases):
        told = ("verdict",) if case.verdict is None else ("cases", at)
        if case.expect.refusal or told in wrong:
            continue
        rules = of_suite if case.verdict is None else _failing(case.verdict)
        about = [
            rule
            for rule, metric in rules
            if metric in view.written[at] and rule.fits(case.id, case.task_type, case.tags)
        ]
        if any(not rule.models for rule in about):
            continue
        for label, tasks in view.labels:
            if case.task_type in tasks and not any(any_glob(rule.models, label) for rule in about):
                yield ("cases", at), f"no verdict rule applies to the case {case.id!r} on {label!r}"
                break


def _failing(rules: Sequence[VerdictRule]) -> list[tuple[VerdictRule, str]]:
    return [(rule, parse_rule(rule.rule).metric) for rule in rules if rule.level == "fail"]


def _gates(view: SuiteContext) -> Found:
    for index, entry in enumerate(view.suite.gates):
        gate = parse_gate(entry.rule)
        cases = view.cases_in(entry)
        if not cases and view.has_cells and not any(_empty_scope(view, entry)):
            yield ("gates", index), f"{entry.rule!r} is for no cell of this suite"
        if gate.fn not in ("mean", "separation") and not 0 <= gate.threshold <= 1:
            yield ("gates", index), f"{entry.rule!r}: a rate is from 0 to 1"
        if gate.metric is not None:
            for message in _metric(view, gate.metric, cases, _WANTED.get(gate.fn), entry.rule):
                yield ("gates", index), message
        kinds = {view.suite.cases[at].expect.aligned for at in cases}
        if gate.fn == "separation" and len(kinds) == 1:
            lacking = "counter-examples (expect: {aligned: false})" if True in kinds else "aligned cases"
            yield ("gates", index), f"{entry.rule!r}: there are no {lacking} among its cases"
