"""A judge scores an image against a rubric. The rules decide; the judge's own verdict is kept beside its scores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from statistics import median_low
from typing import Any

from visioneval.aio import gather_all
from visioneval.errors import ProviderError
from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.rubric.config import RubricGrader
from visioneval.graders.rubric.metrics import RubricMetric
from visioneval.graders.rubric.prompt import (
    TAGS,
    VERDICT,
    rubric_context,
    rubric_groups,
    rubric_keys,
    rubric_schema,
    rules_over,
)
from visioneval.judging.ask import (
    MAX_EXTRA_KEYS,
    Answer,
    OffSchemaError,
    exchange,
    object_schema,
    past_cache,
    total_cost,
    total_usage,
    words,
)
from visioneval.judging.attachments import Exhibit, as_parts, laid_out
from visioneval.judging.crops import CropTool
from visioneval.plan import digest
from visioneval.providers.base import Question, Reply
from visioneval.suite.judge_prompt import REASON
from visioneval.templates.render import render_file, template_digest
from visioneval.types import Score

Metrics = Mapping[str, RubricMetric]


@dataclass(frozen=True, slots=True)
class Ballot:
    """One answer about some of the metrics in one of the votes, or why there is none."""

    metrics: Metrics
    vote: int
    replies: tuple[Reply, ...]
    answer: Answer | None = None
    fault: str | None = None
    crops: tuple[Mapping[str, Any], ...] = ()

    @property
    def was_lost_in_cache(self) -> bool:
        """Whether there is no answer, and all that was read of the judge came from the cache."""
        return self.answer is None and bool(self.replies) and all(reply.from_cache for reply in self.replies)

    def said(self, key: str, default: Any = None) -> Any:
        """What was answered under a key of the reply."""
        return default if self.answer is None else self.answer.data.get(key, default)


class Rubric:
    """Asks the judge for all metrics at once, or one call each; ``votes`` times over."""

    def __init__(self, config: RubricGrader) -> None:
        self._config = config
        self._schema_sha256 = digest(rubric_schema(config.asked, config.failure_tags))

    async def grade(self, subject: GradingContext) -> Grade:
        """One vote is the score itself; of several, the lower median or the majority.

        A call that fails is a vote that is lost. Raises ``GraderError`` for an image that cannot be shown.
        """
        config = self._config
        watcher = "" if config.zoom else config.judge  # crops are cut here, from bytes
        shown = await laid_out(subject, watcher, config.frames)
        ballots = await gather_all(
            self._vote(subject, shown, group, vote) for group in rubric_groups(config) for vote in range(config.votes)
        )
        missing = {name for name, score in _scores(config, ballots).items() if score is None}
        if missing:
            ballots = await gather_all(self._cast_again(subject, shown, ballot, missing) for ballot in ballots)
        template = template_digest((config.template,), subject.template_folders)
        return _counted(config, ballots, template=template, schema=self._schema_sha256)

    async def _cast_again(
        self, subject: GradingContext, shown: Sequence[Exhibit], ballot: Ballot, missing: Set[str]
    ) -> Ballot:
        """A new ballot where a ``missing`` score needs one and the cached replies are unusable; else the same."""
        if not ballot.was_lost_in_cache or not missing & ballot.metrics.keys():
            return ballot
        return await self._vote(replace(subject, ask_judge=_past_cache(subject)), shown, ballot.metrics, ballot.vote)

    async def _vote(self, subject: GradingContext, shown: Sequence[Exhibit], metrics: Metrics, vote: int) -> Ballot:
        config = self._config
        crop = await asyncio.to_thread(self._crop_tool, subject, shown, metrics, vote) if config.zoom else None

        async def ask(question: Question) -> Reply:
            if crop:
                crop.start_over()
            return await subject.ask_judge(config.judge, question)

        question = self._question(subject, crop.first_views if crop else shown, metrics, crop, vote)
        unrecorded: dict[str, Any] = {REASON: "", TAGS: [], VERDICT: "PASS"}
        keys = rubric_keys(metrics, config.failure_tags)
        try:
            answer = await exchange(
                ask,
                question,
                partial(faults, metrics, config.failure_tags),
                {key: unrecorded[key] for key in keys if key in unrecorded},
            )
        except OffSchemaError as error:
            return Ballot(metrics, vote, error.replies, fault=str(error), crops=crop.kept if crop else ())
        except ProviderError as error:
            return Ballot(metrics, vote, (), fault=str(error), crops=crop.kept if crop else ())
        return Ballot(metrics, vote, answer.replies, answer, crops=crop.kept if crop else ())

    def _crop_tool(self, subject: GradingContext, shown: Sequence[Exhibit], metrics: Metrics, vote: int) -> CropTool:
        assert self._config.zoom is not None
        alone = f".{next(iter(metrics))}" if self._config.per_metric else ""

        def keep(number: int, data: bytes) -> str:
            return subject.save(f"{self._config.key}{alone}.crop.{vote}.{number}.png", data)

        return CropTool(shown, self._config.zoom.max_crops, keep)

    def _question(
        self, subject: GradingContext, shown: Sequence[Exhibit], metrics: Metrics, crop: CropTool | None, vote: int
    ) -> Question:
        config = self._config
        seen = rubric_context(
            subject.case,
            subject.prompt,
            config,
            metrics,
            rules=rules_over(subject.rules, metrics),
            images=[{"id": each.id, "description": each.description} for each in shown],
            variables=subject.variables,
        )
        return Question(
            parts=(render_file(config.template, subject.template_folders, seen), *as_parts(shown)),
            schema=object_schema(rubric_schema(metrics, config.failure_tags)),
            names=tuple(metrics),
            tools=(crop.tool,) if crop else (),
            max_tool_calls=config.zoom.max_crops if config.zoom else 0,
            detail=config.detail,
            vote=vote,
        )


def faults(metrics: Metrics, failure_tags: Sequence[str], data: Any) -> list[str]:
    """What is wrong with a judge's reply. Tags beyond the declared list are no fault, and neither are other keys."""
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    keys = rubric_keys(metrics, failure_tags)
    wrong = [f"the key {key!r} is missing" for key in keys if key not in data]
    for name, metric in metrics.items():
        if name in data and not metric.fits(data[name]):
            wrong.append(f"{name} is {data[name]!r:.60}, which is not on its scale")
    if VERDICT in data and data[VERDICT] not in ("PASS", "FAIL"):
        wrong.append(f"verdict is {data[VERDICT]!r:.60}, not PASS or FAIL")
    tags = data.get(TAGS, [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        wrong.append("failure_tags is not a list of words")
    if not isinstance(data.get(REASON, ""), str):
        wrong.append("reason is not text")
    return wrong


def _votes(config: RubricGrader, ballots: Sequence[Ballot]) -> dict[str, list[Any]]:
    return {name: [ballot.said(name) for ballot in ballots if name in ballot.metrics] for name in config.asked}


def _scores(config: RubricGrader, ballots: Sequence[Ballot]) -> dict[str, Score]:
    return {name: _score(values) for name, values in _votes(config, ballots).items()}


def _past_cache(subject: GradingContext) -> Callable[[str, Question], Awaitable[Reply]]:
    async def ask(judge: str, question: Question) -> Reply:
        return await past_cache(partial(subject.ask_judge, judge))(question)

    return ask


def _counted(config: RubricGrader, ballots: Sequence[Ballot], *, template: str, schema: str) -> Grade:
    votes = _votes(config, ballots)
    scores = _scores(config, ballots)
    replies = tuple(reply for ballot in ballots for reply in ballot.replies)
    lost = [ballot.fault for ballot in ballots if ballot.fault]
    return Grade(
        scores=scores,
        reasons=_reasons(config, ballots, scores),
        failure_tags=_tags(config, ballots),
        details=_details(config, ballots, votes),
        error=lost[0] if lost and None in scores.values() else None,
        usage=total_usage(replies),
        cost_usd=total_cost(replies),
        judge_model=next((reply.model for reply in replies), None),
        template_sha256=template,
        schema_sha256=schema,
    )


def _score(values: Sequence[bool | int | float | None]) -> Score:
    """The majority of yes and no (a tie is no), or the lower median; ``None`` unless over half of the votes count."""
    counted = [value for value in values if value is not None]
    if len(counted) * 2 <= len(values):
        return None
    if isinstance(counted[0], bool):
        return sum(counted) * 2 > len(counted)
    return median_low(counted)


def _reasons(config: RubricGrader, ballots: Sequence[Ballot], scores: Mapping[str, Score]) -> dict[str, str]:
    """The words of the first vote that gave the final scores, under the grader's key, or a metric's where asked alone.

    Where no single vote gave them all, the words of the first.
    """
    said: dict[str, str] = {}
    agreeing: set[str] = set()
    for ballot in ballots:
        key = next(iter(ballot.metrics)) if config.per_metric else config.key
        agrees = all(ballot.said(name) == scores[name] for name in ballot.metrics)
        if ballot.said(REASON) and (key not in said or (agrees and key not in agreeing)):
            said[key] = ballot.said(REASON)
            agreeing |= {key} if agrees else set()
    return said


def _tags(config: RubricGrader, ballots: Sequence[Ballot]) -> tuple[str, ...]:
    """The declared tags that most votes name; in a vote of several calls one of them is enough."""
    named = {(ballot.vote, tag) for ballot in ballots for tag in ballot.said(TAGS, ())}
    votes = Counter(tag for _, tag in named)
    return tuple(tag for tag in config.failure_tags if votes[tag] * 2 > config.votes)


def _verdict(ballots: Sequence[Ballot]) -> str | None:
    """What most votes say, a tie being a FAIL; in a vote of several calls one FAIL is enough."""
    said: dict[int, bool] = {}
    for ballot in ballots:
        if ballot.said(VERDICT):
            said[ballot.vote] = said.get(ballot.vote, True) and ballot.said(VERDICT) == "PASS"
    if not said:
        return None
    return "PASS" if sum(said.values()) * 2 > len(said) else "FAIL"


def _details(config: RubricGrader, ballots: Sequence[Ballot], votes: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """How the scores came about, ready for JSON; what there is nothing to say of is left out."""
    answers = [ballot.answer for ballot in ballots if ballot.answer]
    last = next((ballot.replies[-1] for ballot in ballots if ballot.replies), None)
    tags = {tag for ballot in ballots for tag in ballot.said(TAGS, ())}
    odd = [ballot for ballot in ballots if ballot.fault or len(ballot.replies) > 1]
    kept = {
        "judge": last and last.model,
        "reply_shape": last and last.shape,
        "judge_verdict": _verdict(ballots),
        "votes": {name: list(values) for name, values in votes.items()} if config.votes > 1 else None,
        "lost_votes": [ballot.fault for ballot in ballots if ballot.fault],
        "undeclared_tags": sorted(tags - set(config.failure_tags)),
        "read": sorted({answer.how for answer in answers} - {"json"}),
        "asked_again": sum(len(ballot.replies) > 1 for ballot in ballots),
        "extra_keys": _extra_keys(ballots),
        "replies": words(reply for ballot in odd for reply in ballot.replies),
        "crops": [dict(crop) for ballot in ballots for crop in ballot.crops],
    }
    return {name: value for name, value in kept.items() if value}


def _extra_keys(ballots: Sequence[Ballot]) -> dict[str, str]:
    """What the judge said beside what it was asked, of the first vote that said it, as far as a record keeps it."""
    found: dict[str, str] = {}
    for ballot in ballots:
        found = {**(ballot.answer.extra_keys if ballot.answer else {}), **found}
    return dict(list(found.items())[:MAX_EXTRA_KEYS])
