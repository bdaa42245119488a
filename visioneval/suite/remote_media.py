"""Outputs in Google Cloud Storage that Gemini judges read directly, without a download."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Mapping
from typing import Any

from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judges import BaseJudge


def address_of(params: Mapping[str, Any]) -> str | None:
    """The URI under which Gemini can read an existing output."""
    path = params.get("path")
    return path if isinstance(path, str) and path.startswith("gs://") else None


def addressed(
    params: Mapping[str, Any], graders: Iterable[BaseGrader], judges: Mapping[str, BaseJudge]
) -> Mapping[str, Any]:
    """The parameters of an existing output, with ``by_address`` if it need not be downloaded.

    This is the case if its type is known and every grader has only judges that read remote URIs.
    """
    path = address_of(params)
    mime = params.get("mime") or (mimetypes.guess_type(path)[0] if path else None)
    if path is None or mime is None or not all(_reads_addresses(grader, judges) for grader in graders):
        return params
    return {**params, "mime": mime, "by_address": True}


def _reads_addresses(grader: BaseGrader, judges: Mapping[str, BaseJudge]) -> bool:
    used = [judges.get(name) for name in grader.judge_names]
    return grader.needs_no_bytes and bool(used) and all(judge is not None and judge.watches for judge in used)
