"""A case's own templates: its prompt and its criteria, rendered with the suite's variables and the case's facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visioneval.suite.case import TestCase
from visioneval.templates.render import render

RESERVED = ("case", "expect", "metadata")


def context(case: TestCase, variables: Mapping[str, Any]) -> dict[str, Any]:
    """What a template of this case sees: the variables, ``metadata``, ``expect`` and ``case`` (id, tags, region).

    No template is told of a counter-example: a judge would answer by that.
    """
    return {
        **variables,
        "metadata": case.metadata,
        "expect": case.expect.model_dump(exclude_none=True, exclude={"aligned"}),
        "case": {"id": case.id, "tags": list(case.tags), "region": case.region},
    }


def rendered(case: TestCase, variables: Mapping[str, Any]) -> tuple[str, str | None]:
    """Prompt and criteria as text. Raises ``TemplateError``."""
    if "{" not in case.prompt and "{" not in (case.criteria or ""):
        return case.prompt, case.criteria
    seen = context(case, variables)
    return render(case.prompt, seen), None if case.criteria is None else render(case.criteria, seen)
