"""What graders record of several cells together: preferences between pairs, the diversity of samples, and
near-duplicates between cases.

``preferences.jsonl`` has one line per pair and order, as each pair is shown in both orders; a repeated question appends
a line, and the last line counts. ``diversity.jsonl`` has one line per grader, case and model run, ``duplicates.jsonl``
one per grader and output. All are read and written only here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from visioneval.atomic import write_whole
from visioneval.records.model import CellKey
from visioneval.records.reader import read_lines
from visioneval.records.untrusted import SCHEMA_VERSION, Number, SampleIndex, Usd
from visioneval.records.writer import append_lines, locked, storing
from visioneval.suite.entries.graders import DIVERSITY, DUPLICATES, PREFERENCES
from visioneval.suite.files import split_run
from visioneval.types import Frozen

ORDERS: tuple[Literal["a", "b"], ...] = ("a", "b")
_OMITTED = ("template_sha256", "extra_keys", "read", "scaled", "refused", "never_asked", "cached")
"""Fields that a line has only if they are not empty."""
PreferenceKey = tuple[str, int, str, str, str, str]


class Preference(Frozen):
    """One answer about one pair, shown in one order. ``a`` and ``b`` are ``RUN_ID@label``.

    ``first`` is the image shown first, as "A"; ``answer`` is the preferred image, independent of the order, or ``None``
    if there is an ``error``. ``reason`` is the judge's text, in which A is the image shown first.
    """

    schema_version: int = SCHEMA_VERSION
    """2."""
    test_id: str
    """The case."""
    sample_index: SampleIndex
    """Starts at 0."""
    a: str
    """``RUN_ID@label``."""
    b: str
    """``RUN_ID@label``."""
    first: Literal["a", "b"]
    """``a`` or ``b``: the image that the judge saw first. Each order of a pair has a line; the last line of a pair,
    judge and order counts.
    """
    answer: Literal["a", "b", "tie"] | None
    """``a``, ``b`` or ``tie``, independent of the order; ``null`` if there is an ``error``."""
    reason: str | None
    """The judge's own text, in which A is the image that it saw first."""
    judge: str
    """``provider:model``."""
    error: str | None
    """``null``, or why there is no answer: the judge is then asked again."""
    template_sha256: str | None = None
    """Hash of the grader's templates; absent in older lines. A line of other templates is asked again."""
    extra_keys: dict[str, str] | None = None
    """Only if the judge answered with keys that were not requested: these keys, with the beginning of each value."""
    read: Literal["extracted", "repaired"] | None = None
    """Only if the reply was not JSON alone: ``extracted`` or ``repaired``."""
    scaled: tuple[str, ...] = ()
    """Only if an image was above the limits of the judge: each such image, with its size before and after."""
    refused: bool = False
    """Only if the judge refused to answer: true."""
    never_asked: bool = False
    """Only if the judge was not asked at all, offline: true."""
    cost_usd: Usd | None = None
    """Cost of this line; 0 from the cache, ``null`` if it is unknown. The cost of a run includes all lines, even those
    that a later one replaces.
    """
    cached: bool = False
    """``true`` if all replies came from the cache; otherwise absent."""

    @model_serializer(mode="wrap")
    def _omit_empty(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        line: dict[str, Any] = serialize(self)
        return {name: value for name, value in line.items() if value or name not in _OMITTED}

    @property
    def key(self) -> PreferenceKey:
        """Identifies the question."""
        return self.test_id, self.sample_index, self.a, self.b, self.judge, self.first

    def is_about(self, run_id: str, cells: Collection[CellKey]) -> bool:
        """Whether either image belongs to one of these cells of a run."""
        sides = (split_run(side) for side in (self.a, self.b))
        return any(run == run_id and (self.test_id, str(label), self.sample_index) in cells for run, label in sides)

    def is_within(self, run_id: str) -> bool:
        """Whether both images belong to this run."""
        return all(split_run(side)[0] == run_id for side in (self.a, self.b))


def append_preferences(folder: Path, preferences: Iterable[Preference]) -> None:
    """Appends answers to a run, all or none. Raises ``StorageError``."""
    append_lines(folder / PREFERENCES, [preference.model_dump_json().encode() for preference in preferences])


def read_preferences(folder: Path) -> list[Preference]:
    """The answers of a run that count, sorted by their keys, as judges answer in any order; empty if there are none.

    Raises ``RunFormatError`` with file and line. Ignores a truncated last line.
    """
    last = {preference.key: preference for preference in read_all_answers(folder)}
    return [last[key] for key in sorted(last)]


def read_all_answers(folder: Path) -> Iterator[Preference]:
    """Every line of a run, also those that a repeated question replaced: each of them was paid for.

    Raises ``RunFormatError`` with file and line. Ignores a truncated last line.
    """
    yield from read_lines(folder / PREFERENCES, Preference, "preference")


def forget_preferences(folder: Path, run_id: str, cells: Collection[CellKey]) -> None:
    """Deletes answers about these cells of a run. Raises ``StorageError``."""
    path = folder / PREFERENCES
    if not cells or not path.exists():
        return
    with storing(path), locked(path):
        remaining = [preference for preference in read_preferences(folder) if not preference.is_about(run_id, cells)]
        write_whole(path, "".join(f"{preference.model_dump_json()}\n" for preference in remaining))


DiversityKey = tuple[str, str, str]


class CaseDiversity(Frozen):
    """The mean distance of the samples of one case on one model run.

    ``outputs`` are the SHA-256 hashes of the compared images, in the order of the samples: a line whose cells now have
    other images does not count. ``distance`` and ``delta_e`` are ``None`` if a pair could not be measured (``error``).
    """

    schema_version: int = SCHEMA_VERSION
    """2."""
    grader: str
    """The grader's key."""
    test_id: str
    """The case."""
    model_label: str
    """The model run."""
    outputs: tuple[str, ...]
    """``artifact_sha256`` of the images that were compared, in the order of the samples. The line counts while these
    are the images of the run's cells.
    """
    distance: Annotated[Number, Field(ge=0, le=2)] | None
    """Mean over all pairs of 1 - SSIM, after one image is scaled and aligned to the other: 0 (identical) to 2. It
    compares brightness, not color. ``null`` if there is an ``error``."""
    delta_e: Annotated[Number, Field(ge=0)] | None
    """Mean over all pairs of the mean color difference (CIEDE2000): 0 is identical, 1 is just noticeable. ``null`` if
    there is an ``error``."""
    error: str | None = None
    """``null``, or why a pair could not be compared."""

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


class CellDuplicate(Frozen):
    """Whether an output is a near-duplicate of that of another case on the same model run."""

    schema_version: int = SCHEMA_VERSION
    """2."""
    grader: str
    """The grader's key."""
    test_id: str
    """The case."""
    model_label: str
    """The model run."""
    sample_index: SampleIndex
    """Starts at 0."""
    output: str
    """``artifact_sha256`` of the image. The line counts while this is the image of the run's cell."""
    is_duplicate: bool | None
    """``null`` if there is an ``error``, or no output of another case to compare it with."""
    of: str | None = None
    """Of a near-duplicate: the case whose output it was found to repeat, or the first case found to repeat it."""
    of_sample: SampleIndex = 0
    """The sample of that case."""
    distance: Annotated[Number, Field(ge=0, le=2)] | None = None
    """Of a near-duplicate: 1 - SSIM of the two images."""
    delta_e: Annotated[Number, Field(ge=0)] | None = None
    """Of a near-duplicate: their mean color difference (CIEDE2000)."""
    error: str | None = None
    """``null``, or why the image could not be compared."""

    @property
    def key(self) -> tuple[str, CellKey]:
        """What the line is about: its grader and cell."""
        return self.grader, (self.test_id, self.model_label, self.sample_index)


def read_duplicates(folder: Path) -> list[CellDuplicate]:
    """The lines of a run; empty if there are none. Raises ``RunFormatError`` with file and line."""
    return list(read_lines(folder / DUPLICATES, CellDuplicate, "duplicate"))


def update_duplicates(folder: Path, lines: Iterable[CellDuplicate]) -> None:
    """Adds lines to a run, which replace all of the same graders and model runs. Raises ``StorageError``."""
    if new := list(lines):
        replaced = {(line.grader, line.model_label) for line in new}
        old = (line for line in read_duplicates(folder) if (line.grader, line.model_label) not in replaced)
        with storing(folder / DUPLICATES):
            write_whole(folder / DUPLICATES, "".join(f"{line.model_dump_json()}\n" for line in (*old, *new)))
