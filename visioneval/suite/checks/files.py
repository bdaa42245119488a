"""Checks of the image files that cases name, and whether this machine can read files at addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from visioneval.errors import ImageError, count_of
from visioneval.installation import is_installed
from visioneval.media import images
from visioneval.media.animation import check_still
from visioneval.media.urls import BUCKETS, needs_extra, public_address
from visioneval.suite.cases.case import TestCase
from visioneval.suite.checks.rules import Problems
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.findings import Loc, SuiteNote, SuiteWarning
from visioneval.suite.loading.paths import Trust
from visioneval.suite.model import Suite

_INVERTED = 0.75
"""A mask that lets a larger share of the image change may be inverted."""
_NOTED_MASKS = 3


@dataclass(slots=True)
class _ImageFiles:
    """Checks each image file once, even if many cases use it."""

    folder: Path
    trust: Trust
    seen: dict[str, tuple[tuple[int, int], bool] | str] = field(default_factory=dict)
    shares: dict[str, images.MaskShares] = field(default_factory=dict)
    """By mask: how much of it is inside and outside."""

    def look(self, path: str) -> tuple[tuple[int, int], bool] | str:
        """Size and whether the image has alpha, or why it cannot be used."""
        if path not in self.seen:
            self.seen[path] = self._look(path)
        return self.seen[path]

    def one_sided(self, path: str) -> str | None:
        """Why a mask with alpha separates nothing."""
        if path not in self.shares:
            self.shares[path] = images.mask_shares(self.folder / path)
        shares = self.shares[path]
        if not shares.opaque:
            return f"{path} has no opaque pixel: mark what must not change with opaque pixels"
        if not shares.clear:
            only = ", only partly transparent ones" if shares.partial else ""
            return f"{path} has no transparent pixel (alpha 0){only}: mark what may change"
        return None

    def _look(self, path: str) -> tuple[tuple[int, int], bool] | str:
        full = self.folder / path
        try:
            if refusal := self.trust.refusal(path, self.folder):
                return refusal
            images.identify(full)
            check_still(full)
            return images.size_of(full), images.has_alpha(full)
        except ImageError as error:
            return f"{public_address(path)}: {error}"


def file_problems(suite: Suite, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str] | SuiteWarning | SuiteNote]:
    files = _ImageFiles(folder, trust)
    for index, case in enumerate(suite.cases):
        for loc, message in _case_files(case, files):
            yield ("cases", index, *loc), message
        path = case.masks.editable if case.masks else None
        shares = files.shares.get(path or "")
        if shares is not None and (inside := shares.clear + shares.partial) >= _INVERTED:
            message = f"{path} lets {inside:.0%} of the image change: its transparent pixels are what may change"
            yield SuiteWarning(("cases", index, "masks", "editable"), message)
    yield from _masks_as_read(suite, files)


def _masks_as_read(suite: Suite, files: _ImageFiles) -> Iterator[SuiteNote]:
    """How each mask is read, where a case names it first; after a few, the others in one note."""
    masks: dict[str, tuple[Loc, str]] = {}
    for index, case in enumerate(suite.cases):
        for name, path in (case.masks.model_dump(exclude_none=True) if case.masks else {}).items():
            masks.setdefault(path, (("cases", index, "masks", name), name))
    read = [(path, loc, name) for path, (loc, name) in masks.items() if path in files.shares]
    for path, loc, name in read[:_NOTED_MASKS]:
        shares = files.shares[path]
        edge = f" and {_percent(shares.partial)} partly (its edge)" if shares.partial else ""
        meaning = "they may change, opaque ones must not" if name == "editable" else "they are inside, opaque ones not"
        yield SuiteNote(loc, f"{path}: {_percent(shares.clear)} of its pixels are transparent{edge}: {meaning}")
    if more_masks := read[_NOTED_MASKS:]:
        inside = [1 - files.shares[path].opaque for path, _, _ in more_masks]
        soft = sum(files.shares[path].partial > 0 for path, _, _ in more_masks)
        message = f"{count_of(len(more_masks), 'more mask')}: {_percent(min(inside))} to {_percent(max(inside))} inside"
        yield SuiteNote(more_masks[0][1], f"{message}, {soft:,} with a soft edge")


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _case_files(case: TestCase, files: _ImageFiles) -> Problems:
    named: list[tuple[Loc, str]] = [
        (("images", position, "path"), image.path) for position, image in enumerate(case.images)
    ]
    if case.reference:
        named.append((("reference",), case.reference))
    masks = case.masks.model_dump(exclude_none=True) if case.masks else {}
    named.extend((("masks", name), path) for name, path in masks.items())
    bad = [(loc, found) for loc, path in named if isinstance(found := files.look(path), str)]
    yield from bad
    for label, paths in case.outputs.items():
        for position, path in enumerate(output.path for output in paths):
            if path and (refusal := files.trust.refusal(path, files.folder, remote=True)):
                yield ("outputs", label, position), refusal
    if masks and not case.edits_image:
        yield ("masks",), "a mask needs a base image: add 'images' to the case"
    elif not bad:
        base = None if case.previous_turn else case.images[0].path if masks else None
        for name, path in masks.items():
            if message := _mask(path, base, files):
                yield ("masks", name), message


def _mask(path: str, base: str | None, files: _ImageFiles) -> str | None:
    """What is wrong with a mask; ``base`` is ``None`` if the base image is still to be generated."""
    mask = files.look(path)
    image = mask if base is None else files.look(base)
    if isinstance(mask, str) or isinstance(image, str):
        return None
    (size, has_alpha), (base_size, _) = mask, image
    if size != base_size:
        return f"{path} is {size[0]} x {size[1]} pixels, but the base image is {base_size[0]} x {base_size[1]}"
    if not has_alpha:
        return f"{path} has no alpha channel: mark the inside of the mask with transparent pixels (alpha 0)"
    return files.one_sided(path)


_MODULES = {"gs": "gcsfs", "s3": "s3fs", "hf": "huggingface_hub"}


def unreadable_addresses(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields, once for each scheme, the first address that nothing on this machine can read."""
    missing = {scheme for scheme in BUCKETS if not is_installed(_MODULES[scheme])}
    for loc, address in _addresses(suite) if missing else ():
        if (scheme := address.partition("://")[0]) in missing:
            missing.discard(scheme)
            yield loc, needs_extra(scheme)


def _addresses(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """The addresses of existing outputs that are read, and of folders in which a model leaves its videos."""
    for index, case in enumerate(suite.cases):
        graders = [grader for grader in suite.graders if grader.is_for(case)]
        for label, outputs in case.outputs.items():
            for at, output in enumerate(outputs):
                is_left = bool(output.path) and str(output.path).startswith("gs://")  # which Gemini itself reads
                if output.path and not (is_left and all(grader.needs_no_bytes for grader in graders)):
                    yield ("cases", index, "outputs", label, at), output.path
    for index, entry in enumerate(suite.models):
        yield from ((("models", index, *loc), address) for loc, address in _of_entry(entry))


def _of_entry(entry: BaseProvider) -> Iterator[tuple[Loc, str]]:
    params = getattr(entry, "params", {})
    for key, value in (("path", getattr(entry, "path", None)), ("output_gcs_uri", params.get("output_gcs_uri"))):
        if isinstance(value, str):
            yield (("params",) if key in params else ()) + (key,), value
