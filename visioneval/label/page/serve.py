"""Runs the label server on this machine."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

from visioneval.label.work import LabelRequest, prepare
from visioneval.local_server.serving import check_extra, listening, open_browser
from visioneval.records.labels import LABELS, rater_name
from visioneval.records.stores.locations import display_name

PAGE = "the label page"
Log = Callable[[str], None]


def serve(request: LabelRequest, *, host: str, port: int | None, rater: str | None, open_page: bool, log: Log) -> None:
    """Serves until interrupted. Without ``port``: 8377, or a free port if that is in use.

    Raises ``UsageError`` for a host that is not local, a port in use, an invalid rater name, or a run without
    anything to label.
    """
    check_extra(PAGE)
    rater = None if rater is None else rater_name(rater)
    from visioneval.label.labeling import Labeling
    from visioneval.label.page.server import application
    from visioneval.local_server.guard import AuthMiddleware, TokenInHeader

    with listening(host, port, PAGE) as address:
        task = prepare(request)
        page = f"{address.origin}/?{urlencode({'token': address.token})}"
        for note in task.notes:
            log(note)
        log(f"{task.folder.name}: {len(task.subjects):,} to label; seed {task.session.seed}")
        log(f"open {page}")
        log("press Ctrl-C to stop; every answer is saved immediately")
        if open_page:
            open_browser(page)
        app = application(Labeling(task), token=address.token, rater=rater)
        address.serve(AuthMiddleware(app, hosts=address.hosts, door=TokenInHeader(address.token)))
        labels = task.folder / LABELS
        outcome = f"the answers are in {display_name(labels)}" if labels.exists() else "nothing was answered"
        log(f"stopped; {outcome}")
