"""The whole error tree, with the exit code that each branch ends the program with.

    VisionEvalError            2   anything that a user can cause and mend
    |-- UsageError             2   a flag, a name or a path on the command line
    |-- SuiteError             2   a suite, with every problem found in it
    |-- RunFormatError         2   a run directory that cannot be read
    |-- StoppedError           3   a run that cannot go on
    |   |-- StorageError       3   it cannot be written any more: the disk is full, the folder is gone
    |   |-- AuthError          3   a provider refuses the key: no other call would fare better
    |   |-- BudgetError        3   the next call would cost more than the budget has left
    |   `-- ClosingError       3   a call that was not begun, because the run is being stopped
    |-- ImageError             -   a picture that does not decode; becomes a record, or a suite problem
    |-- TemplateError          -   a template that does not compile or render; becomes a suite problem
    |-- ProviderError          -   a drawing or a judgement that failed; becomes a record
    `-- GraderError            -   a measurement that could not be taken; becomes a null score

Exit codes 0, 1 and 130 are not errors: gates hold, gates do not hold, interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from typing import Literal


class VisionEvalError(Exception):
    """An error that is told in one line, without a traceback."""

    exit_code = 2


class UsageError(VisionEvalError):
    """The command line asks for something that does not exist or does not fit."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing wrong with a suite. ``line`` and ``column`` count from 1; 0 means the whole file."""

    file: str
    line: int
    column: int
    message: str

    def __post_init__(self) -> None:
        """A message is one printable line: a path or a name in it may come from a stranger."""
        if not self.message.isprintable():
            message = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in self.message)
            object.__setattr__(self, "message", message)

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{where}: {self.message}"


SHOWN_PROBLEMS = 100


class SuiteError(VisionEvalError):
    """A suite that cannot be run, with all of its problems; the first ``SHOWN_PROBLEMS`` of each file are told."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        lines: list[str] = []
        for file, own in groupby(self.problems, lambda problem: problem.file):
            told = list(map(str, own))
            lines += told[:SHOWN_PROBLEMS]
            if (more := len(told) - SHOWN_PROBLEMS) > 0:
                lines.append(f"{file}: ... and {more:,} more problem{'s' * (more != 1)} in this file")
        super().__init__("\n".join(lines))


class RunFormatError(VisionEvalError):
    """A run directory or a results file that this version cannot read."""


class StoppedError(VisionEvalError):
    """A run that cannot go on: what is recorded is kept, the rest was not done."""

    exit_code = 3


class StorageError(StoppedError):
    """A run that cannot be written."""


class AuthError(StoppedError):
    """A provider that refuses the key."""


class BudgetError(StoppedError):
    """A call that was not made, because the run has cost what it may cost."""


class ClosingError(StoppedError):
    """A call that was not begun, because somebody stopped the run."""


class ImageError(VisionEvalError):
    """A file that is not a picture we can read, or a picture over the size limits."""


class TemplateError(VisionEvalError):
    """A Jinja template that does not compile, is not there, or asks for a variable that nobody set."""


ProviderErrorKind = Literal["rate_limit", "transient", "auth", "invalid", "refused", "bad_image", "offline"]


LONGEST_RETRY_AFTER_S = 30 * 86_400.0
"""What a provider asks for beyond this, 30 days, is taken for this."""


class ProviderError(VisionEvalError):
    """A call to a provider that gave no usable answer.

    ``retry_after`` is in seconds, from 0 to ``LONGEST_RETRY_AFTER_S``, where the provider said it. A call that
    ``may_be_billed`` was sent, and no answer says that it failed: a budget must count it.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ProviderErrorKind,
        retry_after: float | None = None,
        may_be_billed: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        said = retry_after is not None and isfinite(retry_after)
        self.retry_after = min(max(retry_after or 0.0, 0.0), LONGEST_RETRY_AFTER_S) if said else None
        self.may_be_billed = may_be_billed


class GraderError(VisionEvalError):
    """A measurement that could not be taken. Never a low score: the scores stay ``null``."""
