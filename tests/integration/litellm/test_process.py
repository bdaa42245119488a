"""The process of LiteLLM: what it knows, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from canned_api import canned
from conftest import FORMS, KEY
from fake_api import FakeAPI
from test_image_forms import answer_of

from visioneval import ProviderError
from visioneval.providers.litellm.process import _PROCESSES, Environment, LiteLLMProcess

Call = Callable[[Awaitable[Any]], Any]
PARENT = """\
import asyncio, sys
from visioneval.providers.litellm.process import Environment, LiteLLMProcess

async def main():
    process = LiteLLMProcess(Environment())
    call = {"call": "generate", "prompt": "", "params": {"model": "x/y"}, "api_key": None, "api_base": None, "reply_mb": 1}
    try:
        await process.call(call)
    except Exception:
        pass
    print(process._running.process.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def request(server: str, prompt: str = "a tree") -> dict[str, Any]:
    params = {"model": FORMS["openai"]}
    return {
        "call": "generate",
        "prompt": prompt,
        "params": params,
        "api_key": KEY,
        "api_base": server,
        "reply_mb": 9,
    }


@pytest.fixture
def process(loop: asyncio.Runner) -> LiteLLMProcess:
    """The process that all tests share."""
    processes = _PROCESSES.setdefault(loop.get_loop(), {})
    return processes.setdefault(Environment(), LiteLLMProcess(Environment()))


def test_a_cancelled_call_leaves_the_process_to_others(
    wait_for: Call, process: LiteLLMProcess, api: FakeAPI, image: bytes
) -> None:
    api.latency["images"] = 2.0

    async def both() -> Any:
        slow = asyncio.create_task(process.call(request(api.openai_base_url)))
        while not api.open_connections:  # noqa: ASYNC110 - set in another thread
            await asyncio.sleep(0.01)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        with canned(answer_of("openai", image)) as server:
            return await process.call(request(server.url))

    assert len(wait_for(both())["data"]) == 1


def test_a_process_that_dies_fails_its_calls_and_is_replaced(
    wait_for: Call, process: LiteLLMProcess, api: FakeAPI
) -> None:
    api.latency["images"] = 30.0

    async def killed() -> None:
        call = asyncio.create_task(process.call(request(api.openai_base_url)))
        while not api.open_connections:  # noqa: ASYNC110 - set in another thread
            await asyncio.sleep(0.01)
        assert process._running is not None
        os.kill(process._running.process.pid, signal.SIGKILL)
        await call

    with pytest.raises(ProviderError, match="LiteLLM's process ended") as raised:
        wait_for(killed())
    assert (raised.value.kind, raised.value.may_be_billed) == ("transient", True)
    api.latency.clear()
    assert len(wait_for(process.call(request(api.openai_base_url)))["data"]) == 1


def test_a_process_ends_with_its_loop() -> None:
    process = LiteLLMProcess(Environment())

    async def started() -> int:
        with pytest.raises(ProviderError, match="did not send the call"):
            await process.call({**request("http://127.0.0.1:1"), "params": {"model": "nowhere/x"}})
        assert process._running is not None
        return process._running.process.pid

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
