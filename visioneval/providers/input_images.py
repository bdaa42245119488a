"""Input images of a case as providers take them."""

from __future__ import annotations

from pathlib import Path

from visioneval.media import images

Upload = tuple[str, bytes, str]
"""A file to send: its name, its bytes and their MIME type."""
_ACCEPTED_TYPES = ("image/png", "image/jpeg", "image/webp")


def accepted_image(path: Path) -> Upload:
    """An image to send; a PNG of it if it is not of a type that all providers take."""
    data = path.read_bytes()
    mime, _, _ = images.inspect(data)
    if mime in _ACCEPTED_TYPES:
        return path.name, data, mime
    return f"{path.stem}.png", images.encode_png(images.load_image(data)), "image/png"
