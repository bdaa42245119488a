"""Turns where people look at runs: show, report, tables, the labeling page, and probes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from edited_turns import CAT, TURNS, TurnRuns
from fake_api import FakeAPI, Script
from PIL import Image

from visioneval.label.labeling import Labeling
from visioneval.label.work import LabelRequest, prepare
from visioneval.media.images import encode_png


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TurnRuns]:
    """The runs ``a`` and ``b``, whose outputs differ; read-only."""
    with FakeAPI(Script()) as api, pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("turns")
        patch.chdir(folder)
        patch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
        patch.setenv("LOCAL_KEY", api.key)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        runner = TurnRuns(folder, api)
        later = {"prompt": TURNS[1], "images": ["base.png"]}
        runner.write(cases=[{**CAT, "turns": [TURNS[0], later]}])
        assert runner.run(run_id="a").exit_code == 0
        runner.salts = dict.fromkeys(TURNS, "b")
        assert runner.run(run_id="b").exit_code == 0
        yield runner


def test_show_prints_a_turn_or_all_turns(runs: TurnRuns) -> None:
    second = runs("show", runs.out / "a", "cat/2").output
    assert "make it green" in second
    assert "make it red" not in second
    assert "edits      artifacts/cat/1/m/0.png" in second
    assert "inputs  base.png (image 2)" in second
    whole = runs("show", runs.out / "a", "cat").output
    assert whole.index("make it red") < whole.index("make it green")
    assert "inputs  base.png (base)" in whole
    assert "no case 'cat/3' in this run" in runs("show", runs.out / "a", "cat/3").output


def test_the_report_shows_the_image_that_a_turn_edits(runs: TurnRuns, tmp_path: Path) -> None:
    assert runs("report", runs.out / "a", "-o", tmp_path / "page").exit_code == 0
    script = (tmp_path / "page" / "data" / "details-0.js").read_text()
    cells = {cell["record"]["artifact_path"]: cell for cell in json.loads(script[script.index(",") + 1 : -3])}
    inputs = {path: [image["name"] for image in cell["inputs"]] for path, cell in cells.items()}
    first, second = "artifacts/cat/1/m/0.png", "artifacts/cat/2/m/0.png"
    assert inputs == {first: ["base.png"], second: [first, "base.png"]}
    assert [image["role"] for image in cells[second]["inputs"]] == ["base", "image 2"]
    shown = tmp_path / "page" / cells[second]["inputs"][0]["src"]
    assert shown.read_bytes() == (runs.out / "a" / first).read_bytes()


def test_a_table_has_the_image_that_a_turn_edits(runs: TurnRuns) -> None:
    rows = list(csv.DictReader(io.StringIO(runs("export", runs.out / "a", "--format", "csv").stdout)))
    assert [(row["test_id"], row["base_path"]) for row in rows] == [("cat/1", ""), ("cat/2", "artifacts/cat/1/m/0.png")]


def stages(runs: TurnRuns, case: str, **request: Any) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """By title of a view of the labeling page: the titles and colors of its images."""
    labeling = Labeling(prepare(LabelRequest(str(runs.out / "a"), runs.out, **request)))
    for _ in range(9):
        item = labeling.next("ann")["item"]
        if item["case"] == case:
            break
        labeling.skip("ann", item["id"], 1.0)
    assert item["case"] == case
    return {
        stage["title"]: [(image["title"], _color(labeling, image["id"])) for image in stage["images"]]
        for stage in item["stages"]
    }


def _color(labeling: Labeling, key: str) -> tuple[int, ...]:
    media = labeling.media.get(key)
    assert media is not None
    with Image.open(io.BytesIO(media.data)) as handle:
        return tuple(handle.convert("RGB").getpixel((1, 1)))  # type: ignore[arg-type]


def color_of(runs: TurnRuns, run: str, case: str) -> tuple[int, ...]:
    with Image.open(runs.out / run / "artifacts" / case / "m" / "0.png") as handle:
        return tuple(handle.convert("RGB").getpixel((1, 1)))  # type: ignore[arg-type]


def test_raters_see_the_image_that_a_turn_edits(runs: TurnRuns) -> None:
    views = stages(runs, "cat/2")
    first, second = color_of(runs, "a", "cat/1"), color_of(runs, "a", "cat/2")
    assert views == {
        "Result": [("Result", second)],
        "Input": [("Input", first)],
        "Both": [("Input", first), ("Result", second)],
        "Input: image 2": [("Input: image 2", (255, 255, 255))],
    }


def test_raters_of_a_pair_see_the_image_that_each_side_edits(runs: TurnRuns) -> None:
    views = stages(runs, "cat/2", pairs=str(runs.out / "b"))
    inputs = {color_of(runs, run, "cat/2"): color_of(runs, run, "cat/1") for run in "ab"}
    (_, a), (_, b) = views["A and B"]
    assert views["Input"] == [("Input of A", inputs[a]), ("Input of B", inputs[b])]
    assert "Both" not in views


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: FakeAPI) -> TurnRuns:
    """A run in which the second turn changes half of what the first one generated, as its mask allows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)
    runner = TurnRuns(tmp_path, api)
    blocks = Image.frombytes("L", (8, 8), Random(1).randbytes(64))
    blocks.resize((64, 64), Image.Resampling.NEAREST).convert("RGB").save(tmp_path / "base.png")
    mask = Image.new("RGBA", (64, 64), (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), (0, 0, 32, 64))
    mask.save(tmp_path / "m.png")

    def edit(request: Any) -> bytes:
        with Image.open(io.BytesIO(request.images[0].data)) as handle:
            image = handle.convert("RGB")
        at = (32, 0, 64, 64) if "first" in request.prompt else (0, 0, 32, 64)
        image.paste(image.crop(at).rotate(180), at)
        return encode_png(image)

    api.script.generate(edit)
    case = {"id": "cat", "images": ["base.png"], "turns": ["first", {"prompt": "second", "mask": "m.png"}]}
    place = {"key": "place", "type": "locality"}
    runner.write(
        cases=[case],
        graders=[place, {"key": "file", "type": "properties"}],
        verdict=["place", "file"],
        prices={"openai:gpt-image-2": {"per_image": 0.04}},
        judges={},
    )
    return runner


def test_locality_and_probes_compare_a_turn_with_the_output_of_the_turn_before(edited: TurnRuns) -> None:
    done = edited.run()
    assert done.exit_code == 0, done.output
    second = edited.turns()[1]
    assert second.scores["place.changed_outside"] == 0  # the first turn changed all of this part
    assert second.scores["place.changed_inside"] > 0.2  # type: ignore[operator]
    probed = edited("probe", edited.out / "r", "--kinds", "pixels.patch", "--kinds", "pixels.blank")
    assert "probing place, file with up to" in probed.output
    assert "2 outputs" in probed.output
    assert "does not pass as it is" not in probed.output
    (edited.out / "r" / str(second.base_path)).write_bytes((edited.folder / "base.png").read_bytes())
    changed = edited("probe", edited.out / "r", "--kinds", "pixels.blank").output
    assert "the image that it edits was changed after it was generated" in " ".join(changed.split())


def test_a_suite_without_a_run_cannot_probe_later_turns(edited: TurnRuns) -> None:
    probed = edited("probe", "suite.yaml", "--kinds", "pixels.blank").output
    assert "edits an output that only a run has: probe that run" in " ".join(probed.split())


def test_existing_outputs_of_turns_are_probed_on_those_of_the_turn_before(edited: TurnRuns) -> None:
    assert edited.run().exit_code == 0
    outputs = edited.folder / "out"
    (edited.out / "r" / "artifacts").rename(outputs)
    edited.edit(models=[{"provider": "files", "label": "m", "path": "out/{case}/m/0.png"}], prices={})
    probed = edited("probe", "suite.yaml", "--kinds", "pixels.blank").output
    assert "2 outputs" in probed
    assert "skipped" not in probed
