"""Two runs before a judge: which pictures stand against each other, and the questions about them from first to last."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from visioneval.analysis.cells import Side
from visioneval.analysis.compare.pairing import Pair, pair_cells, parse_map
from visioneval.analysis.compare.preferences import Preferred, preferred
from visioneval.engine.call_settings import Session, check_budget, open_calls
from visioneval.engine.calls.calls import Meter
from visioneval.engine.components import build_tools
from visioneval.engine.context import secrets_around
from visioneval.engine.memory import unmap_large_blocks
from visioneval.engine.pairwise.panel import Matchups, Panel, matchups_of, put_to_judge
from visioneval.engine.shutdown import Outcome, Progress, cause, interrupts
from visioneval.errors import UsageError
from visioneval.plan import Plan
from visioneval.records.model import read_info, read_records
from visioneval.records.preferences import read_preferences
from visioneval.registry import GRADERS, JUDGES, config_of
from visioneval.resources import builtin
from visioneval.suite.loading.messages import did_you_mean
from visioneval.suite.model import JudgeEntry, template_folders

Asked = tuple[str, int, str, str]
"""A pair of cells: case, sample, and both sides as ``RUN_ID@label``."""
_ENTRY: TypeAdapter[Any] = TypeAdapter(JudgeEntry)


@dataclass(frozen=True, slots=True)
class Opposed:
    """The pairs of two runs. ``only_a`` and ``only_b`` cells have no counterpart.

    ``other_prompt`` pairs were drawn from two prompts, and are judged by that of B. ``asked`` holds every
    selected pair, those that cannot be shown to a judge included.
    """

    matchups: Matchups
    asked: frozenset[Asked]
    only_a: int
    only_b: int
    other_prompt: int

    def __str__(self) -> str:
        told = (
            (self.only_a, "cells are in A alone"),
            (self.only_b, "cells are in B alone"),
            (self.other_prompt, "pairs were drawn from two prompts, and are judged by that of B"),
        )
        return "; ".join([str(self.matchups), *(f"{many} {what}" for many, what in told if many)])


@dataclass(frozen=True, slots=True)
class Compared:
    """How it ended, what is known of these two now, and what was asked this time, at what cost."""

    complete: bool
    out_of_budget: bool
    found: tuple[Preferred, ...]
    meter: Meter

    @property
    def exit_code(self) -> int:
        """0; 3 where something was not judged; 130 after an interrupt."""
        if not self.complete and not self.out_of_budget:
            return 130
        return 3 if not self.complete or any(one.errors for one in self.found) else 0


def judged_suite(plan: Plan, judge: str | None) -> Plan:
    """The plan of a run with one grader alone, which compares: that of its suite, or else one made for ``judge``.

    ``judge`` is ``NAME`` or ``NAME=PROVIDER:MODEL``. Raises ``UsageError`` for one that cannot be asked.
    """
    own = [grader for grader in plan.suite.graders if grader.after_run]
    name, _, model = (judge or "").partition("=")
    name = name or (own[0].judge_name if own else None) or "default"
    judges: dict[str, Any] = dict(plan.suite.judges)
    if model:
        judges[name] = _entry(name, model)
    if name not in judges:
        hint = did_you_mean(name, judges) if judges else ""
        raise UsageError(f"--judge: B's suite has no judge {name!r}{hint}; --judge {name}=PROVIDER:MODEL brings one")
    if judges[name].is_recorded:
        raise UsageError(f"--judge {name}: recorded answers are about single pictures: a pair needs another judge")
    config = next((each for each in own if each.judge_name == name), own[0] if own else None)
    config = config or config_of(GRADERS, "pairwise")(key="prefer", type="pairwise")
    config = config.model_copy(update={"judge": name, "when": None, "models": ()})
    suite = plan.suite.model_copy(update={"graders": (config,), "judges": judges})
    return replace(plan, suite=suite, draws=False)


def _entry(name: str, text: str) -> Any:
    provider, _, model = text.partition(":")
    if provider not in JUDGES or not model or config_of(JUDGES, provider).is_recorded:
        raise UsageError(f"--judge {name}={text}: write PROVIDER:MODEL with the provider openai or gemini")
    return _ENTRY.validate_python({"provider": provider, "model": model})


def described_pairs(
    plan: Plan, sides: tuple[Side, Side], folders: tuple[Path, Path], renamed: Sequence[str]
) -> Opposed:
    """Pairs the cells of two runs as a comparison does, by case, model run and sample.

    Raises ``UsageError`` where there is nothing to pair.
    """
    cases = {case.id for case in plan.suite.cases if case.picture_of is None}
    whole = {case.id for case in read_info(folders[1]).suite.cases}
    a, b = (
        replace(side, cells=[cell for cell in side.cells if cell.test_id in cases or cell.test_id not in whole])
        for side in sides
    )
    pairing = pair_cells(a, b, parse_map(renamed, a, b))
    if folders[0].resolve() == folders[1].resolve() and any(pair.a == pair.b for pair in pairing.pairs):
        raise UsageError("A and B are one and the same: name two model runs, as RUN@LABEL")
    records = [{record.cell: record for record in read_records(folder)} for folder in folders]
    pairs = [(records[0][_cell(pair, "a")], records[1][_cell(pair, "b")]) for pair in pairing.pairs]
    (config,) = (each for each in plan.suite.graders if each.after_run)
    runs = [read_info(folder).run_id for folder in folders]
    return Opposed(
        matchups_of(plan, config, pairs, folders),
        frozenset(_asked(pair, *runs) for pair in pairing.pairs),
        only_a=len(pairing.only_a),
        only_b=len(pairing.only_b),
        other_prompt=sum(one.prompt != other.prompt for one, other in pairs),
    )


def _asked(pair: Pair, a: str, b: str) -> Asked:
    return pair.b.test_id, pair.b.sample_index, f"{a}@{pair.a.model_label}", f"{b}@{pair.b.model_label}"


def _cell(pair: Pair, side: str) -> tuple[str, str, int]:
    cell = pair.a if side == "a" else pair.b
    return cell.test_id, cell.model_label, cell.sample_index


def compare_runs(plan: Plan, opposed: Opposed, folder: Path, session: Session, say: Callable[[str], None]) -> Compared:
    """Puts the pairs to the judge, and keeps its answers in ``folder``, the run B."""
    (config,) = (each for each in plan.suite.graders if each.after_run)
    check_budget(plan, session)
    tools = build_tools(plan, offline=session.reuse.offline)
    with open_calls(plan, session, read_info(folder).run_id, say) as calls:
        places = template_folders(plan.suite, plan.folder, builtin("prompts"))
        panel = Panel(plan, config, tools, calls, folder, places, secrets_around(plan))
        anew = not session.reuse.judgements
        ended = _carried_out(panel, opposed, say, anew=anew)
    judge = panel.judge.title
    kept = (line for line in read_preferences(folder) if line.judge == judge)
    lines = (line for line in kept if (line.test_id, line.sample_index, line.a, line.b) in opposed.asked)
    return Compared(ended.complete, ended.out_of_budget, preferred(lines), panel.meter)


def _carried_out(panel: Panel, opposed: Opposed, say: Callable[[str], None], *, anew: bool) -> Outcome:
    async def work() -> Outcome:
        loop = asyncio.get_running_loop()
        progress = Progress(panel.calls)
        with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="pairs") as threads:
            loop.set_default_executor(threads)
            with interrupts(loop, progress, say), contextlib.suppress(asyncio.CancelledError):
                await put_to_judge(panel, opposed.matchups.pairs, progress, anew=anew)
                progress.check()
                if panel.calls.budget.refusal is not None:
                    say(panel.calls.budget.refusal)
                return Outcome(complete=not progress.left, out_of_budget=progress.out_of_budget)
            if progress.failure is not None:  # which an interrupt did not let come to its end
                say(str(progress.failure))
            return Outcome(complete=False)

    unmap_large_blocks()
    try:
        return asyncio.run(work())
    except BaseExceptionGroup as group:
        raise cause(group) from None
