"""Messages of the Python API, for the logger ``visioneval``."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext

from visioneval.running.cells.services import Listener
from visioneval.running.prepare import (
    PreparedRun,
)

LOG = logging.getLogger("visioneval")


def log_listener() -> Listener:
    """A listener that sends messages to the logger ``visioneval``."""
    return Listener(say=LOG.warning, note=LOG.info, debug=lambda error: LOG.debug("unexpected", exc_info=error))


def logging_run(prepared: PreparedRun) -> AbstractContextManager[Listener]:
    """Sends the messages of a run to the logger ``visioneval``."""
    for note in prepared.notes:
        LOG.info(note)
    return nullcontext(log_listener())
