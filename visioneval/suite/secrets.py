"""Secrets of the environment, by the names of their variables."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

SHORTEST_ENVIRONMENT_SECRET = 8
"""Characters of a secret of the environment: shorter values are too common to be hidden."""
SECRET_NAME = re.compile(r"(?:.*_)?(?:api_?key|token|secret|password)", re.IGNORECASE)
"""Matches names of keys, parameters and suite variables that contain secrets."""
_SECRET_VARIABLE = re.compile(r"(?:.*_)?(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD)", re.IGNORECASE)


def environment_secrets(named: Collection[str] = ()) -> frozenset[str]:
    """The values of these environment variables, and of all with names of secrets, unless they are very short."""
    return frozenset(
        value
        for name, value in os.environ.items()
        if (name in named or _SECRET_VARIABLE.fullmatch(name)) and len(value) >= SHORTEST_ENVIRONMENT_SECRET
    )
