"""Pages on this machine: the label page, and all runs of a folder, which ``site`` writes as files, too.

Every page stands on one server and one guard. Reads runs like ``report``, and writes nothing into them but labels.
"""

from __future__ import annotations

from visioneval.errors import UsageError
from visioneval.installation import install_command


def check_extra(page: str) -> None:
    """Raises ``UsageError`` if the extra ``label`` is not installed, which has the server of every page."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UsageError(f"{page} needs starlette and uvicorn: {install_command('label')}") from None
