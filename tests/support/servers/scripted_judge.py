"""A scripted judge, and a grading context for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from visioneval import CaseFiles, GradingContext, Question, Reply, TestCase
from visioneval.installation import builtin
from visioneval.media.images import image_at
from visioneval.providers.base import ImagePart
from visioneval.templates.render import Templates

ScriptedAnswer = str | Mapping[str, Any] | Reply | Exception


class ScriptedJudge:
    """Gives its answers in order, repeats the last one, and records the questions."""

    def __init__(self, *output: ScriptedAnswer) -> None:
        self.answers = list(output)
        self.questions: list[Question] = []
        self.names: list[str] = []

    async def __call__(self, name: str, question: Question) -> Reply:
        self.questions.append(question)
        self.names.append(name)
        output = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(output, Exception):
            raise output
        if isinstance(output, Reply):
            return output
        text = output if isinstance(output, str) else json.dumps(output)
        return Reply(text=text, model="judge-1", usage={"input": 10}, cost_usd=0.25)

    def words(self, at: int = 0) -> list[str]:
        """The texts of a question."""
        return [part for part in self.questions[at].parts if isinstance(part, str)]

    def images(self, at: int = 0) -> list[bytes]:
        """The images of a question."""
        return [part.data for part in self.questions[at].parts if isinstance(part, ImagePart)]


def saved_image(path: Path, size: tuple[int, int] = (64, 48), color: Any = "white", mode: str = "RGB") -> Path:
    """An image in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)
    return path


def context(
    folder: Path, answers: ScriptedJudge, case: Mapping[str, Any] | None = None, **changes: Any
) -> GradingContext:
    """A cell with a white image and the judge ``default``. Files saved by graders are in ``folder / "saved"``."""
    created = TestCase.model_validate({"id": "one", "prompt": "a tree", **(case or {})})
    path = changes.pop("path", None) or saved_image(folder / "output.png")

    def save(name: str, data: bytes) -> str:
        (folder / "saved").mkdir(exist_ok=True)
        assert not (folder / "saved" / name).exists(), f"{name} is saved twice"
        (folder / "saved" / name).write_bytes(data)
        return f"saved/{name}"

    defaults: dict[str, Any] = {
        "case": created,
        "task_type": created.task_type,
        "prompt": created.prompt,
        "requested_size": None,
        "output": image_at(path, path.read_bytes()),
        "files": CaseFiles(),
        "save": save,
        "templates": Templates((folder, builtin("prompts"))),
        "judge": "default",
        "ask_judge": answers,
    }
    return GradingContext(**{**defaults, **changes})
