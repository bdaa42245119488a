"""``python -m fake_api``: runs the server in a separate process, for benchmarks. Ends with its standard input."""

from __future__ import annotations

import argparse
import json
import sys
import zlib

from .images import VARIANTS, weighty
from .script import Script
from .server import FakeAPI


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fake_api", description=__doc__)
    parser.add_argument("--images", type=float, default=0.0, metavar="SECONDS", help="latency of a generation")
    parser.add_argument("--judge", type=float, default=0.0, metavar="SECONDS", help="latency of a judge")
    parser.add_argument("--faults", type=json.loads, default={}, help='rates by kind, such as {"rate_limit": 0.05}')
    parser.add_argument("--image-kb", type=int, default=0, help="the weight of an image; a few by default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    script = Script()
    if options.image_kb:
        script.generate(
            lambda asked: [weighty(options.image_kb, zlib.crc32(asked.prompt.encode()) % VARIANTS)] * asked.n
        )
    with FakeAPI(script, keep_bodies=False) as api:
        api.latency = {"images": options.images, "judge": options.judge}
        api.faults.random(options.faults, options.seed)
        urls = {"openai_base_url": api.openai_base_url, "gemini_base_url": api.gemini_base_url, "key": api.key}
        print(json.dumps(urls), flush=True)
        sys.stdin.read()
        counts = {"requests": len(api.requests), "paid": api.paid, "most_connections": api.most_connections}
        print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
