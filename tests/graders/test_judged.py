"""A corpus of replies of judges: each file in ``judged`` has what a grader makes of them, and what it asks.

After ``=== what it is about``, a line of JSON has the grader, the case and the replies, of which the last is repeated.
``ocr`` has what local OCR reads. Each line behind ``>`` is a part of the result; ``UPDATE_GOLDEN=1`` writes these.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_judge import ScriptedAnswer, ScriptedJudge, context

from visioneval import Grade, GraderError, ProviderError, Reply
from visioneval.graders.text import ocr, second_look
from visioneval.graders.text.layout import Reading
from visioneval.plugins import GRADERS, config_of, load_object
from visioneval.records.questions import PromptQuestions

CORPORA = sorted((Path(__file__).parent / "judged").glob("*.txt"))
HASHED = {"prompt_sha256"}
REMARK = re.compile(r"You(r last answer| were asked this before).*", re.DOTALL)


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda path: path.stem)
def test_what_a_grader_makes_of_replies(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, lines = corpus.read_text(encoding="utf-8"), []
    for line in text.splitlines():
        if not line.startswith("> "):
            lines.append(line)
        if line.startswith("{"):
            folder = tmp_path / str(len(lines))
            folder.mkdir()
            lines += [f"> {part}" for part in _result(folder, json.loads(line), monkeypatch)]
    result = "".join(f"{line}\n" for line in lines)
    if os.environ.get("UPDATE_GOLDEN"):
        corpus.write_text(result, encoding="utf-8")
    assert result == text


def _result(folder: Path, entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    options = {"key": "g", **entry["grader"]}
    config = config_of(GRADERS, options["type"]).model_validate(options)
    judge, stored = ScriptedJudge(*map(_answer, entry["replies"])), list[PromptQuestions]()
    if "ocr" in entry:
        readings = [Reading(text, confidence) for text, confidence in entry["ocr"]]
        monkeypatch.setattr(ocr, "read_flat", lambda _: readings)
        monkeypatch.setattr(second_look, "look_again", lambda _images, readings, *_: readings)
    name = getattr(config, "judge", "default")
    cell = context(folder, judge, entry.get("case"), judge=name, keep_questions=stored.append)
    try:
        grade = asyncio.run(load_object(GRADERS[config.type].work)(config).grade(cell))
    except (GraderError, ProviderError) as error:
        yield f"{type(error).__name__}: {error}"
    else:
        yield from _parts(grade)
    for made in stored:
        if made.source != "pinned":
            yield f"made {_json(made.model_dump(mode='json', exclude=HASHED | {'template_sha256', 'making_sha256'}))}"
    yield from map(_question, range(len(judge.questions)), [judge] * len(judge.questions))


def _answer(reply: Any) -> ScriptedAnswer:
    if isinstance(reply, dict) and "raises" in reply:
        return ProviderError(reply["raises"], kind="transient")
    if isinstance(reply, dict) and "text" in reply and "model" in reply:
        return Reply(**reply)
    return reply  # type: ignore[no-any-return]


def _parts(grade: Grade) -> Iterator[str]:
    yield f"scores {_json(dict(grade.scores))}"
    if grade.error:
        yield f"error {grade.error}"
    if grade.tool_versions:
        yield f"tools {', '.join(sorted(grade.tool_versions))}"
    for name in ("reasons", "failure_tags", "details", "judge_model"):
        value = getattr(grade, name)
        if name == "details":
            value = {key: item for key, item in value.items() if item not in (None, [], {}) and key not in HASHED}
        if value:
            yield f"{name} {_json(value)}"


def _question(at: int, judge: ScriptedJudge) -> str:
    """What was asked, and what was added to it since it was asked before."""
    question, words = judge.questions[at], judge.words(at)
    about = f"asked {judge.names[at]} about {', '.join(question.names)} with {len(judge.images(at))} images"
    keys = ", ".join((question.schema or {"properties": ["no schema"]})["properties"])
    notes = f", vote {question.vote}" * bool(question.vote) + f", detail {question.detail}" * bool(question.detail)
    again = [_json(remark[0]) for text in words if (remark := REMARK.search(text))]
    return f"{about} for {keys}{notes}" + "".join(f", again: {remark}" for remark in again)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
