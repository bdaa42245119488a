"""The on-disk format of a run, and the only module that reads or writes it.

runs/<run id>/run.json        what was run
              results.jsonl   one record per finished cell, appended; the last line of a cell wins
              artifacts/      pictures, and beside them the pictures that graders made
              summary.json    derived, for people and CI; never read here
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, BinaryIO, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from visioneval.errors import RunFormatError, StorageError, UsageError
from visioneval.suite.model import Suite
from visioneval.types import Frozen, Metric, Score, Status, TaskType, Verdict

SCHEMA_VERSION = 1

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
UPGRADES: dict[str, dict[int, Upgrade]] = {"run": {}, "record": {}, "label": {}, "labelling": {}, "preference": {}}
"""For each kind and old version the step to the version after it."""

RunState = Literal["running", "complete", "interrupted"]
CellKey = tuple[str, str, int]
PartT = TypeVar("PartT")
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}")
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _inside(path: str) -> str:
    """Refuses a path that leads out of the run: a run may come from a stranger too."""
    if path.strip("./") and not path.startswith("/") and not any(sign in path for sign in ("..", "\\", "\x00")):
        return path  # nearly all: the rest are looked at part by part
    parts = PurePosixPath(path).parts
    if not parts or "\\" in path or "\x00" in path or parts[0] == "/" or ".." in parts:
        raise ValueError("does not lie in the run")
    return path


PathInRun = Annotated[str, AfterValidator(_inside)]


class CellError(Frozen):
    """Why a cell, or a part of it, could not be finished."""

    stage: Literal["generate", "grade", "verdict"]
    kind: str
    message: str


class Fingerprint(Frozen):
    """What a grader's scores depend on beside the picture."""

    judge_model: str | None = None
    template_sha256: str | None = None
    schema_sha256: str | None = None
    config_sha256: str
    tool_versions: dict[str, str] = Field(default_factory=dict)


class GraderRecord(Frozen):
    """What one grader saw and said."""

    key: str
    type: str
    error: str | None = None
    details: dict[str, JsonValue] = Field(default_factory=dict)
    usage: dict[str, int] | None = None
    cost_usd: float | None = None
    seconds: float = 0.0
    cached: bool = False
    fingerprint: Fingerprint


class Record(Frozen):
    """One finished cell."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    test_id: str
    model_label: str
    sample_index: Annotated[int, Field(ge=0, le=1_000_000)]
    task_type: TaskType
    prompt: str
    tags: tuple[str, ...] = ()
    flaky: bool = False
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    provider: str
    run_params: dict[str, JsonValue] = Field(default_factory=dict)
    status: Status
    verdict: Verdict
    failed_rules: tuple[str, ...] = ()
    warned_rules: tuple[str, ...] = ()
    skipped_rules: tuple[str, ...] = ()
    scores: dict[str, Score] = Field(default_factory=dict)
    reasons: dict[str, str] = Field(default_factory=dict)
    failure_tags: tuple[str, ...] = ()
    graders: tuple[GraderRecord, ...] = ()
    artifact_path: PathInRun | None = None
    artifact_sha256: str | None = None
    mime: str | None = None
    width: int | None = None
    height: int | None = None
    usage: dict[str, int] | None = None
    cost_usd: float | None = None
    seconds: float = 0.0
    attempts: int = 0
    cached: bool = False
    error: CellError | None = None
    generation_key: str
    grade_key: str

    @property
    def cell(self) -> CellKey:
        """What makes this cell the same cell in two records."""
        return self.test_id, self.model_label, self.sample_index

    @property
    def total_cost_usd(self) -> float | None:
        """What drawing and grading are known to have cost; ``None`` where nothing is known."""
        known = [cost for cost in (self.cost_usd, *(one.cost_usd for one in self.graders)) if cost is not None]
        return sum(known) if known else None


_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_CURRENT = f'{{"schema_version":{SCHEMA_VERSION},'.encode()
"""How a line begins that ``RunWriter`` wrote: it is parsed once, without a look at its version."""


class Selection(Frozen):
    """The flags that narrowed a run."""

    cases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    graders: tuple[str, ...] = ()
    limit: int | None = None

    @property
    def narrows(self) -> bool:
        """Whether anything was left out."""
        return bool(self.cases or self.tags or self.models or self.graders or self.limit is not None)


class RunInfo(Frozen):
    """What was run: ``run.json``. ``suite`` is resolved: it expands to the same cells again."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    state: RunState
    started_at: str
    ended_at: str | None = None
    stopped_by: Literal["budget"] | None = None
    reused_since: str | None = None
    """When the oldest picture was drawn that came from the cache."""
    resumed_at: tuple[str, ...] = ()
    planned_cells: int
    visioneval_version: str
    python_version: str
    experiment: str | None = None
    note: str | None = None
    graded_from: str | None = None
    """Of a grading: the run whose pictures it grades, as RUN_ID or RUN_ID@label."""
    command_line: tuple[str, ...] = ()
    git_commit: str | None = None
    suite_path: str
    source_sha256: str
    selection: Selection = Selection()
    metrics: dict[str, Metric]
    suite: Suite


class RunWriter:
    """Appends to one run. Safe to call from several threads. Every failure to write is a ``StorageError``."""

    def __init__(self, folder: Path, info: RunInfo, results: BinaryIO) -> None:
        self.folder = folder
        self.info = info
        self._results = results
        self._end = results.seek(0, os.SEEK_END)
        self._lock = threading.Lock()

    @classmethod
    def create(cls, root: Path, info: RunInfo) -> Self:
        """Makes the run's directory and writes ``run.json``.

        Raises ``UsageError`` for an id or a place that cannot be used, ``StorageError`` where the disk is full.
        """
        if not _RUN_ID.fullmatch(info.run_id) or info.run_id == "latest":
            raise UsageError(f"--run-id: {info.run_id!r} does not fit: letters, digits, _ - and . (not first)")
        folder = root / info.run_id
        try:
            data = _json_bytes(info)
        except ValueError as error:
            raise UsageError(f"the suite cannot be kept as JSON: {error}") from None
        try:
            folder.mkdir(parents=True)
            (folder / "artifacts").mkdir()
            _write_whole(folder / "run.json", data)
            results = (folder / "results.jsonl").open("xb", buffering=0)
            _lock(results, folder)
            return cls(folder, info, results)
        except OSError as error:
            if isinstance(error, FileExistsError) and folder.is_dir():
                raise UsageError(f"{folder}: exists already; give another --run-id") from None
            kind = StorageError if error.errno in _FULL_DISK else UsageError
            raise kind(f"{folder}: cannot write the run here: {error.strerror or error}") from None

    @classmethod
    def resume(cls, folder: Path, info: RunInfo, stale: Collection[CellKey] = ()) -> Self:
        """Opens a run to go on with it; ``info`` is its ``run.json`` from now on.

        A last line that was cut off is taken away; the records of ``stale`` cells go to ``stale.jsonl``. Raises
        ``UsageError`` where another process writes this run, ``StorageError`` where the disk is full.
        """
        path = folder / "results.jsonl"
        try:
            data = _json_bytes(info)
            results = path.open("r+b" if path.exists() else "x+b", buffering=0)
            _lock(results, folder)
            _cut_torn_line(results)
            if stale:
                results.close()
                _set_aside(folder, stale)
                results = path.open("r+b", buffering=0)
                _lock(results, folder)
            _write_whole(folder / "run.json", data)
            return cls(folder, info, results)
        except OSError as error:
            kind = StorageError if error.errno in _FULL_DISK else UsageError
            raise kind(f"{folder}: cannot go on with this run: {error.strerror or error}") from None

    def append(self, record: Record) -> None:
        """Adds a record, whole or not at all: what a full disk cut off is taken away again."""
        line = record.model_dump_json().encode() + b"\n"
        with self._lock:
            try:
                written = 0
                while written < len(line):
                    written += self._results.write(line[written:]) or 0
            except OSError as error:
                with contextlib.suppress(OSError):
                    self._results.truncate(self._end)
                    self._results.seek(self._end)
                raise StorageError(f"{self.folder}: cannot write a record: {error.strerror}") from error
            self._end += len(line)

    def save(self, test_id: str, label: str, name: str, data: bytes, *, source: Path | None = None) -> str:
        """Keeps a file of a cell and returns its path from the run's folder, with forward slashes.

        ``source`` is a file that holds the same bytes and is never changed: where it can be linked, it is.
        """
        if not _SAFE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a file name: letters, digits, _ - and . (not first)")
        relative = f"artifacts/{test_id}/{model_slug(label)}/{name}"
        path = self.folder / relative
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if source is None or not _linked(source, path):
                _write_whole(path, data)
        except OSError as error:
            raise StorageError(f"{path}: cannot write: {error.strerror or error}") from error
        return relative

    def finish(
        self,
        state: RunState,
        ended_at: str,
        *,
        stopped_by: Literal["budget"] | None = None,
        reused_since: str | None = None,
    ) -> RunInfo:
        """Writes how the run ended into ``run.json`` and returns it."""
        since = min(filter(None, (reused_since, self.info.reused_since)), default=None)
        ended = {"state": state, "ended_at": ended_at, "stopped_by": stopped_by, "reused_since": since}
        self.info = self.info.model_copy(update=ended)
        try:
            self._results.close()
            _write_whole(self.folder / "run.json", _json_bytes(self.info))
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot finish the run: {error.strerror or error}") from error
        return self.info

    def write_summary(self, summary: BaseModel) -> None:
        """Writes ``summary.json``, which nothing here ever reads."""
        try:
            _write_whole(self.folder / "summary.json", _json_bytes(summary))
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot write the summary: {error.strerror or error}") from error


def _lock(results: BinaryIO, folder: Path) -> None:
    """Holds a run for this process until it ends, however it ends. Raises ``UsageError`` where another one does."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return
    try:
        fcntl.flock(results, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        results.close()
        raise UsageError(f"{folder}: another visioneval is writing this run now") from None
    except OSError:  # a file system without locks
        return


def _cut_torn_line(results: BinaryIO) -> None:
    end = results.seek(0, os.SEEK_END)
    keep, step = end, 65_536
    while keep > 0:
        begin = max(0, keep - step)
        results.seek(begin)
        newline = results.read(keep - begin).rfind(b"\n")
        if newline >= 0:
            keep = begin + newline + 1
            break
        keep = begin
    if keep < end:
        results.truncate(keep)
    results.seek(0, os.SEEK_END)


def _set_aside(folder: Path, stale: Collection[CellKey]) -> None:
    """Moves the records of some cells out of ``results.jsonl``."""
    kept: list[bytes] = []
    gone: list[bytes] = []
    for record in read_records(folder):
        (gone if record.cell in stale else kept).append(record.model_dump_json().encode() + b"\n")
    with (folder / "stale.jsonl").open("ab") as aside:
        aside.writelines(gone)
    _write_whole(folder / "results.jsonl", b"".join(kept))


def model_slug(label: str) -> str:
    """A folder name for a label: readable, inside the run, and different for different labels on any disk."""
    safe = re.sub(r"[^a-z0-9_.=-]+", "-", label.lower()).strip(".-")[:60].rstrip(".-")
    if safe == label and not re.search(r"-[0-9a-f]{10}$", label):
        return safe
    return f"{safe or 'model'}-{sha256(label.encode('utf-8', 'replace')).hexdigest()[:10]}"


def read_info(folder: Path) -> RunInfo:
    """Reads ``run.json``. Raises ``RunFormatError``."""
    path = folder / "run.json"
    return _validated(TypeAdapter(RunInfo), json.dumps(_upgraded("run", _header(path), str(path))), str(path))


def read_records(folder: Path) -> Iterator[Record]:
    """The records of a run, one per cell, in the order in which the cells were first written.

    Raises ``RunFormatError`` with file and line. A last line that was cut off is passed over.
    """
    lines = each_line(folder / "results.jsonl", _RECORD)
    yield from {record.cell: record for record in lines}.values()


def each_line(path: Path, wanted: TypeAdapter[PartT], kind: str = "record") -> Iterator[PartT]:
    """Every record of a file, or the part of it that is ``wanted``; a later line of a cell replaces an earlier one.

    ``kind`` is the key of ``UPGRADES`` for a file of something else. Raises as ``read_records``.
    """
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.isspace():
                    yield from _parsed(kind, line, f"{path}:{number}", wanted)
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None


def _parsed(kind: str, line: bytes, where: str, wanted: TypeAdapter[PartT]) -> Iterator[PartT]:
    """One, or none where the line was cut off."""
    if line.startswith(_CURRENT) and line.endswith(b"\n"):
        yield _validated(wanted, line, where)
        return
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        if not line.endswith(b"\n"):
            return
        raise RunFormatError(f"{where}: not a {kind}: {error}") from None
    if not isinstance(data, dict):
        raise RunFormatError(f"{where}: not a {kind}: not an object")
    current = _upgraded(kind, data, where)
    yield _validated(wanted, line if current is data else json.dumps(current), where)


def _upgraded(kind: str, data: dict[str, Any], where: str) -> dict[str, Any]:
    version = data.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise RunFormatError(f"{where}: no schema_version: not written by visioneval")
    if version > SCHEMA_VERSION:
        raise RunFormatError(
            f"{where}: schema_version {version} is newer than {SCHEMA_VERSION}, which this visioneval reads: upgrade it"
        )
    while version < SCHEMA_VERSION:
        step = UPGRADES[kind].get(version)
        if step is None:
            raise RunFormatError(f"{where}: schema_version {version} is not one that visioneval ever wrote")
        data = {**step(data), "schema_version": version + 1}
        version += 1
    return data


def _validated(wanted: TypeAdapter[PartT], data: str | bytes, where: str) -> PartT:
    try:
        return wanted.validate_json(data)
    except ValidationError as error:
        raise RunFormatError(f"{where}: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    part = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, part['loc']))}: {part['msg']}"


def _header(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise RunFormatError(f"{path}: not JSON: {error}") from None
    if not isinstance(data, dict):
        raise RunFormatError(f"{path}: not a run")
    return data


def list_runs(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Every run in a folder with the raw contents of its ``run.json``, oldest first; what is no run is left out."""
    found = []
    for path in sorted(root.glob("*/run.json")):
        try:
            found.append((path.parent, _header(path)))
        except RunFormatError:
            continue
    return sorted(found, key=lambda run: (str(run[1].get("started_at")), run[0].name))


def find_run(name: str, root: Path) -> Path:
    """A run by path, id, unique prefix of an id, or ``latest``. Raises ``UsageError``."""
    if (Path(name) / "run.json").is_file():
        return Path(name)
    if name == "latest":
        runs = list_runs(root)
        if not runs:
            raise UsageError(f"{root}: there is no run here yet")
        return runs[-1][0]
    matches = [path.parent for path in sorted(root.glob("*/run.json")) if path.parent.name.startswith(name)]
    exact = [path for path in matches if path.name == name]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    if matches:
        names = ", ".join(path.name for path in matches[:5])
        raise UsageError(f"{name!r} fits {len(matches)} runs: {names}")
    raise UsageError(f"{name!r}: no such run in {root} ('visioneval runs' lists them)")


def _json_bytes(model: BaseModel) -> bytes:
    return (model.model_dump_json(indent=2, exclude_defaults=False) + "\n").encode()


def _linked(source: Path, path: Path) -> bool:
    """Gives a file a second name, in place of an older file; ``False`` where the disk cannot."""
    try:
        path.hardlink_to(source)
    except FileExistsError:
        part = path.with_name(f".{path.name}.{threading.get_ident()}.part")  # two cells may share a picture
        try:
            part.hardlink_to(source)
            part.replace(path)
            part.unlink(missing_ok=True)  # where both were the same file already, nothing was renamed
        except OSError:
            return False
    except (OSError, NotImplementedError):
        return False
    return True


def _write_whole(path: Path, data: bytes) -> None:
    """A reader sees the old file or the new one, never a half."""
    part = path.with_name(f".{path.name}.{threading.get_ident()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
