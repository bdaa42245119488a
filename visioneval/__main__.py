"""The ``visioneval`` command, and ``python -m visioneval``."""

import sys

_STACK_SLOTS = 17_000


def main() -> None:
    """Runs the command line. An interrupt before it reads its arguments ends it like one during a command."""
    try:
        from visioneval.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        from visioneval.errors import ExitCode

        print("interrupted", file=sys.stderr)
        raise SystemExit(ExitCode.INTERRUPTED) from None


# CPython keeps the frames of functions in blocks of 16 KB. A loop whose calls cross the end of a block takes one from
# the system and returns it at every call: 19,000 times in a run of 300 cells, most of them while the suite was read.
# With a first frame of this size, the first block is so large that the other frames fit into it.
main.__code__ = main.__code__.replace(co_stacksize=_STACK_SLOTS)

if __name__ == "__main__":
    main()
