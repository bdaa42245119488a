"""Checks of files at addresses: whether what reads them is installed on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from visioneval.extras import is_installed
from visioneval.media.urls import BUCKETS, needs_extra
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.loading.messages import Loc
from visioneval.suite.model import Suite

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
                if output.path and _is_read(output.path, graders):
                    yield ("cases", index, "outputs", label, at), output.path
    for index, entry in enumerate(suite.models):
        yield from ((("models", index, *loc), address) for loc, address in _of_entry(entry))


def _is_read(path: str, graders: list[BaseGrader]) -> bool:
    """Whether an output is downloaded: Gemini itself reads ``gs://``."""
    return not path.startswith("gs://") or not all(grader.needs_no_bytes for grader in graders)


def _of_entry(entry: BaseProvider) -> Iterator[tuple[Loc, str]]:
    params = getattr(entry, "params", {})
    for key, value in (("path", getattr(entry, "path", None)), ("output_gcs_uri", params.get("output_gcs_uri"))):
        if isinstance(value, str):
            yield (("params",) if key in params else ()) + (key,), value
