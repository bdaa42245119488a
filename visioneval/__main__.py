"""The ``visioneval`` command, and ``python -m visioneval``."""

import sys


def main() -> None:
    """Runs the command line. An interrupt before it reads its arguments ends it like one during a command."""
    try:
        from visioneval.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        from visioneval.errors import ExitCode

        print("interrupted", file=sys.stderr)
        raise SystemExit(ExitCode.INTERRUPTED) from None


if __name__ == "__main__":
    main()
