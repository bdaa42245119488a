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
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from visioneval.atomic import write_whole
from visioneval.errors import StorageError, VisionEvalError
from visioneval.records.stores.claims import LostClaimError, RunClaim
from visioneval.records.stores.copies import RunCopies
from visioneval.records.stores.environment import SEGMENT_CELLS, SEGMENT_S
from visioneval.records.stores.segments import DOCUMENTS, LOGS, OUTPUTS, SegmentName, new_writer, parse_segments

_BEATS_PER_EXPIRY = 4
_TICK_S = 0.02
"""Times of files are rounded down to the tick of the system's clock."""
_MARGIN_S = 2.0
"""By how much the clock of a file system may differ from that of the machine."""


@dataclass(slots=True)
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


_STATE: TypeAdapter[SentState] = TypeAdapter(SentState)


@dataclass(frozen=True, slots=True)
class UnsentSegment:
    """A segment that may have arrived although the store did not say so: it is sent again, unchanged."""

    name: SegmentName
    data: bytes
    tail: LogTail


class Publisher:
    """Sends the folder of one run, in a thread of its own. Raises ``StorageError``."""

    def __init__(self, copies: RunCopies, run_id: str, claim: RunClaim) -> None:
        self.folder = copies.work / run_id
        self.url = f"{copies.url}/{run_id}"
        self.say: Callable[[str], None] = lambda _: None
        self._store, self._run_id, self._claim = copies.store, run_id, claim
        self._state_path = copies.work / f"{run_id}.sent.json"
        self._state = _read_state(self._state_path)
        self._segments: dict[str, SegmentName] = {}
        self._unsent: dict[str, UnsentSegment] = {}
        self._documents: dict[str, tuple[int, int]] = {}
        self._outputs: dict[str, None] = {}
        self._cells = 0
        self._max_cells, self._interval_s = SEGMENT_CELLS.value, SEGMENT_S.value
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._wake, self._is_stopping = threading.Event(), False
        self._lost: LostClaimError | None = None
        self._thread = threading.Thread(target=self._work, name="publisher", daemon=True)

    def adopt(self) -> None:
        """Counts the logs and documents as sent: the folder was just copied from the store."""
        self._state = SentState({log: tail for log in LOGS if (tail := self._tail(log)).sent}, time.time() - _TICK_S)
        for name in DOCUMENTS:
            if (signature := self._signature(name)) is not None:
                self._documents[name] = signature
        self._save_state()

    def add_leftovers(self) -> None:
        """Counts the outputs as unsent that an earlier process on this machine may not have sent."""
        for path in (self.folder / OUTPUTS).rglob("*"):
            if path.is_file() and max(path.stat().st_mtime, path.stat().st_ctime) >= self._state.since:
                self.add_output(path.relative_to(self.folder).as_posix())

    def begin(self) -> None:
        """Notes that nothing of a new run is in the store yet."""
        self._state = SentState()
        self._save_state()

    def start(self) -> None:
        """Starts to send in the background."""
        self._thread.start()

    def add_output(self, relative: str) -> None:
        """Notes a file that was written below the run's folder."""
        with self._lock:
            self._outputs[relative] = None

    def add_cell(self) -> None:
        """Notes a record that was appended. Raises ``LostClaimError`` if another process has taken over the run."""
        if self._lost is not None:
            raise self._lost
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
            self._save_state()

    def send_document(self, name: str) -> None:
        """Sends a file that is written whole, if it has changed."""
        signature = self._signature(name)
        if signature is not None and signature != self._documents.get(name):
            self._store.put(f"{self._run_id}/{name}", (self.folder / name).read_bytes())
            self._documents[name] = signature

    def finish(self) -> None:
        """Sends the rest and the end state, and releases the run. Raises ``StorageError`` if something is left."""
        self.stop()
        try:
            if self._lost is not None:
                raise self._lost
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
        self.forget()

    def forget(self) -> None:
        """Notes that nothing is left to send."""
        self._state_path.unlink(missing_ok=True)

    def give_up(self) -> None:
        """Ends without sending: releases the run, if the store can be reached."""
        self.stop()
        with suppress(VisionEvalError):
            self._claim.release()

    def stop(self) -> None:
        """Ends the thread, after what it is sending."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        """Sends at intervals and after enough cells, and shows that the writer lives."""
        wait = min(self._interval_s, self._claim.body.expiry_s / _BEATS_PER_EXPIRY)
        due, is_failing = time.monotonic() + self._interval_s, False
        while not self._is_stopping:
            is_woken = self._wake.wait(wait)
            self._wake.clear()
            if self._is_stopping:
                return
            try:
                self._claim.renew()
                if is_woken or time.monotonic() >= due:
                    due = time.monotonic() + self._interval_s
                    self.send()
                is_failing = False
            except LostClaimError as error:
                self._lost = error
                return
            except Exception as error:  # the run continues: finish() sends what is left, or fails
                if not is_failing:
                    self.say(f"{error}; the run continues, and sends it later")
                is_failing = True

    def _send_outputs(self) -> None:
        with self._lock:
            outputs, self._outputs = self._outputs, {}
        files = [(f"{self._run_id}/{name}", self.folder / name) for name in outputs if (self.folder / name).is_file()]
        try:
            self._store.upload(files)
        except BaseException:
            with self._lock:
                self._outputs = {**outputs, **self._outputs}
            raise

    def _send_log(self, log: str, tail: LogTail) -> None:
        if (unsent := self._unsent.get(log)) is not None:
            self._put_segment(log, unsent)
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
        is_first = not sent.sent and not sent.inode
        name = self._segment(log).next(is_whole=not is_grown and not is_first)
        self._put_segment(log, UnsentSegment(name, data, tail))

    def _put_segment(self, log: str, segment: UnsentSegment) -> None:
        self._unsent[log] = segment
        self._store.put(f"{self._run_id}/{log}/{segment.name}", segment.data)
        del self._unsent[log]
        self._segments[log] = segment.name
        self._state.logs[log] = segment.tail

    def _segment(self, log: str) -> SegmentName:
        """The last segment of this writer in a log."""
        if log not in self._segments:
            names = [item.name for item in self._store.entries(f"{self._run_id}/{log}")]
            known = parse_segments(names, f"{self.url}/{log}")
            self._segments[log] = new_writer(known, self._claim.number)
        return self._segments[log]

    def _tail(self, log: str) -> LogTail:
        """The complete lines of a log: another thread may be appending one."""
        try:
            with (self.folder / f"{log}.jsonl").open("rb") as file:
                status = os.fstat(file.fileno())
                end = status.st_size
                while end > 0:
                    start = max(0, end - 65536)
                    file.seek(start)
                    if (newline := file.read(end - start).rfind(b"\n")) >= 0:
                        return LogTail(start + newline + 1, status.st_ino)
                    end = start
                return LogTail(0, status.st_ino)
        except FileNotFoundError:
            return LogTail()

    def _signature(self, name: str) -> tuple[int, int] | None:
        with suppress(FileNotFoundError):
            status = (self.folder / name).stat()
            return status.st_mtime_ns, status.st_ino
        return None

    def _save_state(self) -> None:
        try:
            write_whole(self._state_path, _STATE.dump_json(self._state))
        except OSError as error:
            raise StorageError(f"{self._state_path}: cannot write: {error.strerror or error}") from error


def _read_state(path: Path) -> SentState:
    with suppress(OSError, ValidationError):
        return _STATE.validate_json(path.read_bytes())
    return SentState()
