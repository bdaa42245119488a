"""Builds the providers, graders and judges of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visioneval.errors import ProviderError, UsageError
from visioneval.expansion.plan import Plan, asks, unset_keys
from visioneval.graders.base import Grader
from visioneval.providers.base import CellRef, Generation, GenerationRequest, Judge, Question, Reply
from visioneval.registry import GRADERS, JUDGES, PROVIDERS
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.plugins import build, task_problems


@dataclass(frozen=True, slots=True)
class Components:
    """Providers by model label; graders and judges by key."""

    providers: Mapping[str, Any]
    graders: Mapping[str, Grader]
    judges: Mapping[str, Judge] = field(default_factory=dict)
    watching: frozenset[str] = frozenset()
    """The judges that accept videos and remote addresses directly."""


class OfflineStub:
    """Replaces a provider or judge in an offline run, where all answers come from the cache."""

    async def generate(self, request: GenerationRequest) -> Generation:  # noqa: ARG002
        raise ProviderError("no calls are made offline", kind="offline")

    edit = generate

    async def ask(self, question: Question, about: CellRef) -> Reply:  # noqa: ARG002
        raise ProviderError("no calls are made offline", kind="offline")


def build_components(plan: Plan, *, offline: bool = False) -> Components:
    """Builds everything that the plan needs; offline, only free providers, without API keys.

    Raises ``UsageError`` if a key is missing or a provider lacks a method.
    """
    if not offline and (lines := missing_keys(plan)):
        raise UsageError("\n".join(lines))
    providers: dict[str, Any] = {}
    for run in plan.runs if plan.generates else ():
        if offline and not run.config.is_free:
            providers[run.label] = OfflineStub()
            continue
        providers[run.label] = build(run.provider, PROVIDERS, run.config, plan.folder)
        tasks = (case.task_type for case in plan.suite.cases)
        if lines := task_problems(run.provider, providers[run.label], run.config, tasks):
            raise UsageError("\n".join(lines))
    used = [g for g in plan.suite.graders if any(asks(g, case) for case in plan.suite.cases)]
    graders = {g.key: build(g.type_name, GRADERS, g, plan.folder) for g in used}
    judges: dict[str, Judge] = {
        name: OfflineStub() if offline and not config.is_free else _judge(config, plan.folder)
        for name, config in plan.judges.items()
    }
    watching = frozenset(name for name, config in plan.judges.items() if config.watches)
    return Components(providers, graders, judges, watching)


def missing_keys(plan: Plan) -> list[str]:
    """A message for each API key that the plan needs and the environment lacks."""
    return [
        f"set the environment variable {name}, or put it into a file and run 'visioneval --env-file FILE ...':"
        f" required by {', '.join(users)}"
        for name, users in unset_keys(plan).items()
    ]


def _judge(config: BaseJudge, folder: Path) -> Judge:
    judge: Judge = build(config.provider_name, JUDGES, config.located(folder), folder)
    return judge
