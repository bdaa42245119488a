"""The floor: what a plain loop over the same SDK needs for the same cells, with everything optional left out.

One client, one semaphore. A cell generates, saves the image, asks the judge about it and writes a line. No cache, no
retries, no checks, no records.

    python -m tests.bench.floor URL KEY CELLS AT_ONCE FOLDER
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path

import openai

QUALITY = {"type": "number", "enum": [0, 1, 2, 3, 4, 5]}
SCHEMA = {
    "type": "object",
    "properties": {"quality": QUALITY, "reason": {"type": "string"}},
    "required": ["quality", "reason"],
    "additionalProperties": False,
}


async def cell(client: openai.AsyncOpenAI, number: int, folder: Path, lines: list[str]) -> None:
    """Generates and judges one image."""
    generated = await client.images.generate(model="gpt-image-2", prompt=f"image number {number}")
    assert generated.data is not None
    data = base64.b64decode(generated.data[0].b64_json or "")
    (folder / f"{number}.png").write_bytes(data)
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    judged = await client.responses.create(
        model="gpt-5.4",
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "How good is this image, from 0 to 5?"},
                    {"type": "input_image", "image_url": url, "detail": "auto"},
                ],
            }
        ],
        text={"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": SCHEMA}},
    )
    lines.append(json.dumps({"number": number, **json.loads(judged.output_text)}))


async def main(url: str, key: str, cells: int, at_once: int, folder: Path) -> None:
    """Runs all cells and writes their lines."""
    gate = asyncio.Semaphore(at_once)
    lines: list[str] = []
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:

        async def run_cell(number: int) -> None:
            async with gate:
                await cell(client, number, folder, lines)

        await asyncio.gather(*(run_cell(number) for number in range(cells)))
    (folder / "results.jsonl").write_text("\n".join(lines))


if __name__ == "__main__":
    address, secret, many, gate_size, where = sys.argv[1:]
    asyncio.run(main(address, secret, int(many), int(gate_size), Path(where)))
