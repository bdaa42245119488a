"""The configuration of the mock provider, and the graders that detect its flaws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from visioneval.suite.case import SIZE, Size, pixel_size
from visioneval.suite.entries.providers import GeneratingProvider
from visioneval.suite.messages import model_problems
from visioneval.types import Frozen, TaskType

Flaw = Literal[
    "none",
    "typo",
    "missing_line",
    "extra_text",
    "spill",
    "drift",
    "blank",
    "wrong_size",
    "frozen",
    "black",
    "flicker",
    "short",
]

_NONE: frozenset[str] = frozenset()
_TEXT = frozenset({"text"})
_PROPERTIES = frozenset({"properties"})
_LOCALITY = frozenset({"locality"})
_VIDEO = frozenset({"video"})
_OF_VIDEOS: Mapping[Flaw, frozenset[str]] = {"frozen": _NONE, "black": _NONE, "flicker": _NONE, "short": _NONE}

SEEN_BY: Mapping[TaskType, Mapping[Flaw, frozenset[str]]] = {
    TaskType.IMAGE_GENERATION: {
        "none": _NONE,
        "typo": _TEXT,
        "missing_line": _TEXT,
        "extra_text": _TEXT,
        "spill": _NONE,
        "drift": _NONE,
        "blank": _TEXT | _PROPERTIES,
        "wrong_size": _PROPERTIES,
        **_OF_VIDEOS,
    },
    TaskType.IMAGE_EDITING: {
        "none": _NONE,
        "typo": _TEXT,
        "missing_line": _TEXT,
        "extra_text": _TEXT | _LOCALITY,
        "spill": _LOCALITY,
        "drift": _LOCALITY,
        "blank": _TEXT | _PROPERTIES | _LOCALITY,
        "wrong_size": _PROPERTIES | _LOCALITY,
        **_OF_VIDEOS,
    },
    TaskType.VIDEO_GENERATION: {
        "none": _NONE,
        "typo": _TEXT,
        "missing_line": _TEXT,
        "extra_text": _TEXT,
        "spill": _NONE,
        "drift": _NONE,
        "blank": _TEXT | _VIDEO,
        "wrong_size": _VIDEO,
        "frozen": _VIDEO,
        "black": _VIDEO,
        "flicker": _VIDEO,
        "short": _VIDEO,
    },
}
"""The grader types that detect a flaw, if the case gives them something to measure.

``text`` needs the line in ``expect.text.required``, and for ``extra_text`` either a forbidden line or
``extra: forbid``. ``properties`` and ``video`` need ``expect.size`` or ``expect.aspect_ratio`` to see ``wrong_size``,
and ``video`` needs its option ``duration`` to see ``short``. ``locality`` needs an editable mask. A flaw with nothing
to act on, such as a typo where the case has no copy, renders as ``none``; so does a flaw of videos in an image of a
suite that also has videos.
"""
_VIDEO_PARAMS = frozenset({"seconds", "frame_rate", "audio"})
VIDEO_SIZE = "320x180"
"""The default size of a video."""


class MockParams(Frozen):
    """The parameters of a mock."""

    model: Literal["mock"] = Field(default="mock", description="Always `mock`.")
    flaw: Flaw = Field(
        default="none",
        description="The flaw of each output. Of videos only: `frozen` and `black` (from the middle on), `flicker` "
        "(every second frame is darker) and `short` (a quarter of `seconds`).",
    )
    size: Size = Field(
        default="1024x1024",
        description=f"The size of a generation; of a video, `{VIDEO_SIZE}` by default. An edit keeps the size of its "
        "base image.",
    )
    seed: int = Field(default=0, description="Another number gives another layout.")
    seconds: Annotated[float, Field(gt=0, le=60)] = Field(default=1.5, description="Duration of a video.")
    frame_rate: Annotated[int, Field(ge=1, le=60)] = Field(default=12, description="Frames per second of a video.")
    audio: bool = Field(default=False, description="`true`: a video has a soundtrack, a quiet tone.")

    @property
    def of_images(self) -> dict[str, Any]:
        """The parameters that an image depends on."""
        return self.model_dump(exclude=set(_VIDEO_PARAMS))


class MockProvider(GeneratingProvider):
    """Renders plain layouts without a model, to show that graders and rules work."""

    can_do: ClassVar[frozenset[TaskType]] = frozenset(TaskType)
    stand_in: ClassVar[bool] = True
    is_free: ClassVar[bool] = True

    provider: Literal["mock"]

    def unused_params(self, params: Mapping[str, Any], tasks: Set[TaskType]) -> Iterator[tuple[str, str]]:
        """What is for videos only, if no case is about one, and a size that no video of it can have."""
        if TaskType.VIDEO_GENERATION in tasks:
            size = params.get("size")
            is_used = params.get("flaw") != "wrong_size"
            if is_used and isinstance(size, str) and SIZE.fullmatch(size) and any(at % 2 for at in pixel_size(size)):
                yield "size", f"a video needs an even width and height, not {size}"
            return
        if params.get("flaw") in tuple(_OF_VIDEOS):  # a tuple, as the value may be unhashable in a stranger's run
            yield "flaw", f"a flaw of videos, {params['flaw']!r}, but all cases of this model run are about images"
        for name in sorted(_VIDEO_PARAMS & params.keys()):
            yield name, f"{name} is for videos, but all cases of this model run are about images: remove it"

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield from model_problems(MockParams, params)
