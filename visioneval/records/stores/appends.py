"""Appends to files of a run that several people and machines may write at once: labels, anchors, draws, sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visioneval.records.files.jsonl import append_lines
from visioneval.records.stores.locations import copies_at


def append_shared(path: Path, lines: Sequence[bytes]) -> None:
    """Appends lines to a file in the folder of a run, all or none; to a copy, after they are in the store.

    Each line is JSON without a newline. Raises ``StorageError``.
    """
    copies = copies_at(path.parent.parent)
    if copies is None:
        append_lines(path, lines)
    else:
        copies.append(path.parent.name, path.name.removesuffix(".jsonl"), lines)
