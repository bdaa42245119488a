"""Providers by name."""

from __future__ import annotations

PROVIDERS = {
    "files": "visioneval.providers.files:Files",
    "sketch": "visioneval.providers.sketch:Sketch",
    "command": "visioneval.providers.command:Command",
}
