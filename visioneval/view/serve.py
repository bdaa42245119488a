"""Runs the viewer on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from visioneval.errors import UsageError, count_of
from visioneval.local_server.serving import check_extra, listening, open_browser
from visioneval.records.stores.locations import copies_at, display_name

PAGE = "the viewer"
Log = Callable[[str], None]


def serve(
    root: Path, *, metrics: Sequence[str], trust: bool, host: str, port: int | None, open_page: bool, log: Log
) -> None:
    """Serves the runs of a folder until interrupted. Without ``port``: 8377, or a free port if that is in use.

    Raises ``UsageError`` for a host that is not local, a port in use, or a folder that does not exist.
    """
    check_extra(PAGE)
    from visioneval.local_server.guard import AuthMiddleware, TokenInPath
    from visioneval.view.listing import RunListing
    from visioneval.view.reports import ReportPages
    from visioneval.view.server import application
    from visioneval.view.viewer import Viewer

    if copies_at(root) is None and not root.is_dir():
        raise UsageError(f"{root}: there is no such folder of runs; name one with --runs")
    with (
        listening(host, port, PAGE) as address,
        tempfile.TemporaryDirectory(prefix="visioneval-view-", ignore_cleanup_errors=True) as folder,
    ):
        listing = RunListing(root)
        count = len(listing.rows())
        viewer = Viewer(listing, ReportPages(Path(folder), trust), tuple(metrics))
        page = f"{address.origin}/{address.token}/"
        log(f"{display_name(root)}: {count_of(count, 'run')}")
        log(f"open {page}")
        log("press Ctrl-C to stop")
        if open_page:
            open_browser(page)
        app = application(viewer, address.token)
        address.serve(AuthMiddleware(app, hosts=address.hosts, door=TokenInPath(address.token)))
