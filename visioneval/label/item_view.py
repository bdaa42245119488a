"""What the page is told of an item: nothing that names a model, a file, a score, a verdict or the item's turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visioneval.errors import TemplateError
from visioneval.label.images import VIDEO_TYPES, MediaStore, Source, load_image, load_video, mask_overlay, missing
from visioneval.label.sampling import Item
from visioneval.records.links import file_inside
from visioneval.records.model import Record, RunInfo
from visioneval.suite.case import TestCase
from visioneval.suite.loading.paths import Trust
from visioneval.suite.prompts import rendered
from visioneval.types import CaseFiles

_MASKS = {"editable": "Mask: may change", "clothing": "Mask: clothing", "occluders": "Mask: in front"}
Shown = dict[str, str]


class ItemView:
    """Turns items into what the page shows. ``folder`` is the run's, ``other`` that of the run it is held against.

    A run may come from a stranger: its own images are taken from its folder alone, and a case's files from the
    working directory alone. The others are missing.
    """

    def __init__(self, info: RunInfo, folder: Path, other: Path, shelf: MediaStore) -> None:
        self._info = info
        self._folder = folder
        self._other = other
        self._shelf = shelf
        self._suite = Path(info.suite_path).parent
        self._trust = Trust.of_held_suite()
        self._cases = {case.id: case for case in info.suite.cases}

    def item(self, item: Item) -> dict[str, Any]:
        """The item without its questions."""
        record = item.subject.record
        case = self._cases.get(record.test_id)
        return {
            "id": item.id,
            "case": record.test_id,
            "prompt": record.prompt,
            "criteria": self._criteria(case),
            "region": case.region if case else None,
            "stages": self._stages(item, case),
        }

    def outputs(self, item: Item) -> list[str]:
        """The ids of what is seen first, so that the page can fetch it before it is needed."""
        stages: list[dict[str, Any]] = self.item(item)["stages"]
        return [shown["id"] for stage in stages[:2] for shown in stage["images"] if shown["kind"] == "image"]

    def _criteria(self, case: TestCase | None) -> str | None:
        if case is None or not case.criteria:
            return None
        try:
            return rendered(case, self._info.suite.vars)[1]
        except TemplateError:
            return case.criteria

    def _stages(self, item: Item, case: TestCase | None) -> list[dict[str, Any]]:
        """What can be looked at, one thing or two side by side at a time; the first is what is asked about."""
        generated = self._generated(item)
        stages = [{"title": "A and B" if len(generated) > 1 else "Result", "images": generated}]
        files = self._info.suite.files_of(case, self._suite) if case else CaseFiles()
        for index, (role, path) in enumerate(files.images):
            title = "Input" if role == "base" else f"Input: {role}"
            shown = self._shown(item, f"input {index}", title, self._input(path))
            stages.append({"title": title, "images": [shown]})
            if index == 0 and len(generated) == 1:
                stages.append({"title": "Both", "images": [shown, *generated]})
        for name, path in files.masks.items():
            title, mask = _MASKS.get(name, name), self._input(path)
            base = self._input(files.base) if files.base else None
            source = mask_overlay(mask, base) if mask else None
            stages.append({"title": title, "images": [self._put(item, f"mask {name}", title, "image", source)]})
        if files.reference:
            shown = self._shown(item, "reference", "Expected", self._input(files.reference))
            stages.append({"title": "Expected", "images": [shown]})
        return stages

    def _generated(self, item: Item) -> list[Shown]:
        subject = item.subject
        if subject.other is None:
            return [self._output(item, "Result", subject.record, self._folder)]
        sides = [(subject.record, self._folder), (subject.other, self._other)]
        if item.swapped:
            sides.reverse()
        return [self._output(item, title, *side) for title, side in zip("AB", sides, strict=True)]

    def _output(self, item: Item, title: str, record: Record, folder: Path) -> Shown:
        path = file_inside(folder, record.artifact_path)
        if record.mime in VIDEO_TYPES:
            return self._put(item, title, title, "video", load_video(path, record.mime) if path else None)
        return self._shown(item, title, title, path)

    def _input(self, path: Path) -> Path | None:
        """A file of a case, where it is there and may be read."""
        return path if self._trust.refusal(str(path), Path()) is None and path.is_file() else None

    def _shown(self, item: Item, name: str, title: str, path: Path | None) -> Shown:
        return self._put(item, name, title, "image", load_image(path) if path else None)

    def _put(self, item: Item, name: str, title: str, kind: str, source: Source | None) -> Shown:
        key = self._shelf.put(item.id, name, source or missing)
        return {"id": key, "title": title, "kind": kind if source else "missing"}
