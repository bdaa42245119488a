"""Images and videos in Google Cloud Storage, which Gemini judges read themselves: nobody here needs their bytes."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Mapping
from typing import Any

from visioneval.suite.graders import BaseGrader
from visioneval.suite.judges import BaseJudge


def address_of(params: Mapping[str, Any]) -> str | None:
    """The address by which Gemini can read a finished image."""
    path = params.get("path")
    return path if isinstance(path, str) and path.startswith("gs://") else None


def addressed(
    params: Mapping[str, Any], graders: Iterable[BaseGrader], judges: Mapping[str, BaseJudge]
) -> Mapping[str, Any]:
    """The parameters of a finished image; ``by_address`` says that it is not to be downloaded.

    That is so where its type is known and every grader has a judge that reads addresses.
    """
    path = address_of(params)
    mime = params.get("mime") or (mimetypes.guess_type(path)[0] if path else None)
    if path is None or mime is None or not all(_reads_addresses(grader, judges) for grader in graders):
        return params
    return {**params, "mime": mime, "by_address": True}


def _reads_addresses(grader: BaseGrader, judges: Mapping[str, BaseJudge]) -> bool:
    judge = judges.get(grader.judge_name or "")
    return grader.needs_no_bytes and judge is not None and judge.watches
