"""Tables of inputs with what is expected of them: a JSON list in each line of ``tests/FOLDER/corpus/NAME.jsonl``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2]


def corpus(folder: str, name: str) -> list[tuple[Any, ...]]:
    """The rows of a table."""
    path = TESTS / folder / "corpus" / f"{name}.jsonl"
    return [tuple(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
