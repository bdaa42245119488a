"""JSON calls to Google's services with the machine's credentials."""

from __future__ import annotations

import time
from typing import Any, Self
from urllib.parse import urlsplit

from visioneval.errors import TrackerError
from visioneval.report.text import one_line

TIMEOUT_S = 30.0
_WAITS_S = (1.0, 3.0)
"""Before each further attempt of a call that failed for now."""
_FOR_NOW = (429, 500, 502, 503, 504)
_POLLS = 30
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class GoogleSession:
    """A session whose calls are to hosts of Google only: redirects are not followed."""

    def __init__(self) -> None:
        """Raises ``TrackerError`` without credentials."""
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession

        try:
            credentials, _ = google.auth.default(scopes=[_SCOPE])
        except GoogleAuthError as error:
            hint = "run gcloud auth application-default login"
            raise TrackerError(f"vertex: no Google credentials: {hint} ({one_line(str(error), 160)})") from None
        self._session: Any = AuthorizedSession(credentials, refresh_timeout=TIMEOUT_S)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def call(
        self,
        method: str,
        url: str,
        body: dict[str, Any] | None = None,
        *,
        data: bytes | None = None,
        content_type: str | None = None,
        missing: bool = False,
    ) -> dict[str, Any] | None:
        """The JSON answer of a call; ``None`` for 404 if it may be ``missing``. Raises ``TrackerError``."""
        host = urlsplit(url).hostname
        headers = {"content-type": content_type} if content_type else None
        for wait in (*_WAITS_S, None):
            problem, answer = self._attempt(method, url, body, data, headers)
            if answer is not None and answer.status_code < 300:
                return dict(answer.json()) if answer.content else {}
            if missing and answer is not None and answer.status_code == 404:
                return None
            if wait is None or (answer is not None and answer.status_code not in _FOR_NOW):
                break
            time.sleep(wait)
        raise TrackerError(f"vertex: {host}: {one_line(problem)}")

    def _attempt(
        self, method: str, url: str, body: dict[str, Any] | None, data: bytes | None, headers: dict[str, str] | None
    ) -> tuple[str, Any]:
        """What went wrong, if anything did, and the response, if there is one."""
        from google.auth.exceptions import GoogleAuthError
        from requests import RequestException

        try:
            answer = self._session.request(
                method, url, json=body, data=data, headers=headers, timeout=TIMEOUT_S, allow_redirects=False
            )
        except (RequestException, GoogleAuthError) as error:
            return str(error), None
        return f"{answer.status_code} {_message(answer)}", answer

    def wait(self, url: str) -> None:
        """Waits for an operation. Raises ``TrackerError``."""
        for _ in range(_POLLS):
            operation = self.call("GET", url) or {}
            if "error" in operation:
                raise TrackerError(f"vertex: {one_line(str(operation['error'].get('message')))}")
            if operation.get("done"):
                return
            time.sleep(1)
        raise TrackerError("vertex: the metadata store of the project is not ready: try again later")


def _message(answer: Any) -> str:
    """The message in an error of Google's services."""
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return str(answer.text)[:300]
