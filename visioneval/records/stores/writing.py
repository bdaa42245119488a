"""Opens runs to write: in a local folder, or in a folder on this machine whose content is sent to a store."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from pydantic import BaseModel

from visioneval.errors import UsageError, VisionEvalError
from visioneval.records.model import CellKey, Record, RunInfo, RunState, StoppedBy
from visioneval.records.reader import read_lines
from visioneval.records.stores.claims import RunClaim
from visioneval.records.stores.copies import RunCopies
from visioneval.records.stores.lookup import copies_at, copies_of
from visioneval.records.stores.publishing import Publisher
from visioneval.records.writer import RunWriter, check_run_id, hard_link, lock_run, repair_last_line, storing

_PUBLISHERS: dict[Path, Publisher] = {}
"""The publishers of this process, by the folder that they send."""


class PublishedRunWriter(RunWriter):
    """A ``RunWriter`` whose folder is sent to a store."""

    @property
    def publisher(self) -> Publisher:
        """The sender that copies this run to its store."""
        return _PUBLISHERS[self.folder]

    def watch(self, say: Callable[[str], None]) -> None:
        """Reports when the store cannot be reached."""
        self.publisher.say = say

    def append(self, record: Record) -> None:
        """Also counts the record. Raises ``StorageError`` if another process has taken over the run."""
        super().append(record)
        self.publisher.add_cell()

    def save(self, test_id: str, label: str, name: str, data: bytes | None, *, source: Path | None = None) -> str:
        """Also notes that the file is to be sent."""
        relative = super().save(test_id, label, name, data, source=source)
        self.publisher.add_output(relative)
        return relative

    def flush(self) -> None:
        """Also sends it, or leaves that to the background. Raises ``LostClaimError``."""
        self.publisher.try_to_send()

    def update(self, info: RunInfo) -> None:
        """Also sends it."""
        super().update(info)
        self.publisher.send_document("run.json")

    def finish(
        self, state: RunState, ended_at: str, *, stopped_by: StoppedBy | None = None, reused_since: str | None = None
    ) -> RunInfo:
        """Also sends the rest of the run, and lets other processes write it."""
        info = super().finish(state, ended_at, stopped_by=stopped_by, reused_since=reused_since)
        self.publisher.finish()
        return info

    def write_summary(self, summary: BaseModel) -> None:
        """Also sends the summary."""
        super().write_summary(summary)
        self.publisher.send_document("summary.json")


def create_run(root: Path, info: RunInfo) -> RunWriter:
    """Creates a run in a local folder or in a store. Raises the errors of ``RunWriter.create`` and of ``RunClaim``."""
    copies = copies_at(root)
    if copies is None:
        return RunWriter.create(root, info)
    check_run_id(info.run_id)
    with _claimed(copies, info.run_id) as claim:
        writing_root(root, info.run_id)
        publisher = _publisher(copies, info.run_id, claim)
        writer = PublishedRunWriter.create(copies.work, info)
        try:
            publisher.save_state()
            publisher.send_document("run.json")
        except BaseException:
            writer.close()
            raise
        publisher.start()
    return writer


def claim_run(folder: Path) -> Path:
    """Opens an existing run to add to it. Returns the folder to write in: for a local run, its own.

    Of a run in a store, this is a new folder with all that the store has, and with what an earlier process on this
    machine could not send. ``resume_run``, ``close_run`` or ``release_run`` must follow. Raises ``UsageError`` if
    another process writes the run.
    """
    copies = copies_of(folder)
    if copies is None:
        return folder
    run_id, work = folder.name, copies.work / folder.name
    with _claimed(copies, run_id) as claim:
        # another process may still write here after its claim has expired
        with suppress(FileNotFoundError), (work / "results.jsonl").open("rb") as results:
            lock_run(cast("BinaryIO", results), work)
        if (work / "run.json").is_file() and (copies.work / f"{run_id}.sent.json").is_file():
            leftovers = Publisher(copies, run_id, claim)
            leftovers.add_leftovers()
            leftovers.send()
            leftovers.forget()
        copies.refresh(run_id)
        copies.fetch_outputs(folder)
        _clear(copies, run_id)
        _copy(folder, work)
        publisher = _publisher(copies, run_id, claim)
        publisher.adopt()
        publisher.start()
    return work


def resume_run(folder: Path, info: RunInfo, stale: Collection[CellKey] = ()) -> RunWriter:
    """Opens the folder of ``claim_run`` with a writer. Raises the errors of ``RunWriter.resume``."""
    if folder not in _PUBLISHERS:
        return RunWriter.resume(folder, info, stale)
    writer = PublishedRunWriter.resume(folder, info, stale)
    writer.publisher.send_document("run.json")
    return writer


def close_run(folder: Path) -> None:
    """Sends what was added to the folder of ``claim_run``; nothing to do for a local run. Raises ``StorageError``."""
    if folder in _PUBLISHERS:
        _PUBLISHERS[folder].add_leftovers()
        _PUBLISHERS[folder].finish()


def release_run(folder: Path) -> None:
    """Gives up the run of ``claim_run`` after an error; nothing to do for a local run."""
    if folder in _PUBLISHERS:
        _PUBLISHERS[folder].give_up()


def writing_root(root: Path, run_id: str) -> Path:
    """The folder in which a new run is written as a whole: for a local folder of runs, itself.

    Raises ``UsageError`` if a store has a run of that name.
    """
    copies = copies_at(root)
    if copies is None:
        return root
    check_run_id(run_id)
    _check_new(copies, run_id)
    _clear(copies, run_id)
    return copies.work


def send_run(folder: Path, root: Path) -> None:
    """Sends a complete run from the folder of ``writing_root``; nothing to do for a local run.

    Raises ``UsageError`` if the store has a run of that name, and ``StorageError``.
    """
    copies = copies_at(root)
    if copies is None:
        return
    with _claimed(copies, folder.name) as claim:
        _check_new(copies, folder.name)
        publisher = _publisher(copies, folder.name, claim)
        publisher.save_state()
        publisher.add_leftovers()
        publisher.finish()


def _publisher(copies: RunCopies, run_id: str, claim: RunClaim) -> Publisher:
    publisher = Publisher(copies, run_id, claim)
    _PUBLISHERS[publisher.folder] = publisher
    return publisher


@contextmanager
def _claimed(copies: RunCopies, run_id: str) -> Iterator[RunClaim]:
    """Claims a run; releases it if what follows fails."""
    claim = RunClaim.acquire(copies.store, run_id)
    try:
        yield claim
    except BaseException:
        with suppress(VisionEvalError):
            claim.release()
        raise


def _check_new(copies: RunCopies, run_id: str) -> None:
    if any(item.name == "run.json" for item in copies.store.entries(run_id)):
        raise UsageError(f"{copies.url}/{run_id}: already exists: use another --run-id")


def _clear(copies: RunCopies, run_id: str) -> None:
    """Makes room for a run. What an earlier process could not send of another run of this name is moved aside."""
    folder, state = copies.work / run_id, copies.work / f"{run_id}.sent.json"
    _PUBLISHERS.pop(folder, None)
    if folder.is_dir() and state.exists():
        folder.rename(copies.work / f".{run_id}.unsent-{secrets.token_hex(4)}")
    shutil.rmtree(folder, ignore_errors=True)
    state.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """Copies a run. Outputs are linked where that works: they are replaced, never changed."""

    def copy(path: str, to: str) -> None:
        if Path(path).parent == source or not hard_link(path, to):
            shutil.copyfile(path, to)

    with storing(target):
        shutil.copytree(source, target, copy_function=copy, ignore=shutil.ignore_patterns(".*"))  # unfinished ones


NAME = "confirmations.jsonl"


def has_confirmations(folder: Path) -> bool:
    """Whether new samples of a run exist."""
    path = folder / NAME
    return path.is_file() and path.stat().st_size > 0


def read_confirmations(folder: Path) -> list[Record]:
    """The new samples of a run, one record per cell; empty if there are none.

    Raises ``RunFormatError`` with file and line. Ignores a truncated last line.
    """
    return list({record.cell: record for record in read_lines(folder / NAME, Record)}.values())


@contextmanager
def open_confirmations(folder: Path, info: RunInfo) -> Iterator[RunWriter]:
    """A writer that appends records to the confirmations of a finished run, and images to its artifacts.

    Locks the run. Raises ``UsageError`` if another process writes it, ``StorageError`` if it cannot be written.
    """
    with storing(folder, "write the new samples"):
        results, lines = (folder / "results.jsonl").open("rb", buffering=0), (folder / NAME).open("ab+", buffering=0)
    with results, lines:
        lock_run(results, folder)
        with storing(folder / NAME):
            repair_last_line(lines)
        yield (PublishedRunWriter if folder in _PUBLISHERS else RunWriter)(folder, info, lines)
