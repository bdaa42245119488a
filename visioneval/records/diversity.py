"""The diversity of samples: ``diversity.jsonl``, read and written only here.

One line per grader, case and model run.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from visioneval.atomic import write_whole
from visioneval.records.fields import Number
from visioneval.records.reader import read_lines
from visioneval.records.untrusted_json import SCHEMA_VERSION
from visioneval.records.writer import storing
from visioneval.suite.entries.graders import DIVERSITY
from visioneval.types import Frozen

DiversityKey = tuple[str, str, str]


class CaseDiversity(Frozen):
    """The mean distance of the samples of one case on one model run.

    ``outputs`` are the SHA-256 hashes of the compared images, in the order of the samples: a line whose cells now have
    other images does not count. ``distance`` and ``delta_e`` are ``None`` if a pair could not be measured (``error``).
    """

    schema_version: int = SCHEMA_VERSION
    grader: str
    test_id: str
    model_label: str
    outputs: tuple[str, ...]
    distance: Annotated[Number, Field(ge=0, le=2)] | None
    delta_e: Annotated[Number, Field(ge=0)] | None
    error: str | None = None

    @property
    def key(self) -> DiversityKey:
        """What the line is about: its grader, case and model run."""
        return self.grader, self.test_id, self.model_label


def read_diversity(folder: Path) -> list[CaseDiversity]:
    """The lines of a run; empty if there are none. Raises ``RunFormatError`` with file and line."""
    return list(read_lines(folder / DIVERSITY, CaseDiversity, "diversity"))


def update_diversity(folder: Path, lines: Iterable[CaseDiversity]) -> None:
    """Adds lines to a run, which replace those about the same case, model run and grader. Raises ``StorageError``."""
    if new := list(lines):
        by_key = {line.key: line for line in (*read_diversity(folder), *new)}
        with storing(folder / DIVERSITY):
            write_whole(folder / DIVERSITY, "".join(f"{line.model_dump_json()}\n" for line in by_key.values()))
