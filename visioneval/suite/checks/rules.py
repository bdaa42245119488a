"""Checks of references within a suite: scopes, verdict rules and gates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from visioneval.errors import did_you_mean
from visioneval.rules import COUNTING, Rule, can_fail, is_never_met, parse_gate, parse_rule
from visioneval.suite.entries.graders import CustomGrader
from visioneval.suite.files import ONE_LINE
from visioneval.suite.filters import Scope, When, any_case, any_glob
from visioneval.suite.messages import Loc
from visioneval.suite.metrics import BUILT_IN, SuiteMetrics, describe_meaning, left_out
from visioneval.suite.model import Suite
from visioneval.suite.rules import GateRule, VerdictRule
from visioneval.suite.runs import RunCoverage
from visioneval.types import Metric, ModelRun

Problems = Iterator[tuple[Loc, str]]
_RESERVED_NAMES = ("verdict", "pass_rate")
"""Names with a meaning of their own where a metric is named."""
_EITHER = "number or bool"
_METRIC_TYPES = {"mean": "number", "rate": "bool", "separation": _EITHER}
_TYPES = {"bool": "a yes/no metric", "number": "a numeric metric", "one_of": "one word of a list"}


@dataclass(frozen=True)
class SuiteContext:
    """A suite and its model runs, with values that several checks share."""

    suite: Suite
    runs: Sequence[ModelRun]

    @cached_property
    def written(self) -> list[dict[str, list[tuple[int, Metric]]]]:
        """For each case: its metrics, each with the graders (by index) that write it."""
        by_case: list[dict[str, list[tuple[int, Metric]]]] = []
        for case in self.suite.cases:
            metrics: dict[str, list[tuple[int, Metric]]] = {}
            for index, grader in enumerate(self.suite.graders):
                if grader.when is None or grader.when.fits(case.id, case.task_type, case.tags):
                    for name, metric in grader.metrics(case).items():
                        metrics.setdefault(name, []).append((index, metric))
            by_case.append(metrics)
        return by_case

    @cached_property
    def suite_metrics(self) -> SuiteMetrics:
        """The built-in and computed metrics of the suite."""
        return SuiteMetrics(self.suite)

    @cached_property
    def available(self) -> list[Mapping[str, Metric]]:
        """For each case: every metric of its cells."""
        graders = ({name: writers[0][1] for name, writers in written.items()} for written in self.written)
        own = (self.suite_metrics.for_case(case).metrics for case in self.suite.cases)
        return [{**written, **computed} for written, computed in zip(graders, own, strict=True)]

    @cached_property
    def metric_names(self) -> set[str]:
        """Every metric of any case."""
        return {name for available in self.available for name in available}

    @cached_property
    def labels(self) -> list[tuple[str, frozenset[int]]]:
        """The label of each model run, and the indices of its cases."""
        coverage = RunCoverage(self.suite)
        return [(run.label, coverage.cases_of(run.config)) for run in self.runs]

    @cached_property
    def has_cells(self) -> bool:
        """Whether any model run has any case."""
        return any(cases for _, cases in self.labels)

    def cases_in(self, scope: Scope) -> list[int]:
        """Indices of the cases with at least one cell in the scope."""
        in_scope = {cases for label, cases in self.labels if not scope.models or any_glob(scope.models, label)}
        covered = frozenset[int]().union(*in_scope)
        return [
            index
            for index, case in enumerate(self.suite.cases)
            if index in covered and scope.fits(case.id, case.task_type, case.tags)
        ]


def rule_problems(view: SuiteContext, *, is_complete: bool = True) -> Problems:
    """Problems of every scope, verdict rule and gate. ``is_complete``: no invalid verdict rule was dropped."""
    problems = [*_scopes(view), *_shared_names(view), *_verdict_rules(view)]
    yield from problems
    yield from metric_problems(view)
    if is_complete:
        yield from _uncovered_cases(view, bad_locs={loc[: 1 + (loc[0] == "cases")] for loc, _ in problems})
    yield from _gates(view)


def _verdict_rules(view: SuiteContext) -> Problems:
    for loc, rule, cases in _all_rules(view):
        of_scope = _unknown_labels(view, rule) if loc[0] == "cases" else _without_cells(view, rule, rule.rule)
        yield from ((loc, message) for message in (*of_scope, *_rule(view, rule, cases)))


def _all_rules(view: SuiteContext) -> Iterator[tuple[Loc, VerdictRule, Sequence[int]]]:
    """The verdict rules of the suite and of its cases, each with its place and the indices of the cases it is for."""
    cases = view.suite.cases
    for index, rule in enumerate(view.suite.verdict):
        yield ("verdict", index), rule, [at for at in view.cases_in(rule) if cases[at].verdict is None]
    for at, case in enumerate(cases):
        for index, rule in enumerate(case.verdict or ()):
            yield ("cases", at, "verdict", index), rule, [at]


def _without_cells(view: SuiteContext, scope: Scope, text: str) -> Iterator[str]:
    """A rule or gate that matches no cell, although each part of its scope matches something."""
    if not view.cases_in(scope) and view.has_cells and not any(empty_scope(view, scope)):
        yield f"{text!r} matches no cell of this suite: check its scope (models, cases, tags, tasks)"


def _scopes(view: SuiteContext) -> Problems:
    for index, grader in enumerate(view.suite.graders):
        if grader.when is not None:
            yield from ((("graders", index, "when"), message) for message in empty_scope(view, grader.when))
    for key, entries in (("verdict", view.suite.verdict), ("gates", view.suite.gates)):
        for index, entry in enumerate(entries):
            yield from (((key, index), message) for message in empty_scope(view, entry))


def empty_scope(view: SuiteContext, scope: When) -> Iterator[str]:
    """Yields each part of a scope that matches nothing."""
    cases = view.suite.cases
    tags = {tag for case in cases for tag in case.tags} if scope.tags else set()
    for tag in scope.tags:
        if tag not in tags:
            yield f"no case has the tag {tag!r}{did_you_mean(tag, tags)}"
    ids = {case.id for case in cases} if scope.cases else set()
    for pattern in scope.cases:
        if pattern not in ids and not any(any_case([pattern], case_id) for case_id in ids):
            yield f"there is no case {pattern!r}{did_you_mean(pattern, ids)}"
    for task in scope.tasks:
        if not any(case.task_type == task for case in cases):
            yield f"no case has the task {task}"
    yield from _unknown_labels(view, scope)


def _unknown_labels(view: SuiteContext, scope: When) -> Iterator[str]:
    labels = [label for label, _ in view.labels]
    for pattern in getattr(scope, "models", ()):
        if not any(any_glob([pattern], label) for label in labels):
            yield f"no model run is labeled {pattern!r}{did_you_mean(pattern, labels)}"


def _shared_names(view: SuiteContext) -> Problems:
    """Metrics that two graders write for one case, as a cell has one score per metric; then metrics of one name that
    mean two things in two cases, as their mean would mean nothing.
    """
    graders = view.suite.graders
    twice: dict[tuple[int, str], str] = {}
    first: dict[str, tuple[int, Metric]] = {}
    two_meanings: dict[tuple[int, str], str] = {}
    for name, writers in (item for written in view.written for item in written.items()):
        index, metric = writers[0]
        key = graders[index].key
        for again in (other for other, _ in writers[1:] if graders[other].key != key):
            message = f"the grader {key!r} writes the metric {name!r} too: give this grader another key or scope"
            twice.setdefault((again, name), message)
        other, meaning = first.setdefault(name, (index, metric))
        if metric != meaning:
            of_other = f"{describe_meaning(meaning)} of the grader {graders[other].key!r}"
            message = f"{name!r} is {describe_meaning(metric)}, but {of_other}: use two names"
            two_meanings.setdefault((index, name), message)
    for messages in (twice, two_meanings):
        yield from ((("graders", index), message) for (index, _), message in messages.items())


def metric_problems(view: SuiteContext) -> Problems:
    """Problems of the computed metrics and of custom classes' metrics, and grader metrics named as a built-in one."""
    metrics = view.suite_metrics
    words = {name: metric for name, metric in metrics.grader_metrics.items() if metric.choices}
    shares = {share: name for name, metric in words.items() for share in metric.share_names(name).values()}
    for index, grader in enumerate(view.suite.graders):
        written = {name: metric for case in view.suite.cases for name, metric in grader.metrics(case).items()}
        for name in sorted(written.keys() & BUILT_IN.keys()):
            yield ("graders", index), f"it writes {name!r}, the name of a built-in metric: use another name"
        if isinstance(grader, CustomGrader):
            yield from ((("graders", index), message) for message in _custom_metrics(written, shares))
    tags = {tag for case in view.suite.cases for tag in case.tags}
    taken = dict.fromkeys(BUILT_IN, "is built in") | dict.fromkeys(_RESERVED_NAMES, "is reserved")
    taken |= {grader.key: "has the key of a grader" for grader in view.suite.graders}
    taken |= dict.fromkeys(metrics.grader_metrics, "is written by a grader")
    reported = {name for name, _ in metrics.problems}
    yield from ((("metrics", name), message) for name, message in metrics.problems)
    for name, entry in view.suite.metrics.items():
        if name in taken:
            yield ("metrics", name), f"the metric {name!r} {taken[name]}: use another name"
        for tag in entry.parsed.tags:
            if tag not in tags:
                yield ("metrics", name), f"no case has the tag {tag!r}{did_you_mean(tag, tags)}"
        is_blocked = not reported.isdisjoint(metrics.sources(name))  # by one that it reads
        if name not in taken and name not in view.metric_names and not is_blocked:
            yield ("metrics", name), f"no case has all metrics that {name!r} reads: {', '.join(entry.parsed.names)}"


def _custom_metrics(written: Mapping[str, Metric], shares: Mapping[str, str]) -> Iterator[str]:
    """Problems of the names and ranges that a class or its ``writes`` chose freely. Rules can quote any line of text.

    ``shares`` has the metric of words to which the name of a share belongs.
    """
    for name, metric in written.items():
        low, high = metric.range or (None, None)
        if not name.strip() or not re.fullmatch(ONE_LINE, name):
            yield f"it writes {name!r}, but the name of a metric is one line of text: use another name"
        elif name in _RESERVED_NAMES:
            yield f"it writes {name!r}, which is reserved: use another name"
        elif name in shares:
            yield f"it writes {name!r}, the name of a share of {shares[name]!r}: use another name"
        if low is not None and high is not None and low >= high:
            yield f"it writes {name!r} with a wrong range: {low:g} is not below {high:g}"


def _rule(view: SuiteContext, rule: VerdictRule, cases: Sequence[int]) -> Iterator[str]:
    parsed = parse_rule(rule.rule)
    yield from _metric(view, parsed.metric, cases, parsed.reads, rule.rule)
    if parsed.words:
        yield from _unknown_words(view, parsed, cases)
    if parsed.op is not None:
        yield from _impossible(view, parsed.metric, parsed.op, parsed.threshold, cases, rule.rule)


def _unknown_words(view: SuiteContext, rule: Rule, cases: Sequence[int]) -> Iterator[str]:
    """Words of a rule that its metric does not have, and a rule that no word passes."""
    metrics = [metric for metric in _metrics_of(view, rule.metric, cases) if metric.type == "one_of"]
    choices = dict.fromkeys(word for metric in metrics for word in metric.choices)
    unknown = [word for word in rule.words if choices and word not in choices]
    for word in unknown:
        yield f"{rule.text!r}: {rule.metric!r} is never {word!r}, but {_either(choices)}{did_you_mean(word, choices)}"
    if choices and not unknown and not any((word in rule.words) is rule.expected for word in choices):
        yield f"{rule.text!r}: {rule.metric!r} is {_either(choices)}, so no score passes"


def _either(choices: Iterable[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}"


def _impossible(
    view: SuiteContext, name: str, op: str, threshold: float, cases: Sequence[int], text: str
) -> Iterator[str]:
    """A comparison that no score within the range of its metric can meet, in any case."""
    metrics = _metrics_of(view, name, cases)
    if metrics and all(is_never_met(metric, op, threshold) for metric in metrics):
        yield f"{text!r}: {_range_text(name, metrics[0])}, so no score passes"


def idle_rules(view: SuiteContext) -> Problems:
    """Yields comparisons that every score within the range of their metric meets, in all their cases."""
    for loc, entry, cases in _all_rules(view):
        rule = parse_rule(entry.rule)
        metrics = _metrics_of(view, rule.metric, cases)
        if metrics and not any(can_fail(rule, metric) for metric in metrics):
            yield loc, f"{rule.text!r} cannot fail: {_range_text(rule.metric, metrics[0])}, so every score passes"


def _metrics_of(view: SuiteContext, name: str, cases: Sequence[int]) -> list[Metric]:
    """What a metric is in each of the cases that have it."""
    return [view.available[case_index][name] for case_index in cases if name in view.available[case_index]]


def _range_text(name: str, metric: Metric) -> str:
    if metric.type == "one_of":
        return f"{name!r} is {_either(metric.choices)}"
    low, high = metric.range or (None, None)
    limits = (("at least", low), ("at most", high))
    span = " and ".join(f"{words} {limit:g}" for words, limit in limits if limit is not None)
    return f"{name!r} is {span}"


def _metric(view: SuiteContext, name: str, cases: Sequence[int], required_type: str | None, text: str) -> Iterator[str]:
    if name in view.suite.metrics and name not in view.metric_names:
        return  # reported where it is defined
    if name not in view.metric_names:
        if reason := _missing_input(view, name):
            yield f"{text!r}: no case has {name!r}: {reason}"
            return
        metrics = chain.from_iterable(available.items() for available in view.available)
        of_word = next((word for word, metric in metrics if name in metric.share_names(word).values()), None)
        if of_word is not None:  # such as ``style: flat`` of ``style``
            advice = _advice(view, of_word, range(len(view.suite.cases)), "one_of", text)
            yield f"{text!r}: {of_word!r} is one word of a list, which no gate can read; {advice}"
            return
        reason = did_you_mean(name, view.metric_names)
        if name.replace("_", "").lower() in {function.replace("_", "") for function in COUNTING}:
            reason = ": it counts cells, so it belongs under 'gates'"
        yield f"{text!r}: no grader writes {name!r}{reason}"
        return
    types = {metric.type for metric in _metrics_of(view, name, cases)}
    if cases and not types:
        reason = _missing_input(view, name)
        yield f"{text!r}: no case in its scope has {name!r}{f': {reason}' if reason else ''}"
    fitting = {"bool", "number"} if required_type == _EITHER else {required_type}
    wrong = next(iter(sorted(types - fitting)), None)
    if required_type is not None and wrong is not None:
        yield f"{text!r}: {name!r} is {_TYPES[wrong]}; {_advice(view, name, cases, wrong, text)}"


def _advice(view: SuiteContext, name: str, cases: Sequence[int], kind: str, text: str) -> str:
    """How a rule or a gate over a metric of a kind is written."""
    if kind == "bool":
        return f"use rate({name})" if "mean(" in text else f"write {name!r} or 'not {name}'"
    if kind == "number":
        return f"use mean({name})" if "rate(" in text else f"compare it: '{name} >= NUMBER'"
    word = next(metric.choices[0] for metric in _metrics_of(view, name, cases) if metric.choices)
    example = f'{name} == "{word}"'
    if "(" in text.partition(name)[0]:
        return f"write a verdict rule, such as {example!r}, and limit pass_rate"
    return f"compare it with a word: {example!r}"


def _missing_input(view: SuiteContext, name: str) -> str:
    """Why no case has a metric that one of the graders could write; empty if no grader could."""
    for grader in view.suite.graders:
        needed = grader.needs.get(name.removeprefix(grader.key)) if name.startswith(grader.key) else None
        if needed is not None:
            return f"the grader {grader.key!r} writes it only for cases with {needed}"
    return ""


def _uncovered_cases(view: SuiteContext, bad_locs: set[Loc]) -> Problems:
    """Cases without any rule that applies, which could only be errors. Skips rules that have other problems."""
    if not view.suite.has_rules:
        return
    of_suite = _failing_rules(view.suite.verdict)
    for case_index, case in enumerate(view.suite.cases):
        loc = ("verdict",) if case.verdict is None else ("cases", case_index)
        if case.expect.refusal or loc in bad_locs:
            continue
        rules = of_suite if case.verdict is None else _failing_rules(case.verdict)
        applicable = [
            rule
            for rule, metric in rules
            if metric in view.available[case_index] and rule.fits(case.id, case.task_type, case.tags)
        ]
        if any(not rule.models for rule in applicable):
            continue
        for label, cases in view.labels:
            if case_index in cases and not any(any_glob(rule.models, label) for rule in applicable):
                yield ("cases", case_index), f"no verdict rule applies to the case {case.id!r} on {label!r}"
                break


def _failing_rules(rules: Sequence[VerdictRule]) -> list[tuple[VerdictRule, str]]:
    return [(rule, parse_rule(rule.rule).metric) for rule in rules if rule.level == "fail"]


def _gates(view: SuiteContext) -> Problems:
    for index, entry in enumerate(view.suite.gates):
        gate = parse_gate(entry.rule)
        cases = view.cases_in(entry)
        yield from ((("gates", index), message) for message in _without_cells(view, entry, entry.rule))
        is_rate = gate.fn not in ("mean", "separation") and gate.quantile is None
        if is_rate and not 0 <= gate.threshold <= 1:
            yield ("gates", index), f"{entry.rule!r}: a rate is between 0 and 1"
        if gate.fn == "pass_rate" and not view.suite.has_rules:
            yield ("gates", index), f"{entry.rule!r}: without 'graders' and 'verdict', nothing passes or fails"
        if gate.metric is not None:
            required = "number" if gate.quantile is not None else _METRIC_TYPES[gate.fn]
            messages = [*_metric(view, gate.metric, cases, required, entry.rule)]
            if not is_rate and gate.fn != "separation":
                messages += _impossible(view, gate.metric, gate.op, gate.threshold, cases, entry.rule)
            yield from ((("gates", index), message) for message in messages)
        yield from ((("gates", index, "weights"), message) for message in _weights(view, entry, cases))
        yield from ((("gates", index), message) for message in _aligned(view, entry, cases))


def _aligned(view: SuiteContext, entry: GateRule, cases: Sequence[int]) -> Iterator[str]:
    """A gate that needs aligned cases or counter-examples, and has none."""
    gate, in_scope = parse_gate(entry.rule), [view.suite.cases[case_index] for case_index in cases]
    kinds = {case.expect.aligned for case in in_scope}
    if gate.fn == "separation" and len(kinds) == 1:
        missing = "counterexamples (expect: {aligned: false})" if True in kinds else "aligned cases"
        yield f"{entry.rule!r}: its cases include no {missing}"
    if kinds == {False} and left_out(view.suite, [gate.metric or ""]).cases_of(gate.metric, entry):
        message = f"{entry.rule!r}: without a scope it leaves out counterexamples, and all its cases are"
        yield f"{message}: name them with 'cases', 'tags' or 'tasks'"


def _weights(view: SuiteContext, entry: GateRule, cases: Sequence[int]) -> Iterator[str]:
    weighted = entry.weights or {}
    in_scope = [view.suite.cases[case_index] for case_index in cases]
    tags = {tag for case in in_scope for tag in case.tags}
    for tag in weighted:
        if in_scope and tag not in tags:
            yield f"no case of this gate has the tag {tag!r}{did_you_mean(tag, tags)}"
    for case in in_scope:
        if len(shared := [tag for tag in weighted if tag in case.tags]) > 1:
            yield f"the case {case.id!r} has several of these tags: {', '.join(shared)}; only one may have a weight"
            return
