"""The least that a loop over the SDK can take: the floor's cells by the SDK's own ``client.post`` and fast JSON.

As little as can be sent, saved and read: no checks, no hashes, no cache, no limits, no records.

    python -m tests.bench.least [W1 W2 W3]
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import openai
import orjson

from tests.bench.engine import LOADS, ROOT, floor, measured, new_folders, served
from tests.bench.floor import SCHEMA

FORMAT = {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": SCHEMA}}


async def post(client: openai.AsyncOpenAI, path: str, body: dict[str, Any]) -> Any:
    """Sends a body and reads the answer."""
    answer = await client.post(path, content=orjson.dumps(body), cast_to=httpx2.Response)
    return orjson.loads(answer.content)


async def cell(client: openai.AsyncOpenAI, number: int, folder: Path, lines: list[str]) -> None:
    """Generates and judges one image."""
    prompt = {"model": "gpt-image-2", "prompt": f"image number {number}"}
    data = base64.b64decode((await post(client, "/images/generations", prompt))["data"][0]["b64_json"])
    (folder / f"{number}.png").write_bytes(data)
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    content = [
        {"type": "input_text", "text": "How good is this image, from 0 to 5?"},
        {"type": "input_image", "image_url": url, "detail": "auto"},
    ]
    question = {"model": "gpt-5.4", "input": [{"role": "user", "content": content}], "text": FORMAT}
    judged = await post(client, "/responses", question)
    text = next(part["text"] for item in judged["output"] if item["type"] == "message" for part in item["content"])
    lines.append(json.dumps({"number": number, **json.loads(text)}))


async def loop(url: str, key: str, cells: int, at_once: int, folder: Path) -> None:
    """Runs all cells and writes their lines."""
    gate = asyncio.Semaphore(at_once)
    lines: list[str] = []
    unlimited = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    http_client = openai.DefaultAioHttpClient(limits=unlimited)
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, http_client=http_client) as client:

        async def run_cell(number: int) -> None:
            async with gate:
                await cell(client, number, folder, lines)

        await asyncio.gather(*(run_cell(number) for number in range(cells)))
    (folder / "results.jsonl").write_text("\n".join(lines))


def beside_the_floor(name: str) -> None:
    """One load, once each."""
    load = LOADS[name]
    with served(load) as (url, key), new_folders() as folders:
        low = floor(load, url, key, next(folders))
        words = [url, key, str(load.cells), str(load.at_once), str(next(folders))]
        least = measured([sys.executable, "-m", "tests.bench.least", "loop", *words], ROOT)
    print(f"{name}: floor {low}; least {least}: {least.seconds / low.seconds:.2f} of the time", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["loop"]:
        address, secret, many, gate_size, where = sys.argv[2:]
        asyncio.run(loop(address, secret, int(many), int(gate_size), Path(where)))
    else:
        for load_name in sys.argv[1:] or LOADS:
            beside_the_floor(load_name)
