"""Checks the parameters of an entry against a model of all parameters that it may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from visioneval.suite.loading.messages import explain


def model_problems(model: type[BaseModel], params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each parameter that does not fit a model of all parameters, with the reason."""
    try:
        model.model_validate(dict(params))
    except ValidationError as error:
        schema = model.model_json_schema()
        for entry in error.errors(include_url=False):
            yield str(entry["loc"][0]), explain(entry, schema)
