"""Checks of a suite's limits and prices: each belongs to a call of the suite, and prices it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.entries.limits import Price
from visioneval.suite.loading.messages import Loc, SuiteWarning, did_you_mean
from visioneval.suite.model import Suite
from visioneval.types import ModelRun

Call = tuple[str, str | None]
"""The provider and the model of a call."""


def limit_problems(suite: Suite, runs: Sequence[ModelRun]) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """Limits and prices for a provider or model that the suite never calls, and judges priced by image alone."""
    generations: list[Call] = [(entry.provider_name, None) for entry in suite.models]
    generations += [(run.provider, _text(run.params.get("model"))) for run in runs]
    judges: list[Call] = [
        (judge.provider_name, _text(getattr(judge, "model", None))) for judge in suite.judges.values()
    ]
    yield from _unknown_names(suite, [*generations, *judges])
    yield from _image_prices(suite, generations)


def _judge_call(judge: BaseJudge) -> Call:
    return judge.provider_name, _text(getattr(judge, "model", None))


def _text(model: Any) -> str | None:
    return str(model) if model else None


def _unknown_names(suite: Suite, calls: Sequence[Call]) -> Iterator[tuple[Loc, str]]:
    """Names that are probably misspelled."""
    providers, models = {provider for provider, _ in calls}, {model for _, model in calls if model}
    both = {f"{provider}:{model}" for provider, model in calls if model}
    for key, entries, allowed in (
        ("limits", suite.limits, providers | both),
        ("prices", suite.prices, providers | both | models),
    ):
        for name in entries:
            if name not in allowed:
                yield (key, name), f"{key}: the suite calls no provider or model {name!r}{did_you_mean(name, allowed)}"


def _image_prices(suite: Suite, generations: Sequence[Call]) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """Prices per image or second alone that apply to a judge, which generates none: a budget would not count its calls.

    Only a warning if the price is for a model run, too.
    """
    generation_names = {name for call in generations for name in _price_names(call)}
    reported: set[str] = set()
    for key, judge in suite.judges.items():
        names = _price_names(_judge_call(judge))
        name = next((name for name in names if name in suite.prices), None)
        if judge.is_free or name is None or name in reported or not _is_per_output_alone(suite.prices[name]):
            continue
        reported.add(name)
        outputs, unit = ("images", "per_image") if suite.prices[name].per_image else ("videos", "per_second")
        message = f"the judge {key!r} generates no {outputs}, so {unit} prices its calls at 0"
        if name in generation_names:
            advice = "add per_call" if name == names[0] else f"add a price for {names[0]!r}"
            yield SuiteWarning(("prices", name), f"{message}: {advice}")
        else:
            yield ("prices", name), f"{message}: set per_call, or a price per token"


def _price_names(call: Call) -> list[str]:
    """The names under which ``prices`` may price a call, in order of precedence."""
    provider, model = call
    return [f"{provider}:{model}", model, provider] if model else [provider]


def _is_per_output_alone(price: Price) -> bool:
    return bool(price.per_image or price.per_second) and all(
        value is None for value in (price.per_call, price.input_per_million, price.output_per_million)
    )
