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
from tests.mutants.entries import FOLDER, EntryError, Mutant, file_of, read_mutants
from tests.mutants.results import Result, baseline_problem, table, try_mutant
from visioneval.errors import count_of

ROOT = Path(__file__).parents[2]
LONGEST_S = 300.0
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


def without_bugs(workers: Workers, mutants: Sequence[Mutant]) -> tuple[dict[str, float], dict[str, str]]:
    """The seconds that the tests of each file may take with a bug, from a run of all that are named without any.

    Also the files with a test that fails without a bug, as it would find every one, with the reason.
    """
    named: dict[str, dict[str, None]] = {}
    for test in (test for mutant in mutants for test in mutant.tests):
        named.setdefault(file_of(test), {})[test] = None
    sets = [(file,) if file in tests else tuple(tests) for file, tests in named.items()]
    seconds, problems = {}, {}
    runs = workers.map(lambda copy, tests: copy.run(tests, LONGEST_S), sets)
    for file, run in zip(named, runs, strict=True):
        seconds[file] = 20 + 10 * run.seconds
        if (problem := baseline_problem(run)) is not None:
            problems[file] = f"{file}: {problem}"
            print(run.output, file=sys.stderr)
    return seconds, problems


def run_mutants(root: Path, mutants: Sequence[Mutant], count: int, echo: Callable[[str], None]) -> list[Result]:
    """Tries all bugs, and echoes each result in the order of the lists."""
    results = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, Workers(root, Path(folder), count) as workers:
        seconds, problems = without_bugs(workers, mutants)
        for text in problems.values() or [f"without a bug, all tests pass ({count_of(len(seconds), 'file')})"]:
            echo(text)

        def tried(copy: Copy, mutant: Mutant) -> Result:
            files = dict.fromkeys(map(file_of, mutant.tests))
            if wrong := [problems[file] for file in files if file in problems]:
                return Result(mutant, "error", wrong[0], 0.0)
            return try_mutant(mutant, copy, min(LONGEST_S, sum(seconds[file] for file in files)))

        for result in workers.map(tried, mutants):
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
