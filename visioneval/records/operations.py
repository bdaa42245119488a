"""Operations that providers carry out for cells of a run, written down as soon as they begin.

Each is a small file among the outputs of its cell, so it is where they are: in a store, on a cluster's shared folder,
and in a merged run. A run that was killed finds it there and asks for its end instead of paying again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from visioneval.records.files.links import file_inside
from visioneval.records.writer import OutputWriter, model_slug
from visioneval.types import Frozen

_MAX_BYTES = 100_000


class Operation(Frozen):
    """An operation as its file says. ``key`` is the cache key of its call, ``name`` what the provider calls it."""

    key: str
    name: Annotated[str, Field(min_length=1, max_length=1000)]
    provider: str
    began_at: str
    ended: bool = False
    """Whether it ended without a usable output, so that the cell is to be generated again."""


_OPERATION: TypeAdapter[Operation] = TypeAdapter(Operation)


@dataclass(frozen=True, slots=True)
class OperationFile:
    """Where the operation of one call is written down. Raises ``StorageError`` if it cannot be."""

    writer: OutputWriter
    test_id: str
    model_label: str
    provider: str
    samples: tuple[int, ...]
    key: str

    @property
    def _file_name(self) -> str:
        samples = "-".join(map(str, self.samples))
        return f"operation-{samples}-{sha256(self.key.encode()).hexdigest()[:16]}.json"

    def read(self) -> str | None:
        """The name of the operation that has begun for this call; ``None`` if there is none to ask for."""
        relative = f"artifacts/{self.test_id}/{model_slug(self.model_label)}/{self._file_name}"
        path = file_inside(self.writer.folder, relative)
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                operation = _OPERATION.validate_json(file.read(_MAX_BYTES))
        except (OSError, ValidationError):
            return None
        is_same = operation.key == self.key and operation.provider == self.provider
        return operation.name if is_same and not operation.ended else None

    def begin(self, name: str) -> None:
        """Writes an operation down. It is in a store when this returns, if the run is."""
        self._write(name, ended=False)
        self.writer.flush()

    def end(self, name: str) -> None:
        """Notes that an operation has no usable output."""
        self._write(name, ended=True)

    def _write(self, name: str, *, ended: bool) -> None:
        began_at = datetime.now(UTC).isoformat(timespec="seconds")
        operation = Operation(key=self.key, name=name, provider=self.provider, began_at=began_at, ended=ended)
        data = operation.model_dump_json(indent=2).encode() + b"\n"
        self.writer.save(self.test_id, self.model_label, self._file_name, data)
