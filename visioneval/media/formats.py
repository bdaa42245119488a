"""What a drawing gives, as an artifact: an image or a video, by the task of its case."""

from __future__ import annotations

from pathlib import Path

from visioneval.errors import ImageError
from visioneval.media import images, video
from visioneval.types import Output, TaskType


def artifact(data: bytes, task: TaskType) -> Output:
    """Describes an encoded image or video; its path is still to be set. Raises ``ImageError`` where it is neither."""
    is_video = video.video_mime(data[:64]) is not None
    if task is TaskType.VIDEO_GENERATION:
        return video.video_at(Path(), data)
    if is_video:
        raise ImageError("this is a video: say 'task: video_generation' in its case")
    return images.image_at(Path(), data)


def ending(mime: str) -> str:
    """The file name ending of an artifact's type, with its dot."""
    return (images.EXTENSIONS | video.EXTENSIONS)[mime.split("/")[1]]
