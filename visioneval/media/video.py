"""Videos on disk: their type and size, and frames sampled from them. Limits are checked before decoding.

Needs PyAV (the extra ``video``).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visioneval.bounds import MAX_FRAMES, max_pixels
from visioneval.errors import ImageError, MissingExtraError, WrongTaskError
from visioneval.installation import has_extra, needs
from visioneval.media import images
from visioneval.media.animation import (
    ANIMATION_TYPES,
    SampledFrame,
    animation_of,
    sample_animation,
    shown_at_middles,
    still_kind,
)
from visioneval.media.animation import EXTENSIONS as ANIMATION_EXTENSIONS
from visioneval.media.images import IN_MEMORY, MAX_BYTES, check_size, identify, sha256
from visioneval.types import Output, TaskType

if TYPE_CHECKING:
    from av.video.frame import VideoFrame
    from PIL import Image


EXTENSIONS = {"mp4": ".mp4", "quicktime": ".mov", "webm": ".webm", "x-matroska": ".mkv", "x-msvideo": ".avi"}
LARGEST_SIDE = 1536
_CUT_TOLERANCE_S = 0.2
"""How much earlier than its header says a video may end."""
_MUXERS = {"video/mp4": "mp4", "video/quicktime": "mov", "video/webm": "webm"}
_METADATA_FILTERS = {"h264": "filter_units=remove_types=6"}
"""Codecs whose stream often contains encoder metadata, and the filter that removes it."""
_DEMUXERS = {"mp4": "mp4", "quicktime": "mp4", "webm": "matroska", "x-matroska": "matroska", "x-msvideo": "avi"}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: ``seconds`` from the video's start, and the image as JPEG bytes."""

    seconds: float
    jpeg: bytes


_IMAGE_BRANDS = {b"avif", b"avis", b"heic", b"heix", b"hevc", b"mif1", b"msf1"}
"""What AVIF and HEIC images write where an MP4 names its kind."""


def can_read_videos() -> bool:
    """Whether the extra ``video`` is installed."""
    return has_extra("video")


def video_mime(head: bytes) -> str | None:
    """The MIME type of a supported video by its first bytes; ``None`` for any other file."""
    if head[4:8] == b"ftyp" and head[8:12] not in _IMAGE_BRANDS:
        return "video/quicktime" if head[8:12] == b"qt  " else "video/mp4"
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return "video/webm" if b"webm" in head[:64] else "video/x-matroska"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "video/x-msvideo"
    return None


def video_at(path: Path, data: bytes) -> Output:
    """Describes video ``data`` stored, or to be stored, at ``path``. Raises ``ImageError`` if it has no frame."""
    mime = video_mime(data)
    if mime is None and (animation := animation_of(data)) is not None:
        identify(data)  # its first frame; graders find damage in the others
        return Output(path, sha256(data), *animation)
    if mime is None:
        raise _unsupported(data)
    _check_bytes(len(data))
    return Output(path, sha256(data), mime, *_frame_size(io.BytesIO(data), mime))


def video_file(path: Path) -> Output:
    """Describes a video in a file, which need not fit into memory. Raises ``ImageError`` if it has no frame."""
    if animation_of(path) is not None:
        return video_at(path, path.read_bytes())
    with path.open("rb") as file:
        mime = video_mime(file.read(64))
        if mime is None:
            raise _unsupported(path)
        _check_bytes(path.stat().st_size)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Output(path, digest, mime, *_frame_size(str(path), mime))


def _unsupported(source: Path | bytes) -> ImageError:
    if (kind := still_kind(source)) is not None:
        return ImageError(f"not a supported video: the {kind} has only one frame")
    known = ", ".join(EXTENSIONS.values())
    return ImageError(f"not a supported video (supported: {known}, and animations as GIF, WebP and APNG)")


def _check_bytes(size: int) -> None:
    if size > MAX_BYTES:
        raise ImageError(f"the file has {size:,} bytes, over the limit of {MAX_BYTES:,}")


def _frame_size(source: Any, mime: str) -> tuple[int, int]:
    """The width and height of a video whose first frame can be decoded."""
    with opened(source, mime) as (container, stream):
        if next(container.decode(stream), None) is None:
            raise ImageError("the video has no frames")
        return stream.codec_context.width, stream.codec_context.height


def seconds_of(video: bytes | Path) -> float:
    """How long a video says that it is, in seconds. Raises ``ImageError``."""
    with io.BytesIO(video) if isinstance(video, bytes) else video.open("rb") as file:
        mime = video_mime(file.read(64))
    if mime is None:
        raise _unsupported(video)
    with opened(io.BytesIO(video) if isinstance(video, bytes) else str(video), mime) as (container, _):
        if not container.duration:
            raise ImageError("the video does not say how long it is")
        return float(container.duration / 1_000_000)


def mime_of(path: Path) -> str:
    """The MIME type of a video file; empty for any other file. Raises ``OSError``, ``ImageError`` if it is damaged."""
    with path.open("rb") as file:
        mime = video_mime(file.read(64))
    if mime is None and (animation := animation_of(path)) is not None:
        mime, _, _ = animation
    return mime or ""


def sample_frames(path: Path, count: int) -> list[Frame]:
    """The frames of ``sample_images``, each once, with the seconds at which it begins. Raises ``ImageError``."""
    images = {sample.start: sample.image for sample in sample_images(path, count)}
    frames = []
    for start, image in images.items():
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=90)
        frames.append(Frame(start, buffer.getvalue()))
    return frames


def sample_images(path: Path, count: int) -> list[SampledFrame]:
    """The frames that are shown in the middle of ``count`` equal parts of the duration, as upright RGB images.

    A frame that fills several parts is there for each. The longer side is at most ``LARGEST_SIDE``. Raises
    ``ImageError``, also if the video is cut off.
    """
    mime = mime_of(path)
    if mime in ANIMATION_TYPES.values():
        return sample_animation(path, count, LARGEST_SIDE)
    with opened(str(path), mime) as (container, stream):
        times, end = _times(container, stream)
        selected = shown_at_middles(times, end, count)
    with opened(str(path), mime) as (container, stream):
        images: dict[int, Image.Image] = {}
        remaining, last = sorted(set(selected)), None
        for frame in container.decode(stream):
            if frame.pts is None:
                continue
            last = frame
            while remaining and frame.pts >= remaining[0]:  # a packet may hold no frame of its own
                if frame.is_corrupt:
                    raise ImageError("the video is damaged: one of its frames does not decode")
                images[remaining.pop(0)] = _upright(frame)
            if not remaining:
                break
        if last is None:
            raise ImageError("the video cannot be decoded: none of its frames could be read")
        images |= {time: _upright(last) for time in remaining}
        unit = stream.time_base
        step = float((end - times[0]) * unit) / count
        return [
            SampledFrame((part + 0.5) * step, float((time - times[0]) * unit), images[time])
            for part, time in enumerate(selected)
        ]


def without_metadata(path: Path) -> bytes:
    """A video with only its images and sound, in the same container and without re-encoding.

    Removes titles, comments, dates, chapters, attachments, provenance boxes, and encoder metadata in H.264 streams.
    Raises ``ImageError``.
    """
    import av

    _check_bytes(path.stat().st_size)
    mime = mime_of(path)
    if mime not in _MUXERS:
        raise ImageError("not a video that a browser can play")
    target = io.BytesIO()
    with (
        opened(str(path), mime) as (container, stream),
        av.open(target, "w", format=_MUXERS[mime], container_options={"fflags": "+bitexact"}) as copy,
    ):
        streams = {track.index: _Copied(track, copy) for track in (stream, *container.streams.audio[:1])}
        for packet in container.demux(*(track.source for track in streams.values())):
            streams[packet.stream.index].take(packet, copy)
    return target.getvalue()


class _Copied:
    """One stream that is copied from a container to another."""

    def __init__(self, source: Any, copy: Any) -> None:
        import av

        self.source = source
        self.target = copy.add_stream_from_template(source)
        self.target.metadata.clear()
        filters = _METADATA_FILTERS.get(source.codec_context.name)
        self.filter = av.BitStreamFilterContext(filters, source) if filters else None

    def take(self, packet: Any, copy: Any) -> None:
        """Copies a packet; the last one is empty and ends the stream."""
        for part in self.filter.filter(packet) if self.filter else [packet]:
            if part.dts is not None:
                part.stream = self.target
                copy.mux(part)


def check_whole(path: Path) -> None:
    """Raises ``ImageError`` if a video is cut off or damaged. Reads its packets without decoding them."""
    with opened(str(path), mime_of(path)) as (container, stream):
        for _ in packets(container, stream, most_frames=None):
            pass


def packets(container: Any, stream: Any, most_frames: int | None = MAX_FRAMES) -> Iterator[Any]:
    """The packets of a video and its sound. Raises ``ImageError`` if it is cut off, or has over ``most_frames`` frames.

    A part of a video may decode well, and would be measured as if it were all of it.
    """
    count, end = 0, 0.0
    for packet in container.demux():
        if not packet.size:
            continue
        if packet.is_corrupt:
            raise ImageError("the video is cut off or damaged: a packet of it is incomplete")
        if packet.pts is not None:
            end = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base))
        count += packet.stream_index == stream.index
        if most_frames is not None and count > most_frames:
            raise ImageError(f"the video has more than {most_frames:,} frames")
        yield packet
    if not count:
        raise ImageError("the video has no frames")
    if stream.frames > count:
        raise ImageError(f"the video is cut off: it has {count:,} of {stream.frames:,} frames")
    declared = container.duration / 1_000_000 if container.duration else 0.0
    begin = max(container.start_time or 0, 0) / 1_000_000
    if declared - (end - begin) > _CUT_TOLERANCE_S:
        raise ImageError(f"the video is cut off: it ends after {end - begin:.2f} of {declared:.2f} seconds")


def _times(container: Any, stream: Any) -> tuple[list[int], int]:
    """The sorted presentation times of all frames and the end of the last one, in the stream's units, without decoding.

    Raises ``ImageError`` if there are none.
    """
    lasts: dict[int, int] = {}
    for packet in packets(container, stream):
        if packet.stream_index == stream.index and packet.pts is not None and not packet.is_discard:
            lasts[packet.pts] = packet.duration or 0
    if not lasts:
        raise ImageError("the video has no frames")
    times = sorted(lasts)
    usual = (times[-1] - times[0]) // (len(times) - 1) if len(times) > 1 else 1
    return times, times[-1] + (lasts[times[-1]] or usual)


def _upright(frame: VideoFrame) -> Image.Image:
    """A frame as players show it, scaled down to ``LARGEST_SIDE``."""
    image: Image.Image = frame.to_image()  # type: ignore[no-untyped-call]
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    return image.convert("RGB").rotate(frame.rotation, expand=True)


@contextmanager
def opened(source: Any, mime: str) -> Iterator[tuple[Any, Any]]:
    """Opens a video and its first video stream, within the limits. Raises ``ImageError``.

    The format is fixed by the first bytes, so that a playlist, which refers to other files, is never opened.
    """
    try:
        import av
    except ImportError:
        raise MissingExtraError(needs("video")) from None
    # since version 19, av escapes metadata that is not UTF-8, and has no option for it
    lenient: dict[str, Any] = {"metadata_errors": "ignore"} if int(av.__version__.partition(".")[0]) < 19 else {}
    try:
        kind = _DEMUXERS[mime.removeprefix("video/")]
        with av.open(source, format=kind, **lenient) as container:
            covers = av.stream.Disposition.attached_pic
            stream = next((track for track in container.streams.video if not track.disposition & covers), None)
            if stream is None:
                raise ImageError("the file has no video, only audio")
            width, height = stream.codec_context.width, stream.codec_context.height
            check_size(width, height)
            # a stream may change to another size, which no header says
            stream.codec_context.options = {"max_pixels": str(max_pixels())}
            with IN_MEMORY.reserve(width * height):
                yield container, stream
    except (av.FFmpegError, ValueError, OverflowError) as error:
        raise ImageError(f"the video cannot be decoded: {getattr(error, 'strerror', None) or error}") from error


def artifact(data: bytes, task: TaskType) -> Output:
    """Describes an encoded image or video; the caller sets its path.

    Raises ``ImageError`` if it is neither, ``WrongTaskError`` if it moves and the task asks for an image.
    """
    is_video = video_mime(data[:64]) is not None
    if task is TaskType.VIDEO_GENERATION:
        return video_at(Path(), data)
    if is_video:
        raise WrongTaskError("this is a video: set 'task: video_generation' in its case")
    image = images.image_at(Path(), data)
    if animation_of(data) is not None:
        raise WrongTaskError(
            "this is an animation, which is measured as a video: set 'task: video_generation' in its case"
            + ("" if can_read_videos() else f" ({needs('video')})")
        )
    return image


def ending(mime: str) -> str:
    """The file suffix of a MIME type, with its dot."""
    kind = mime.split("/")[1]
    return (images.EXTENSIONS | EXTENSIONS | ANIMATION_EXTENSIONS)[kind]
