"""What a generation and a grading depend on, as keys of caches and records; hashes of files; keys of rate limits."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from visioneval.media.images import MAX_BYTES
from visioneval.media.urls import is_url
from visioneval.records.model import digest, short_digest
from visioneval.running.plan import Call
from visioneval.suite.case import BASE_ROLE
from visioneval.suite.entries.judges import BaseJudge

HashOf = Callable[[Path], str]


def generation_key(call: Call, sample: int, hash_of: HashOf) -> str:
    """What the generation of a cell depends on, as ``part:hash`` words, so that a diff shows which parts changed.

    It contains no host, path or time: two machines compute the same key. A later turn depends on the generations of
    all turns before it, whether or not their outputs are known.
    """
    parts = _generation_parts(call, hash_of)
    if call.previous is not None:
        parts["earlier-turns"] = generation_key(call.previous, sample, hash_of)
    return f"{_join_parts(parts)} sample:{sample}"


def call_key(call: Call, hash_of: HashOf) -> str:
    """The cache key of a generation call, including its samples: what is sent, so of a later turn the image itself."""
    return _call_key(call, _generation_parts(call, hash_of))


def operation_key(call: Call, hash_of: HashOf) -> str:
    """What identifies the operation of a call: also where its video is delivered, as it can only be read there."""
    return _call_key(call, {**_generation_parts(call, hash_of), "params": call.params})


def _call_key(call: Call, parts: dict[str, Any]) -> str:
    if call.base is not None:
        parts["images"] = [[BASE_ROLE, call.base.sha256], *parts["images"]]
    sent = {name: value for name, value in parts.items() if value not in (None, [], {})}
    return f"generate:{digest({**sent, 'samples': call.samples})}"


def _generation_parts(call: Call, hash_of: HashOf) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "model": {"provider": call.run.provider, "entry": call.run.key_options},
        "params": call.run.config.key_params(call.params),
        "prompt": [call.task_type, call.sent_prompt],
        "images": _case_images(call, hash_of),
        "masks": {name: hash_of(path) for name, path in sorted(call.files.masks.items())},
    }
    if call.run.stand_in:
        parts["expect"] = [call.case.expect.model_dump(exclude={"aligned"}), call.case.metadata]
    if (path := call.existing_output) is not None:
        parts["image"] = path if is_url(path) else hash_of(Path(path))
    return parts


def grade_key(call: Call, hash_of: HashOf) -> str:
    """What the grading of an image depends on in addition to the image, in the format of ``generation_key``."""
    grading = call.grading
    of_graders = {name for grader in grading.graders for name in grader.case_fields}
    case = call.case.model_dump(include={"criteria", "region", "expect", "metadata", "tags", *of_graders})
    parts: dict[str, Any] = {
        "case": [call.graded_prompt, case],
        "images": _case_images(call, hash_of),
        "edited-image": None if call.base is None else call.base.sha256,
        "masks": {name: hash_of(path) for name, path in sorted(call.files.masks.items())},
        "reference": hash_of(call.files.reference) if call.files.reference else None,
        "rules": [[rule.text, warn] for rule, warn in grading.rules],
        "optional": sorted(grading.optional_graders),
        "metrics": [*grading.metrics.key, *sorted(grading.optional_metrics)] if grading.metrics.key else None,
    }
    graders = (f"grader.{grader.key}:{grading.hashes[grader.key]}" for grader in grading.graders)
    return " ".join((_join_parts(parts), *graders))


def _case_images(call: Call, hash_of: HashOf) -> list[list[str]]:
    """Role and hash of each input image that the case names: not of the output that a later turn edits."""
    return [[role, hash_of(path)] for role, path in call.files.images[call.base is not None :]]


def _join_parts(parts: Mapping[str, Any]) -> str:
    return " ".join(f"{name}:{short_digest(value)}" for name, value in parts.items() if value not in (None, [], {}))


MAX_FILES = 4096


class FileHashes:
    """The SHA-256 of files, by their path relative to the suite's folder. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hashes: dict[str, str] = {}

    async def prepare(self, paths: Iterable[Path]) -> None:
        """Hashes new files in a thread, so that the event loop only looks them up."""
        new = [path for path in paths if str(path) not in self._hashes]
        if new:
            await asyncio.to_thread(lambda: [self(path) for path in new])

    def __call__(self, path: Path) -> str:
        """The hash of a file, or why it has none: ``missing`` or ``too large``."""
        name = str(path)
        known = self._hashes.get(name)
        if known is not None:
            return known
        file = self._folder / path
        file_hash = "missing"
        with suppress(OSError):
            if file.is_file() and file.stat().st_size > MAX_BYTES:
                file_hash = "too large"  # never read by a run
            elif file.is_file():
                with file.open("rb") as opened:
                    file_hash = hashlib.file_digest(opened, "sha256").hexdigest()
        if len(self._hashes) >= MAX_FILES:
            self._hashes.clear()
        self._hashes[name] = file_hash
        return file_hash


Kind = Literal["generate", "judge"]


class RateLimitKey(NamedTuple):
    """The limits that apply to a call. ``model`` is ``None`` for a provider without models."""

    provider: str
    model: str | None
    kind: Kind

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}" if self.model else self.provider


def generation_limit_key(provider: str, params: Mapping[str, Any]) -> RateLimitKey:
    """The rate-limit key of a generation."""
    model = params.get("model")
    return RateLimitKey(provider, model if isinstance(model, str) else None, "generate")


def judge_limit_key(config: BaseJudge) -> RateLimitKey:
    """The rate-limit key of a judgement."""
    return RateLimitKey(str(getattr(config, "provider", "")), getattr(config, "model", None), "judge")
