"""What a rater sees of an item, without model, file, score, verdict or turn, and what is asked about it.

A file's name, format, size and metadata can reveal the model. The page always gets a new PNG below an opaque id, or a
video whose streams were copied into a new file.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from visioneval.errors import ImageError, TemplateError, UsageError
from visioneval.label.sampling import Item, rank
from visioneval.media.animation import ANIMATION_TYPES
from visioneval.media.video import can_read_videos, without_metadata
from visioneval.records.labels import PAIR_ANSWERS, Answer
from visioneval.records.model import Record, RunInfo
from visioneval.records.untrusted import file_inside
from visioneval.suite.case import BASE_ROLE, TestCase, rendered
from visioneval.suite.files import Trust
from visioneval.suite.labels import VERDICT, WHY, LabelQuestion, resolve_labels
from visioneval.suite.model import Suite
from visioneval.types import CaseFiles

if TYPE_CHECKING:
    from PIL import Image

_MASKS = {"editable": "Mask: may change", "clothing": "Mask: clothing", "occluders": "Mask: in front"}
ImageEntry = dict[str, str]
_OPTIONAL = ("tags", "text")
MAX_PLACES = 40
"""Places with text that an item shows."""
_Pixel = Annotated[float, Field(ge=-100_000, le=100_000)]
_Corner = tuple[_Pixel, _Pixel]
_BOX: TypeAdapter[Box] = TypeAdapter(tuple[_Corner, _Corner, _Corner, _Corner])
_OTHER_SIDE = {"a": "b", "b": "a"}
VIDEO_TYPES = ("video/mp4", "video/webm", "video/quicktime")
_DIMMED_OPACITY = 0.24
_BORDER_COLOR = (214, 40, 98)
_TEXT_SIDE, _MOST_ENLARGED = 96, 4
_MOST_WIDE, _MOST_HIGH = 1200, 400
_GAP, _BETWEEN = 12, (236, 236, 236)
Box = tuple[tuple[float, float], ...]
"""Four corners in pixels, clockwise from the top left of a text."""


class ItemView:
    """Converts items to data for the page. ``folder`` is that of the run, ``other`` that of the compared run.

    A run may be untrusted: its images are read only from its folder, and case files only from the working directory.
    Other files count as missing.
    """

    def __init__(self, info: RunInfo, folder: Path, other: Path, media: MediaStore) -> None:
        self._info = info
        self._folder = folder
        self._other = other
        self._media = media
        self._suite = Path(info.suite_path).parent
        self._trust = Trust.for_run_suite()
        self._cases = {case.id: case for case in info.suite.cases}

    def item(self, item: Item) -> dict[str, Any]:
        """The item without its questions."""
        record = item.subject.record
        case = self._cases.get(record.test_id)
        criteria = (case.criteria or None) if case else None
        if case and criteria:
            with suppress(TemplateError):
                criteria = rendered(case, self._info.suite.vars)[1]
        return {
            "id": item.id,
            "case": record.test_id,
            # the outputs of a pair may be of two prompts: both are compared with what the case asks for
            "prompt": record.shown_prompt if item.subject.other is None else record.prompt,
            "criteria": criteria,
            "region": case.region if case else None,
            "text": "\n".join(case.expect.text.required) if case and case.expect.text else None,
            "stages": self._stages(item, case),
        }

    def outputs(self, item: Item) -> list[str]:
        """The ids of the first images, so that the page can prefetch them."""
        stages = self._stages(item, self._cases.get(item.subject.record.test_id))
        return [image["id"] for stage in stages[:2] for image in stage["images"] if image["kind"] == "image"]

    def _stages(self, item: Item, case: TestCase | None) -> list[dict[str, Any]]:
        """The views of an item, each with one or two images. The first shows the labeled output."""
        sides = self._sides(item)
        files = self._info.suite.files_of(case, self._suite) if case else CaseFiles()
        generated = [self._output(item, *side) for side in sides]
        # later turns edit the outputs of the turns before, each in its run
        edited = [
            self._image(item, f"Input of {title}" if len(sides) > 1 else "Input", file_inside(folder, record.base_path))
            for title, record, folder in sides
            if record.base_path is not None
        ]
        stages = [("A and B" if len(sides) > 1 else "Result", generated)]
        stages += [("Input", edited)] if edited else []
        for index, (_, path) in enumerate(files.images):
            role = case.shown_roles[index] if case else BASE_ROLE
            title = "Input" if role == BASE_ROLE else f"Input: {role}"
            stages.append((title, [self._image(item, title, self._input(path), f"input {index}")]))
        both = [*(edited or [image for _, images in stages[1:2] for image in images]), *generated]
        if len(both) == 2 and len(sides) == 1:
            stages.insert(2, ("Both", both))
        for name, path in files.masks.items():
            title, mask = _MASKS.get(name, name), self._input(path)
            source = partial(mask_overlay, mask, self._base(item, files)) if mask else None
            stages.append((title, [self._put(item, f"mask {name}", title, "image", source)]))
        if files.reference:
            stages.append(("Expected", [self._image(item, "Expected", self._input(files.reference), "reference")]))
        boxes, output = _text_boxes(item.subject.record), file_inside(self._folder, item.subject.record.artifact_path)
        if boxes and output and len(sides) == 1 and generated[0]["kind"] == "image":
            stages.append(("Text", [self._put(item, "text", "Text", "image", partial(text_places, output, boxes))]))
        return [{"title": title, "images": images} for title, images in stages]

    def _sides(self, item: Item) -> list[tuple[str, Record, Path]]:
        """The one or two records of an item as they are shown, each with its title and the folder of its run."""
        subject = item.subject
        if subject.other is None:
            return [("Result", subject.record, self._folder)]
        sides = [(subject.record, self._folder), (subject.other, self._other)]
        sides = sides[::-1] if item.swapped else sides
        return [(title, *side) for title, side in zip("AB", sides, strict=True)]

    def _base(self, item: Item, files: CaseFiles) -> Path | None:
        """The image to edit, if it may be read. Masks are for that of the labeled output."""
        if item.subject.record.base_path is not None:
            return file_inside(self._folder, item.subject.record.base_path)
        return self._input(files.base) if files.base else None

    def _output(self, item: Item, title: str, record: Record, folder: Path) -> ImageEntry:
        path = file_inside(folder, record.artifact_path)
        if path and record.mime in VIDEO_TYPES:
            return self._put(item, title, title, "video", partial(load_video, path, record.mime))
        if path and record.mime in ANIMATION_TYPES.values():
            return self._put(item, title, title, "image", partial(load_animation, path))
        return self._image(item, title, path)

    def _input(self, path: Path) -> Path | None:
        """A file of a case, if it exists and may be read."""
        return path if self._trust.refusal(str(path), Path()) is None and path.is_file() else None

    def _image(self, item: Item, title: str, path: Path | None, name: str = "") -> ImageEntry:
        return self._put(item, name or title, title, "image", partial(load_image, path) if path else None)

    def _put(self, item: Item, name: str, title: str, kind: str, source: Source | None) -> ImageEntry:
        key = self._media.put(item.id, name, source or missing_image)
        return {"id": key, "title": title, "kind": kind if source else "missing"}


def _text_boxes(record: Record) -> list[Box]:
    """Where OCR read any text, in its order: neither what it read, nor whether that is right or wrong.

    A record may be a stranger's: what is not four points in an image is left out.
    """
    for grader in record.graders:
        for details in grader.all_details if grader.type == "text" else ():
            for reading in (details, details.get("ocr")):
                lines = reading.get("lines") if isinstance(reading, dict) else None
                boxes: list[Box] = []
                for line in lines if isinstance(lines, list) else ():
                    with suppress(ValidationError):
                        boxes.append(_BOX.validate_python(line.get("box") if isinstance(line, dict) else None))
                if boxes:
                    return boxes[:MAX_PLACES]
    return []


def questions_for(suite: Suite, *, of_pairs: bool) -> tuple[LabelQuestion, ...]:
    """The questions of a suite about cells, or about pairs, which have a default. Raises ``UsageError``."""
    if of_pairs:
        pairs = suite.resolved_labels.pairs or resolve_labels(None, (), ()).pairs
        which = [LabelQuestion(key=pair.key, ask=pair.ask, type="one_of", choices=PAIR_ANSWERS) for pair in pairs]
        whys = [LabelQuestion(key=f"{pair.key}{WHY}", ask="Why?", type="text") for pair in pairs]
        return tuple(chain.from_iterable(zip(which, whys, strict=True)))
    if not suite.resolved_labels.questions:
        raise UsageError("the suite has only questions about pairs; add --pairs OTHER_RUN")
    return suite.resolved_labels.questions


def applies(question: LabelQuestion, record: Record) -> bool:
    """Whether a question is about a cell's task, and about a metric that the cell has."""
    if question.tasks and record.task_type not in question.tasks:
        return False
    return not question.metrics or any(name == VERDICT or name in record.scores for name in question.metrics)


def page_question(question: LabelQuestion, item: Item) -> dict[str, Any]:
    """A question about an item as data for the page, which shows the two images of a pair with keys of their own."""
    return {
        "key": question.key,
        "ask": question.ask,
        "type": "pair" if item.subject.other is not None and question.choices else question.type,
        "choices": question.choices or question.steps,
        "step": question.step,
        "ends": question.end_texts,
        "required": question.type not in _OPTIONAL,
    }


def page_answer(question: LabelQuestion, value: Any) -> Answer:
    """Converts a value from the page to an answer. Raises ``UsageError`` if it is missing or invalid."""
    if question.type == "tags":
        value = question.in_order([] if value is None else value)
    if question.type == "text" and isinstance(value, str):
        value = value.strip() or None
    problem = question.answer_problem(value)
    if problem or (value is None and question.type not in _OPTIONAL):
        raise UsageError(f"{question.key}: {problem or 'not answered'}")
    answer: Answer = value  # answer_problem() accepts nothing else
    return answer


def swap_sides(item: Item, answers: Mapping[str, Answer], questions: Mapping[str, LabelQuestion]) -> dict[str, Answer]:
    """Converts answers to these questions between the images of a pair and the sides they were shown on."""
    is_swapped = item.subject.other is not None and item.swapped
    return {
        key: _OTHER_SIDE.get(str(answers[key]), answers[key]) if is_swapped and question.choices else answers[key]
        for key, question in questions.items()
        if key in answers
    }


@dataclass(frozen=True, slots=True)
class ServedMedia:
    """The data of one image or video for the page."""

    data: bytes
    mime: str


Source = Callable[[], ServedMedia]


class MediaStore:
    """Images by id. An id is valid once its item was shown; images are decoded on request."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._sources: dict[str, Source] = {}
        self._lock = threading.Lock()

    def put(self, item: str, name: str, source: Source) -> str:
        """Registers an image of an item and returns its id."""
        key = rank(self._seed, "image", item, name)
        with self._lock:
            self._sources.setdefault(key, source)
        return key

    def get(self, key: str) -> ServedMedia | None:
        """The image, or ``None`` for an unknown id. Raises ``ImageError``."""
        with self._lock:
            source = self._sources.get(key)
        return None if source is None else source()


def load_image(path: Path) -> ServedMedia:
    """An image in display orientation, with its transparency: the page shows squares behind it."""
    from visioneval.media.images import load_image as load

    return _png(load(path))


def load_video(path: Path, mime: str) -> ServedMedia:
    """A video without metadata, or unchanged if ``can_read_videos`` is false."""
    from visioneval.media.images import read

    return ServedMedia(_rewritten(without_metadata, path) if can_read_videos() else read(path), mime)


def load_animation(path: Path) -> ServedMedia:
    """An animation as a new WebP, which the page shows as an image."""
    from visioneval.media.animation import as_webp

    return ServedMedia(_rewritten(as_webp, path), "image/webp")


def _rewritten(rewrite: Callable[[Path], bytes], path: Path) -> bytes:
    try:
        return _rewritten_once(rewrite, path, path.stat().st_mtime_ns)
    except OSError as error:
        raise ImageError(f"cannot read: {error.strerror or error}") from None


@lru_cache(maxsize=4)
def _rewritten_once(rewrite: Callable[[Path], bytes], path: Path, _mtime: int) -> bytes:
    return rewrite(path)


def missing_image() -> ServedMedia:
    """The source of a file that is missing or must not be read."""
    raise ImageError("no image available")


def mask_overlay(mask: Path, base: Path | None) -> ServedMedia:
    """A mask over its base image: the outside is dimmed, the border is outlined. Without a base, white is inside."""
    from visioneval.media.images import load_image as load
    from visioneval.media.images import load_mask, on_checkerboard

    inside = load_mask(mask)
    base_image = on_checkerboard(load(base)) if base is not None else None
    return _png(inside if base_image is None or base_image.size != inside.size else _highlight(base_image, inside))


def text_places(path: Path, boxes: Sequence[Box]) -> ServedMedia:
    """The places of an image with text, each enlarged and upright, one below the other."""
    from PIL import Image

    from visioneval.media.images import load_image as load
    from visioneval.media.images import on_checkerboard

    image = on_checkerboard(load(path))
    crops = [_upright(image, box) for box in boxes]
    size = max(crop.width for crop in crops), sum(crop.height + _GAP for crop in crops) - _GAP
    sheet, top = Image.new("RGB", size, _BETWEEN), 0
    for crop in crops:
        sheet.paste(crop, (0, top))
        top += crop.height + _GAP
    return _png(sheet)


def _upright(image: Image.Image, box: Box) -> Image.Image:
    """The place of a text with a margin of half its smaller side, turned so that the text is upright."""
    from PIL import Image

    first, second, _, fourth = (complex(*corner) for corner in box)
    along, down = second - first, fourth - first
    margin = min(abs(along), abs(down)) / 2
    right, below = (margin * side / (abs(side) or 1) for side in (along, down))
    origin, along, down = first - right - below, along + 2 * right, down + 2 * below
    wide, high = max(abs(along), 1), max(abs(down), 1)
    scale = min(max(_TEXT_SIDE / high, 1), _MOST_ENLARGED, _MOST_WIDE / wide, _MOST_HIGH / high)
    corners = (origin, origin + down, origin + down + along, origin + along)
    data = tuple(value for corner in corners for value in (corner.real, corner.imag))
    size = max(1, round(wide * scale)), max(1, round(high * scale))
    return image.transform(size, Image.Transform.QUAD, data, Image.Resampling.BICUBIC, fillcolor=_BETWEEN)


def _highlight(base: Image.Image, inside: Image.Image) -> Image.Image:
    from PIL import Image, ImageChops, ImageFilter

    gray = base.convert("L").convert("RGB")
    dimmed = Image.blend(Image.new("RGB", base.size, (128, 128, 128)), gray, _DIMMED_OPACITY)
    marked = Image.composite(base, dimmed, inside)
    size = 2 * max(1, max(base.size) // 250) + 1
    border = ImageChops.subtract(inside.filter(ImageFilter.MaxFilter(size)), inside)
    return Image.composite(Image.new("RGB", base.size, _BORDER_COLOR), marked, border)


def _png(image: Image.Image) -> ServedMedia:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return ServedMedia(buffer.getvalue(), "image/png")
