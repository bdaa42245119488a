"""A server that speaks GitHub's API as far as comments, attachments and commit statuses need it, and a ``gh`` that calls it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from http_server import QuietHandler, serving

JOB_TOKEN, FORK_TOKEN, USER_TOKEN = "ghs_of_a_job", "ghs_of_a_fork", "github_pat_of_a_user"
"""The token of a job, that of a job for a pull request from a fork, which only reads, and that of a user."""
_LOGINS = {JOB_TOKEN: "github-actions[bot]", USER_TOKEN: "ada"}
_PAGE = 2


@dataclass
class FakeGitHub:
    """What a test finds on the server."""

    folder: Path
    comments: list[dict[str, Any]] = field(default_factory=list)
    statuses: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """The commit and the fields of each."""
    assets: dict[str, bytes] = field(default_factory=dict)
    """Attached files by address."""

    def add(self, login: str, body: str) -> None:
        """Adds a comment of a user."""
        number = max((comment["id"] for comment in self.comments), default=0) + 1
        self.comments.append({"id": number, "user": {"login": login}, "body": body})

    @property
    def bodies(self) -> list[tuple[str, str]]:
        """The author and the text of each comment."""
        return [(comment["user"]["login"], comment["body"]) for comment in self.comments]


class _Handler(QuietHandler):
    github: FakeGitHub

    def _answer(self, document: Any, status: int = 200) -> None:
        self.reply(json.dumps(document).encode(), status)

    def _login(self) -> str | None:
        """The user of the token; without a right to write, an answer and ``None``."""
        login = _LOGINS.get(self.headers["Authorization"].removeprefix("token "))
        if login is None:
            self._answer({"message": "Resource not accessible by integration"}, 403)
        return login

    def get(self) -> None:
        if self.path == "/user":
            self._answer({"login": "ada"})
        elif found := re.fullmatch(r"/repos/owner/shop/issues/7/comments\?page=(\d+)", self.path):
            start = (int(found[1]) - 1) * _PAGE
            self._answer(self.github.comments[start : start + _PAGE])
        else:
            self._answer({"message": "Not Found"}, 404)

    def post(self) -> None:
        data, login = self.body(), self._login()
        if login is None:
            return
        if self.path == "/repos/owner/shop/issues/7/comments":
            self.github.add(login, json.loads(data)["body"])
            self._answer(self.github.comments[-1], 201)
        elif found := re.fullmatch(r"/repos/owner/shop/statuses/(\w+)", self.path):
            self.github.statuses.append((found[1], json.loads(data)))
            self._answer({}, 201)
        elif self.path.startswith("/user-attachments/assets?name="):
            url = f"https://github.com/user-attachments/assets/{len(self.github.assets)}"
            self.github.assets[url] = data
            self._answer({"url": url}, 201)
        else:
            self._answer({"message": "Not Found"}, 404)

    def _comment(self) -> dict[str, Any]:
        return next(item for item in self.github.comments if self.path.endswith(f"/issues/comments/{item['id']}"))

    def do_PATCH(self) -> None:  # noqa: N802 - what http.server calls
        data = self.body()
        if self._login():
            self._comment()["body"] = json.loads(data)["body"]
            self._answer(self._comment())

    def do_DELETE(self) -> None:  # noqa: N802
        if self._login():
            self.github.comments.remove(self._comment())
            self._answer({})


@contextmanager
def fake_github(folder: Path) -> Iterator[FakeGitHub]:
    """A server, and ``gh`` in ``folder`` that calls it."""
    github = FakeGitHub(folder)
    with serving(type("HandlerOfOneTest", (_Handler,), {"github": github})) as url:
        gh = folder / "gh"
        gh.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("fake_gh.py")}" {url} "$@"\n')
        gh.chmod(0o755)
        yield github
