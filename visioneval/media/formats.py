"""Describes generated data as an image or a video, by the task of its case."""

from __future__ import annotations

from pathlib import Path

from visioneval.errors import ImageError
from visioneval.media import images, video
from visioneval.types import Output, TaskType


def artifact(data: bytes, task: TaskType) -> Output:
    """Describes an encoded image or video; the caller sets its path. Raises ``ImageError`` if it is neither."""
    is_video = video.video_mime(data[:64]) is not None
    if task is TaskType.VIDEO_GENERATION:
        return video.video_at(Path(), data)
    if is_video:
        raise ImageError("this is a video: set 'task: video_generation' in its case")
    return images.image_at(Path(), data)


def ending(mime: str) -> str:
    """The file suffix of a MIME type, with its dot."""
    return (images.EXTENSIONS | video.EXTENSIONS)[mime.split("/")[1]]
