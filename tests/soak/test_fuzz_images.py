"""Broken and odd images on their way into a run: none that Pillow cannot load whole may end as completed."""

from __future__ import annotations

import io
import json
import random
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from visioneval import read_records
from visioneval.cli import app

IMAGES = 250
SEED = 12
KINDS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK", "F", "I")
BOMB = 60_000


def encoded(dice: random.Random) -> tuple[str, bytes]:
    """A whole image of some kind, mode and size."""
    while True:
        kind, mode = dice.choice(KINDS), dice.choice(MODES)
        size = dice.choice([(1, 1), (3, 7), (64, 48), (200, 120)])
        out = io.BytesIO()
        try:
            noise = Image.frombytes("L", size, dice.randbytes(size[0] * size[1]))
            noise.convert(mode if mode != "I;16" else "I").convert(mode).save(out, kind)
        except (OSError, ValueError, KeyError):
            continue
        return f"{kind} {mode}", out.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, colour: int, depth: int, rows: bytes) -> bytes:
    """A PNG of arbitrary chunks with valid checksums."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def truncated(dice: random.Random) -> bytes:
    data = encoded(dice)[1]
    return data[: dice.randrange(len(data))]


def flipped(dice: random.Random) -> bytes:
    data = bytearray(encoded(dice)[1])
    for _ in range(dice.randint(1, 6)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data)


def joined(dice: random.Random) -> bytes:
    """The beginning of one file and the end of another."""
    first, second = encoded(dice)[1], encoded(dice)[1]
    return first[: dice.randrange(len(first))] + second[dice.randrange(len(second)) :]


def short(dice: random.Random) -> bytes:
    """A PNG whose pixel data is shorter or longer than its size, or has invalid filters."""
    width, height = dice.randint(1, 80), dice.randint(1, 80)
    colour, channels = dice.choice([(0, 1), (2, 3), (4, 2), (6, 4)])
    filters = range(5) if dice.random() < 0.7 else range(9)
    rows = b"".join(
        bytes([dice.choice(filters)]) + dice.randbytes(width * channels) for _ in range(dice.randint(0, height + 1))
    )
    return png(width, height, colour, 8, rows[: len(rows) - dice.choice([0, 0, 1, 5])])


def bomb(dice: random.Random) -> bytes:
    """A small file that declares very many pixels."""
    side = dice.choice([8_000, BOMB, 2**31 - 1])
    return png(side, side, dice.choice([0, 2]), 8, bytes(1000))


MAKERS: tuple[Callable[[random.Random], bytes], ...] = (
    lambda dice: encoded(dice)[1],
    *(truncated, flipped, joined, short, bomb),
)


def loads(data: bytes) -> bool:
    """Whether Pillow loads the whole of a file, and a PNG has all the rows that it declares."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data)) as image:
            image.load()
            is_png, size = image.format == "PNG", image.size
    except Exception:  # it may raise anything
        return False
    return not is_png or has_all_rows(data, *size)


def has_all_rows(data: bytes, width: int, height: int) -> bool:
    """An independent check: decompresses all pixel data at once."""
    at, stream = 8, b""
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        stream += data[at + 8 : at + 8 + length] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += 12 + length
    try:
        rows = zlib.decompressobj().decompress(stream)
    except zlib.error:
        return False
    bits = data[24] * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[data[25]] * width
    return len(rows) >= height * (1 + (bits + 7) // 8)


def suite(folder: Path, names: list[str]) -> Path:
    entry = {"provider": "files", "path": "images/{case}"}
    text: dict[str, Any] = {
        "name": "fuzz",
        "cases": [{"id": name, "prompt": "p"} for name in names],
        "models": [entry],
        "graders": [{"key": "file", "type": "properties"}],
        "verdict": ["not file.blank"],
        "gates": ["error_rate <= 1"],
    }
    path = folder / "suite.yaml"
    path.write_text(json.dumps(text))
    return path


def test_no_broken_image_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Callable[[str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    dice = random.Random(SEED)
    (tmp_path / "images").mkdir()
    whole: dict[str, bool] = {}
    for at in range(IMAGES):
        data = MAKERS[at % len(MAKERS)](dice)
        (tmp_path / "images" / f"i{at}").write_bytes(data)
        whole[f"i{at}"] = loads(data)
    result = CliRunner().invoke(app, ["run", str(suite(tmp_path, list(whole))), "--run-id", "r", "--quiet"])
    tracebacks = int(result.exception is not None and not isinstance(result.exception, SystemExit))
    records = list(read_records(tmp_path / "runs" / "r"))
    ended = {record.test_id: record for record in records}
    wrong_ok = [name for name, record in ended.items() if record.status == "completed" and not whole[name]]
    refused = [name for name, record in ended.items() if record.status != "completed" and whole[name]]
    internal = [
        name
        for name, record in ended.items()
        if record.error and record.error.kind not in ("bad_image", "over_limit", "wrong_task", "unmeasured")
    ]
    report(
        f"{len(ended)} images, seed {SEED}: {sum(whole.values())} whole,"
        f" {sum(record.status == 'completed' for record in records)} completed; tracebacks {tracebacks},"
        f" wrongly completed {len(wrong_ok)}, wrongly refused {len(refused)}, other errors {len(internal)}"
    )
    assert (tracebacks, wrong_ok, internal, len(records)) == (0, [], [], IMAGES), result.output[-2000:]
    for name in refused:  # what is refused although Pillow loads it is a PNG with a bad checksum
        with pytest.raises(SyntaxError), Image.open(tmp_path / "images" / name) as image:
            image.verify()
