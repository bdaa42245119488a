"""Writes questions as a file of pinned questions: YAML that a suite can load, with comments for reviewers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from visioneval.records.questions import PromptQuestions
from visioneval.report.text import one_line
from visioneval.suite.questions import YES_NO, GeckoQuestion

HEAD = """\
# Questions of a gecko grader, by prompt. Review and edit them, then pin them: set 'questions: FILE' on the grader.
# For a prompt that is not in this file, the judge generates questions.
"""


def pinned_yaml(entries: Iterable[tuple[str, Sequence[str], PromptQuestions]]) -> str:
    """``(prompt, case ids, questions)`` as YAML. A set that the suite pins for one case is keyed by case."""
    return "\n".join([HEAD, *(_entry(*entry) for entry in entries)])


def _entry(prompt: str, cases: Sequence[str], entry: PromptQuestions) -> str:
    by_case = entry.source == "pinned" and len(cases) == 1
    notes = [f"prompt: {one_line(prompt)}" if by_case and prompt else f"cases: {', '.join(cases)}"]
    if entry.coverage is not None:
        notes.append(f"{entry.coverage:.0%} of the prompt's items have a question")
    notes += [f"dropped: {one_line(dropped.question)} ({one_line(dropped.reason)})" for dropped in entry.dropped]
    key = {"case": cases[0]} if by_case else {"prompt": prompt}
    data = [{**key, "questions": [_question(question) for question in entry.questions]}]
    body = yaml.safe_dump(data, allow_unicode=True, sort_keys=False, width=110)
    return "".join(f"# {note}\n" for note in notes) + body


def _question(question: GeckoQuestion) -> dict[str, Any]:
    data = question.model_dump(mode="json")
    if question.choices == YES_NO:
        del data["choices"]
    return {key: value for key, value in data.items() if value not in ("", [])}
