"""``python -m tests.mutants [NAME...] [--workers N] [--lists FOLDER]``: plants each bug in a copy of the project and runs its tests.

A name is a list (``cache``) or one bug (``cache:3``). Exits with 1 if a bug survives, and otherwise with 2 if an entry
is invalid or its tests fail without any bug.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any, TypeVar

from tests.mutants.copies import Copy
from tests.mutants.entries import FOLDER, EntryError, Mutant, read_mutants
from tests.mutants.results import Result, table, try_mutant

ROOT = Path(__file__).parents[2]
T = TypeVar("T")


class Workers:
    """Threads, each of which has a copy of the project to itself while it works. For ``with``."""

    def __init__(self, root: Path, folder: Path, count: int) -> None:
        self._all = [Copy(root, folder / f"copy{number}") for number in range(count)]
        self._free: SimpleQueue[Copy] = SimpleQueue()
        for copy in self._all:
            self._free.put(copy)
        self._threads = ThreadPoolExecutor(count)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        for copy in self._all:
            copy.close()

    def map(self, work: Callable[[Copy, Any], T], items: Sequence[Any]) -> Iterator[T]:
        """``work(copy, item)`` of each item, in their order."""
        return self._threads.map(lambda item: self._with_copy(work, item), items)

    def _with_copy(self, work: Callable[[Copy, Any], T], item: object) -> T:
        copy = self._free.get()
        try:
            return work(copy, item)
        finally:
            self._free.put(copy)


def run_mutants(root: Path, mutants: Sequence[Mutant], count: int, echo: Callable[[str], None]) -> list[Result]:
    """Tries all bugs, and echoes each result in the order of the lists."""
    results = []
    passing: set[tuple[str, ...]] = set()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, Workers(root, Path(folder), count) as workers:
        for result in workers.map(lambda copy, mutant: try_mutant(mutant, copy, passing), mutants):
            results.append(result)
            echo(str(result))
    return results


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--lists", type=Path, default=FOLDER, metavar="FOLDER")
    arguments = parser.parse_args()
    start = monotonic()
    try:
        mutants = read_mutants(arguments.names, arguments.lists)
        results = run_mutants(ROOT, mutants, arguments.workers, lambda text: print(text, flush=True))
    except EntryError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"\n{table(results)} ({monotonic() - start:.0f} s)")
    statuses = {result.status for result in results}
    return 1 if "survived" in statuses else 2 if "error" in statuses else 0


if __name__ == "__main__":
    sys.exit(main())
