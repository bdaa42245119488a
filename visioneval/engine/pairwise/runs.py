"""Compares two runs with a pairwise judge: pairs their images and asks about each pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from visioneval.analysis.compare.pairing import CellPair, pair_cells, parse_map
from visioneval.analysis.compare.preferences import PreferenceFinding, panels_of, summarize_preferences, unjudged
from visioneval.analysis.sides import Side
from visioneval.counted import count_of
from visioneval.engine.call_settings import CallSettings, check_budget, check_session, open_calls
from visioneval.engine.calls.cost.meter import JudgeMeters
from visioneval.engine.cells.context import sanitizer_for
from visioneval.engine.components import build_components
from visioneval.engine.listener import Listener
from visioneval.engine.loop import run_to_end
from visioneval.engine.pairwise.session import Matchups, PairwiseSession, judge_matchups, matchups_of
from visioneval.engine.shutdown import Outcome, Progress
from visioneval.errors import ExitCode, UsageError
from visioneval.expansion.plan import Plan
from visioneval.records.model import read_info, read_records
from visioneval.records.preferences import read_preferences
from visioneval.registry import GRADERS, config_of
from visioneval.suite.load import judge_of_flag
from visioneval.suite.loading.messages import did_you_mean
from visioneval.suite.model import JudgeEntry

PairKey = tuple[str, int, str, str]
"""The key of a pair: case, sample, and both sides as ``RUN_ID@label``."""
_ENTRY: TypeAdapter[Any] = TypeAdapter(JudgeEntry)


@dataclass(frozen=True, slots=True)
class RunPairs:
    """The pairs of two runs. ``only_a`` and ``only_b`` count cells without a counterpart.

    ``other_prompt`` counts pairs with different prompts, which are judged by the prompt of B, and ``later_turns`` cells
    of B that are left out. ``pair_keys`` contains every selected pair, including pairs that cannot be shown to a judge.
    """

    matchups: Matchups
    pair_keys: frozenset[PairKey]
    only_a: int
    only_b: int
    other_prompt: int
    later_turns: int

    def __str__(self) -> str:
        notes = (
            (self.only_a, "cells are only in A"),
            (self.only_b, "cells are only in B"),
            (self.other_prompt, "pairs have different prompts and are judged with the prompt of B"),
            (self.later_turns, "cells of later turns are left out: two outputs of a turn are edits of two images"),
        )
        return "; ".join([str(self.matchups), *(f"{count} {text}" for count, text in notes if count)])


@dataclass(frozen=True, slots=True, repr=False)
class PairwiseResult:
    """The outcome of judging the pairs of two runs: all preferences so far, and the calls and cost of this time."""

    complete: bool
    out_of_budget: bool
    preferences: tuple[PreferenceFinding, ...]
    meters: JudgeMeters

    @property
    def exit_code(self) -> int:
        """0 if complete, 3 if a pair was not judged, 130 after an interrupt."""
        if not self.complete and not self.out_of_budget:
            return int(ExitCode.INTERRUPTED)
        has_gaps = not self.complete or unjudged(self.preferences) > 0
        return int(ExitCode.INCOMPLETE if has_gaps else ExitCode.PASSED)

    def __repr__(self) -> str:
        return f"PairwiseResult({count_of(len(self.preferences), 'preference')}, exit code {self.exit_code})"


def pairwise_plan(plan: Plan, judge: str | None) -> Plan:
    """The plan with one pairwise grader only: that of the whole suite, or else a new one for ``judge``.

    ``judge`` is ``NAME`` or ``NAME=PROVIDER:MODEL``. Raises ``UsageError`` for an unusable judge.
    """
    graders = [grader for grader in plan.whole_suite.graders if grader.judges_pairs]
    name, _, model = (judge or "").partition("=")
    names = (name,) if name else graders[0].judge_names if graders else ("default",)
    judges: dict[str, Any] = dict(plan.suite.judges)
    if model:
        judges[name] = _ENTRY.validate_python(judge_of_flag(name, model))
    for name in names:
        if name not in judges:
            hint = did_you_mean(name, judges) if judges else ""
            advice = f"add one with --judge {name}=PROVIDER:MODEL"
            raise UsageError(f"--judge: B's suite has no judge {name!r}{hint}; {advice}")
        if judges[name].is_recorded:
            raise UsageError(f"--judge {name}: recorded answers cover single images only: use another judge for pairs")
    config = next(
        (grader for grader in graders if set(names) <= {*grader.judge_names}), graders[0] if graders else None
    )
    config = config or config_of(GRADERS, "pairwise")(key="pairwise", type="pairwise")
    config = config.with_judge(names[0]) if len(names) == 1 else config
    config = config.model_copy(update={"when": None, "models": ()})
    suite = plan.suite.model_copy(update={"graders": (config,), "judges": judges})
    return replace(plan, suite=suite, generates=False)


def pair_runs(plan: Plan, sides: tuple[Side, Side], folders: tuple[Path, Path], renamed: Sequence[str]) -> RunPairs:
    """Pairs the cells of two runs by case, model run and sample, as ``compare`` does.

    Raises ``UsageError`` if there are no pairs.
    """
    later_turns = {case.id for case in plan.whole_suite.cases if case.previous_turn is not None}
    left_out = later_turns | {case.id for case in plan.whole_suite.cases if case.output_of is not None}
    of_run = {case.id for case in read_info(folders[1]).selected_suite.cases}
    left_out |= of_run - {case.id for case in plan.suite.cases}
    a, b = (replace(side, cells=side.cells.where(lambda cell: cell[0] not in left_out)) for side in sides)
    pairing = pair_cells(a, b, parse_map(renamed, a, b))
    if folders[0].resolve() == folders[1].resolve() and any(pair.a == pair.b for pair in pairing.pairs):
        raise UsageError("A and B are the same run: select two model runs, as RUN@LABEL")
    records = [{record.cell: record for record in read_records(folder)} for folder in folders]
    pairs = [(records[0][_cell(pair, "a")], records[1][_cell(pair, "b")]) for pair in pairing.pairs]
    (config,) = (grader for grader in plan.suite.graders if grader.after_run)
    runs = [read_info(folder).run_id for folder in folders]
    return RunPairs(
        matchups_of(plan, config, pairs, folders),
        frozenset(_pair_key(pair, *runs) for pair in pairing.pairs),
        only_a=len(pairing.only_a),
        only_b=len(pairing.only_b),
        other_prompt=sum(record_a.prompt != record_b.prompt for record_a, record_b in pairs),
        later_turns=sum(case in later_turns for case, _, _ in sides[1].cells.names()),
    )


def _pair_key(pair: CellPair, a: str, b: str) -> PairKey:
    return pair.b.test_id, pair.b.sample_index, f"{a}@{pair.a.model_label}", f"{b}@{pair.b.model_label}"


def _cell(pair: CellPair, side: str) -> tuple[str, str, int]:
    cell = pair.a if side == "a" else pair.b
    return cell.test_id, cell.model_label, cell.sample_index


def compare_runs(
    plan: Plan, pairs_of_runs: RunPairs, folder: Path, settings: CallSettings, listener: Listener
) -> PairwiseResult:
    """Asks the judge about the pairs, and stores its answers in ``folder``, the folder of run B."""
    (config,) = (grader for grader in plan.suite.graders if grader.after_run)
    check_budget(plan, settings)
    check_session(plan, settings, listener.say)
    components = build_components(plan, offline=settings.reuse.offline)
    with open_calls(plan, settings, read_info(folder).payer, listener.say) as calls:
        session = PairwiseSession(plan, config, components, calls, folder, sanitizer_for(plan))
        refresh = not settings.reuse.judgements
        ended = _judge_pairs(session, pairs_of_runs, listener, refresh=refresh)
    titles = {session.judge(name).title for name in config.judge_names}
    judged = (line for line in read_preferences(folder) if line.judge in titles)
    lines = (line for line in judged if (line.test_id, line.sample_index, line.a, line.b) in pairs_of_runs.pair_keys)
    preferences = summarize_preferences(lines, panels_of(plan.suite))
    return PairwiseResult(ended.complete, ended.out_of_budget, preferences, session.meters)


def _judge_pairs(session: PairwiseSession, pairs_of_runs: RunPairs, listener: Listener, *, refresh: bool) -> Outcome:
    progress = Progress(session.calls)

    async def judge() -> Outcome:
        await judge_matchups(session, pairs_of_runs.matchups.pairs, progress, refresh=refresh)
        progress.check()
        if session.calls.budget.refusal is not None:
            listener.say(session.calls.budget.refusal)
        return Outcome(complete=not progress.left, out_of_budget=progress.out_of_budget)

    return run_to_end(judge, progress, listener.say, listener.started)
