"""Sends what a writer has written in its folder to the store: outputs first, then the records that name them.

So what the store has can always be read. A writer that is killed loses the records since the last segment; the answers
that they were made of are paid, and in the cache.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import ValidationError

from visioneval.atomic import write_whole
from visioneval.errors import StorageError, VisionEvalError
from visioneval.records.stores.claims import LostClaimError, RunClaim, setting
from visioneval.records.stores.copies import DOCUMENTS, RunCopies, new_writer, next_segment, ordered_segments
from visioneval.records.stores.store import in_threads
from visioneval.records.untrusted import LOGS, OUTPUTS, adapter_of
from visioneval.records.writer import partial_line, storing

_TICK_S = 0.02
"""Times of files are rounded down to the tick of the system's clock."""
_MARGIN_S = 2.0
"""By how much the clock of a file system may differ from that of the machine."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """How much of a log is in the store: ``sent`` bytes of the file with the number ``inode``."""

    sent: int = 0
    inode: int = 0


@dataclass(slots=True)
class SentState:
    """What is in the store of a run that this machine writes. On disk, so that a killed run can be completed."""

    logs: dict[str, LogTail] = field(default_factory=dict)
    since: float = 0.0
    """The POSIX time before which all outputs were written that are in the store."""


class Publisher:
    """Sends the folder of one run. Raises ``StorageError``."""

    def __init__(self, copies: RunCopies, run_id: str, claim: RunClaim) -> None:
        self.folder = copies.work / run_id
        self.url = f"{copies.url}/{run_id}"
        self.say: Callable[[str], None] = lambda _: None
        self._store, self._run_id, self._claim = copies.store, run_id, claim
        self._state_path, self._state = copies.work / f"{run_id}.sent.json", SentState()
        with suppress(OSError, ValidationError):
            self._state = adapter_of(SentState).validate_json(self._state_path.read_bytes())
        self._segments: dict[str, str] = {}
        """By log: the last one that this writer has sent."""
        self._unsent: dict[str, tuple[str, bytes, LogTail]] = {}
        """Segments that may have arrived although the store did not say so: they are sent again, unchanged."""
        self._documents: dict[str, tuple[int, int]] = {}
        self._outputs: dict[str, None] = {}
        self._cells = 0
        self._max_cells, self._interval_s = setting("VISIONEVAL_SEGMENT_CELLS"), setting("VISIONEVAL_SEGMENT_S")
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._wake, self._is_stopping, self._is_failing = threading.Event(), False, False
        self._thread = threading.Thread(target=self._work, name="publisher", daemon=True)

    def adopt(self) -> None:
        """Counts the logs and documents as sent: the folder was just copied from the store."""
        self._state = SentState({log: tail for log in LOGS if (tail := self._tail(log)).sent}, time.time() - _TICK_S)
        self._documents = {name: signature for name in DOCUMENTS if (signature := self._signature(name)) is not None}
        self.save_state()

    def add_leftovers(self) -> None:
        """Counts the outputs as unsent that an earlier process on this machine may not have sent."""
        for path in (self.folder / OUTPUTS).rglob("*"):
            if path.is_file() and max(path.stat().st_mtime, path.stat().st_ctime) >= self._state.since:
                self.add_output(path.relative_to(self.folder).as_posix())

    def start(self) -> None:
        """Starts to send in the background, in a thread of its own."""
        self._thread.start()

    def add_output(self, relative: str) -> None:
        """Notes a file that was written below the run's folder."""
        with self._lock:
            self._outputs[relative] = None

    def add_cell(self) -> None:
        """Notes a record that was appended. Raises ``LostClaimError`` if another process has taken over the run."""
        if self._claim.lost is not None:
            raise self._claim.lost
        self._cells += 1
        if self._cells >= self._max_cells:
            self._wake.set()

    def send(self) -> None:
        """Sends what is new."""
        with self._sending:
            self._claim.check()
            start = time.time() - _MARGIN_S
            tails = {log: self._tail(log) for log in LOGS}  # before the outputs, so that these include all of theirs
            self._cells = 0
            self._send_outputs()
            for name in DOCUMENTS[:-1]:
                self.send_document(name)
            for log, tail in tails.items():
                self._send_log(log, tail)
            self._state.since = start
            self.save_state()

    def try_to_send(self) -> None:
        """Sends what is new. Says once that the store cannot be reached: ``finish`` sends the rest, or fails.

        Raises ``LostClaimError``.
        """
        try:
            self.send()
            self._is_failing = False
        except LostClaimError:
            raise
        except Exception as error:
            if not self._is_failing:
                self.say(f"{error}; the run continues, and sends it later")
            self._is_failing = True

    def send_document(self, name: str) -> None:
        """Sends a file that is written whole, if it has changed."""
        signature = self._signature(name)
        if signature is not None and signature != self._documents.get(name):
            self._put(name)
            self._documents[name] = signature

    def finish(self) -> None:
        """Sends the rest and the end state, and releases the run. Raises ``StorageError`` if something is left."""
        self._stop()
        try:
            self.send()
            self.send_document("run.json")
            self._claim.release()
        except LostClaimError as error:
            raise StorageError(f"{error}; this process's records are in {self.folder}") from None
        except VisionEvalError as error:  # also expired credentials
            raise StorageError(
                f"{error}; nothing is lost: what it lacks is in {self.folder}; to send the rest from this machine:"
                f" visioneval run --resume {self.url}"
            ) from error
        finally:
            self._claim.stop()
        self.forget()

    def forget(self) -> None:
        """Notes that nothing is left to send."""
        self._state_path.unlink(missing_ok=True)

    def give_up(self) -> None:
        """Ends without sending: releases the run, if the store can be reached."""
        self._stop()
        with suppress(VisionEvalError):
            self._claim.release()

    def save_state(self) -> None:
        """Notes on disk what is in the store."""
        with storing(self._state_path):
            write_whole(self._state_path, adapter_of(SentState).dump_json(self._state))

    def _stop(self) -> None:
        """Ends the thread, after what it is sending."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        """Sends at intervals and after enough cells."""
        with suppress(LostClaimError):
            while self._wake.wait(self._interval_s) is not None and not self._is_stopping:
                self._wake.clear()
                self.try_to_send()

    def _put(self, name: str) -> None:
        self._store.put(f"{self._run_id}/{name}", (self.folder / name).read_bytes())

    def _send_outputs(self) -> None:
        with self._lock:
            outputs, self._outputs = self._outputs, {}
        try:
            in_threads(self._put, [name for name in outputs if (self.folder / name).is_file()])
        except BaseException:
            with self._lock:
                self._outputs = {**outputs, **self._outputs}
            raise

    def _send_log(self, log: str, tail: LogTail) -> None:
        if log in self._unsent:
            self._put_segment(log)
        sent = self._state.logs.get(log, LogTail())
        if not tail.inode or (tail.sent == sent.sent and (tail.inode == sent.inode or not tail.sent)):
            return
        is_grown = tail.inode == sent.inode and tail.sent > sent.sent
        start = sent.sent if is_grown else 0
        with (self.folder / f"{log}.jsonl").open("rb") as file:
            if os.fstat(file.fileno()).st_ino != tail.inode:
                return  # replaced since: the next time sends it whole
            file.seek(start)
            data = file.read(tail.sent - start)
        if log not in self._segments:
            names = [item.name for item in self._store.entries(f"{self._run_id}/{log}")]
            self._segments[log] = new_writer(ordered_segments(names, f"{self.url}/{log}"), self._claim.number)
        is_first = not sent.sent and not sent.inode
        name = next_segment(self._segments[log], is_whole=not is_grown and not is_first)
        self._unsent[log] = name, data, tail
        self._put_segment(log)

    def _put_segment(self, log: str) -> None:
        name, data, tail = self._unsent[log]
        self._store.put(f"{self._run_id}/{log}/{name}", data)
        del self._unsent[log]
        self._segments[log], self._state.logs[log] = name, tail

    def _tail(self, log: str) -> LogTail:
        """The complete lines of a log: another thread may be appending one."""
        try:
            with (self.folder / f"{log}.jsonl").open("rb", buffering=0) as file:
                end = file.seek(0, os.SEEK_END)
                return LogTail(end - len(partial_line(file, end)), os.fstat(file.fileno()).st_ino)
        except FileNotFoundError:
            return LogTail()

    def _signature(self, name: str) -> tuple[int, int] | None:
        with suppress(FileNotFoundError):
            status = (self.folder / name).stat()
            return status.st_mtime_ns, status.st_ino
        return None
