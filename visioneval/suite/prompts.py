"""The prompts that a suite's ``prompts`` make of those of its cases, an axis of its model runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from visioneval.suite.case import Name, TestCase, Text, context
from visioneval.suite.filters import When
from visioneval.templates.render import render
from visioneval.types import Frozen


def sent_prompt(template: str, case: TestCase, prompt: str, variables: Mapping[str, Any]) -> str:
    """The prompt that a template of the suite's ``prompts`` makes of a case's ``prompt``, which is rendered.

    Raises ``TemplateError``.
    """
    values = context(case, variables)
    return render(template, {**values, "case": {**values["case"], "prompt": prompt}})


class PromptEntry(Frozen):
    """One value of the prompts axis. Every entry of ``models`` that generates has a model run with it."""

    label: Name = Field(description="Unique; added to the labels of model runs as `,prompt=LABEL`.")
    template: Text = Field(
        description="The prompt that is sent: a template like a case's prompt, in which `case.prompt` is the case's "
        "own."
    )
    when: When | None = Field(
        default=None,
        description="Only these cases have cells with this prompt. Default: all. Every case must match one of the "
        "entries. For a comparison, the other cells are missing: use `--tag`, or `--allow missing-cells`.",
    )
    graded_as: Literal["case", "sent"] = Field(
        default="case",
        description="The prompt that graders and raters see. `case`: the case's own, the same for all model runs; "
        "`sent`: what was sent.",
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
    by_base: dict[str, tuple[list[str], list[str]]] = {}
    for side, labels in enumerate((first, second)):
        for label in labels:
            by_base.setdefault(without_prompt(label), ([], []))[side].append(label)
    return {left[0]: right[0] for left, right in by_base.values() if len(left) == len(right) == 1}
