"""A dataset cell as an existing output: paths, URLs, Vertex contents, and invalid cells."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from toys import Toy

from visioneval.suite.files import ExistingOutput, output_of_cell


def contents(*parts: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": list(parts)}]}


FILE = {"file_data": {"mime_type": "video/mp4", "file_uri": "gs://b/a.mp4"}}


@pytest.mark.parametrize(
    ("cell", "result"),
    [
        ("a.png", {"path": "a.png"}),
        ("s3://b/a b.png", {"path": "s3://b/a b.png"}),
        (contents(FILE), {"path": "gs://b/a.mp4", "mime": "video/mp4"}),
        (json.dumps(contents(FILE)), {"path": "gs://b/a.mp4", "mime": "video/mp4"}),
        (contents({"text": "Look:"}, FILE), {"path": "gs://b/a.mp4", "mime": "video/mp4"}),
        (contents({"fileData": {"fileUri": "gs://b/x"}}), {"path": "gs://b/x"}),
        ({"contents": {"parts": [FILE]}}, {"path": "gs://b/a.mp4", "mime": "video/mp4"}),
        (None, {"problem": "the row has no output: fill in its path"}),
        ("", {"problem": "the row has no output: fill in its path"}),
        ("{not json", {"problem": "the value is neither a path nor valid JSON"}),
        ({}, {"problem": "the value has no contents with a file_uri"}),
        (contents(), {"problem": "the value has no contents with a file_uri"}),
        (contents({"file_data": {"file_uri": 5}}), {"problem": "the value has no contents with a file_uri"}),
        (contents({"file_data": "gs://b/x"}, 7), {"problem": "the value has no contents with a file_uri"}),
        ({"contents": [5, {"parts": 5}]}, {"problem": "the value has no contents with a file_uri"}),
        (5, {"problem": "the value is not a path"}),
        (["a.png"], {"problem": "the value is not a path"}),
        ("a\nb", {"problem": "the value is not a path"}),
    ],
)
def test_existing_outputs_of_a_cell(cell: Any, result: dict[str, str]) -> None:
    assert output_of_cell(cell, "d.jsonl:3") == {**result, "row": "d.jsonl:3"}
    assert ExistingOutput.model_validate(output_of_cell(cell, "d.jsonl:3")).row == "d.jsonl:3"


def test_a_image_has_a_path_or_a_problem() -> None:
    for wrong in ({}, {"path": "a", "problem": "b"}):
        with pytest.raises(ValidationError):
            ExistingOutput.model_validate(wrong)


def test_rows_that_cannot_be_read_are_errors_that_name_their_line(toy: Toy) -> None:
    toy.outputs("a.png")
    (toy.folder / "text.png").write_text("I am no image")
    cells = ["a.png", "gone.png", "text.png", '{"contents": []}', "{cut", ""]
    rows = [{"p": f"prompt {at}", "f": cell, "m": "m"} for at, cell in enumerate(cells)]
    (toy.folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = toy.write(models=[{"provider": "files"}])
    fields = {"prompt": "p", "output": "f", "model": "m"}
    data = json.loads(path.read_text()) | {"cases": [{"dataset": {"path": "d.jsonl", "fields": fields}}]}
    path.write_text(json.dumps(data))
    assert toy("run", path, "--trust-suite").exit_code == 3
    result = {record.prompt: record for record in toy.records.values()}
    assert result["prompt 0"].verdict == "PASS"
    expected_message = {prompt: record.error.message for prompt, record in result.items() if record.error}
    assert expected_message == {
        "prompt 1": "d.jsonl:2: gone.png: No such file or directory",
        "prompt 2": "d.jsonl:3: not a supported image (supported: png, jpeg, webp, gif, bmp, tiff, svg)",
        "prompt 3": "d.jsonl:4: the value has no contents with a file_uri",
        "prompt 4": "d.jsonl:5: the value is neither a path nor valid JSON",
        "prompt 5": "d.jsonl:6: the row has no output: fill in its path",
    }
