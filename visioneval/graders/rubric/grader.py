"""A judge scores an image against a rubric. It never sees the rules; its own verdict is recorded with its scores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from visioneval.errors import ProviderError
from visioneval.graders.base import Grade, GradingContext, message_about
from visioneval.graders.rubric import TAGS, VERDICT, VERDICTS, Metrics, RubricGrader, reply_keys
from visioneval.judging.ask import (
    MAX_EXTRA_KEYS,
    Answer,
    OffSchemaError,
    combined_vote,
    exchange,
    is_tie,
    object_schema,
    past_cache,
    reply_texts,
)
from visioneval.judging.attachments import Attachment, load_attachments
from visioneval.providers.base import Question, Reply
from visioneval.records.model import digest
from visioneval.suite.entries.judges import REASON, is_text, is_texts
from visioneval.threads import gather_all
from visioneval.types import Score

if TYPE_CHECKING:
    from visioneval.judging.crops import CropTool


@dataclass(frozen=True, slots=True)
class Ballot:
    """One answer about some of the metrics in one of the votes, or the reason why it is missing."""

    metrics: Metrics
    vote: int
    replies: tuple[Reply, ...]
    answer: Answer | None = None
    fault: str | None = None
    crops: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_unusable_from_cache(self) -> bool:
        """Whether an answer is missing, and all replies came from the cache."""
        return self.fault is not None and bool(self.replies) and all(reply.from_cache for reply in self.replies)

    def value_of(self, key: str, default: Any = None) -> Any:
        """The answer under a key of the reply."""
        return default if self.answer is None else self.answer.data.get(key, default)


class Rubric:
    """Asks the judge for all metrics at once, or in one call per metric, ``votes`` times."""

    def __init__(self, config: RubricGrader) -> None:
        self._config = config
        self._schemas: dict[tuple[str, ...], tuple[dict[str, Any], str]] = {}

    async def grade(self, context: GradingContext) -> Grade:
        """The score is the median, or the most frequent answer, of the votes (see ``judging.votes``).

        A failed call loses its vote. Raises ``GraderError`` if an image cannot be encoded.
        """
        config, asked = self._config, self._config.asked_about(context.case)
        video_judge = "" if config.zoom else context.own_judge  # crops are cut here, from bytes
        attachments = await load_attachments(context, video_judge, config.frames, config.parts)
        ballots = await gather_all(
            self._vote(context, attachments, group, vote)
            for group in config.groups(context.case)
            for vote in range(config.votes)
        )
        if missing := {name for name, votes in _votes(asked, ballots).items() if combined_vote(votes) is None}:
            uncached = replace(
                context, ask_judge=lambda judge, question: past_cache(partial(context.ask_judge, judge))(question)
            )

            async def voted_again(ballot: Ballot) -> Ballot:
                """Votes again if a ``missing`` score needs this ballot and its cached replies are unusable."""
                if not ballot.is_unusable_from_cache or not missing & ballot.metrics.keys():
                    return ballot
                return await self._vote(uncached, attachments, ballot.metrics, ballot.vote)

            ballots = await gather_all(map(voted_again, ballots))
        template = context.templates.digest(config.template_of(context.case, context.variables))
        return _tally(config, asked, ballots, template=template, schema=self._schema(asked)[1])

    def _schema(self, metrics: Metrics) -> tuple[dict[str, Any], str]:
        """The schema of a reply about these metrics, and its hash; computed once, as every cell needs both."""
        names = tuple(metrics)
        if names not in self._schemas:
            properties = self._config.reply_schema(metrics)
            self._schemas[names] = object_schema(properties), digest(properties)
        return self._schemas[names]

    async def _vote(
        self, context: GradingContext, attachments: Sequence[Attachment], metrics: Metrics, vote: int
    ) -> Ballot:
        config = self._config
        crop_tool = None
        if config.zoom is not None:
            crop_tool = await asyncio.to_thread(
                self._crop_tool, config.zoom.max_crops, context, attachments, metrics, vote
            )

        def ask(question: Question) -> Awaitable[Reply]:
            if crop_tool:
                crop_tool.reset()
            return context.ask_own_judge(question)

        shown = crop_tool.first_views if crop_tool else attachments
        question = Question(
            parts=message_about(context, config, shown, metrics=metrics),
            schema=self._schema(metrics)[0],
            names=tuple(metrics),
            tools=(crop_tool.tool,) if crop_tool else (),
            max_tool_calls=config.zoom.max_crops if config.zoom else 0,
            detail=config.detail,
            vote=vote,
        )
        keys = reply_keys(metrics, config.failure_tags)
        unrecorded: dict[str, Any] = {
            key: value for key, value in ((REASON, ""), (TAGS, []), (VERDICT, "PASS")) if key in keys
        }
        replies: tuple[Reply, ...] = ()
        usable = fault = None
        try:
            usable = await exchange(ask, question, partial(reply_problems, metrics, config.failure_tags), unrecorded)
            replies = usable.replies
        except OffSchemaError as error:
            replies, usable, fault = error.replies, usable_part(metrics, error), str(error)
        except ProviderError as error:
            fault = str(error)
        return Ballot(metrics, vote, replies, usable, fault, crop_tool.crops if crop_tool else ())

    def _crop_tool(
        self,
        max_crops: int,
        context: GradingContext,
        attachments: Sequence[Attachment],
        metrics: Metrics,
        vote: int,
    ) -> CropTool:
        from visioneval.judging.crops import CropTool

        suffix = f".{next(iter(metrics))}" if self._config.per_metric else ""

        def save(number: int, data: bytes) -> str:
            return context.save(f"{self._config.key}{suffix}.crop.{vote}.{number}.png", data)

        return CropTool(attachments, max_crops, save)


def usable_part(metrics: Metrics, error: OffSchemaError) -> Answer | None:
    """The keys of an answer that can be used, where others cannot: of the last one that has a metric."""
    for data in error.objects:
        usable = {name: value for name, value in data.items() if not key_problems(metrics, name, value)}
        if usable.keys() & metrics.keys():
            return Answer(usable, "json", error.replies)
    return None


def reply_problems(metrics: Metrics, failure_tags: Sequence[str], data: Any) -> list[str]:
    """The problems with a judge's reply. Undeclared tags and additional keys are none, nor is the judge's verdict."""
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    keys = [key for key in reply_keys(metrics, failure_tags) if key != VERDICT]
    missing = [f"the key {key!r} is missing" for key in keys if key not in data]
    ordered = [key for key in (*metrics, TAGS, REASON) if key in data]
    return missing + [problem for key in ordered for problem in key_problems(metrics, key, data[key])]


def key_problems(metrics: Metrics, key: str, value: Any) -> list[str]:
    """The problem with the value of one key of a reply, if any."""
    if key in metrics and not metrics[key].fits(value):
        expected = metrics[key].expected if metrics[key].type == "one_of" else "on its scale"
        return [f"{key} is {value!r:.60}, which is not {expected}"]
    if key == TAGS and not is_texts(value):
        return ["failure_tags is not a list of strings"]
    return ["reason is not text"] if key == REASON and not is_text(value) else []


def _votes(asked: Metrics, ballots: Sequence[Ballot]) -> dict[str, list[Any]]:
    return {name: [ballot.value_of(name) for ballot in ballots if name in ballot.metrics] for name in asked}


def _tally(config: RubricGrader, asked: Metrics, ballots: Sequence[Ballot], *, template: str, schema: str) -> Grade:
    votes = _votes(asked, ballots)
    scores = {name: combined_vote(values) for name, values in votes.items()}
    replies = tuple(reply for ballot in ballots for reply in ballot.replies)
    lost = [ballot.fault for ballot in ballots if ballot.fault]
    # In a vote of several calls, a tag of one call is enough.
    by_vote = _by_vote(config, ballots, TAGS)
    tags = [{tag for tags in answers for tag in tags or ()} if answers else None for answers in by_vote]
    named = {tag: [None if voted is None else tag in voted for voted in tags] for tag in config.failure_tags}
    return Grade(
        scores=scores,
        reasons=_reasons(config, ballots, scores, votes),
        failure_tags=tuple(tag for tag, values in named.items() if combined_vote(values)),
        details=_details(config, ballots, votes),
        error=lost[0] if lost and None in scores.values() else None,
        judge_model=next((reply.model for reply in replies), None),
        template_sha256=template,
        schema_sha256=schema,
    )


def _reasons(
    config: RubricGrader,
    ballots: Sequence[Ballot],
    scores: Mapping[str, Score],
    votes: Mapping[str, Sequence[Any]],
) -> dict[str, str]:
    """The reason of the first vote with the final scores, under the grader's key, or the metric's with ``per_metric``.

    If no vote has all the final scores, the reason of the first vote. Ties are named after it.
    """
    reasons: dict[str, str] = {}
    agreeing: set[str] = set()
    ties: dict[str, list[str]] = {}
    for ballot in ballots:
        key = next(iter(ballot.metrics)) if config.per_metric else config.key
        tied = {name: map(_vote_text, votes[name]) for name in ballot.metrics if is_tie(votes[name])}
        ties[key] = [f"{name} {', '.join(texts)}" for name, texts in tied.items()]
        agrees = all(ballot.value_of(name) == scores[name] for name in ballot.metrics)
        if ballot.value_of(REASON) and (key not in reasons or (agrees and key not in agreeing)):
            reasons[key] = ballot.value_of(REASON)
            agreeing |= {key} if agrees else set()
    return {key: f"{text} (tied votes: {'; '.join(ties[key])})" if ties[key] else text for key, text in reasons.items()}


def _vote_text(value: Any) -> str:
    words = {True: "yes", False: "no", None: "lost"}
    return f"{value:g}" if type(value) in (int, float) else words.get(value, value)


def _by_vote(config: RubricGrader, ballots: Sequence[Ballot], key: str) -> list[list[Any]]:
    """The answers under a key of the reply, by vote: several of a vote of several calls, none of a lost one."""
    answered = [ballot for ballot in ballots if ballot.answer]
    return [[ballot.value_of(key) for ballot in answered if ballot.vote == vote] for vote in range(config.votes)]


def _verdict(config: RubricGrader, ballots: Sequence[Ballot]) -> str | None:
    """The verdict of the majority of the votes that have one. In a vote of several calls, one FAIL is enough."""
    verdicts = [[answer for answer in answers if answer in VERDICTS] for answers in _by_vote(config, ballots, VERDICT)]
    passed = combined_vote(["FAIL" not in of_vote if of_vote else None for of_vote in verdicts])
    return None if passed is None else "PASS" if passed else "FAIL"


def _details(config: RubricGrader, ballots: Sequence[Ballot], votes: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The details of the scores, ready for JSON, without empty entries."""
    answers = [ballot.answer for ballot in ballots if ballot.answer]
    last_reply = next((ballot.replies[-1] for ballot in ballots if ballot.replies), None)
    tags = {tag for ballot in ballots for tag in ballot.value_of(TAGS, ())}
    retried = [ballot for ballot in ballots if ballot.fault or len(ballot.replies) > 1]
    extra: dict[str, str] = {}
    for answer in answers:  # the first vote wins
        extra = {**answer.extra_keys, **extra}
    details = {
        "judge": last_reply and last_reply.model,
        "reply_shape": last_reply and last_reply.shape,
        "judge_verdict": _verdict(config, ballots),
        "votes": {name: list(values) for name, values in votes.items()} if config.votes > 1 else None,
        "tied": [name for name, values in votes.items() if is_tie(values)],
        "lost_votes": [ballot.fault for ballot in ballots if ballot.fault],
        "undeclared_tags": sorted(tags - set(config.failure_tags)),
        "read": sorted({answer.how for answer in answers} - {"json"}),
        "asked_again": sum(len(ballot.replies) > 1 for ballot in ballots),
        "extra_keys": dict(list(extra.items())[:MAX_EXTRA_KEYS]),
        "replies": reply_texts(reply for ballot in retried for reply in ballot.replies),
        "crops": [dict(crop) for ballot in ballots for crop in ballot.crops],
    }
    return {name: value for name, value in details.items() if value}
