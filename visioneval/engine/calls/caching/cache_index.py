"""The index of the cache: an SQLite database that several processes may use."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import monotonic, sleep

from visioneval.errors import UsageError

FORMAT = 2
USE_ANOTHER_FOLDER = "choose another folder with --cache"
"""What to do about a folder that cannot be used."""
_BUSY_S = 30.0
_TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, answer BLOB NOT NULL, bytes INTEGER NOT NULL,
    stored_at TEXT NOT NULL, run_id TEXT NOT NULL, files TEXT NOT NULL
);
"""


def connect_index(path: Path) -> sqlite3.Connection:
    """Opens or creates an index for several processes. Raises ``UsageError`` for one of another version."""
    index = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False, isolation_level=None)
    try:
        version = index_format(index, path)
        _enable_wal(index)
        index.execute("PRAGMA synchronous=NORMAL")
        index.execute("PRAGMA wal_autocheckpoint=8000")
        if version == 0:
            index.executescript(f"{_TABLES}PRAGMA user_version={FORMAT};")
    except BaseException:
        index.close()
        raise
    return index


def index_format(index: sqlite3.Connection, path: Path) -> int:
    """The format of an index; 0 if it is new. Raises ``UsageError`` for an unsupported format."""
    (version,) = index.execute("PRAGMA user_version").fetchone()
    if version not in (0, FORMAT):
        raise UsageError(f"{path}: written by another version of visioneval (format {version}): {USE_ANOTHER_FOLDER}")
    others = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name <> 'answers' AND name NOT LIKE 'sqlite%'"
    if version == 0 and index.execute(others).fetchone():
        raise UsageError(f"{path}: not an index of a visioneval cache: {USE_ANOTHER_FOLDER}")
    return int(version)


def _enable_wal(index: sqlite3.Connection) -> None:
    """Enables write-ahead logging for concurrent processes. Retries because SQLite does not wait for this lock."""
    end = monotonic() + _BUSY_S
    while True:
        try:
            index.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or monotonic() > end:
                raise
            sleep(0.01)
        else:
            return


def referenced_files(index: sqlite3.Connection) -> set[str]:
    """The images that any answer refers to."""
    return {
        digest for (files,) in index.execute("SELECT files FROM answers WHERE files != ''") for digest in files.split()
    }
