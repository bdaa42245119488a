"""The process of LiteLLM: what it knows, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from canned_api import canned
from conftest import FORMS
from fake_api import FakeAPI, Fault
from test_image_forms import answer_of

from visioneval import ProviderError
from visioneval.providers.litellm import LiteLLMProvider
from visioneval.providers.litellm.generator import FAILURE, Environment, LiteLLMConnection, LiteLLMProcess, process_for
from visioneval.providers.openai.connection import encoded

Call = Callable[[Awaitable[Any]], Any]
PARENT = """\
import asyncio
from visioneval.providers.litellm.generator import FAILURE, Environment, process_for

async def main():
    process = process_for(Environment())
    await process.socket()
    print(process.process.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def generated(server: str, model: str = FORMS["openai"]) -> int:
    """The number of images of a call."""
    entry = {"provider": "litellm", "base_url": server, "api_key_env": "LOCAL_KEY", "params": {"model": model}}
    connection = LiteLLMConnection(LiteLLMProvider.model_validate(entry))
    answer = await connection.send("/images/generations", encoded({"model": model, "prompt": "a tree"}))
    return len(answer.json()["data"])


async def connected(api: FakeAPI, count: int) -> None:
    while api.open_connections != count:  # noqa: ASYNC110 - set in another thread
        await asyncio.sleep(0.01)


def test_a_cancelled_call_ends_and_leaves_the_process_to_others(wait_for: Call, api: FakeAPI, image: bytes) -> None:
    api.faults.queue(Fault("hang"))

    async def both() -> int:
        slow = asyncio.create_task(generated(api.openai_base_url))
        await connected(api, 1)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        async with asyncio.timeout(10):
            await connected(api, 0)
        with canned(answer_of("openai", image)) as server:
            return await generated(server.url)

    assert wait_for(both()) == 1


def test_a_call_that_litellm_cancels_itself_is_an_error_at_once(wait_for: Call) -> None:
    from visioneval.providers.litellm.worker import _answering

    async def cancelled(_: dict[str, Any]) -> Any:
        raise asyncio.CancelledError

    async def answer() -> Any:
        headers = {"x-base-url": "", "x-key": "", "x-reply-mb": "9"}
        request = make_mocked_request("POST", "/images/generations", headers=headers)
        request._read_bytes = b"{}"
        return await _answering(cancelled)(request)

    answered = wait_for(answer())
    assert answered.status == FAILURE
    assert json.loads(answered.body) == {
        "message": "LiteLLM cancelled its own call",
        "kind": "transient",
        "retry_after": None,
        "may_be_billed": True,
        "reply": None,
    }


def test_a_process_that_dies_fails_its_calls_and_is_replaced(wait_for: Call, api: FakeAPI) -> None:
    api.latency["images"] = 30.0

    async def killed() -> None:
        call = asyncio.create_task(generated(api.openai_base_url))
        await connected(api, 1)
        process = process_for(Environment()).process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        await call

    with pytest.raises(ProviderError, match="LiteLLM's process ended") as raised:
        wait_for(killed())
    assert (raised.value.kind, raised.value.may_be_billed) == ("transient", True)
    api.latency.clear()
    assert wait_for(generated(api.openai_base_url)) == 1


def test_a_call_that_is_cancelled_during_the_start_leaves_it_to_others(api: FakeAPI) -> None:
    async def both() -> tuple[int, bool]:
        first = asyncio.create_task(generated(api.openai_base_url))
        process = process_for(Environment())
        while process.process is None:  # noqa: ASYNC110 - set by the first call
            await asyncio.sleep(0.01)
        pid = process.process.pid
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        count = await generated(api.openai_base_url)
        assert process.process is not None
        return count, process.process.pid == pid

    assert asyncio.run(both()) == (1, True)


def test_a_start_that_fails_after_its_call_was_cancelled_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    async def cancelled() -> None:
        process = LiteLLMProcess(Environment())
        call = asyncio.create_task(process.socket())
        while process.process is None:  # noqa: ASYNC110 - set by the call
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(10):
            while process.process is not None:  # noqa: ASYNC110 - until the start has ended
                await asyncio.sleep(0.01)
        with pytest.raises(ProviderError, match="LiteLLM's process ended"):
            await process.socket()

    asyncio.run(cancelled())
    gc.collect()
    assert (capfd.readouterr().err, caplog.text) == ("", "")


def test_a_call_that_does_not_reach_the_process_is_not_billed(wait_for: Call, api: FakeAPI) -> None:
    async def unreachable() -> None:
        socket = Path(await process_for(Environment()).socket())
        moved = socket.rename(socket.with_name("moved"))  # noqa: ASYNC240 - a moment
        try:
            await generated(api.openai_base_url)
        finally:
            moved.rename(socket)

    with pytest.raises(ProviderError, match="LiteLLM's process ended") as raised:
        wait_for(unreachable())
    assert (raised.value.kind, raised.value.may_be_billed) == ("transient", False)


def test_a_process_that_cannot_start_is_one_line(wait_for: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ProviderError, match="cannot start LiteLLM's process: No such file or directory"):
        wait_for(LiteLLMProcess(Environment()).socket())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ProviderError, match="LiteLLM's process ended") as raised:
        wait_for(LiteLLMProcess(Environment()).socket())
    assert not raised.value.may_be_billed


def test_a_process_ends_with_its_loop() -> None:
    process = LiteLLMProcess(Environment())

    async def started() -> int:
        socket = Path(await process.socket())
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        assert process.process is not None
        return process.process.pid

    assert not is_running(asyncio.run(started()))


def test_the_process_ends_with_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.kill()
    deadline = time.monotonic() + 30
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(child)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
