"""How large a reply of a provider may be, and who may say so: the command line and the environment, never a suite."""

from __future__ import annotations

import os

from visioneval.errors import UsageError

MAX_REPLY_VARIABLE = "VISIONEVAL_MAX_REPLY_MB"
MAX_REPLY_FLAG = "--max-reply-mb"
DEFAULT_MAX_REPLY_MB = 64.0
"""Ten images of 1536x1024 as PNG are about 40 MB in base64."""
_LARGEST_MB = 100_000.0
MEGABYTE = 1_000_000


def reply_limit(megabytes: float | None = None) -> int:
    """The limit in bytes: as given, in megabytes, or else by the environment variable, or else the default.

    Raises ``UsageError`` for what is not above 0 and at most 100,000 megabytes.
    """
    told = os.environ.get(MAX_REPLY_VARIABLE)
    if megabytes is not None:
        name, value = MAX_REPLY_FLAG, str(megabytes)
    elif told:
        name, value = MAX_REPLY_VARIABLE, told
    else:
        return int(DEFAULT_MAX_REPLY_MB * MEGABYTE)
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number <= _LARGEST_MB:  # NaN is not either
        raise UsageError(f"{name}: {value!r} is not a number of megabytes above 0 and at most {_LARGEST_MB:,.0f}")
    return max(1, int(number * MEGABYTE))
