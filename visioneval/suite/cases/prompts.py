"""The prompts of a case: its own, rendered with the suite's variables, and the ``prompts`` that a suite makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from visioneval.suite.cases.case import Name, TestCase, Text
from visioneval.suite.filters import When
from visioneval.templates.render import render
from visioneval.types import Frozen

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


class PromptEntry(Frozen):
    """One value of the prompts axis. Every entry of ``models`` that generates has a model run with it."""

    label: Name = Field(description="Added to the model run's label, as ',prompt=LABEL'.")
    template: Text = Field(description="The prompt that is sent: a template in which case.prompt is the case's own.")
    when: When | None = Field(default=None, description="The cases that it applies to. Default: all.")
    graded_as: Literal["case", "sent"] = Field(
        default="case", description="The prompt that graders and raters see: the case's, or the one that was sent."
    )

    def is_for(self, case: TestCase) -> bool:
        """Whether it applies to a case that generates."""
        return self.when is None or self.when.fits(case.id, case.task_type, case.tags)

    def model_run_label(self, label: str) -> str:
        """The label of the model run with this prompt. A label that already names the prompt stays as it is."""
        suffix = f"{PROMPT_PART}{self.label}"
        return label if label.endswith(suffix) else f"{label}{suffix}"


PROMPT_PART = ",prompt="
"""Precedes the prompt at the end of a model run's label."""


def without_prompt(label: str) -> str:
    """The label of a model run without its prompt; other labels stay as they are."""
    before, part, prompt = label.rpartition(PROMPT_PART)
    return before if part and "," not in prompt else label


def paired_by_prompt(first: Iterable[str], second: Iterable[str]) -> dict[str, str]:
    """Labels of model runs and their counterparts that differ only in the prompt, where both are the only ones."""
    in_first, in_second = (_by_label_without_prompt(labels) for labels in (first, second))
    return {
        labels[0]: in_second[base][0]
        for base, labels in in_first.items()
        if len(labels) == len(in_second.get(base, ())) == 1
    }


def _by_label_without_prompt(labels: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(without_prompt(label), []).append(label)
    return groups
