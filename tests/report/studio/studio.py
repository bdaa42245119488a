"""Code beside the golden suites: a model, graders and judges that follow a case's metadata, without clock, threads or chance.

``outcomes: {steady: PF}`` says by model run what happens in the samples of a case: P passes, F fails, U cannot be
measured, X has an output that an optional grader cannot measure, E has no output, R is refused.
"""

from __future__ import annotations

import io
import json
import zlib
from collections import Counter
from typing import Any, ClassVar

from PIL import Image, ImageDraw

from visioneval.errors import GraderError, ProviderError
from visioneval.graders.base import Grade, GradingContext
from visioneval.providers.base import CellRef, Generation, GenerationRequest, Question, Reply

LETTERS = "PFUXER"
SCORES = {"P": (True, 4.5, 12), "F": (False, 1.5, 40), "X": (True, 4, 20)}


class Draw:
    """Draws a rectangle, and writes the letter into the first pixel, where graders read it."""

    calls: ClassVar[Counter[str]] = Counter()

    def __init__(self, config: Any) -> None: ...

    async def generate(self, request: GenerationRequest) -> Generation:
        letters = request.case.metadata.get("outcomes", {}).get(request.model_label, "P")
        (sample,) = request.samples
        letter = letters[sample % len(letters)]
        if letter == "R":
            return Generation(refused="against the brand's rules", cost_usd=0.0)
        if letter == "E":
            raise ProviderError("the model is on fire", kind="invalid")
        call = f"{request.prompt} {request.model_label} {sample}"
        self.calls[call] += 1  # a repeated run has other outputs
        seed = zlib.crc32(f"{call} {self.calls[call]}".encode())
        image = Image.new("RGB", (48, 32), (seed & 255, seed >> 8 & 255, seed >> 16 & 255))
        ImageDraw.Draw(image).rectangle((8, 8, 12 + seed % 30, 20), fill="white")
        image.putpixel((0, 0), (LETTERS.index(letter), 0, 0))
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return Generation(outputs=(buffer.getvalue(),), cost_usd=request.case.metadata.get("price", 0.04))

    edit = generate


def letter_of(context: GradingContext) -> str:
    with Image.open(context.generated.path) as image:
        return LETTERS[image.convert("RGB").getpixel((0, 0))[0]]  # type: ignore[index]


class Look:
    """Writes whether it is right, a score on a scale, and a size that should be small."""

    def __init__(self, config: Any) -> None: ...

    async def grade(self, context: GradingContext) -> Grade:
        letter = letter_of(context)
        if letter == "U":
            raise GraderError("too dark to measure")
        right, sharp, size = SCORES[letter]
        details = {"places": [{"name": "door", "free": True}, {"name": "sign", "free": right}], "share": 0.12345}
        if context.case.id == "kiosk":
            details["map"] = context.save("look.map.png", context.generated.path.read_bytes())
        shade = zlib.crc32(context.case.id.encode()) % 5
        return Grade(
            scores={"look": right, "sharp": sharp - 0.25 * shade, "size": size + shade},
            reasons={"look": "nothing to mend" if right else "it spills over the window, and the sign is cut off"},
            failure_tags=() if right else ("spill", "cut off") if context.case.tags else ("spill",),
            details=details,
        )


class Extra:
    """An optional grader, which fails where the letter is X."""

    def __init__(self, config: Any) -> None: ...

    async def grade(self, context: GradingContext) -> Grade:
        if letter_of(context) == "X":
            raise GraderError("no scale in the image")
        return Grade(scores={"extra": letter_of(context) == "P"})


class Judge:
    """Answers what a question asks for, by a hash of the cell, the judge and the vote. ``silent`` has cases it refuses."""

    def __init__(self, config: Any) -> None:
        self._name = str(config.model)
        self._params = config.params

    async def ask(self, question: Question, about: CellRef) -> Reply:
        if about.test_id in self._params.get("silent", ()):
            raise ProviderError("the judge is on fire", kind="invalid")
        images = [part.sha256 for part in question.parts if not isinstance(part, str)]
        cell = about if images else about.test_id  # a question about a prompt is asked for one of its cells
        self._seed = zlib.crc32(f"{self._name} {cell} {question.vote}".encode())
        if (
            "answer" in question.schema["properties"]
        ):  # of a pair: the same image wins in both orders, unless it is close
            first, second = (zlib.crc32(image.encode()) % 8 for image in images[-2:])
            self._seed = 2 if first == second else first < second
        answers = {name: self._answer(name, schema) for name, schema in question.schema["properties"].items()}  # type: ignore[index]
        if "keywords" in answers:
            words = "".join(part for part in question.parts if isinstance(part, str)).rsplit("Prompt", 1)[-1].split()
            answers = {"keywords": "{1}[ship]", "questions": [
                {"id": "q1", "keyword": 1, "question": f"Is there {words[-1]}?", "choices": ["yes", "no"], "answer": "yes",
                 "justification": "", "depends_on": [], "type": "object"},
                {"id": "q2", "keyword": 1, "question": "", "choices": [], "answer": "yes", "justification": "",
                 "depends_on": [], "type": "color"},
            ]}  # fmt: skip
        if "answers" in answers:
            answers["answers"] = [
                {"id": name, "reason": "as seen", "answer": "no" if self._seed >> at & 3 == 0 else "yes"}
                for at, name in enumerate(question.names)
            ]
        return Reply(
            json.dumps(answers), self._params.get("answers_as", self._name), cost_usd=self._params.get("price")
        )

    def _answer(self, name: str, schema: Any) -> Any:
        if name == "requirements":
            return [
                {"requirement": what, "question": f"{what}?", "analysis": "looked", "answer": bool(self._seed >> at & 1),
                 "gap": f"There is no {what}." if at else ""}
                for at, what in enumerate(("sign", "window", "door"))
            ]  # fmt: skip
        if "enum" in schema:
            return schema["enum"][self._seed % len(schema["enum"])]
        if schema["type"] == "boolean":
            return self._seed % 3 > 0
        if schema["type"] == "array":
            return []
        if schema["type"] in ("integer", "number"):
            return schema.get("minimum", 0) + self._seed % 5
        return f"{self._name} has looked"
