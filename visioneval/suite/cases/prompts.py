"""Renders the prompt and criteria of a case with the suite's variables and the case's data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visioneval.suite.cases.case import TestCase
from visioneval.templates.render import render

RESERVED = ("case", "expect", "metadata")


def context(case: TestCase, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a case's templates: ``vars``, ``metadata``, ``expect`` and ``case``.

    ``expect.aligned`` is excluded: a judge must not know which cases are counter-examples.
    """
    return {
        **variables,
        "metadata": case.metadata,
        "expect": case.expect.model_dump(exclude_none=True, exclude={"aligned"}),
        "case": {
            "id": case.id,
            "tags": list(case.tags),
            "region": case.region,
            "metadata": case.metadata,
            "task": str(case.task_type),
        },
    }


def rendered(case: TestCase, variables: Mapping[str, Any]) -> tuple[str, str | None]:
    """Prompt and criteria as text. Raises ``TemplateError``."""
    if "{" not in case.prompt and "{" not in (case.criteria or ""):
        return case.prompt, case.criteria
    values = context(case, variables)
    return render(case.prompt, values), None if case.criteria is None else render(case.criteria, values)


def sent_prompt(template: str, case: TestCase, prompt: str, variables: Mapping[str, Any]) -> str:
    """The prompt that a template of the suite's ``prompts`` makes of a case's ``prompt``, which is rendered.

    Raises ``TemplateError``.
    """
    values = context(case, variables)
    return render(template, {**values, "case": {**values["case"], "prompt": prompt}})
