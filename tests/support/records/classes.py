"""A suite with one class of each kind in a module beside it."""

from __future__ import annotations

import sys
from typing import Any

from toys import Toy

from visioneval import Record

CODE = """\
import json
from pydantic import BaseModel, Field
from visioneval import *
from mine import encoded

class Look:
    version = 'look 1'
    class Options(BaseModel):
        level: int = Field(default=0, ge=0)
    def __init__(self, config): self.options = config.options
    def metrics(self, case): return {'look': Metric(type='bool'), 'look.level': Metric(type='number')}
    async def grade(self, context):
        answer = await context.ask('Fine?', {'yes': {'type': 'boolean'}})
        return Grade(scores={'look': answer['yes'], 'look.level': self.options.level})

class Draw:
    version = 'draw 1'
    class Options(BaseModel): color: str = 'red'
    def __init__(self, config): self.options = config.options
    def generate(self, request): return Generation(outputs=(encoded(color=self.options.color),), cost_usd=0.0)

class Answer:
    version = 'answer 1'
    class Options(BaseModel): yes: object
    def __init__(self, config): self.options = config.options
    def ask(self, question, about): return Reply(text=json.dumps({'yes': self.options.yes}), model='m', cost_usd=0.0)
"""
SUITE = """\
name: ours
cases: [{id: one, prompt: a tree}]
models:
  - {provider: "ours:Draw", label: ours}
judges:
  default: {provider: "ours:Answer", options: {yes: true}}
graders:
  - {key: look, type: "ours:Look", judge: default}
verdict: [look]
"""
Change = tuple[str, str]
"""A text, and what replaces it."""


def changed(text: str, changes: tuple[Change, ...]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


class OwnClasses:
    """The suite in the folder of a toy."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        self.code()
        self.suite()

    def code(self, *changes: Change) -> None:
        """Writes the classes with changes."""
        (self.toy.folder / "ours.py").write_text(changed(CODE, changes))
        sys.modules.pop("ours", None)

    def suite(self, *changes: Change) -> None:
        """Writes the suite with changes."""
        (self.toy.folder / "suite.yaml").write_text(changed(SUITE, changes))

    def __call__(self, command: str, *arguments: str, code: int = 0, **environment: str) -> Any:
        """Runs a command with trust."""
        result = self.toy(command, *arguments, "--trust-suite", **environment)
        assert "Traceback" not in result.output
        assert result.exit_code == code, result.output
        return result

    def problems(self) -> list[str]:
        """What ``validate`` reports, and ``run`` too, which begins nothing."""
        lines = self("validate", "suite.yaml", code=2).stderr.splitlines()
        assert self("run", "suite.yaml", code=2).stderr.splitlines() == lines
        assert not (self.toy.folder / "runs").exists()
        return list(lines)

    def record(self, code: int = 0) -> Record:
        """The record of a run."""
        self("run", "suite.yaml", code=code)
        return self.toy.record

    def error(self) -> str:
        """The error of a run's only cell."""
        error = self.record(3).error
        assert error is not None
        return f"{error.stage}: {error.message}"
