import asyncio
from pathlib import Path
from types import SimpleNamespace

from acme_circles import CountGrader
from PIL import Image

from visioneval import grading_context


def test_a_wrong_count_fails(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    case = {"things": "circles", "count": 3}
    context = grading_context(tmp_path / "image.png", metadata=case, answers={"count": 2})
    grader = CountGrader(SimpleNamespace(key="count", options=CountGrader.Options()))
    assert asyncio.run(grader.grade(context)).scores == {"count": False, "count.counted": 2}
