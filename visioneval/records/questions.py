"""``questions.json`` of a run: the questions asked about each prompt, and their source.

Only this module reads or writes the file. It has one entry per set of questions: two cases with the same prompt share
an entry, unless their pinned or added questions differ.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from visioneval.atomic import write_whole
from visioneval.errors import RunFormatError
from visioneval.records.untrusted import SCHEMA_VERSION, bytes_of, read_json
from visioneval.records.writer import storing
from visioneval.suite.load import HIDDEN
from visioneval.suite.questions import GeckoQuestion
from visioneval.types import Frozen

NAME = "questions.json"
_RESTORE_HINT = "restore this file, or move it away and let 'visioneval run --resume' generate new questions"


class DroppedQuestion(Frozen):
    """A generated question that is not asked."""

    question: str
    reason: str


class PromptQuestions(Frozen):
    """The questions about one prompt. ``coverage`` is the share of the prompt's items that have a question.

    ``keywords`` is the prompt with numbered items, as the judge wrote it. ``template_sha256`` covers all templates
    that generated the questions; ``making_sha256`` covers the grader options that must match for graders to share
    questions. All four are ``null`` for pinned questions.
    """

    prompt_sha256: str
    """Hash of the prompt as rendered."""
    keywords: str | None = None
    """The prompt with its items numbered, as the judge wrote it; ``null`` for pinned questions."""
    source: Literal["generated", "pinned"]
    """``generated`` or ``pinned``."""
    template_sha256: str | None = None
    """Hash of the templates that generated them; ``null`` for pinned questions."""
    making_sha256: str | None = None
    """Hash of the grader's judge (its name), medium, ``on_bad_dependency`` and the version of its meaning: graders that
    agree in these share questions; ``null`` for pinned questions.
    """
    coverage: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of the items that have a question, 0 to 1; ``null`` for pinned questions."""
    questions: tuple[GeckoQuestion, ...]
    """The questions, without those that cases add: ``id``, ``question``, ``choices``, ``answer``, ``type``,
    ``justification``, ``depends_on``.
    """
    dropped: tuple[DroppedQuestion, ...] = ()
    """Generated questions that were not asked: ``question``, ``reason``."""
    extra_keys: dict[str, str] | None = None
    """Only if the judge answered with keys that were not requested: these keys, with the beginning of each value."""

    @model_serializer(mode="wrap")
    def _omit_extra_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        entry: dict[str, Any] = serialize(self)
        return entry if self.extra_keys else {name: value for name, value in entry.items() if name != "extra_keys"}


class QuestionsFile(Frozen):
    """The whole file."""

    schema_version: int = SCHEMA_VERSION
    prompts: tuple[PromptQuestions, ...] = ()


class QuestionsWriter:
    """Stores every set of questions once. ``add`` writes generated questions to disk at once, as they are paid for.

    A resumed run starts with its existing questions. Raises ``RunFormatError`` if they cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._earlier = read_questions(folder)
        self._unmasked = [e for e in self._earlier if HIDDEN not in e.model_dump_json()]
        self._entries: dict[str, PromptQuestions] = {e.model_dump_json(): e for e in self._earlier}
        self._lock = threading.Lock()
        self._stale = False

    def add(self, entry: PromptQuestions) -> None:
        """Adds an entry. Raises ``StorageError``."""
        line = entry.model_dump_json()
        with self._lock:
            if line in self._entries:
                return
            self._entries[line] = entry
            self._stale = True
            if entry.source == "generated":
                self._write()

    def find(self, prompt: str, template: str, making: str) -> PromptQuestions | None:
        """The questions that existed at the start for these hashes of prompt, templates and generation options.

        An entry without ``making_sha256`` matches any options. An entry with a masked secret never matches.
        """
        hashes = (prompt, template)
        entries = (entry for entry in self._unmasked if (entry.prompt_sha256, entry.template_sha256) == hashes)
        return next((entry for entry in entries if entry.making_sha256 in (making, None)), None)

    def close(self) -> None:
        """Writes pending entries, if any. Raises ``StorageError``."""
        with self._lock:
            if self._stale:
                self._write()

    def _write(self) -> None:
        _write_entries(self._path, self._entries)
        self._stale = False


def write_questions(folder: Path, entries: Iterable[PromptQuestions]) -> None:
    """Writes the questions of a new run, each set once; nothing without entries. Raises ``StorageError``."""
    if lines := dict.fromkeys(entry.model_dump_json() for entry in entries):
        _write_entries(folder / NAME, lines)


def _write_entries(path: Path, lines: Iterable[str]) -> None:
    entries = ",\n".join(lines)
    with storing(path):
        write_whole(path, f'{{"schema_version":{SCHEMA_VERSION},"prompts":[\n{entries}\n]}}\n')


def read_questions(folder: Path) -> tuple[PromptQuestions, ...]:
    """The questions of a run; empty if it has none. Raises ``RunFormatError``."""
    path = folder / NAME
    if not path.exists():
        return ()
    data = bytes_of(path)
    try:
        version = json.loads(data)["schema_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunFormatError(f"{path}: not a question file: {error}; {_RESTORE_HINT}") from None
    if isinstance(version, int) and version != SCHEMA_VERSION:
        age, cure = ("newer", "upgrade visioneval") if version > SCHEMA_VERSION else ("older", "create it again")
        raise RunFormatError(
            f"{path}: schema_version {version} is {age} than the supported version {SCHEMA_VERSION}: {cure}"
        )
    try:
        return read_json(QuestionsFile, data, str(path), "question file").prompts
    except RunFormatError as error:
        raise RunFormatError(f"{error}; {_RESTORE_HINT}") from None


def prompt_sha256(prompt: str) -> str:
    """The key of a prompt's entries."""
    return sha256(prompt.encode()).hexdigest()
