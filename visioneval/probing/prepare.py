"""Prepares a probe: which outputs, which graders and which kinds of change, and what it costs at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from visioneval.analysis.planning import read_past_costs
from visioneval.analysis.probe import MinDetection, check_max_false_alarm, parse_min_detection
from visioneval.analysis.run_lookup import named_run
from visioneval.errors import UsageError
from visioneval.probing.changes import PROMPT_KINDS
from visioneval.probing.kinds import COPY, KINDS, Kind, is_within, matching
from visioneval.probing.originals import LINES_TO_TRY, Notes, Original, passing_outputs, suite_outputs
from visioneval.records.stores.lookup import fetch_outputs
from visioneval.running.calls.prices import budget_warnings
from visioneval.running.calls.settings import CallSettings, budget_of
from visioneval.running.estimate import judging_costs, total_text
from visioneval.running.loading import SuiteOptions, load_plan
from visioneval.running.plan import Call, Plan
from visioneval.running.prepare import RunToGrade, plan_grading
from visioneval.suite.entries.graders import BaseGrader


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What ``probe`` probes, and how it decides. ``kinds`` are names or prefixes; none means all."""

    name: str
    """A suite file or a run."""
    kinds: tuple[str, ...] = ()
    seed: int = 0
    judges: bool = False
    """Whether graders that ask judges are probed too, with counter-prompts."""
    min_detection: tuple[str, ...] = ()
    max_false_alarm: float | None = None
    with_images: bool = False
    """Whether the result has the images of missed damage."""


@dataclass(frozen=True, slots=True)
class PreparedProbe:
    """A probe that can be executed. ``metrics`` are the graders of the metrics that rules read."""

    request: ProbeRequest
    plan: Plan
    """With the graders that are probed only."""
    originals: tuple[Original, ...]
    kinds: tuple[Kind, ...]
    prompt_kinds: tuple[str, ...]
    metrics: dict[str, str]
    minimums: tuple[MinDetection, ...]
    notes: Notes

    @property
    def source(self) -> str:
        """The name of the suite file or the run, without its folder."""
        return Path(self.request.name).name

    @property
    def changes(self) -> int:
        """The most changes that one output gets."""
        return sum(len(kind.levels) for kind in self.kinds) + len(self.prompt_kinds)

    @property
    def announcement(self) -> str:
        """What the probe is about to do."""
        outputs, graders = len(self.originals), ", ".join(grader.key for grader in self.plan.suite.graders)
        return f"probing {graders} with up to {self.changes} changes of each of {outputs} output{'s' * (outputs != 1)}"


def prepare_probe(request: ProbeRequest, options: SuiteOptions) -> PreparedProbe:
    """Loads a suite or a run. Raises ``UsageError`` and ``SuiteError``."""
    names = [kind.name for kind in KINDS] + list(PROMPT_KINDS if request.judges else ())
    minimums = tuple(parse_min_detection(text, names) for text in request.min_detection)
    check_max_false_alarm(request.max_false_alarm)
    kinds, prompt_kinds = _kinds(request)
    notes = Notes()
    planned, source = _load(request.name, options)
    graders = tuple(_probed_graders(planned, notes, judges=request.judges))
    if not graders:
        raise UsageError(f"{request.name}: no grader to probe: {'; '.join(notes.lines()) or 'it has none'}")
    suite = planned.suite.model_copy(update={"graders": graders})
    plan = replace(planned, suite=suite, generates=False)
    if source is None:
        originals = suite_outputs(plan, notes)
    else:
        if source.info.state != "complete":
            notes.say(f"the run is {source.info.state}: only the cells that it has are probed")
        originals = passing_outputs(plan, source.folder, source.label, notes)
    originals = [replace(original, call=_strict(original.call)) for original in originals]
    metrics = _read_metrics(plan, [original.call for original in originals], notes)
    return PreparedProbe(request, plan, tuple(originals), kinds, prompt_kinds, metrics, minimums, notes)


def _kinds(request: ProbeRequest) -> tuple[tuple[Kind, ...], tuple[str, ...]]:
    """The kinds of change that were asked for, of images and of prompts."""
    of_prompts = [name for name in request.kinds if any(is_within(kind, name) for kind in PROMPT_KINDS)]
    if of_prompts and not request.judges:
        raise UsageError(f"--kinds {of_prompts[0]}: only judges read prompts: add --judges")
    of_images = [name for name in request.kinds if name not in of_prompts]
    kinds = matching(of_images) if of_images or not request.kinds else ()
    if not request.judges:
        return kinds, ()
    return kinds, tuple(
        kind for kind in PROMPT_KINDS if not request.kinds or any(is_within(kind, name) for name in of_prompts)
    )


def _load(name: str, options: SuiteOptions) -> tuple[Plan, RunToGrade | None]:
    if Path(name).is_file():
        return load_plan(Path(name), options), None
    if Path(name).suffix.lower() in (".yaml", ".yml"):
        raise UsageError(f"{name}: there is no such suite file")
    source = RunToGrade(*named_run(name, options.runs))
    fetch_outputs(source.folder)
    return plan_grading(source, None, options), source


def _probed_graders(plan: Plan, notes: Notes, *, judges: bool) -> Iterator[BaseGrader]:
    """The graders whose scores follow from an image: local ones, and those that ask judges if these are probed."""
    for grader in plan.suite.graders:
        recorded = [name for name in grader.judge_names if plan.suite.judges[name].is_recorded]
        if not grader.kind.grades_cells:
            notes.say(f"left out the grader {grader.key}: it compares {grader.kind.compares}")
        elif recorded:
            notes.say(f"left out the grader {grader.key}: its answers are recorded for other images")
        elif grader.judge_names and not judges:
            notes.say(f"left out the grader {grader.key}: it asks a judge (--judges probes it)")
        else:
            yield grader


def _strict(call: Call) -> Call:
    """The call with rules that only warn as rules that fail: the question is what a grader sees."""
    optional = frozenset(grader.key for grader in call.grading.graders if grader.optional)
    rules = tuple((rule, False) for rule, _ in call.grading.rules)
    return replace(call, grading=replace(call.grading, rules=rules, optional_graders=optional))


def _read_metrics(plan: Plan, calls: Sequence[Call], notes: Notes) -> dict[str, str]:
    """The grader of each metric that a rule of these calls reads, in the order of the graders."""
    metrics: dict[str, str] = {}
    for grader in plan.suite.graders:
        applying = [call for call in calls if grader.key in {entry.key for entry in call.grading.graders}]
        read_by_rules = {
            metric: grader.key
            for call in applying
            for metric in grader.metrics(call.case)
            if any(rule.metric == metric for rule, _ in call.grading.rules)
        }
        metrics |= read_by_rules
        if not read_by_rules:
            reason = "no rule reads its metrics" if applying else "no probed case has anything for it to measure"
            notes.say(f"nothing can be caught by the grader {grader.key}: {reason}")
    return metrics


def cost_lines(prepared: PreparedProbe, settings: CallSettings, runs: Path) -> Iterator[str]:
    """The estimate: the sum, each judge, and what the budget does not cover. None if no judge is asked."""
    if not prepared.request.judges or settings.reuse.offline:
        return
    costs = judging_costs(prepared.plan, gradings(prepared), cache(lambda: read_past_costs(runs)))
    yield f"cost if all changes can be planted and no answer is cached: {total_text(costs)}"
    yield from (f"  {cost}" for cost in costs)
    limit_usd = budget_of(prepared.plan, settings)
    if limit_usd is None:
        return
    yield from budget_warnings(prepared.plan, limit_usd)
    if sum(cost.usd or 0.0 for cost in costs) > limit_usd:
        yield f"this is over the budget of {limit_usd:g} USD: the probe stops when the budget is used up"


def gradings(prepared: PreparedProbe) -> Counter[str]:
    """How often each grader grades at most: every output as it is, with every change, and with a line set again."""
    controls = LINES_TO_TRY if any(kind.group == COPY for kind in prepared.kinds) else 0
    times: Counter[str] = Counter()
    for original in prepared.originals:
        times.update({grader.key: 1 + prepared.changes + controls for grader in original.call.grading.graders})
    return times
