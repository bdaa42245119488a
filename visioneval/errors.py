"""All errors, with the exit code of each, and the phrases that messages share.

    VisionEvalError            2   any error that a user can cause and fix
    |-- UsageError             2   a flag, a name or a path on the command line
    |   `-- NothingInCommonError  2   two runs without a cell in common
    |-- SeriesError            3   an experiment of which no run can be compared
    |-- SuiteError             2   a suite with problems
    |-- RunFormatError         2   a run directory that cannot be read
    |-- TrackerError           2   a tracker that does not accept a run
    |-- StoppedError           3   a run that cannot continue
    |   |-- StorageError       3   a run that cannot be written: the disk is full or the folder is gone
    |   |-- AuthError          3   a provider refuses the key, so all other calls would fail too
    |   |   `-- QuotaError     3   ... because the quota of the key or its account is spent
    |   |-- BudgetError        3   the next call would exceed the budget
    |   `-- ClosingError       3   a call that was not started because the run is stopping
    |-- ImageError             -   an image that does not decode; becomes a record or a suite problem
    |-- TemplateError          -   a template that does not compile or render; becomes a suite problem
    |-- ProviderError          -   a failed generation or judgement; becomes a record
    |   `-- OperationError     -   an operation that has ended without an output
    `-- GraderError            -   a failed measurement; becomes a null score

The other exit codes are in ``ExitCode``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from itertools import groupby
from math import isfinite
from typing import ClassVar, Literal, get_args
from unicodedata import name as unicode_name
from unicodedata import normalize


class ExitCode(IntEnum):
    """What a command exits with."""

    PASSED = 0
    """All gates passed."""
    GATE_FAILED = 1
    """A gate failed, in a run or in a comparison."""
    USAGE = 2
    """Wrong usage, or an invalid suite or run."""
    INCOMPLETE = 3
    """Incomplete: errors above their gate; a gate that cannot tell, had nothing to measure, or left out more than 5 %
    of its cells; a pair that could not be judged; an incomplete run in a comparison; or a run that could not continue
    or be written."""
    INTERRUPTED = 130
    """Interrupted."""

    @classmethod
    def most_severe(cls, codes: Iterable[int]) -> ExitCode:
        """The exit code of a command with several runs. Incomplete results outweigh failed gates."""
        severity = (cls.INTERRUPTED, cls.USAGE, cls.INCOMPLETE, cls.GATE_FAILED, cls.PASSED)
        return min(map(cls, codes), key=severity.index)


class VisionEvalError(Exception):
    """Any error that a user can cause: one line, without a traceback. The base of all others."""

    exit_code = ExitCode.USAGE


class UsageError(VisionEvalError):
    """A flag, a setting, a name or a path that does not exist or is not valid."""


class NothingInCommonError(UsageError):
    """Two runs that have no cell in common."""


class SeriesError(VisionEvalError):
    """An experiment of which no run can be compared."""

    exit_code = ExitCode.INCOMPLETE


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem of a suite. ``line`` and ``column`` start from 1; 0 means the whole file."""

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
TRUST_HINT = "pass --trust-suite if you trust this suite"
"""Ends the message of a path that needs trust: of a dataset, that may be a path in every row."""


class SuiteError(VisionEvalError):
    """A suite that cannot be run. ``problems`` has each ``Problem``; the message has a line for each that is listed."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.listed())))

    def listed(self) -> Iterator[Problem]:
        """The first ``SHOWN_PROBLEMS`` of each file and its first untrusted path, then how many are left out."""
        for file, file_problems in groupby(self.problems, lambda problem: problem.file):
            untrusted: list[Problem] = []
            listed: list[Problem] = []
            for problem in file_problems:
                (untrusted if problem.message.endswith(TRUST_HINT) else listed).append(problem)
            yield from sorted([*listed[:SHOWN_PROBLEMS], *untrusted[:1]])
            if (count := len(untrusted) - 1) > 0:
                yield Problem(file, 0, 0, f"... and {count:,} more that --trust-suite would allow")
            if (count := len(listed) - SHOWN_PROBLEMS) > 0:
                yield Problem(file, 0, 0, f"... and {count:,} more problem{'s' * (count != 1)} in this file")


class RunFormatError(VisionEvalError):
    """A run directory or a results file that this version cannot read."""


class TrackerError(VisionEvalError):
    """An experiment tracker that cannot be reached or does not accept a run. It costs the export, never the run."""


class StoppedError(VisionEvalError):
    """A run that cannot continue: the base of ``AuthError``, ``BudgetError``, ``QuotaError`` and ``StorageError``. Its
    records are complete up to this point.
    """

    exit_code = ExitCode.INCOMPLETE


class StorageError(StoppedError):
    """A run that cannot be written."""


class AuthError(StoppedError):
    """A provider that refuses the key."""


class QuotaError(AuthError):
    """An ``AuthError``: the provider refuses all calls of a key whose quota or credit is spent."""


class BudgetError(StoppedError):
    """A call that was not made because it would exceed the budget."""


class ClosingError(StoppedError):
    """A call that was not started because the run is stopping."""


class ImageError(VisionEvalError):
    """A file that is not a readable image, or an image that exceeds the size limits."""

    kind: ClassVar[str] = "bad_image"
    """The kind of error of a cell with this output. Any other kind is no fault of the file, so it is checked again."""


class WrongTaskError(ImageError):
    """A video or an animation where the task of its case asks for an image."""

    kind: ClassVar[str] = "wrong_task"


class MissingExtraError(ImageError):
    """An image of a kind that needs an extra, which is not installed."""

    kind: ClassVar[str] = "missing_extra"


class ImageLimitError(ImageError):
    """An image beyond a limit that a flag or a larger machine raises."""

    kind: ClassVar[str] = "over_limit"


class TemplateError(VisionEvalError):
    """A Jinja template that does not compile, is not there, or asks for a variable that nobody set."""


ProviderErrorKind = Literal[
    "rate_limit", "transient", "auth", "quota", "invalid", "refused", "bad_image", "offline", "pending", "unusable"
]
"""``pending`` is an operation that has begun and whose end is unknown, or an output whose URL cannot be read yet:
resuming the run asks for it again.

``unusable`` is an answer to a generation, which may be paid, that has no usable image: only ``--retry-unusable`` asks
again. That of a judge cannot be read, and is asked for once more."""
STOPPING: tuple[ProviderErrorKind, ...] = ("auth", "quota")
"""The kinds of error after which every other call would fail too."""


NEVER_ASKED = ("offline", "budget")
"""The kinds of error of a cell whose judge was not asked at all. That is no outage, so nothing excuses it: neither a
quorum, nor other votes, nor ``optional``."""
NOT_CACHED = "not in the cache"
"""How the message about a call begins whose answer an offline run lacks."""
LONGEST_RETRY_AFTER_S = 30 * 86_400.0
"""Longer waits that a provider requests are capped to this (30 days)."""


class ProviderError(VisionEvalError):
    """A call to a provider without a usable answer. Its ``kind`` says what follows:

    - ``rate_limit``: it is retried, and the other calls of the model wait too.
    - ``transient``: it is retried: a server error, a lost connection.
    - ``auth``: the API key is refused: the run stops.
    - ``quota``: the quota or the credit is spent: the run stops.
    - ``refused``: the model refuses, as with ``Generation(refused=...)``.
    - ``pending``: the cell fails: the provider has begun, and the end is unknown.
    - ``unusable``: the cell fails, and resuming does not call again: the answer is paid, and has no usable image.
    - ``invalid``, ``bad_image``: the cell fails: a bad request, an unusable image.
    - ``offline``: the cell fails, and nothing excuses it: no answer without a network.

    ``retry_after`` is the least wait before a retry in seconds, from 0 to ``LONGEST_RETRY_AFTER_S``; a call that would
    wait for more than 600 s fails. ``may_be_billed`` means that the call was sent and its outcome is unknown, so a
    budget must count it. ``reply`` is the raw answer of an ``unusable`` one, which is stored. An unknown ``kind``
    raises ``ValueError``.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ProviderErrorKind,
        retry_after: float | None = None,
        may_be_billed: bool = False,
        reply: bytes | None = None,
    ) -> None:
        super().__init__(message)
        if kind not in get_args(ProviderErrorKind):
            raise ValueError(f"ProviderError: unknown kind {kind!r}: use {', '.join(get_args(ProviderErrorKind))}")
        self.kind = kind
        is_given = retry_after is not None and isfinite(retry_after)
        self.retry_after = min(max(retry_after or 0.0, 0.0), LONGEST_RETRY_AFTER_S) if is_given else None
        self.may_be_billed = may_be_billed
        self.reply = reply


class OperationError(ProviderError):
    """An operation that has ended without an output, or that the provider no longer knows: asking again is useless."""


class GraderError(VisionEvalError):
    """A failed measurement. It never counts as a low score: the scores are ``null``."""


_MAX_COMPARED, _MAX_LISTED, _MAX_WORD = 1000, 20, 200


def unlike_signs(name: str, word: str) -> str:
    """``, with U+0435 CYRILLIC SMALL LETTER IE``: the first sign of ``name`` alone that may look as one of ``word``."""
    is_same = normalize("NFC", name) == normalize("NFC", word)
    for one, other in ((name, word), (word, name)):
        for sign in one:
            title = unicode_name(sign, "")
            is_alike = is_same or (not title.startswith("LATIN") and re.search("[A-Za-z]", one))
            if sign not in other and not sign.isascii() and sign.isprintable() and is_alike:
                return f", {'with' if one is name else 'without'} U+{ord(sign):04X} {title}"
    return ""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the closest candidate, else a list of the candidates, else nothing."""
    names = sorted(candidates)
    matches = get_close_matches(word[:_MAX_WORD], names[:_MAX_COMPARED], n=1, cutoff=0.6)
    if matches:
        return f" (did you mean {matches[0]!r}{unlike_signs(matches[0], word)}?)"
    ellipsis = ", ..." if len(names) > _MAX_LISTED else ""
    return f" (known: {', '.join(names[:_MAX_LISTED])}{ellipsis})" if names else ""


def count_of(number: int, name: str) -> str:
    """``1 cell``, ``1,200 cells``."""
    return f"{number:,} {name}{'s' * (number != 1)}"
