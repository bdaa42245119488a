"""What the page is told of an item: nothing that names a model, a file, a score, a verdict or the item's turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visioneval.errors import TemplateError
from visioneval.label.deck import Item
from visioneval.label.pictures import FILMS, Shelf, film, mask_over, picture
from visioneval.records import Record, RunInfo
from visioneval.suite.case import TestCase
from visioneval.suite.prompts import rendered
from visioneval.types import CaseFiles

_MASKS = {"editable": "Mask: may change", "clothing": "Mask: clothing", "occluders": "Mask: in front"}
Shown = dict[str, str]


class Viewer:
    """Turns items into what the page shows. ``folder`` is the run's, ``other`` that of the run it is held against."""

    def __init__(self, info: RunInfo, folder: Path, other: Path, shelf: Shelf) -> None:
        self._info = info
        self._folder = folder
        self._other = other
        self._shelf = shelf
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

    def pictures(self, item: Item) -> list[str]:
        """The ids of what is seen first, so that the page can fetch it before it is needed."""
        stages: list[dict[str, Any]] = self.item(item)["stages"]
        return [shown["id"] for stage in stages[:2] for shown in stage["pictures"] if shown["kind"] == "image"]

    def _criteria(self, case: TestCase | None) -> str | None:
        if case is None or not case.criteria:
            return None
        try:
            return rendered(case, self._info.suite.vars)[1]
        except TemplateError:
            return case.criteria

    def _stages(self, item: Item, case: TestCase | None) -> list[dict[str, Any]]:
        """What can be looked at, one thing or two side by side at a time; the first is what is asked about."""
        drawn = self._drawn(item)
        stages = [{"title": "A and B" if len(drawn) > 1 else "Result", "pictures": drawn}]
        files = self._info.suite.files_of(case, Path(self._info.suite_path).parent) if case else CaseFiles()
        for index, (role, path) in enumerate(files.images):
            title = "Input" if role == "base" else f"Input: {role}"
            shown = self._shown(item, f"input {index}", title, path)
            stages.append({"title": title, "pictures": [shown]})
            if index == 0 and len(drawn) == 1:
                stages.append({"title": "Side by side", "pictures": [shown, *drawn]})
        for name, path in files.masks.items():
            key = self._shelf.put(item.id, f"mask {name}", mask_over(path, files.base))
            title = _MASKS.get(name, name)
            stages.append({"title": title, "pictures": [{"id": key, "title": title, "kind": "image"}]})
        if files.reference:
            stages.append(
                {"title": "Expected", "pictures": [self._shown(item, "reference", "Expected", files.reference)]}
            )
        return stages

    def _drawn(self, item: Item) -> list[Shown]:
        subject = item.subject
        if subject.other is None:
            return [self._output(item, "Result", subject.record, self._folder)]
        sides = [(subject.record, self._folder), (subject.other, self._other)]
        if item.swapped:
            sides.reverse()
        return [self._output(item, title, *side) for title, side in zip("AB", sides, strict=True)]

    def _output(self, item: Item, title: str, record: Record, folder: Path) -> Shown:
        path = folder / str(record.artifact_path)
        if record.mime in FILMS:
            key = self._shelf.put(item.id, title, film(folder, path, record.mime))
            return {"id": key, "title": title, "kind": "film"}
        return self._shown(item, title, title, path)

    def _shown(self, item: Item, name: str, title: str, path: Path) -> Shown:
        kind = "image" if path.is_file() else "missing"
        return {"id": self._shelf.put(item.id, name, picture(path)), "title": title, "kind": kind}
