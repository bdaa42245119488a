"""Clients of buckets: where they look for credentials."""

from __future__ import annotations

import os
import socket

import pytest

from visioneval.media import network


@pytest.mark.parametrize(
    ("error", "variables", "expected"),
    [
        (socket.EAI_NONAME, {}, "true"),
        (socket.EAI_AGAIN, {}, None),
        (None, {}, None),
        (socket.EAI_NONAME, {"GCE_METADATA_HOST": "metadata.example"}, None),
        (socket.EAI_NONAME, {"NO_GCE_CHECK": "false"}, "false"),
    ],
)
def test_only_a_metadata_server_that_does_not_exist_is_skipped(
    error: int | None, variables: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a network, its name may be unknown for the moment only: then its token is still asked for."""

    def resolve(host: str, port: int) -> list[object]:
        assert (host, port) == ("metadata.google.internal", 80)
        if error is not None:
            raise socket.gaierror(error, "no such name")
        return []

    for name in ("NO_GCE_CHECK", "GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    network._skip_missing_metadata_server.__wrapped__()
    assert os.environ.get("NO_GCE_CHECK") == expected
