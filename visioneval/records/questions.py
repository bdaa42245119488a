"""``questions.json`` of a run: which questions were asked about each prompt, and where they came from.

The only module that reads or writes it. One entry for each set of questions: two cases with one prompt share theirs,
unless their own pinned or added questions differ.
"""

from __future__ import annotations

import json
import threading
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, TypeAdapter, model_serializer

from visioneval.atomic import write_whole
from visioneval.errors import RunFormatError, StorageError
from visioneval.records.model import SCHEMA_VERSION
from visioneval.records.untrusted_json import read_json
from visioneval.suite.load import HIDDEN
from visioneval.suite.questions import GeckoQuestion
from visioneval.types import Frozen

NAME = "questions.json"
_RESTORE_HINT = (
    "restore this file, or move it away: 'visioneval run --resume' asks for new questions where it needs some"
)


class DroppedQuestion(Frozen):
    """A question that was made and is not asked."""

    question: str
    reason: str


class PromptQuestions(Frozen):
    """The questions about one prompt. ``coverage`` is the share of the prompt's items that have a question.

    ``keywords`` is the prompt with its items numbered, as the judge wrote it; both are ``null`` for pinned questions,
    and so are ``template_sha256``, which covers all templates that made them, and ``making_sha256``, which covers those
    of a grader's options that two graders must agree in to share questions.
    """

    prompt_sha256: str
    keywords: str | None = None
    source: Literal["generated", "pinned"]
    template_sha256: str | None = None
    making_sha256: str | None = None
    coverage: Annotated[float, Field(ge=0, le=1)] | None = None
    questions: tuple[GeckoQuestion, ...]
    dropped: tuple[DroppedQuestion, ...] = ()
    extra_keys: dict[str, str] | None = None
    """What the judge said beside what it was asked: keys, and the beginnings of their values."""

    @model_serializer(mode="wrap")
    def _omit_extra_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        entry: dict[str, Any] = serialize(self)
        return entry if self.extra_keys else {name: value for name, value in entry.items() if name != "extra_keys"}


class QuestionsFile(Frozen):
    """The whole file."""

    schema_version: int = SCHEMA_VERSION
    prompts: tuple[PromptQuestions, ...] = ()


_FILE: TypeAdapter[QuestionsFile] = TypeAdapter(QuestionsFile)


class QuestionsWriter:
    """Keeps every set of questions once. Generated ones, which were paid for, are on disk when ``add`` returns.

    A run that goes on begins with those that it has. Raises ``RunFormatError`` where they cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._earlier = read_questions(folder)
        self._unmasked = [e for e in self._earlier if HIDDEN not in e.model_dump_json()]
        self._entries: dict[str, PromptQuestions] = {e.model_dump_json(): e for e in self._earlier}
        self._lock = threading.Lock()
        self._stale = False

    def add(self, entry: PromptQuestions) -> None:
        """Keeps an entry. Raises ``StorageError``."""
        line = entry.model_dump_json()
        with self._lock:
            if line in self._entries:
                return
            self._entries[line] = entry
            self._stale = True
            if entry.source == "generated":
                self._write()

    def find(self, prompt: str, template: str, making: str) -> PromptQuestions | None:
        """The questions that were there at the start about a prompt, made by some templates in some way, as hashes.

        An older entry does not tell the way: it fits any. One from which a secret was taken out fits none.
        """
        hashes = (prompt, template)
        entries = (entry for entry in self._unmasked if (entry.prompt_sha256, entry.template_sha256) == hashes)
        return next((entry for entry in entries if entry.making_sha256 in (making, None)), None)

    def close(self) -> None:
        """Writes what is not on disk yet; nothing where nothing was asked. Raises ``StorageError``."""
        with self._lock:
            if self._stale:
                self._write()

    def _write(self) -> None:
        entries = ",\n".join(self._entries)
        text = f'{{"schema_version":{SCHEMA_VERSION},"prompts":[\n{entries}\n]}}\n'
        try:
            write_whole(self._path, text)
        except OSError as error:
            raise StorageError(f"{self._path}: cannot write: {error.strerror or error}") from error
        self._stale = False


def read_questions(folder: Path) -> tuple[PromptQuestions, ...]:
    """The questions of a run; empty where it asked none. Raises ``RunFormatError``."""
    path = folder / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None
    try:
        version = json.loads(data)["schema_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunFormatError(f"{path}: not a file of questions: {error}; {_RESTORE_HINT}") from None
    if isinstance(version, int) and version != SCHEMA_VERSION:
        age, cure = ("newer", "upgrade visioneval") if version > SCHEMA_VERSION else ("older", "make it again")
        raise RunFormatError(f"{path}: schema_version {version} is {age} than {SCHEMA_VERSION}: {cure}")
    try:
        return read_json(_FILE, data, str(path), "file of questions").prompts
    except RunFormatError as error:
        raise RunFormatError(f"{error}; {_RESTORE_HINT}") from None


def prompt_sha256(prompt: str) -> str:
    """What an entry is found by."""
    return sha256(prompt.encode()).hexdigest()
