"""The plan of a run: calls to generate, their cells, and the graders and rules of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby, zip_longest
from pathlib import Path
from typing import Any

from visioneval.media.urls import is_url, public_address
from visioneval.records.model import options_hash, short_digest
from visioneval.rules import Rule, parse_gate, parse_rule
from visioneval.suite.case import BASE_ROLE, TestCase, dependents_by_case, rendered
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.files import ExistingOutput, Finished
from visioneval.suite.filters import chain_of, first_turn
from visioneval.suite.load import LoadedSuite
from visioneval.suite.metrics import CaseMetrics, SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.suite.prompts import sent_prompt
from visioneval.suite.rules import VerdictRule
from visioneval.suite.runs import RunCoverage, Selection, addressed, selected
from visioneval.templates.render import Templates
from visioneval.types import CaseFiles, Metric, ModelRun, Output, TaskType


@dataclass(frozen=True, slots=True)
class Grading:
    """How the cells of a call are graded."""

    graders: tuple[BaseGrader, ...]
    rules: tuple[tuple[Rule, bool], ...]
    """Rules in the suite's order. The flag is true for rules that only warn."""
    hashes: Mapping[str, str]
    """By grader key: a hash of its options and, if it uses a judge, of the judge, its templates and ``vars``."""
    optional_graders: frozenset[str]
    """The keys of the graders whose scores no verdict needs."""
    metrics: CaseMetrics
    """The built-in and computed metrics."""
    optional_metrics: frozenset[str]
    """The computed metrics that no verdict needs."""


@dataclass(frozen=True, slots=True)
class Call:
    """One generation call, and the cells (``samples``) of its images."""

    case: TestCase
    prompt: str
    """The case's own prompt."""
    sent_prompt: str
    """The prompt that the model is sent: another one if its model run is of an entry of ``prompts``."""
    graded_prompt: str
    """The prompt that graders see: one of the two."""
    run: ModelRun
    params: Mapping[str, Any]
    samples: tuple[int, ...]
    files: CaseFiles
    grading: Grading
    dependents: tuple[Call, ...] = ()
    """Calls of the cases that use this call's images (``output_of``): the same cells with another prompt."""
    previous: Call | None = None
    """The call of the turn before, if this is a later turn and the turn before has a cell of its sample."""
    base: Output | None = None
    """Of a later turn: the output of the turn before, once it is known. It is then the first image of ``files``."""

    @property
    def task_type(self) -> TaskType:
        """What it generates."""
        return self.case.task_type

    @property
    def key_files(self) -> tuple[Path, ...]:
        """The files whose contents are part of its keys."""
        files = self.files
        paths = [path for _, path in files.images] + list(files.masks.values())
        if files.reference is not None:
            paths.append(files.reference)
        if self.existing_output is not None and not is_url(self.existing_output):
            paths.append(Path(self.existing_output))
        if self.previous is not None:
            paths += self.previous.key_files
        return tuple(paths)

    @property
    def existing_output(self) -> str | None:
        """The path or URL of the output that it reads; ``None`` if it generates one."""
        return self.params.get("path") if self.run.config.reads_outputs else None

    @property
    def with_dependents(self) -> tuple[Call, ...]:
        """It and its dependents: the calls of all cells that its images have."""
        return self, *self.dependents

    @property
    def cells(self) -> int:
        """The number of cells of the call's images."""
        return len(self.samples) * len(self.with_dependents)

    def cell(self, sample: int) -> tuple[str, str, int]:
        """The key of the cell of one of its samples."""
        return self.case.id, self.run.label, sample

    @property
    def needs_base(self) -> bool:
        """Whether it is a later turn that edits an output, which is still to be set."""
        return self.case.previous_turn is not None and self.run.config.has_outputs and self.base is None

    def with_base(self, base: Output) -> Call:
        """The call, and its dependents, with the output of the turn before as the image to edit."""
        files = replace(self.files, images=((BASE_ROLE, base.path), *self.files.images))
        dependents = tuple(dependent.with_base(base) for dependent in self.dependents)
        return replace(self, base=base, files=files, dependents=dependents)


Caller = Callable[[ModelRun, Mapping[str, Any], tuple[int, ...]], Call]
"""Creates a call of a case for a model run, with parameters and samples."""


@dataclass(frozen=True)
class Plan:
    """A suite restricted to the selection, with its sweeps expanded. Calls are created on demand."""

    suite: Suite
    loaded: LoadedSuite = field(compare=False)
    """The suite as it was read and checked, with its warnings."""
    runs: tuple[ModelRun, ...]
    finished: Mapping[str, Finished]
    """For model runs that read existing outputs: the outputs by case, by label."""
    whole_suite: Suite
    """With what the selection leaves out, and one entry per model run."""
    selection: Selection
    templates: Templates = field(compare=False)
    generates: bool = True
    """Whether it generates; ``visioneval grade`` does not."""
    case_samples: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """The samples of each case, by its ID and model run, that has more than the suite's number."""

    @property
    def folder(self) -> Path:
        """The suite's folder."""
        return self.loaded.folder

    @property
    def trusted(self) -> bool:
        """Whether the user trusts the suite with everything, including buckets."""
        return self.loaded.trust.everything

    @property
    def secrets(self) -> Mapping[str, str]:
        """Values of secret variables, by name."""
        return self.loaded.secrets

    def calls(self) -> Iterator[Call]:
        """Every generation call, case by case, with the cases that use its images."""
        return chain.from_iterable(self.chains())

    def chains(self) -> Iterator[tuple[Call, ...]]:
        """Every generation call, where the calls of all turns of a case for one sample are together, in order."""
        rules = [(entry, parse_rule(entry.rule)) for entry in self.suite.verdict]
        dependents_by_id = dependents_by_case(self.suite.cases)
        generating = (case for case in self.suite.cases if case.output_of is None)
        for _, turns in groupby(generating, lambda case: chain_of(case.id)):
            cases = list(turns)
            runs = [run for run in self.runs if self._coverage.has_cells(run.config, cases[0])]
            if not runs:
                continue
            callers = [
                (self._caller(case, rules), [self._caller(user, rules) for user in dependents_by_id.get(case.id, ())])
                for case in cases
            ]
            for run in runs:
                for cells in zip_longest(*(self._samples(case, run) for case in cases)):
                    calls: list[Call] = []
                    for (make_call, dependent_callers), cell in zip(callers, cells, strict=True):
                        if cell is None:  # fewer existing outputs than of another turn
                            continue
                        samples, params = cell
                        call = make_call(run, params, samples)
                        dependents = tuple(make_dependent(run, params, samples) for make_dependent in dependent_callers)
                        calls.append(self._linked(call, dependents, calls))
                    yield tuple(calls)

    def _linked(self, call: Call, dependents: tuple[Call, ...], before: Sequence[Call]) -> Call:
        """A call with its dependents, and with the call of the turn before if that is the last one of ``before``."""
        graders = (grader for cell_call in (call, *dependents) for grader in cell_call.grading.graders)
        params = addressed(call.params, graders, self.suite.judges)
        is_next = bool(before) and before[-1].case.id == call.case.previous_turn
        return replace(call, dependents=dependents, params=params, previous=before[-1] if is_next else None)

    def _caller(self, case: TestCase, rules: list[tuple[VerdictRule, Rule]]) -> Caller:
        """A function that creates the calls of a case; computes what they share only once."""
        rule_entries = rules if case.verdict is None else [(entry, parse_rule(entry.rule)) for entry in case.verdict]
        prompt, criteria = rendered(case, self.suite.vars)
        resolved = case if criteria == case.criteria else case.model_copy(update={"criteria": criteria})
        graders = tuple(grader for grader in self.suite.graders if applies(grader, case))
        files = self.suite.files_of(case, self.folder, self._source(case))
        hashes = {grader.key: self._grading_of(grader, case) for grader in graders}
        wordings = self._wordings(case, prompt)
        metrics = self.suite_metrics.for_case(case)

        def call(run: ModelRun, params: Mapping[str, Any], samples: tuple[int, ...]) -> Call:
            in_scope = tuple(
                (rule, entry.level == "warn")
                for entry, rule in rule_entries
                if entry.covers(case.id, case.task_type, case.tags, run.label)
            )
            warned, needed = self._read_metrics(in_scope)
            sent, graded = self._wording(run.config, wordings, prompt)
            return Call(
                case=resolved,
                prompt=prompt,
                sent_prompt=sent,
                graded_prompt=graded,
                run=run,
                params=params,
                samples=samples,
                files=files,
                grading=Grading(
                    graders,
                    in_scope,
                    hashes,
                    _optional_graders(case, graders, warned, needed),
                    metrics,
                    frozenset(formula.name for formula in metrics.formulas if formula.name in warned - needed),
                ),
            )

        return call

    def _wordings(self, case: TestCase, prompt: str) -> dict[str, tuple[str, str]]:
        """By the label of a prompt of the suite: the prompt that is sent for a case, and the one that graders see."""
        generating = self._source(case)
        first = self._by_id.get(first_turn(generating.id), generating)
        wordings = {}
        for entry in self.suite.prompts:
            graded_as_sent = entry.graded_as == "sent"
            if entry.is_for(first):
                is_rendered = graded_as_sent or case is generating
                sent = sent_prompt(entry.template, case, prompt, self.suite.vars) if is_rendered else prompt
                wordings[entry.label] = sent, sent if graded_as_sent else prompt
        return wordings

    def _wording(self, entry: BaseProvider, wordings: Mapping[str, tuple[str, str]], prompt: str) -> tuple[str, str]:
        """The sent and the graded prompt on the model run of an entry of ``models``."""
        return next((wordings[used.label] for used in self.suite.prompts_of(entry)), (prompt, prompt))

    def graded_prompts(self, case: TestCase) -> tuple[str, ...]:
        """Every prompt that graders see for a case, on any model run, without duplicates."""
        prompt, _ = rendered(case, self.suite.vars)
        wordings = self._wordings(case, prompt)
        entries = (entry for entry in self.suite.models if self._coverage.has_cells(entry, case))
        return tuple(dict.fromkeys(self._wording(entry, wordings, prompt)[1] for entry in entries))

    @cached_property
    def _coverage(self) -> RunCoverage:
        return RunCoverage(self.suite)

    def _read_metrics(self, rules: Iterable[tuple[Rule, bool]]) -> tuple[frozenset[str], frozenset[str]]:
        """The metrics that rules which warn read, and those that other rules and gates read, directly or not."""
        warned = (self.suite_metrics.sources(rule.metric) for rule, warn in rules if warn)
        needed = (self.suite_metrics.sources(rule.metric) for rule, warn in rules if not warn)
        return frozenset[str]().union(*warned), self._gated_metrics.union(*needed)

    @cached_property
    def _gated_metrics(self) -> frozenset[str]:
        gated = filter(None, (parse_gate(gate.rule).metric for gate in self.suite.gates))
        return frozenset[str]().union(*map(self.suite_metrics.sources, gated))

    @cached_property
    def suite_metrics(self) -> SuiteMetrics:
        """The metrics of the selected graders and cases, and the built-in and computed ones."""
        return SuiteMetrics(self.whole_suite, self.suite)

    def _samples(self, case: TestCase, run: ModelRun) -> Iterator[tuple[tuple[int, ...], Mapping[str, Any]]]:
        if run.config.reads_outputs and run.config.has_outputs:
            for index, image in enumerate(self._images(case, run)):
                yield (index,), {"path": ""} if image is None else image.params
            return
        per_call, repeats = self.outputs_per_call(run), self.calls_per_sample(run)
        samples = self.case_samples.get((chain_of(case.id), run.label), self.suite.samples)
        for call in range(samples * repeats):
            yield tuple(range(call * per_call, (call + 1) * per_call)), run.params

    def outputs_of(self, run: ModelRun) -> Iterator[str]:
        """The path of every existing output that a model run would read, relative to the suite's folder."""
        for case in self.suite.cases:
            if self._coverage.has_cells(run.config, case) and run.config.has_outputs and case.output_of is None:
                yield from (image.path for image in self._images(case, run) if image and image.path)

    def _images(self, case: TestCase, run: ModelRun) -> list[ExistingOutput | None]:
        paths = [run.config.path_of(case.id, run.label, sample) for sample in range(self.suite.samples)]
        if None not in paths:
            return [ExistingOutput(path=path) for path in paths]
        return list(self.finished[run.label].get(case.id, ())) or [None]

    @staticmethod
    def outputs_per_call(run: ModelRun) -> int:
        """How many samples one call of a model run generates."""
        config: BaseProvider = run.config
        return config.outputs_per_call(dict(run.params))

    @staticmethod
    def calls_per_sample(run: ModelRun) -> int:
        """How many calls one of the suite's samples needs on a model run."""
        config: BaseProvider = run.config
        return config.calls_per_sample(dict(run.params))

    def missing_output(self, call: Call) -> str | None:
        """The existing output that a call would read, if it does not exist."""
        path = call.existing_output
        if path is None or is_url(path) or (path and (self.folder / path).is_file()):
            return None
        return str(
            public_address(path) or call.params.get("row") or f"an image of {call.case.id!r} by {call.run.label!r}"
        )

    def count(self, case: TestCase, run: ModelRun) -> tuple[int, int]:
        """Generation calls and cells of a case on a model run."""
        if not self._coverage.has_cells(run.config, case):
            return 0, 0
        source = self._source(case)
        sizes = [len(samples) for samples, _ in self._samples(source, run)]
        return (len(sizes) if source is case else 0), sum(sizes)

    @property
    def of_all_shards(self) -> Plan:
        """The plan of the run that the shards are merged into; itself if it is no shard."""
        if self.selection.shard is None:
            return self
        selection = self.selection.model_copy(update={"shard": None})
        return replace(self, suite=selected(self.whole_suite, selection), selection=selection)

    @cached_property
    def _by_id(self) -> Mapping[str, TestCase]:
        return {case.id: case for case in self.suite.cases}

    def _source(self, case: TestCase) -> TestCase:
        """The case that generates the images of a case."""
        return case if case.output_of is None else self._by_id[case.output_of]

    @cached_property
    def cells(self) -> int:
        """How many cells the plan has."""
        return sum(self.count(case, run)[1] for case in self.suite.cases for run in self.runs)

    def _grading_of(self, grader: BaseGrader, case: TestCase) -> str:
        """A hash of what a grader's scores for a case depend on beside the case. Computed once for each template,
        as it reads templates and recorded answers."""
        templates = grader.templates(case, self.suite.vars)
        if (grader.key, templates) not in self._gradings:
            self._gradings[grader.key, templates] = self._grading_hash(grader, templates)
        return self._gradings[grader.key, templates]

    @cached_property
    def _gradings(self) -> dict[tuple[str, tuple[str, ...]], str]:
        return {}

    def _grading_hash(self, grader: BaseGrader, templates: tuple[str, ...]) -> str:
        judge_parts: list[Any] | None = None
        judges = [self.suite.judges[name] for name in grader.judge_names if name in self.suite.judges]
        if judges:
            options = [judge.grading_options(self.folder) for judge in judges]
            texts = self.templates.digest(*templates)
            judge_parts = [options if grader.has_panel else options[0], texts, self.suite.vars]
        elif grader.runs_code and self.suite.vars:
            judge_parts = [self.suite.vars]  # a custom class can read them
        return short_digest([grader.key_options, judge_parts, *([grader.version] if grader.version else [])])

    @cached_property
    def config_sha256(self) -> Mapping[str, str]:
        """By grader key: the hash of its options that its records contain."""
        return {grader.key: options_hash(grader) for grader in self.suite.graders}

    @property
    def judges(self) -> dict[str, BaseJudge]:
        """The judges that some grader of the plan uses."""
        names = {
            name
            for grader in self.suite.graders
            if grader.judge_names and any(asks(grader, case) for case in self.suite.cases)
            for name in grader.judge_names
        }
        return {name: judge for name, judge in self.suite.judges.items() if name in names}

    @property
    def metrics(self) -> dict[str, Metric]:
        """Every metric of any cell, in the graders' order; then the built-in ones that are read, and the computed."""
        return self.suite_metrics.all


def _optional_graders(
    case: TestCase, graders: Iterable[BaseGrader], warned: frozenset[str], needed: frozenset[str]
) -> frozenset[str]:
    """Graders that say so, and those whose metrics only rules that warn read."""

    def is_optional(grader: BaseGrader) -> bool:
        if grader.optional is not None or not warned:
            return bool(grader.optional)
        metrics = grader.metrics(case).keys()
        return not metrics.isdisjoint(warned) and metrics.isdisjoint(needed)

    return frozenset(grader.key for grader in graders if is_optional(grader))


def applies(grader: BaseGrader, case: TestCase) -> bool:
    """Whether a grader writes any metric for a case."""
    return grader.is_for(case) and bool(grader.metrics(case))


def asks(grader: BaseGrader, case: TestCase) -> bool:
    """Whether a grader applies to a case, or compares its outputs."""
    return applies(grader, case) or (not grader.kind.grades_cells and grader.is_for(case))


def needed_keys(plan: Plan) -> dict[str, list[str]]:
    """The environment variables with keys that a plan needs, each with its model runs and judges."""
    needed: dict[str, list[str]] = {}
    for run in plan.runs:
        for key in run.config.needs_keys if plan.generates else ():
            needed.setdefault(key, []).append(run.label)
    for name, judge in plan.judges.items():
        for key in judge.needs_keys:
            needed.setdefault(key, []).append(f"the judge {name!r}")
    return needed


def unset_keys(plan: Plan) -> dict[str, list[str]]:
    """Those of ``needed_keys`` that the environment lacks."""
    return {name: users for name, users in needed_keys(plan).items() if not os.environ.get(name)}
