"""The ``crop`` tool: lets a judge zoom into an image, and further into the crop.

Every image has a current view, at most 1,024 pixels on a side. A crop is given in whole pixels of the current view,
half open (``x2`` and ``y2`` are excluded), and becomes the current view. Four zeros reset to the whole image. A view of
an image with transparency has the same transparency.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image, ImageDraw

from visioneval.judging.attachments import Attachment
from visioneval.media import images
from visioneval.providers.base import ImagePart, Part, Tool

MAX_SIDE = 1024
MAX_ENLARGEMENT = 8
GRID = 128
SaveCrop = Callable[[int, bytes], str]

_COORDINATE = {"type": "integer", "minimum": 0}
_PARAMETERS = ("image_id", "x1", "y1", "x2", "y2")


@dataclass(frozen=True, slots=True)
class CropView:
    """A rectangle of an image, in the image's pixels, shown at ``size``."""

    left: float
    top: float
    right: float
    bottom: float
    size: tuple[int, int]

    def crop(self, x1: int, y1: int, x2: int, y2: int) -> CropView:
        """The view of a part of this view."""
        across, down = (self.right - self.left) / self.size[0], (self.bottom - self.top) / self.size[1]
        left, top = self.left + x1 * across, self.top + y1 * down
        # Rounding may put an edge a hair beyond the image's, which Pillow refuses.
        right, bottom = min(self.left + x2 * across, self.right), min(self.top + y2 * down, self.bottom)
        return _view(left, top, right, bottom, MAX_ENLARGEMENT)

    def render(self, image: Image.Image) -> Image.Image:
        """The view of an image, with grid lines."""
        box = (self.left, self.top, self.right, self.bottom)
        resized = image.resize(self.size, Image.Resampling.LANCZOS, box=box)
        lines = Image.new("RGBA", resized.size, (0, 0, 0, 0))
        pen = ImageDraw.Draw(lines)
        for x in range(GRID, resized.width, GRID):
            pen.line((x, 0, x, resized.height), fill=(128, 128, 128, 90))
        for y in range(GRID, resized.height, GRID):
            pen.line((0, y, resized.width, y), fill=(128, 128, 128, 90))
        return Image.alpha_composite(resized.convert("RGBA"), lines).convert(image.mode)


def _view(left: float, top: float, right: float, bottom: float, enlargement: float) -> CropView:
    """The view of a rectangle, as large as judges are shown it, at most so many times enlarged."""
    scale = min(MAX_SIDE / max(right - left, bottom - top), enlargement)
    size = max(1, round((right - left) * scale)), max(1, round((bottom - top) * scale))
    return CropView(left, top, right, bottom, size)


class CropTool:
    """The tool for one question, with its current views. It keeps no pixels in memory between calls.

    ``save(number, data)`` stores a crop and returns its path.
    """

    def __init__(self, attachments: Sequence[Attachment], max_crops: int, save: SaveCrop) -> None:
        self._parts = {attachment.id: attachment.part for attachment in attachments}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._names = {alias: attachment.id for attachment in attachments for alias in attachment.aliases}
        self._names |= {attachment.id: attachment.id for attachment in attachments}
        self._max_crops = max_crops
        self._save = save
        self._crops: list[Mapping[str, Any]] = []
        self.first_views = [replace(attachment, **self._first_view(attachment)) for attachment in attachments]
        self.reset()

    def reset(self) -> None:
        """Resets the views and the number of crops, for a judge that is asked again."""
        self._views = {name: _view(0, 0, *size, 1.0) for name, size in self._sizes.items()}
        self._crop_count = 0

    @property
    def crops(self) -> tuple[Mapping[str, Any], ...]:
        """The crops so far: image, requested rectangle, and path of the image that the judge saw."""
        return tuple(self._crops)

    @property
    def tool(self) -> Tool:
        """The definition of the tool."""
        properties: dict[str, Any] = {"image_id": {"type": "string", "enum": sorted(self._names)}}
        properties |= dict.fromkeys(_PARAMETERS[1:], _COORDINATE)
        return Tool(
            name="crop",
            description=(
                "Look closer at a part of an image. x1, y1, x2, y2 are whole pixels of the image's current view,"
                " x2 and y2 exclusive. The crop becomes the current view; four zeros show the whole image again."
            ),
            parameters={
                "type": "object",
                "properties": properties,
                "required": list(_PARAMETERS),
                "additionalProperties": False,
            },
            call=self._call,
        )

    def _first_view(self, attachment: Attachment) -> dict[str, Any]:
        data = attachment.part.data
        with images.room_for(data):
            image = images.load_image(data)
            self._sizes[attachment.id] = image.size
            view = _view(0, 0, *image.size, 1.0)
            image = image.resize(view.size, Image.Resampling.LANCZOS)
        description = f"{attachment.description}; this view has {view.size[0]} x {view.size[1]} pixels"
        return {"description": description, "part": ImagePart(images.encode_png(image), "image/png")}

    def _call(self, arguments: Mapping[str, Any]) -> Sequence[Part]:
        if self._crop_count >= self._max_crops:
            return [f"No crop is left ({self._max_crops} were allowed): answer now."]
        problem = self._problem(arguments)
        if problem:
            return [problem]
        name = self._names[arguments["image_id"]]
        rectangle = tuple(int(arguments[key]) for key in _PARAMETERS[1:])
        whole = not any(rectangle)
        self._views[name] = _view(0, 0, *self._sizes[name], 1.0) if whole else self._views[name].crop(*rectangle)
        view = self._views[name]
        whole_data = self._parts[name].data
        with images.room_for(whole_data):
            data = images.encode_png(view.render(images.load_image(whole_data)))
        path = self._save(len(self._crops), data)
        self._crop_count += 1
        self._crops.append({"image": name, "rectangle": list(rectangle), "path": path})
        label = f"{name}: {'the whole image' if whole else 'a crop'}, {view.size[0]} x {view.size[1]} pixels"
        return [f"{label}, grid lines every {GRID} pixels", ImagePart(data, "image/png")]

    def _problem(self, arguments: Mapping[str, Any]) -> str | None:
        name = arguments.get("image_id")
        if not isinstance(name, str) or name not in self._names:
            return f"There is no image {name!r:.60}. There are: {', '.join(sorted(self._names))}."
        numbers = [arguments.get(key) for key in _PARAMETERS[1:]]
        if not all(type(number) is int or (type(number) is float and number.is_integer()) for number in numbers):
            return "x1, y1, x2 and y2 must be whole numbers."
        x1, y1, x2, y2 = (int(number or 0) for number in numbers)
        width, height = self._views[self._names[name]].size
        if not any(numbers) or (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height):
            return None
        return (
            f"Bad rectangle ({x1}, {y1}, {x2}, {y2}): the current view has {width} x {height} pixels, so"
            f" 0 <= x1 < x2 <= {width} and 0 <= y1 < y2 <= {height} must hold."
        )
