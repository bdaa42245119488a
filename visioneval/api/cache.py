"""The upkeep of a cache in a folder or a bucket, and which of its answers an offline run of suites reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from visioneval.analysis.run_lookup import Warn
from visioneval.api.running import run_planned
from visioneval.api.runs import logging_run
from visioneval.errors import ExitCode, StoppedError, UsageError, count_of
from visioneval.records.stores.lookup import cache_url
from visioneval.records.stores.store import ObjectStore
from visioneval.running.calls import cache_files as upkeep
from visioneval.running.calls.cache import (
    OLD_INDEX,
    LocalFolder,
    check_shared_cache,
    clear_scratch,
    default_folder,
    max_cache_bytes,
    open_folder,
    scratch_folder,
)
from visioneval.running.calls.cache_files import ANSWERS, MARK, Contents, as_stored_at
from visioneval.running.prepare import RunOptions, plan_runs


@dataclass(frozen=True, slots=True)
class StoredCache:
    """A cache to look after."""

    folder: Path
    """The folder itself, or the one in front of a bucket."""
    store: LocalFolder | ObjectStore
    max_bytes: int | None
    """``None`` for a bucket, which has no limit."""

    @property
    def name(self) -> str:
        """The folder or the URL."""
        return str(self.store)

    def read(self) -> Contents:
        """Its files."""
        return upkeep.read_contents(self.store)

    def problems(self, contents: Contents) -> Iterator[str]:
        """What is wrong with its files, a line each."""
        return upkeep.problems(self.store, contents)

    def prune(self, contents: Contents, keep: Collection[str], before: datetime) -> int:
        """Deletes answers stored before a time, but those to ``keep``. Returns how many. Raises ``UsageError``."""
        with self._deleting():
            return upkeep.prune(self.store, contents, keep, as_stored_at(before))

    def clear(self, contents: Contents, before: datetime | None) -> int:
        """Deletes all answers, or those stored before a time. Returns how many. Raises ``UsageError``.

        Those in the folder in front of a bucket go too, or this machine would go on reading them.
        """
        limit = None if before is None else as_stored_at(before)
        with self._deleting():
            count = upkeep.clear(self.store, contents, limit)
            if isinstance(self.store, ObjectStore):
                local = LocalFolder(self.folder)
                upkeep.clear(local, upkeep.read_contents(local), limit)
            clear_scratch(self.folder)
        return count

    @contextmanager
    def _deleting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(f"{self.name}: the cache cannot be changed ({error.strerror or error})") from None


def open_stored(folder: Path | None) -> StoredCache:
    """Opens an existing cache; without a folder, the user's. Raises ``UsageError``."""
    url = None if folder is None else cache_url(folder)
    if folder is not None and url is not None:
        check_shared_cache(folder, is_written=False)
        return StoredCache(folder, ObjectStore(url), None)
    if folder is not None and folder.is_file():
        raise UsageError(f"{folder}: is a file, not a cache: --cache takes a folder that 'run --cache' wrote")
    if folder is not None and not any((folder / name).exists() for name in (MARK, OLD_INDEX, ANSWERS)):
        raise UsageError(f"{folder}: no cache found: --cache takes a folder that 'run --cache' wrote")
    open_folder(folder or default_folder())
    return StoredCache(folder or default_folder(), LocalFolder(folder or default_folder()), max_cache_bytes())


def read_answers(suites: Sequence[Path], options: RunOptions, warn: Warn) -> set[str]:
    """The files of the answers that an offline run of suites reads. The runs are deleted.

    Raises ``SuiteError`` and ``UsageError``, and ``StoppedError`` if a run is not complete: it could not ask
    everything that it would ask elsewhere.
    """
    reads: set[str] = set()
    planned = plan_runs(list(suites), options)
    with scratch_folder(options.calls.cache) as runs:
        here = replace(
            options, suite=replace(options.suite, runs=runs), calls=replace(options.calls, cache_reads=reads)
        )
        for run in run_planned(planned, here, logging_run, warn, is_tracked=False):
            errors = run.summary.counts.errors
            if errors or run.exit_code not in (ExitCode.PASSED, ExitCode.GATE_FAILED):
                raise StoppedError(
                    f"{run.info.suite_path}: an offline run is not complete ({count_of(errors, 'cell')} with errors):"
                    " nothing was deleted; see which with 'visioneval run --offline'"
                )
    return reads
