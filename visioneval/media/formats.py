"""Describes generated data as an image or a video, by the task of its case."""

from __future__ import annotations

from pathlib import Path

from visioneval.errors import WrongTaskError
from visioneval.extras import needs
from visioneval.media import images, video
from visioneval.media.animation import EXTENSIONS as ANIMATIONS
from visioneval.media.animation import animation_of
from visioneval.types import Output, TaskType


def artifact(data: bytes, task: TaskType) -> Output:
    """Describes an encoded image or video; the caller sets its path.

    Raises ``ImageError`` if it is neither, ``WrongTaskError`` if it moves and the task asks for an image.
    """
    is_video = video.video_mime(data[:64]) is not None
    if task is TaskType.VIDEO_GENERATION:
        return video.video_at(Path(), data)
    if is_video:
        raise WrongTaskError("this is a video: set 'task: video_generation' in its case")
    image = images.image_at(Path(), data)
    if animation_of(data) is not None:
        raise WrongTaskError(
            "this is an animation, which is measured as a video: set 'task: video_generation' in its case"
            + ("" if video.can_read_videos() else f" ({needs('video')})")
        )
    return image


def ending(mime: str) -> str:
    """The file suffix of a MIME type, with its dot."""
    kind = mime.split("/")[1]
    return (images.EXTENSIONS | video.EXTENSIONS | ANIMATIONS)[kind]
